//! A reader's side of the protocol, against peers that speak the other one.

use tokio::net::TcpListener;
use tokio::sync::mpsc;

use consensus::TermStart;
use pg_types::Term;
use wire::wal::WalFrame;

use super::*;

type Reported = mpsc::UnboundedReceiver<(FirstMessage, Vec<Feedback>)>;

async fn peer(commit_lsn: Lsn) -> (String, Reported) {
    peer_of(commit_lsn, history(&[(1, 8)])).await
}

fn history(entries: &[(u64, u64)]) -> TermHistory {
    let entries = entries.iter().map(|(term, lsn)| TermStart {
        term: Term(*term),
        start_lsn: Lsn(*lsn),
    });
    entries.collect()
}

fn ingested(entries: &[(u64, u64)], up_to: u64) -> Ingested {
    Ingested {
        terms: history(entries),
        up_to: Lsn(up_to),
    }
}

/// Speaks a safekeeper's side: answers with its commit LSN and history, sends a heartbeat, and reads to the end.
async fn peer_of(commit_lsn: Lsn, history: TermHistory) -> (String, Reported) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("address").to_string();
    let (sender, reported) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut frames =
                LengthDelimitedCodec::builder().new_framed(part_tls::Stream::from(stream));
            let first = frames.next().await.expect("a message").expect("a frame");
            let reply = ReadReply::Follows {
                commit_lsn,
                oldest_lsn: Lsn(8),
                history: history.clone(),
            };
            send(&mut frames, &reply).await.expect("reply");
            let heartbeat = StreamFrame::Wal(WalFrame {
                start_lsn: commit_lsn,
                commit_lsn,
                term: Term(1),
                sent_at_us: 0,
            });
            send(&mut frames, &heartbeat).await.expect("heartbeat");
            let mut feedback = Vec::new();
            while let Some(Ok(frame)) = frames.next().await {
                feedback.push(wire::wal::decode(&frame).expect("feedback"));
            }
            let first = wire::wal::decode(&first).expect("first message");
            let _ = sender.send((first, feedback));
        }
    });
    (address, reported)
}

fn source(safekeepers: Vec<String>) -> SafekeeperSource {
    source_of(watch::Sender::new(safekeepers).subscribe())
}

fn source_of(safekeepers: watch::Receiver<Vec<String>>) -> SafekeeperSource {
    SafekeeperSource {
        tenant: TenantId([1; 16]),
        timeline: TimelineId([2; 16]),
        safekeepers,
        reader: "pageserver".to_owned(),
        token: token::OwnToken::default(),
        dialer: part_tls::Dialer::default(),
    }
}

/// What comes of an attempt of a reader that has ingested up to `start` of the history.
async fn open_of(source: &SafekeeperSource, start: u64, ours: &Ingested) -> Opening {
    let standing = Standing {
        start: Lsn(start),
        in_vain: &[],
        ingested: Some(ours),
    };
    source.open_for(standing).await
}

async fn open(source: &SafekeeperSource) -> Box<dyn WalStream> {
    open_of(source, 8, &Ingested::default())
        .await
        .stream
        .expect("open")
}

/// Promise: every safekeeper that can be reached learns how far the reader is, so that all of them trim,
/// and the newest commit among them is found; one that is down or hangs is no obstacle.
#[tokio::test]
async fn all_safekeepers_are_told_how_far_the_reader_is() {
    let (first, mut told_first) = peer(Lsn(100)).await;
    let (second, mut told_second) = peer(Lsn(300)).await;
    let hung = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = |listener: &TcpListener| listener.local_addr().expect("address").to_string();
    let down = address(&gone);
    drop(gone);
    let answering = [first.clone(), second.clone()];
    let source = source(vec![down, first, address(&hung), second]);
    let feedback = WalFeedback {
        ingested_lsn: Lsn(90),
        remote_consistent_lsn: Lsn(80),
    };
    let reported = source.report(feedback, Some(&ingested(&[(1, 8)], 8))).await;
    assert_eq!(reported.commit_lsn, Lsn(300));
    assert_eq!(reported.agreeing, answering);
    for told in [&mut told_first, &mut told_second] {
        let (first, reported) = told.try_recv().expect("a report that was read to its end");
        let FirstMessage::Read(request) = first else {
            panic!("{first:?}")
        };
        assert!(request.holds_wal && request.reader == "pageserver");
        assert_eq!(reported, [wire_feedback(feedback)]);
    }
}

#[tokio::test]
async fn the_most_advanced_safekeeper_is_read() {
    let (behind, _behind) = peer(Lsn(100)).await;
    let (ahead, _ahead) = peer(Lsn(300)).await;
    let mut stream = open(&source(vec![behind, ahead])).await;
    assert_eq!(stream.next().await.expect("a chunk").commit_lsn, Lsn(300));
}

/// Promise: a safekeeper that was tried in vain is read again only when no other one has WAL.
#[tokio::test]
async fn one_that_was_tried_in_vain_comes_last() {
    let (bad, _bad) = peer(Lsn(300)).await;
    let (good, _good) = peer(Lsn(200)).await;
    let source = source(vec![bad.clone(), good.clone()]);
    let in_vain = [bad.clone()];
    let place = async |start: Lsn| {
        let ours = ingested(&[(1, 8)], start.0);
        let standing = Standing {
            start,
            in_vain: &in_vain,
            ingested: Some(&ours),
        };
        let stream = source.open_for(standing).await.stream.expect("open");
        stream.place().to_owned()
    };
    assert_eq!(place(Lsn(8)).await, good);
    assert_eq!(place(Lsn(200)).await, bad);
}

