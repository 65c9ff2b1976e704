//! What the store of finished WAL promises: what is there is committed and whole, a learner and the founders of a log
//! that lost all of its safekeepers can be made from it, and a store that fails holds up nothing.

mod common;

use std::path::Path;

use common::reader::Reader;
use common::{
    PATIENCE, Postgres, Quorum, SafekeeperProcess, committed_xids, compute, create_as, current_lsn,
    eventually, finish,
};
use pg_types::{Lsn, WAL_SEGMENT_BYTES};
use proposer::{MemberChange, elect};
use serde_json::{Value, json};

fn store(dir: &Path) -> Vec<String> {
    let store = dir.join("objects");
    [
        "--object-store".to_owned(),
        format!("file://{}", store.display()),
    ]
    .to_vec()
}

fn idle(seconds: u64) -> Vec<String> {
    ["--offload-idle-seconds".to_owned(), seconds.to_string()].to_vec()
}

async fn quorum(dir: &Path, postgres: &Postgres, idle_seconds: u64) -> Quorum {
    let arguments = [store(dir), idle(idle_seconds)].concat();
    Quorum::start_with(dir, 3, postgres, &arguments).await
}

async fn fill(url: &str, body: Value) -> (u16, Value) {
    let sent = reqwest::Client::new()
        .post(format!("{url}/fill"))
        .json(&body);
    let reply = sent.send().await.expect("ask");
    (reply.status().as_u16(), reply.json().await.expect("JSON"))
}

async fn offloaded(quorum: &Quorum) -> Lsn {
    let mut best = Lsn::INVALID;
    for index in 0..quorum.safekeepers.len() {
        let status = quorum.status(index).await;
        if let Some(lsn) = status["offloaded_lsn"].as_str() {
            best = best.max(lsn.parse().expect("an LSN"));
        }
    }
    best
}

async fn offloaded_to(quorum: &Quorum, lsn: Lsn) -> Lsn {
    eventually("WAL to be offloaded", async || {
        let so_far = offloaded(quorum).await;
        (so_far >= lsn).then_some(so_far)
    })
    .await
}

fn objects(quorum: &Quorum, dir: &Path) -> Vec<String> {
    let folder = format!("objects/{}/{}/wal", quorum.tenant, quorum.timeline);
    let Ok(entries) = std::fs::read_dir(dir.join(folder)) else {
        return Vec::new();
    };
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        let name = entry.expect("entry").file_name();
        name.into_string().expect("a name")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

/// Promise: finished segments and the end of an idle log come to the store once each. When every disk is lost, logs that
/// are founded anew and filled hold every byte up to the offloaded LSN, and a compute that starts on them has it all;
/// filling again changes nothing, and a voter that took part takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_come_back_when_all_safekeepers_are_lost() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut lost = quorum(dir.path(), &postgres, 2).await;
    let (handle, client) = compute(lost.config(), &mut postgres).await;
    finish(postgres.pgbench(&["-i", "-q", "-s", "3"])).await;
    let end = current_lsn(&client).await;
    lost.all_committed(end).await;
    assert!(
        end.0 - lost.start_lsn.0 > WAL_SEGMENT_BYTES,
        "too little WAL"
    );
    drop(client);
    drop(handle);
    postgres.kill();
    let to = offloaded_to(&lost, end).await;
    let (refused, why) = fill(
        &lost.safekeepers[0].url(lost.tenant, lost.timeline),
        json!({"up_to": "0/1"}),
    )
    .await;
    assert_eq!(refused, 200, "there is nothing to take: {why}");
    let names = objects(&lost, dir.path());
    assert!(names.len() >= 2, "{names:?}");
    let before = lost.wal(0, lost.start_lsn, to);
    let term = lost.status(0).await["term"].clone();
    for safekeeper in &mut lost.safekeepers {
        safekeeper.kill();
        std::fs::remove_dir_all(&safekeeper.dir).expect("lose the disk");
    }

    let found = quorum(dir.path(), &postgres, 600).await;
    for safekeeper in &found.safekeepers {
        let url = safekeeper.url(found.tenant, found.timeline);
        let (status, filled) = fill(&url, json!({})).await;
        assert_eq!(
            (status, &filled["filled_to"]),
            (200, &json!(to)),
            "{filled}"
        );
        let (status, again) = fill(&url, json!({})).await;
        assert_eq!((status, &again["bytes"]), (200, &json!(0)), "{again}");
    }
    for index in 0..3 {
        let status = found.status(index).await;
        assert_eq!(
            (&status["commit_lsn"], &status["term"]),
            (&json!(to), &term)
        );
        assert!(
            found.wal(index, found.start_lsn, to) == before,
            "safekeeper {index}"
        );
    }
    let (xids, boundary) = committed_xids(found.start_lsn, &before);
    assert!(boundary >= end && xids.len() > 3, "{boundary} {end}");
    let elected = elect(found.config()).await.expect("elected");
    assert_eq!(elected.start_lsn, to);
    let (refused, why) = fill(
        &found.safekeepers[0].url(found.tenant, found.timeline),
        json!({"min_term": 99}),
    )
    .await;
    assert_eq!(
        (refused, &why["code"]),
        (200, &Value::Null),
        "all of it is here: {why}"
    );
}

