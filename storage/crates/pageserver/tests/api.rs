//! The management API: what it creates, what it refuses, and that a refusal changes nothing.

mod common;

use common::server::{Server, Wals, lsn, tenant_id, timeline_id, timeline_path};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_is_created_in_seconds_and_survives_a_restart() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, timeline) = (tenant_id(), timeline_id());
    let (status, _) = server
        .request("PUT", &format!("/v1/tenant/{tenant}"), None)
        .await;
    assert_eq!(status, 200);
    server.manager.prepare_template().await.expect("template");

    let create = json!({"new_timeline_id": timeline, "pg_version": 15, "safekeepers": []});
    let path = format!("/v1/tenant/{tenant}/timeline");
    let started = std::time::Instant::now();
    let (status, created) = server.request("POST", &path, Some(create.clone())).await;
    assert_eq!(status, 201, "{created}");
    let elapsed = started.elapsed();
    println!("project created in {elapsed:?}");
    assert!(
        elapsed.as_secs() < 2,
        "creating a warm project took {elapsed:?}"
    );
    let (status, again) = server.request("POST", &path, Some(create)).await;
    assert_eq!((status, &again), (200, &created));
    assert_eq!(created["state"], "active");
    assert!(created["current_logical_size"].as_u64().expect("size") > 10 << 20);

    let start = lsn(&created["start_lsn"]);
    let bundle = format!(
        "{}/bundle?lsn={start}&term=3",
        timeline_path(tenant, timeline)
    );
    let (status, tar) = server.get_bytes(&bundle).await;
    assert_eq!(status, 200);
    let bundle_before = common::postgres::Bundle::parse(&tar);
    assert_eq!(bundle_before.state.last_record_lsn, start);
    for file in [
        "global/pg_filenode.map",
        "base/1/PG_VERSION",
        "base/5/pg_filenode.map",
    ] {
        assert!(bundle_before.has(file), "{file}");
    }
    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    let (status, after) = server
        .request("GET", &timeline_path(tenant, timeline), None)
        .await;
    assert_eq!(status, 200);
    assert_eq!(
        after["max_term"], 3,
        "a term that got a bundle is remembered"
    );
    for field in [
        "system_identifier",
        "start_lsn",
        "last_record_lsn",
        "current_logical_size",
        "prev_record_lsn",
    ] {
        assert_eq!(after[field], created[field], "{field}");
    }
    let fenced = format!(
        "{}/bundle?lsn={start}&term=2",
        timeline_path(tenant, timeline)
    );
    let (status, body) = server.get_bytes(&fenced).await;
    assert_eq!(status, 409);
    assert!(String::from_utf8_lossy(&body).contains("\"fenced\""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_requests_get_the_documented_error_and_change_nothing() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, timeline) = (tenant_id(), timeline_id());
    let tenant_path = format!("/v1/tenant/{tenant}");
    let (status, body) = server.request("GET", &tenant_path, None).await;
    assert_eq!((status, body["code"].as_str()), (404, Some("not_found")));
    assert_eq!(
        server.request("DELETE", &tenant_path, None).await.0,
        204,
        "deleting is idempotent"
    );
    server.request("PUT", &tenant_path, None).await;
    assert_eq!(server.request("PUT", &tenant_path, None).await.0, 200);

    let timelines = format!("{tenant_path}/timeline");
    for (body, what) in [
        (json!({}), "no id"),
        (json!({"new_timeline_id": "xyz"}), "a bad id"),
        (
            json!({"new_timeline_id": timeline, "pg_version": 14}),
            "an unsupported version",
        ),
        (
            json!({"new_timeline_id": timeline, "colour": "red"}),
            "an unknown field",
        ),
        (
            json!({"new_timeline_id": timeline, "ancestor_start_lsn": "0/1"}),
            "an LSN without an ancestor",
        ),
    ] {
        let (status, answer) = server.request("POST", &timelines, Some(body)).await;
        assert_eq!(
            (status, answer["code"].as_str()),
            (400, Some("bad_request")),
            "{what}"
        );
        assert!(
            answer["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
    let orphan = json!({"new_timeline_id": timeline, "ancestor_timeline_id": timeline_id()});
    assert_eq!(
        server.request("POST", &timelines, Some(orphan)).await.0,
        404
    );
    let (_, info) = server.request("GET", &tenant_path, None).await;
    assert_eq!(info["timelines"], json!([]));

    let config = format!("{tenant_path}/config");
    assert_eq!(
        server
            .request("PATCH", &config, Some(json!({"image_threshold": 0})))
            .await
            .0,
        400
    );
    assert_eq!(
        server
            .request("PATCH", &config, Some(json!({"threshold": 5})))
            .await
            .0,
        400
    );
    let (status, changed) = server
        .request(
            "PATCH",
            &config,
            Some(json!({"image_threshold_pushdown": 9})),
        )
        .await;
    assert_eq!(
        (status, &changed["config"]["image_threshold_pushdown"]),
        (200, &json!(9))
    );
    assert_eq!(changed["config"]["image_threshold"], 128);
    for wrong in [
        json!({"image_mode": "guess"}),
        json!({"image_threshold_max": 0}),
    ] {
        let (status, _) = server.request("PATCH", &config, Some(wrong)).await;
        assert_eq!(status, 400);
    }
    assert_eq!(changed["config"]["image_mode"], "fixed");
    let adaptive = json!({"image_mode": "adaptive", "image_threshold_max": 300});
    let (status, changed) = server.request("PATCH", &config, Some(adaptive)).await;
    assert_eq!(
        (status, &changed["config"]["image_mode"]),
        (200, &json!("adaptive"))
    );
    assert_eq!(changed["config"]["image_threshold_pushdown"], 9);
    assert_eq!(server.request("GET", "/v1/nothing", None).await.0, 404);
    assert_eq!(server.request("POST", &tenant_path, None).await.0, 405);
    assert_eq!(server.request("GET", "/v1/tenant/zz", None).await.0, 400);

    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    let (_, info) = server.request("GET", &tenant_path, None).await;
    assert_eq!(
        info["config"]["image_threshold_pushdown"], 9,
        "the setting survives a restart"
    );
    assert_eq!(info["config"]["image_mode"], "adaptive");
    assert_eq!(server.request("DELETE", &tenant_path, None).await.0, 204);
    assert_eq!(server.request("GET", &tenant_path, None).await.0, 404);
}

/// Promise: an LSN before the history can neither be branched from nor leased, and both are told so alike; asking
/// changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lies_before_the_history_is_not_found() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, timeline) = (tenant_id(), timeline_id());
    let tenant_path = format!("/v1/tenant/{tenant}");
    let timelines = format!("{tenant_path}/timeline");
    server.request("PUT", &tenant_path, None).await;
    let create = json!({"new_timeline_id": timeline, "pg_version": 15, "safekeepers": []});
    let (status, made) = server.request("POST", &timelines, Some(create)).await;
    assert_eq!(status, 201, "{made}");
    let before = pg_types::Lsn(lsn(&made["oldest_lsn"]).0 - 8);
    let branch = json!({
        "new_timeline_id": timeline_id(), "ancestor_timeline_id": timeline, "ancestor_start_lsn": before
    });
    let lease = format!("{}/lease", timeline_path(tenant, timeline));
    for (path, body) in [
        (&timelines, branch),
        (&lease, json!({"lsn": before, "seconds": 60})),
    ] {
        let (status, refusal) = server.request("POST", path, Some(body)).await;
        assert_eq!(
            (status, refusal["code"].as_str()),
            (404, Some("not_found")),
            "{path}: {refusal}"
        );
        let message = refusal["message"].as_str().expect("message");
        assert!(message.contains("before the history"), "{message}");
    }
    let (_, info) = server.request("GET", &tenant_path, None).await;
    assert_eq!(info["timelines"], json!([timeline]));
    server.stop().await;
}

/// Promise: a branch that could not be opened is not forgotten: what it was branched from can't be deleted
/// under it, whether its index can be read or not; and it keeps no other timeline from being opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_is_not_deleted_under_a_branch_that_could_not_be_opened() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, parent) = (tenant_id(), timeline_id());
    server
        .request("PUT", &format!("/v1/tenant/{tenant}"), None)
        .await;
    let path = format!("/v1/tenant/{tenant}/timeline");
    let body = json!({"new_timeline_id": parent, "pg_version": 15, "safekeepers": []});
    assert_eq!(server.request("POST", &path, Some(body)).await.0, 201);
    let branches = [timeline_id(), timeline_id()];
    for branch in branches {
        let body = json!({"new_timeline_id": branch, "pg_version": 15, "safekeepers": [],
            "ancestor_timeline_id": parent});
        assert_eq!(server.request("POST", &path, Some(body)).await.0, 201);
    }
    let wals = server.stop().await;
    let objects = root.path().join("objects");
    // One has lost its layers, the other's index is damaged.
    damage(&objects, &branches[0].to_string(), "layers");
    damage(&objects, &branches[1].to_string(), "index");

    let server = Server::start(root.path(), wals).await;
    let parent_path = timeline_path(tenant, parent);
    assert_eq!(server.request("GET", &parent_path, None).await.0, 200);
    for branch in branches.iter().rev() {
        let (status, refusal) = server.request("DELETE", &parent_path, None).await;
        assert_eq!(
            (status, refusal["code"].as_str()),
            (412, Some("precondition_failed")),
            "{refusal}"
        );
        let branch = timeline_path(tenant, *branch);
        assert_eq!(server.request("GET", &branch, None).await.0, 500);
        assert_eq!(server.request("DELETE", &branch, None).await.0, 204);
    }
    assert_eq!(server.request("GET", &parent_path, None).await.0, 200);
    assert_eq!(server.request("DELETE", &parent_path, None).await.0, 204);
    server.stop().await;
}

/// Overwrites a timeline's objects whose path has `part` in it.
fn damage(directory: &std::path::Path, timeline: &str, part: &str) {
    for entry in std::fs::read_dir(directory).expect("list") {
        let path = entry.expect("entry").path();
        if path.is_dir() {
            damage(&path, timeline, part);
            continue;
        }
        let text = path.to_string_lossy();
        if text.contains(timeline) && text.contains(&format!("/{part}/")) {
            std::fs::write(&path, b"damaged").expect("write");
        }
    }
}

/// Promise: what the control plane says of a tenant is told as it was said, survives a restart, goes with the tenant,
/// and is found in the object store without a pageserver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_described_and_the_store_tells_it_all() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, timeline, branch) = (tenant_id(), timeline_id(), timeline_id());
    let path = format!("/v1/tenant/{tenant}");
    let about = format!("{path}/about");
    server.request("PUT", &path, None).await;
    let (status, _) = server.request("GET", &about, None).await;
    assert_eq!(status, 404);
    let create = json!({"new_timeline_id": timeline, "pg_version": 15, "safekeepers": []});
    let (status, made) = server
        .request("POST", &format!("{path}/timeline"), Some(create))
        .await;
    assert_eq!(status, 201, "{made}");
    let create = json!({
        "new_timeline_id": branch, "pg_version": 15, "safekeepers": [], "ancestor_timeline_id": timeline
    });
    let (status, made) = server
        .request("POST", &format!("{path}/timeline"), Some(create))
        .await;
    assert_eq!(status, 201, "{made}");
    for revision in ["one", "two"] {
        let said = json!({"revision": revision, "about": {"version": 1, "name": format!("{revision} ünder")}});
        let (status, _) = server.request("PUT", &about, Some(said.clone())).await;
        assert_eq!(status, 204);
        let (status, told) = server.request("GET", &about, None).await;
        assert_eq!((status, told), (200, said));
    }
    let (status, _) = server
        .request("PUT", &about, Some(json!({"about": {}})))
        .await;
    assert_eq!(status, 400, "a description without a revision");
    let wals = server.stop().await;

    let store = format!("file://{}", root.path().join("objects").display());
    let inventory = || {
        let tool = std::process::Command::new(env!("CARGO_BIN_EXE_weir-pageserver"))
            .args(["inventory", "--object-store", &store])
            .output()
            .expect("run");
        assert!(
            tool.status.success(),
            "{}",
            String::from_utf8_lossy(&tool.stderr)
        );
        serde_json::from_slice::<serde_json::Value>(&tool.stdout).expect("JSON")
    };
    let found = inventory();
    let told = &found["tenants"][0];
    assert_eq!(told["tenant_id"], tenant.to_string());
    assert_eq!(told["about"], json!({"version": 1, "name": "two ünder"}));
    let of = |id: String| {
        let timelines = told["timelines"].as_array().expect("timelines");
        timelines
            .iter()
            .find(|it| it["timeline_id"] == id)
            .expect("timeline")
            .clone()
    };
    let (parent, child) = (of(timeline.to_string()), of(branch.to_string()));
    assert_eq!(
        (&parent["state"], &parent["pg_version"]),
        (&json!("whole"), &json!(15))
    );
    assert_eq!(child["ancestor_timeline_id"], timeline.to_string());
    assert_eq!(child["ancestor_lsn"], made["ancestor_lsn"]);

    // A damaged document counts as missing, and stops no read of data.
    let document = root.path().join(format!("objects/{tenant}/about.json"));
    let whole = std::fs::read_to_string(&document).expect("document");
    std::fs::write(&document, whole.replace("two", "six")).expect("damage");
    let told = inventory()["tenants"][0].clone();
    assert!(told["about"].is_null(), "{told}");
    assert!(
        told["about_error"]
            .as_str()
            .expect("why")
            .contains("checksum"),
        "{told}"
    );
    let server = Server::start(root.path(), wals).await;
    let (_, listed) = server.request("GET", &path, None).await;
    assert!(listed["about_revision"].is_null());
    let wals = server.stop().await;
    std::fs::write(&document, whole).expect("mend");
    let server = Server::start(root.path(), wals).await;
    let (_, listed) = server.request("GET", &path, None).await;
    assert_eq!(listed["about_revision"], "two");
    let (status, _) = server.request("DELETE", &path, None).await;
    assert_eq!(status, 204);
    assert_eq!(inventory(), json!({"tenants": []}));
}

