//! Promises when things are wrong: requests are answered as documented, a timeline whose files are damaged or
//! whose disk refuses stops alone, says why, and loses nothing that was acknowledged.

mod common;

use common::{Postgres, Quorum, compute, create, current_lsn, eventually};
use pg_types::{Lsn, TenantId, TimelineId};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_management_api_is_idempotent_and_says_what_is_wrong() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let safekeeper = common::SafekeeperProcess::start(1, dir.path()).await;
    let url = safekeeper.url(TenantId([1; 16]), TimelineId([2; 16]));
    let start = Lsn(0x0150_0000);
    let client = reqwest::Client::new();
    assert_eq!(client.get(&url).send().await.expect("get").status(), 404);
    assert_eq!(create(&url, start, 7).await.status(), 201);
    assert_eq!(create(&url, start, 7).await.status(), 200);
    let conflict = create(&url, start, 8).await;
    assert_eq!(conflict.status(), 409);
    let body: serde_json::Value = conflict.json().await.expect("JSON");
    assert_eq!(body["code"], "conflict");
    let status: serde_json::Value = client
        .get(&url)
        .send()
        .await
        .expect("get")
        .json()
        .await
        .expect("JSON");
    assert_eq!(
        (&status["state"], &status["term"]),
        (&"active".into(), &0.into())
    );
    assert_eq!(
        (&status["flush_lsn"], &status["commit_lsn"]),
        (&"0/1500000".into(), &"0/1500000".into())
    );

    let bad = [
        ("POST", &url, r#"{"start_lsn": 5}"#),
        ("POST", &url, "nonsense"),
        (
            "POST",
            &url,
            r#"{"start_lsn": "0/15", "system_identifier": "1", "pg_version": 15}"#,
        ),
        (
            "POST",
            &url,
            r#"{"start_lsn": "0/1500000", "system_identifier": "x", "pg_version": 15}"#,
        ),
    ];
    for (_, url, body) in bad {
        let reply = client
            .post(url.as_str())
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .expect("post");
        assert_eq!(reply.status(), 400, "{body}");
        let error: serde_json::Value = reply.json().await.expect("JSON");
        assert!(
            error["code"] == "bad_request" && error["message"].is_string(),
            "{error}"
        );
    }
    let nowhere = format!("http://{}/v1/tenant/xyz/timeline/abc", safekeeper.http);
    assert_eq!(client.get(nowhere).send().await.expect("get").status(), 400);
    assert_eq!(
        create(&url.replace("02020202", "03020202"), start, 7)
            .await
            .status(),
        201
    );

    let list: Vec<serde_json::Value> = client
        .get(format!("http://{}/v1/timelines", safekeeper.http))
        .send()
        .await
        .expect("list")
        .json()
        .await
        .expect("JSON");
    assert_eq!(list.len(), 2);
    for _ in 0..2 {
        assert_eq!(
            client.delete(&url).send().await.expect("delete").status(),
            204
        );
    }
    assert_eq!(client.get(&url).send().await.expect("get").status(), 404);
    assert_eq!(create(&url, Lsn(0x0160_0000), 9).await.status(), 201);
    let metrics = client
        .get(format!("http://{}/metrics", safekeeper.http))
        .send()
        .await
        .expect("metrics")
        .text()
        .await
        .expect("text");
    assert!(
        metrics.contains("weir_safekeeper_timelines{state=\"active\"} 2"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_control_file_stops_its_timeline_and_no_other() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t (i int)")
        .await
        .expect("write");
    let other = quorum.safekeepers[0].url(quorum.tenant, TimelineId([0xcc; 16]));
    assert_eq!(create(&other, Lsn(0x0150_0000), 7).await.status(), 201);

    quorum.safekeepers[0].kill();
    let control = quorum.safekeepers[0]
        .timeline_dir(quorum.tenant, quorum.timeline)
        .join("control");
    let whole = std::fs::read(&control).expect("control file");
    std::fs::write(&control, &whole[..whole.len() / 2]).expect("tear it");
    quorum.safekeepers[0].restart().await;
    let status = quorum.status(0).await;
    assert_eq!(status["state"], "stopped");
    assert!(
        status["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("damaged")),
        "{status}"
    );
    let neighbour: serde_json::Value = reqwest::get(&other)
        .await
        .expect("get")
        .json()
        .await
        .expect("JSON");
    assert_eq!(neighbour["state"], "active");
    // The compute goes on with the two others.
    client
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .expect("write");
    handle.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_refuses_stops_the_timeline_until_it_works_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    // Where the next segment has to go stands something that no file can replace.
    let obstacle = quorum.safekeepers[0]
        .timeline_dir(quorum.tenant, quorum.timeline)
        .join("000000010000000000000002");
    std::fs::create_dir(&obstacle).expect("obstacle");
    client
        .query_one("SELECT pg_switch_wal()", &[])
        .await
        .expect("switch");
    client
        .batch_execute("CREATE TABLE t (i int)")
        .await
        .expect("two of three are enough");
    let reason = eventually("the timeline to stop", async || {
        let status = quorum.status(0).await;
        (status["state"] == "stopped").then(|| status["reason"].to_string())
    })
    .await;
    assert!(reason.contains("cannot write WAL"), "{reason}");
    let behind = quorum.lsn(0, "flush_lsn").await;
    assert!(
        behind <= Lsn(0x0200_0000),
        "it acknowledged what it could not write: {behind}"
    );

    std::fs::remove_dir(&obstacle).expect("the disk works again");
    client
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .expect("write");
    let end = current_lsn(&client).await;
    quorum.all_committed(end).await;
    assert_eq!(quorum.status(0).await["state"], "active");
    assert!(quorum.wal(0, quorum.start_lsn, end) == postgres.wal(quorum.start_lsn, end));
    handle.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_tail_of_the_log_is_cut_and_supplied_again() {
    use std::os::unix::fs::FileExt as _;
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t (i int)")
        .await
        .expect("write");
    quorum.safekeepers[2].kill();
    let flushed = current_lsn(&client).await;
    // A power cut left old sectors behind the last record: garbage that looks like nothing.
    let segment = quorum.safekeepers[2]
        .timeline_dir(quorum.tenant, quorum.timeline)
        .join("000000010000000000000001");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .expect("segment");
    file.write_all_at(&[0xa5; 4096], flushed.0 % (16 << 20) + 24)
        .expect("garbage");
    quorum.safekeepers[2].restart().await;
    client
        .batch_execute("INSERT INTO t SELECT generate_series(1, 1000)")
        .await
        .expect("write");
    let end = current_lsn(&client).await;
    quorum.all_committed(end).await;
    assert!(quorum.wal(2, quorum.start_lsn, end) == postgres.wal(quorum.start_lsn, end));
    handle.shutdown().await;
}

/// Promise: a safekeeper that was away gets what it lacks although one of its peers, the one that is asked first, has
/// damaged WAL on its disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lagging_safekeeper_is_supplied_past_a_peer_with_damaged_wal() {
    use std::os::unix::fs::FileExt as _;
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let mut config = quorum.config();
    config.buffer_bytes = 1 << 20;
    let (handle, client) = compute(config, &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t (i int, filler text)")
        .await
        .expect("write");
    quorum.safekeepers[2].kill();
    let begin = current_lsn(&client).await;
    client
        .batch_execute("INSERT INTO t SELECT g, repeat('x', 50) FROM generate_series(1, 60000) g")
        .await
        .expect("write");
    let end = current_lsn(&client).await;
    handle.committed(end).await.expect("committed");
    assert!(end.0 > begin.0 + (4 << 20), "{begin} to {end}");
    let place = begin + (1 << 20);
    // Of two that hold the same, the one with the higher number is asked.
    let segment = quorum.safekeepers[1]
        .timeline_dir(quorum.tenant, quorum.timeline)
        .join(place.segment_file_name(16 << 20));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&segment)
        .expect("segment");
    file.write_all_at(&[0xa5; 512], place.0 % (16 << 20))
        .expect("damage");
    quorum.safekeepers[2].restart().await;
    quorum.all_committed(end).await;
    assert!(quorum.wal(2, quorum.start_lsn, end) == postgres.wal(quorum.start_lsn, end));
    handle.shutdown().await;
}
