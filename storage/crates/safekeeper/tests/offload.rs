//! What the store of finished WAL promises: what is committed comes to be there, what is not needed goes, and a store that
//! fails holds up nothing.

mod common;

use std::path::{Path, PathBuf};

use common::reader::Reader;
use common::store::{idle, objects, offloaded, offloaded_to, quorum, store};
use common::{Postgres, Quorum, compute, current_lsn, eventually, finish};
use pg_types::{Lsn, WAL_SEGMENT_BYTES};

/// Promise: while the store fails nothing waits for it; when it works again, everything comes to be there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_holds_up_nothing() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = quorum(dir.path(), &postgres, 600).await;
    let objects_dir = dir.path().join("objects");
    std::fs::remove_dir_all(&objects_dir).expect("take the store away");
    std::fs::write(&objects_dir, "in the way").expect("put something in its place");
    let (_handle, client) = compute(quorum.config(), &mut postgres).await;
    finish(postgres.pgbench(&["-i", "-q", "-s", "3"])).await;
    quorum.all_committed(current_lsn(&client).await).await;
    let metrics = async || {
        let url = format!("http://{}/metrics", quorum.safekeepers[0].http);
        let text = reqwest::get(url).await.ok()?.text().await.ok()?;
        let failed =
            |line: &&str| line.starts_with("weir_safekeeper_offloads_total{outcome=\"failed\"}");
        text.lines().find(failed).map(str::to_owned)
    };
    eventually("a failure to be counted", async || {
        let mut any = metrics().await;
        for safekeeper in &quorum.safekeepers[1..] {
            let url = format!("http://{}/metrics", safekeeper.http);
            let text = reqwest::get(url).await.ok()?.text().await.ok()?;
            any = any.or(text.contains("outcome=\"failed\"").then(String::new));
        }
        any
    })
    .await;
    assert_eq!(offloaded(&quorum).await, Lsn::INVALID);
    std::fs::remove_file(&objects_dir).expect("the store is back");
    std::fs::create_dir(&objects_dir).expect("the store is back");
    let first_end = Lsn((quorum.start_lsn.0 / WAL_SEGMENT_BYTES + 1) * WAL_SEGMENT_BYTES);
    offloaded_to(&quorum, first_end).await;
}

/// Promise: the end of an idle log makes way for the whole segment, and what the pageserver has durable as pages goes
/// after the time it is kept; nothing above that goes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_superseded_or_durable_as_pages_goes() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let keep = ["--offload-keep-seconds".to_owned(), "2".to_owned()];
    let arguments = [&store(dir.path())[..], &idle(1), &keep].concat();
    let quorum = Quorum::start_with(dir.path(), 3, &postgres, &arguments).await;
    let (_handle, client) = compute(quorum.config(), &mut postgres).await;
    let end = current_lsn(&client).await;
    offloaded_to(&quorum, end).await;
    let segment =
        |number: u64| Lsn((quorum.start_lsn.0 / WAL_SEGMENT_BYTES + number) * WAL_SEGMENT_BYTES);
    let begin = |name: &String| u64::from_str_radix(&name[..16], 16).expect("a position");
    let first: Vec<String> = objects(&quorum, dir.path());
    assert!(
        first.iter().all(|name| begin(name) == quorum.start_lsn.0),
        "{first:?}"
    );
    finish(postgres.pgbench(&["-i", "-q", "-s", "4"])).await;
    let end = current_lsn(&client).await;
    assert!(end > segment(2), "too little WAL");
    offloaded_to(&quorum, end).await;
    eventually("one piece to be left of each segment", async || {
        let mut begins: Vec<u64> = objects(&quorum, dir.path()).iter().map(begin).collect();
        let pieces = begins.len();
        begins.dedup();
        (pieces == begins.len()).then_some(())
    })
    .await;
    quorum.all_committed(end).await;
    let durable = quorum.lsn(0, "commit_lsn").await;
    for index in 0..3 {
        let (mut reader, _) = Reader::connect(&quorum, index, Lsn::MAX).await;
        reader.report(durable, durable).await;
        eventually("the position to arrive", async || {
            (quorum.lsn(index, "remote_consistent_lsn").await >= durable).then_some(())
        })
        .await;
    }
    let insert = "CREATE TABLE afterwards AS SELECT generate_series(1, 1000) AS i";
    client.batch_execute(insert).await.expect("rows");
    let end = current_lsn(&client).await;
    offloaded_to(&quorum, end).await;
    let ends_behind =
        |name: &String| u64::from_str_radix(&name[17..33], 16).expect("an end") > durable.0;
    eventually("what is durable as pages to go", async || {
        objects(&quorum, dir.path())
            .iter()
            .all(ends_behind)
            .then_some(())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_secs(4)).await;
    assert!(
        !objects(&quorum, dir.path()).is_empty(),
        "what is above goes on to be there"
    );
}