/// Promise: a learner is filled from the store, added, and brought up to date from there while the compute writes; a
/// crash of it in between changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_is_filled_and_then_promoted() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = quorum(dir.path(), &postgres, 600).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    finish(postgres.pgbench(&["-i", "-q", "-s", "3"])).await;
    let first_end = Lsn((quorum.start_lsn.0 / WAL_SEGMENT_BYTES + 1) * WAL_SEGMENT_BYTES);
    let to = offloaded_to(&quorum, first_end).await;
    let mut fourth = SafekeeperProcess::start_with(4, dir.path(), &store(dir.path())).await;
    let url = fourth.url(quorum.tenant, quorum.timeline);
    let made = create_as(&url, quorum.start_lsn, quorum.system_identifier, true).await;
    assert_eq!(made.status(), 201);
    let (status, filled) = fill(&url, json!({})).await;
    assert_eq!(status, 200, "{filled}");
    let filled_to: Lsn = filled["filled_to"]
        .as_str()
        .expect("an LSN")
        .parse()
        .expect("an LSN");
    assert!(filled_to.0 + (1 << 20) > to.0, "{filled_to} {to}");
    fourth.kill();
    fourth.restart().await;
    for change in [
        MemberChange::Add {
            address: fourth.wal.clone(),
        },
        MemberChange::Promote { safekeeper: 4 },
        MemberChange::Remove { safekeeper: 1 },
    ] {
        let changed = handle.change_members(&change, PATIENCE).await;
        changed.unwrap_or_else(|error| panic!("{change:?}: {error}"));
    }
    client
        .batch_execute("CREATE TABLE after_all (i int)")
        .await
        .expect("write");
    let end = current_lsn(&client).await;
    let dir = fourth.timeline_dir(quorum.tenant, quorum.timeline);
    eventually("the fourth to have everything", async || {
        let status: Value = reqwest::get(&url).await.ok()?.json().await.ok()?;
        let flush: Lsn = status["flush_lsn"].as_str()?.parse().ok()?;
        (flush >= end).then_some(())
    })
    .await;
    assert!(common::read_wal(&dir, quorum.start_lsn, end) == quorum.wal(1, quorum.start_lsn, end));
}

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

/// Promise: an object that is damaged fills no log, and the log is left as it was; when it is whole again, it fills it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_object_fills_no_log() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut lost = quorum(dir.path(), &postgres, 1).await;
    let (handle, client) = compute(lost.config(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t AS SELECT generate_series(1, 1000) AS i")
        .await
        .expect("rows");
    let end = current_lsn(&client).await;
    lost.all_committed(end).await;
    drop(client);
    drop(handle);
    postgres.kill();
    let to = offloaded_to(&lost, end).await;
    for safekeeper in &mut lost.safekeepers {
        safekeeper.kill();
        std::fs::remove_dir_all(&safekeeper.dir).expect("lose the disk");
    }
    let folder = format!("objects/{}/{}/wal", lost.tenant, lost.timeline);
    let last = objects(&lost, dir.path()).pop().expect("an object");
    let file = dir.path().join(folder).join(&last);
    let good = std::fs::read(&file).expect("read");

    let found = quorum(dir.path(), &postgres, 600).await;
    let url = found.safekeepers[0].url(found.tenant, found.timeline);
    let middle = good.len() / 2;
    let mut bad = good.clone();
    bad[middle] ^= 1;
    std::fs::write(&file, &bad).expect("damage it");
    let (status, why) = fill(&url, json!({})).await;
    assert_eq!((status, &why["code"]), (409, &json!("damaged")), "{why}");
    let message = why["message"].as_str().expect("a message");
    assert!(message.contains(&last), "{message}");
    assert_eq!(found.lsn(0, "flush_lsn").await, found.start_lsn);
    assert_eq!(std::fs::read(&file).expect("read"), bad, "it is left");
    std::fs::write(&file, &good).expect("mend it");
    let (status, filled) = fill(&url, json!({})).await;
    assert_eq!(
        (status, &filled["filled_to"]),
        (200, &json!(to)),
        "{filled}"
    );
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

/// Promise: a log that is still here while its timeline is deleted from the store leaves nothing there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_put_back_into_a_deleted_timeline() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = quorum(dir.path(), &postgres, 1).await;
    let store = blob::Store::local(&dir.path().join("objects")).expect("store");
    let remote = store.timeline(quorum.tenant, quorum.timeline);
    let index = dir.path().join(format!(
        "objects/{}/{}/index",
        quorum.tenant, quorum.timeline
    ));
    std::fs::create_dir_all(&index).expect("index");
    std::fs::write(
        index.join("00000001.json"),
        "what it says does not matter here",
    )
    .expect("index");
    let (_handle, client) = compute(quorum.config(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t (i int)")
        .await
        .expect("table");
    let end = current_lsn(&client).await;
    quorum.all_committed(end).await;
    offloaded_to(&quorum, end).await;
    remote.delete_all().await.expect("delete");
    client
        .batch_execute("CREATE TABLE afterwards (i int)")
        .await
        .expect("table");
    eventually("it to be noticed", async || {
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
    assert_eq!(remote.list_wal().await.expect("list"), []);
}
