//! What logs made from the store of finished WAL promise: a learner, and the founders of a log that lost all of its
//! safekeepers, hold every byte that was offloaded, and nothing that is damaged.

mod common;

use common::store::{fill, objects, offloaded_to, quorum, store};
use common::{
    PATIENCE, Postgres, SafekeeperProcess, committed_xids, compute, create_as, current_lsn,
    eventually, finish,
};
use pg_types::{Lsn, WAL_SEGMENT_BYTES};
use proposer::{MemberChange, elect};
use serde_json::{Value, json};

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

/// Promise: where the store no longer has the beginning, which is durable as pages, a learner begins at the first record
/// behind the gap; added to a log that goes on, it has the same bytes from there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_begins_behind_a_gap() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = quorum(dir.path(), &postgres, 1).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    finish(postgres.pgbench(&["-i", "-q", "-s", "4"])).await;
    let end = current_lsn(&client).await;
    quorum.all_committed(end).await;
    offloaded_to(&quorum, end).await;
    let folder = format!("objects/{}/{}/wal", quorum.tenant, quorum.timeline);
    let names = objects(&quorum, dir.path());
    assert!(names.len() >= 3, "{names:?}");
    std::fs::remove_file(dir.path().join(&folder).join(&names[0])).expect("take the beginning");

    let mut fourth = SafekeeperProcess::start_with(4, dir.path(), &store(dir.path())).await;
    let url = fourth.url(quorum.tenant, quorum.timeline);
    let made = create_as(&url, quorum.start_lsn, quorum.system_identifier, true).await;
    assert_eq!(made.status(), 201);
    let second = u64::from_str_radix(&names[1][..16], 16).expect("a position");
    // Somebody needs what is in the gap.
    let (status, why) = fill(&url, json!({"begin_by": Lsn(second - 8)})).await;
    assert_eq!((status, &why["code"]), (409, &json!("gap")), "{why}");
    let of_fourth = async || -> Value {
        let reply = reqwest::get(&url).await.expect("ask");
        reply.json().await.expect("JSON")
    };
    assert_eq!(
        of_fourth().await["flush_lsn"],
        json!(quorum.start_lsn),
        "it is left empty"
    );
    let (status, filled) = fill(&url, json!({"begin_by": Lsn(second + (1 << 20))})).await;
    assert_eq!(status, 200, "{filled}");
    fourth.kill();
    fourth.restart().await;
    let status = of_fourth().await;
    assert_eq!(status["flush_lsn"], filled["filled_to"]);
    let oldest: Lsn = status["oldest_lsn"]
        .as_str()
        .expect("an LSN")
        .parse()
        .expect("an LSN");
    assert!((second..second + (1 << 20)).contains(&oldest.0), "{oldest}");
    for change in [
        MemberChange::Add {
            address: fourth.wal.clone(),
        },
        MemberChange::Promote { safekeeper: 4 },
    ] {
        let changed = handle.change_members(&change, PATIENCE).await;
        changed.unwrap_or_else(|error| panic!("{change:?}: {error}"));
    }
    client
        .batch_execute("CREATE TABLE afterwards (i int)")
        .await
        .expect("table");
    let end = current_lsn(&client).await;
    eventually("the fourth to have everything", async || {
        let status: Value = reqwest::get(&url).await.ok()?.json().await.ok()?;
        let flush: Lsn = status["flush_lsn"].as_str()?.parse().ok()?;
        (flush >= end).then_some(())
    })
    .await;
    let held = common::read_wal(
        &fourth.timeline_dir(quorum.tenant, quorum.timeline),
        oldest,
        end,
    );
    assert!(held == quorum.wal(0, oldest, end));
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