/// Promise: once a timeline has other safekeepers, the connection to one that went ends, a new one is read, and only
/// those of the new list are told how far the reader is.
#[tokio::test]
async fn a_removed_safekeeper_is_read_no_more() {
    let (removed, mut told_removed) = peer(Lsn(300)).await;
    let (stays, mut told_stays) = peer(Lsn(200)).await;
    let list = watch::Sender::new(vec![removed.clone(), stays.clone()]);
    let source = source_of(list.subscribe());
    let mut stream = open(&source).await;
    assert_eq!(stream.place(), removed);
    list.send_replace(vec![stays.clone(), removed.clone()]);
    stream.next().await.expect("another order changes nothing");
    list.send_replace(vec![stays.clone()]);
    let ended = stream.next().await.expect_err("ended");
    assert!(ended.to_string().contains("no longer"), "{ended}");
    drop(stream);
    assert!(told_removed.recv().await.is_some(), "the connection ended");
    assert_eq!(open(&source).await.place(), stays);
    let ours = ingested(&[(1, 8)], 8);
    let reported = source.report(WalFeedback::default(), Some(&ours)).await;
    assert_eq!(reported.commit_lsn, Lsn(200));
    assert!(told_stays.recv().await.is_some());
    assert!(told_removed.try_recv().is_err());
}

/// Promise: a timeline that was created without safekeepers begins to follow the first it is given.
#[tokio::test]
async fn nothing_is_followed_until_there_is_a_safekeeper() {
    let (first, _first) = peer(Lsn(300)).await;
    let list = watch::Sender::new(Vec::new());
    let source = source_of(list.subscribe());
    let opened = tokio::spawn(async move { open(&source).await.place().to_owned() });
    tokio::task::yield_now().await;
    assert!(!opened.is_finished());
    list.send_replace(vec![first.clone()]);
    assert_eq!(opened.await.expect("task"), first);
}

/// Promise: a safekeeper with another history is not read from, however much it has, nor told how far ingest is, nor
/// believed; without another safekeeper there is no stream, and both histories are named.
#[tokio::test]
async fn a_safekeeper_of_another_history_is_left_alone() {
    let ours = ingested(&[(1, 8), (2, 100)], 200);
    let (other, mut told_other) = peer_of(Lsn(900), history(&[(1, 8), (7, 90)])).await;
    let (good, mut told_good) = peer_of(Lsn(300), history(&[(1, 8), (2, 100), (3, 250)])).await;
    let (behind, _behind) = peer_of(Lsn(100), history(&[(1, 8)])).await;
    let both = source(vec![other.clone(), good.clone()]);
    let opening = open_of(&both, 200, &ours).await;
    assert_eq!(opening.stream.expect("open").place(), good);
    let [(place, why)] = &opening.others[..] else {
        panic!("{:?}", opening.others)
    };
    assert_eq!(*place, other);
    for part in ["another history", "2 from 0/64", "7 from 0/5A"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let feedback = WalFeedback {
        ingested_lsn: Lsn(200),
        remote_consistent_lsn: Lsn(200),
    };
    while told_other.try_recv().is_ok() {}
    let said = both.report(feedback, Some(&ours)).await;
    assert_eq!(said.commit_lsn, Lsn(300));
    // A safekeeper that keeps another history does not agree.
    assert_eq!(said.agreeing, [good.as_str()]);
    let [(place, why)] = &said.others[..] else {
        panic!("{:?}", said.others)
    };
    assert!(
        *place == other && why.contains("another history"),
        "{place}: {why}"
    );
    let (_, reported) = told_other.recv().await.expect("asked");
    assert!(reported.is_empty(), "{reported:?}");
    let mut is_told = async || {
        while let Some((_, reported)) = told_good.recv().await {
            if reported == [wire_feedback(feedback)] {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(5), is_told())
        .await
        .expect("the one that was read is told");

    let opening = open_of(&source(vec![other.clone()]), 200, &ours).await;
    assert!(opening.stream.is_err() && opening.others.len() == 1);
    let opening = open_of(&source(vec![other, behind.clone()]), 200, &ours).await;
    let stream = opening.stream.expect("one that is behind may catch up");
    assert_eq!(stream.place(), behind);
}

/// Promise: whose WAL a timeline has that does not know is what a majority of its safekeepers says; until there is
/// one, nothing is read.
#[tokio::test]
async fn an_unknown_history_is_asked_for() {
    let ours = history(&[(1, 8), (2, 100)]);
    let (other, _other) = peer_of(Lsn(900), history(&[(1, 8), (7, 90)])).await;
    let (good, _good) = peer_of(Lsn(300), ours.clone()).await;
    let (same, _same) = peer_of(Lsn(200), history(&[(1, 8), (2, 100), (3, 200)])).await;
    let standing = Standing {
        start: Lsn(200),
        ..Standing::default()
    };
    let few = source(vec![other.clone(), good.clone()]);
    let opening = few.open_for(standing).await;
    assert!(opening.stream.is_err() && opening.others.is_empty() && opening.found.is_none());
    let opening = source(vec![other, good.clone(), same])
        .open_for(standing)
        .await;
    assert_eq!(opening.found, Some(ingested(&[(1, 8), (2, 100)], 200)));
    assert_eq!(opening.stream.expect("open").place(), good);
    assert_eq!(opening.others.len(), 1);
}
