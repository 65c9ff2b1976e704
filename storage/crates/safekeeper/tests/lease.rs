//! Promises of the read lease: a compute that is cut off from a majority shows rows for no longer than the quorum
//! timeout, counted from what it asked and not from what it was answered; and nothing that a healthy majority does, however
//! busy, ends the lease.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Postgres, Quorum, compute, delayed};
use proposer::{Fatal, ProposerHandle};
use tokio_postgres::Client;

const LEASE: Duration = Duration::from_secs(3);
/// What a busy machine may add until a signal has ended every session.
const SLACK: Duration = Duration::from_secs(1);

/// Reads a row until that fails; when the last row came, and the error.
async fn last_row(client: &Client) -> (Instant, String) {
    let mut last = Instant::now();
    loop {
        match client.query_one("SELECT i FROM t", &[]).await {
            Ok(_) => last = Instant::now(),
            Err(error) => return (last, error.to_string()),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn reason(handle: &ProposerHandle) -> Fatal {
    let mut fatal = handle.fatal();
    let reason = tokio::time::timeout(common::PATIENCE, fatal.wait_for(Option::is_some)).await;
    let reason = reason.expect("in time").expect("the proposer lives");
    reason.clone().expect("a reason")
}

async fn with_a_row(client: &Client) {
    client
        .batch_execute("CREATE TABLE t (i int); INSERT INTO t VALUES (1)")
        .await
        .expect("writes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compute_without_a_majority_shows_rows_for_no_longer_than_its_lease() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let mut config = quorum.config();
    config.quorum_timeout = LEASE;
    let (handle, client) = compute(config, &mut postgres).await;
    with_a_row(&client).await;

    // Longer than a lease: it is renewed.
    let reads = tokio::spawn(async move { last_row(&client).await });
    tokio::time::sleep(LEASE + SLACK).await;
    assert!(
        !reads.is_finished(),
        "the lease ended with all safekeepers there"
    );

    let _first = quorum.safekeepers[0].freeze();
    let _second = quorum.safekeepers[1].freeze();
    let cut_off = Instant::now();
    let (last, error) = reads.await.expect("no panic");
    let shown = last.duration_since(cut_off);
    println!("rows for {shown:?} after the majority was gone; then: {error}");
    assert!(shown < LEASE + SLACK, "rows for {shown:?}");
    assert!(
        shown > LEASE / 2,
        "the lease was not used: rows for {shown:?}"
    );
    assert!(matches!(reason(&handle).await, Fatal::NoQuorum { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_were_long_under_way_renew_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let delay_ms = Arc::new(AtomicU64::new(0));
    let mut config = quorum.config();
    config.quorum_timeout = LEASE;
    for address in &mut config.safekeepers {
        let delay_ms = delay_ms.clone();
        let delay = move || Duration::from_millis(delay_ms.load(Ordering::Relaxed));
        *address = delayed::answers(address.clone(), delay).await;
    }
    let (handle, client) = compute(config, &mut postgres).await;
    with_a_row(&client).await;

    // From now on an answer comes when it says nothing any more, and yet they go on coming.
    let late = LEASE + SLACK;
    delay_ms.store(late.as_millis() as u64, Ordering::Relaxed);
    let begun = Instant::now();
    let (last, _) = last_row(&client).await;
    let shown = last.duration_since(begun);
    println!("rows for {shown:?} after answers began to take {late:?}");
    assert!(shown < LEASE + SLACK, "rows for {shown:?}");
    assert!(matches!(reason(&handle).await, Fatal::NoQuorum { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_that_never_pauses_does_not_end_the_lease() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let mut config = quorum.config();
    config.quorum_timeout = LEASE;
    // So small that a safekeeper which was away is supplied by a peer.
    config.buffer_bytes = 1 << 20;
    let (handle, client) = compute(config, &mut postgres).await;
    with_a_row(&client).await;
    quorum.safekeepers[1].kill();
    let bulk = "CREATE TABLE bulk AS SELECT g, repeat('x', 200) FROM generate_series(1, 600000) g";
    client.batch_execute(bulk).await.expect("a long load");
    // Now the lease hangs on the one that is behind.
    quorum.safekeepers[1].restart().await;
    common::eventually("the second one to be followed", async || {
        let at = quorum.lsn(1, "flush_lsn").await;
        (at > quorum.start_lsn).then_some(())
    })
    .await;
    quorum.safekeepers[0].kill();
    client
        .batch_execute("INSERT INTO t VALUES (2)")
        .await
        .expect("a commit of the one that was behind");
    tokio::time::sleep(LEASE).await;
    assert_eq!(*handle.fatal().borrow(), None);
}
