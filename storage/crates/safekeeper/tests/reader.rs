//! Promises to readers: they get what is committed, byte for byte, and nothing else; WAL is trimmed only as far
//! as they allow; and a safekeeper that was away while it went starts again behind it.

mod common;

use std::time::Duration;

use common::reader::Reader;
use common::{PATIENCE, Postgres, Quorum, compute, current_lsn, eventually};
use consensus::TermStart;
use proposer::elect;
use wire::wal::{FailureKind, ReadReply};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_get_what_is_committed_and_decide_what_may_go() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let mut config = quorum.config();
    config.buffer_bytes = 1 << 20;
    let (handle, client) = compute(config.clone(), &mut postgres).await;
    let start = quorum.start_lsn;
    let (mut reader, reply) = Reader::connect(&quorum, 0, start).await;
    assert!(
        matches!(reply, ReadReply::Follows { oldest_lsn, .. } if oldest_lsn == start),
        "{reply:?}"
    );

    // One is away while two segments fill.
    quorum.safekeepers[2].kill();
    for table in ["a", "b"] {
        let fill = format!(
            "CREATE TABLE {table} AS SELECT g, repeat('x', 50) FROM generate_series(1, 60000) g"
        );
        client.batch_execute(&fill).await.expect("fill");
        client
            .query_one("SELECT pg_switch_wal()", &[])
            .await
            .expect("switch");
    }
    client
        .batch_execute("CREATE TABLE c ()")
        .await
        .expect("write");
    let end = current_lsn(&client).await;
    handle.committed(end).await.expect("committed");
    let bytes = reader.read_to(start, end).await;
    assert!(
        bytes[..(end.0 - start.0) as usize] == postgres.wal(start, end),
        "the reader got other bytes than pg_wal has"
    );

    // What the pageserver applied comes back to the compute; what it made durable may go.
    reader.report(end, end).await;
    let mut positions = handle.positions();
    let applied = positions.wait_for(|now| now.applied >= end && now.remote_consistent >= end);
    tokio::time::timeout(PATIENCE, applied)
        .await
        .expect("feedback in time")
        .expect("proposer lives");
    let first_segment = quorum.safekeepers[0]
        .timeline_dir(quorum.tenant, quorum.timeline)
        .join("000000010000000000000001");
    eventually("old segments to go", async || {
        (!first_segment.exists()).then_some(())
    })
    .await;
    let (mut other, reply) = Reader::connect(&quorum, 1, start).await;
    assert!(
        matches!(reply, ReadReply::Follows { .. }),
        "the second has not been told: {reply:?}"
    );
    other.report(end, end).await;
    let first_segment = quorum.safekeepers[1]
        .timeline_dir(quorum.tenant, quorum.timeline)
        .join("000000010000000000000001");
    eventually("old segments to go", async || {
        (!first_segment.exists()).then_some(())
    })
    .await;
    let (_, reply) = Reader::connect(&quorum, 0, start).await;
    assert!(
        matches!(&reply, ReadReply::Refused(failure) if failure.kind == FailureKind::Trimmed),
        "{reply:?}"
    );

    // The horizon survives a kill -9, and with it what is left of the log.
    quorum.safekeepers[1].kill();
    quorum.safekeepers[1].restart().await;
    assert_eq!(quorum.lsn(1, "remote_consistent_lsn").await, end);
    assert_eq!(quorum.lsn(1, "commit_lsn").await, end);

    // The one that was away finds nothing at its peers to go on from, and starts again.
    quorum.safekeepers[2].restart().await;
    client
        .batch_execute("CREATE TABLE d (); DROP TABLE d")
        .await
        .expect("write");
    let end = current_lsn(&client).await;
    quorum.all_committed(end).await;
    let from = quorum.lsn(2, "oldest_lsn").await;
    assert!(from > start && quorum.wal(2, from, end) == postgres.wal(from, end));
    quorum.safekeepers[2].kill();
    quorum.safekeepers[2].restart().await;
    assert_eq!(quorum.lsn(2, "flush_lsn").await, end);
    handle.shutdown().await;

    // An election with it alone beside one other still finds everything committed.
    quorum.safekeepers[0].kill();
    config.election_timeout = Duration::from_secs(20);
    let again = elect(config).await.expect("elected");
    assert!(again.start_lsn >= end);
}

/// Promise: a reader knows of every piece of WAL which terms wrote it and all before it, also when a compute starts
/// while it reads; and a reader from before that was told is served as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_are_told_whose_wal_they_get() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let start = quorum.start_lsn;
    let (mut reader, _) = Reader::connect(&quorum, 0, start).await;
    let (mut old, reply) = Reader::connect_as(&quorum, 0, start, 2).await;
    assert!(matches!(reply, ReadReply::Ok { .. }), "{reply:?}");
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE a ()")
        .await
        .expect("write");
    let end = current_lsn(&client).await;
    handle.committed(end).await.expect("committed");
    let bytes = reader.read_to(start, end).await;
    assert!(bytes == old.read_to(start, end).await);
    handle.shutdown().await;

    let again = elect(quorum.config()).await.expect("elected");
    let history = reader.histories.last().expect("told");
    let first = history.last().expect("a term");
    assert_eq!((history.entries().len(), first.start_lsn), (1, start));
    eventually("the reader to be told of the new term", async || {
        reader.next_frame().await;
        let history = reader.histories.last().expect("told");
        (history.entries().len() > 1).then_some(())
    })
    .await;
    let history = reader.histories.last().expect("told").entries();
    let expected = TermStart {
        term: again.term,
        start_lsn: again.start_lsn,
    };
    assert_eq!(history, [first, expected]);
    let (newer, _) = Reader::connect(&quorum, 0, end).await;
    assert_eq!(newer.histories[0].entries(), history);
}
