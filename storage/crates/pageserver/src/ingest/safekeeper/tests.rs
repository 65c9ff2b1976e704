//! A reader's side of the protocol, against peers that speak the other one.

use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;

type Reported = mpsc::UnboundedReceiver<(FirstMessage, Vec<Feedback>)>;

/// Speaks a safekeeper's side: answers with its commit LSN, sends a heartbeat, and reads to the end.
async fn peer(commit_lsn: Lsn) -> (String, Reported) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("address").to_string();
    let (sender, reported) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut frames = LengthDelimitedCodec::builder().new_framed(stream);
            let first = frames.next().await.expect("a message").expect("a frame");
            let reply = ReadReply::Ok {
                commit_lsn,
                oldest_lsn: Lsn(8),
                term: pg_types::Term(1),
            };
            send(&mut frames, &reply).await.expect("reply");
            let heartbeat = WalFrame {
                start_lsn: commit_lsn,
                commit_lsn,
                term: pg_types::Term(1),
                sent_at_us: 0,
            };
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
    }
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
    let source = source(vec![down, first, address(&hung), second]);
    let feedback = WalFeedback {
        ingested_lsn: Lsn(90),
        remote_consistent_lsn: Lsn(80),
    };
    assert_eq!(source.report(feedback).await, Lsn(300));
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
    let mut stream = source(vec![behind, ahead])
        .open(Lsn(8))
        .await
        .expect("open");
    assert_eq!(stream.next().await.expect("a chunk").commit_lsn, Lsn(300));
}

/// Promise: whoever was tried in vain is read again only when nobody else has WAL.
#[tokio::test]
async fn one_that_was_tried_in_vain_comes_last() {
    let (bad, _bad) = peer(Lsn(300)).await;
    let (good, _good) = peer(Lsn(200)).await;
    let source = source(vec![bad.clone(), good.clone()]);
    let in_vain = [bad.clone()];
    let place = async |start| {
        let stream = source.open_elsewhere(start, &in_vain).await.expect("open");
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
    let mut stream = source.open(Lsn(8)).await.expect("open");
    assert_eq!(stream.place(), removed);
    list.send_replace(vec![stays.clone(), removed.clone()]);
    stream.next().await.expect("another order changes nothing");
    list.send_replace(vec![stays.clone()]);
    let ended = stream.next().await.expect_err("ended");
    assert!(ended.to_string().contains("no longer"), "{ended}");
    drop(stream);
    assert!(told_removed.recv().await.is_some(), "the connection ended");
    assert_eq!(source.open(Lsn(8)).await.expect("open").place(), stays);
    assert_eq!(source.report(WalFeedback::default()).await, Lsn(200));
    assert!(told_stays.recv().await.is_some());
    assert!(told_removed.try_recv().is_err());
}

/// Promise: a timeline that was created without safekeepers begins to follow the first it is given.
#[tokio::test]
async fn nothing_is_followed_until_there_is_a_safekeeper() {
    let (first, _first) = peer(Lsn(300)).await;
    let list = watch::Sender::new(Vec::new());
    let source = source_of(list.subscribe());
    let opened =
        tokio::spawn(async move { source.open(Lsn(8)).await.map(|it| it.place().to_owned()) });
    tokio::task::yield_now().await;
    assert!(!opened.is_finished());
    list.send_replace(vec![first.clone()]);
    assert_eq!(opened.await.expect("task").expect("open"), first);
}