/// Promise: a timeline's safekeepers can be changed, for good, by a list of different addresses; anything else is
/// refused and changes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_safekeepers_of_a_timeline_can_be_changed() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, timeline) = (tenant_id(), timeline_id());
    let tenant_path = format!("/v1/tenant/{tenant}");
    server.request("PUT", &tenant_path, None).await;
    let list = |ports: &[u16]| -> serde_json::Value {
        ports
            .iter()
            .map(|port| format!("127.0.0.1:{port}"))
            .collect()
    };
    let create =
        json!({"new_timeline_id": timeline, "pg_version": 15, "safekeepers": list(&[1, 2, 3])});
    let timelines = format!("{tenant_path}/timeline");
    server
        .request("POST", &timelines, Some(create.clone()))
        .await;

    let path = timeline_path(tenant, timeline);
    let put = async |server: &Server, list: serde_json::Value| {
        let body = json!({"safekeepers": list});
        server
            .request("PUT", &format!("{path}/safekeepers"), Some(body))
            .await
    };
    for wrong in [
        json!([]),
        list(&[1, 1]),
        json!(["127.0.0.1"]),
        json!(["a:1", "b:0"]),
        json!("a:1"),
    ] {
        let (status, answer) = put(&server, wrong.clone()).await;
        assert_eq!(
            (status, &answer["code"]),
            (400, &json!("bad_request")),
            "{wrong}"
        );
        let (_, status) = server.request("GET", &path, None).await;
        assert_eq!(status["safekeepers"], list(&[1, 2, 3]), "{wrong}");
    }
    for _ in 0..2 {
        let (status, changed) = put(&server, list(&[2, 3, 4])).await;
        assert_eq!((status, &changed["safekeepers"]), (200, &list(&[2, 3, 4])));
    }
    let (status, again) = server.request("POST", &timelines, Some(create)).await;
    assert_eq!(
        status, 200,
        "it is still the timeline that was asked for: {again}"
    );
    assert_eq!(again["safekeepers"], list(&[2, 3, 4]));
    let unknown = format!("{}/safekeepers", timeline_path(tenant, timeline_id()));
    let body = json!({"safekeepers": list(&[1])});
    assert_eq!(server.request("PUT", &unknown, Some(body)).await.0, 404);

    let wals = server.stop().await;
    let server = Server::start(root.path(), wals).await;
    let (_, status) = server.request("GET", &path, None).await;
    assert_eq!(
        status["safekeepers"],
        list(&[2, 3, 4]),
        "it survives a restart"
    );
}