/// The folder of a timeline's indexes, with one of which only the name matters here.
fn with_index(root: &Path, quorum: &Quorum) -> PathBuf {
    let timeline = format!("objects/{}/{}", quorum.tenant, quorum.timeline);
    let index = root.join(timeline).join("index");
    std::fs::create_dir_all(&index).expect("index");
    std::fs::write(index.join("00000001.json"), "").expect("index");
    index
}

fn remote(root: &Path, quorum: &Quorum) -> blob::TimelineStore {
    let store = blob::Store::local(&root.join("objects")).expect("store");
    store.timeline(quorum.tenant, quorum.timeline)
}

/// A safekeeper has offloaded, found the timeline deleted, and taken back what it had put there.
async fn noticed(quorum: &Quorum) {
    eventually("the deletion to be noticed", async || {
        for safekeeper in &quorum.safekeepers {
            let url = format!("http://{}/metrics", safekeeper.http);
            let text = reqwest::get(url).await.ok()?.text().await.ok()?;
            if text.contains("outcome=\"orphaned\"") {
                return Some(());
            }
        }
        None
    })
    .await;
}

/// Promise: a log that is still here while its timeline is deleted from the store leaves nothing there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_put_back_into_a_deleted_timeline() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = quorum(dir.path(), &postgres, 1).await;
    let remote = remote(dir.path(), &quorum);
    with_index(dir.path(), &quorum);
    let (_handle, client) = compute(quorum.config(), &mut postgres).await;
    let table = "CREATE TABLE t (i int)";
    client.batch_execute(table).await.expect("table");
    let end = current_lsn(&client).await;
    quorum.all_committed(end).await;
    offloaded_to(&quorum, end).await;
    remote.delete_all().await.expect("delete");
    let table = "CREATE TABLE afterwards (i int)";
    client.batch_execute(table).await.expect("table");
    noticed(&quorum).await;
    assert_eq!(remote.list_wal().await.expect("list"), []);
}

/// Promise: also a log that offloads for the first time once its timeline was deleted leaves nothing there. Its
/// safekeeper never saw that the store had the timeline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_offload_after_the_deletion_leaves_nothing_either() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = quorum(dir.path(), &postgres, 1).await;
    let remote = remote(dir.path(), &quorum);
    with_index(dir.path(), &quorum);
    remote.delete_all().await.expect("delete");
    let (_handle, client) = compute(quorum.config(), &mut postgres).await;
    let table = "CREATE TABLE t (i int)";
    client.batch_execute(table).await.expect("table");
    noticed(&quorum).await;
    eventually("the store to be empty", async || {
        let found = remote.list_wal().await.expect("list");
        found.is_empty().then_some(())
    })
    .await;
    // Who has noticed keeps to it, without the proof.
    remote.remove_tombstone().await.expect("remove");
    assert_eq!(offloaded(&quorum).await, Lsn::INVALID);
}

/// Promise: where the index is lost, finished WAL is what a timeline can be made of again: none of it goes, and more
/// comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_index_is_no_deletion() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = quorum(dir.path(), &postgres, 1).await;
    let index = with_index(dir.path(), &quorum);
    let (_handle, client) = compute(quorum.config(), &mut postgres).await;
    let table = "CREATE TABLE t (i int)";
    client.batch_execute(table).await.expect("table");
    offloaded_to(&quorum, current_lsn(&client).await).await;
    std::fs::remove_dir_all(index).expect("lose the index");
    let table = "CREATE TABLE afterwards (i int)";
    client.batch_execute(table).await.expect("table");
    let end = current_lsn(&client).await;
    offloaded_to(&quorum, end).await;
    let found = remote(dir.path(), &quorum).list_wal().await.expect("list");
    assert!(found.iter().any(|name| name.end >= end), "{found:?}");
}
