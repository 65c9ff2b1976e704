//! Layers of level 0, and their compaction.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pageserver::timeline::Timeline;
use pg_types::TenantId;
use serde_json::json;

use super::compare::materialize;
use super::postgres::{Bundle, Postgres};
use super::server::{Server, lsn, tenant_id, timeline_id, timeline_path};

pub const WAIT: Duration = Duration::from_secs(60);

/// A project whose level 0 is compacted from so many layers on, with a Postgres started from it.
pub async fn project(
    server: &Server,
    root: &Path,
    compaction_threshold: u32,
) -> (Arc<Timeline>, Postgres) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let (tenant, id) = (tenant_id(), timeline_id());
    let pgdata = root.join(format!("pgdata-{id}"));
    server.wals.add(id, &pgdata.join("pg_wal"));
    let path = format!("/v1/tenant/{tenant}");
    server.request("PUT", &path, None).await;
    compact_from(server, tenant, compaction_threshold).await;
    let body = json!({"new_timeline_id": id, "pg_version": 15});
    let timelines = format!("{path}/timeline");
    let (_, created) = server.request("POST", &timelines, Some(body)).await;
    let start = lsn(&created["start_lsn"]);
    let bundle = format!("{}/bundle?lsn={start}&term=1", timeline_path(tenant, id));
    let bundle = Bundle::parse(&server.get_bytes(&bundle).await.1);
    let timeline = server.timeline(tenant, id);
    let template = server.data_dir.join("templates/15");
    materialize(&template, &timeline, &bundle, &pgdata).await;
    Postgres::prepare(&pgdata, &bundle, true);
    let settings = [
        "wal_keep_size=1GB",
        "wal_recycle=off",
        "shared_buffers=16MB",
    ];
    (timeline, Postgres::start(&pgdata, &settings))
}

/// Not at once: with the next layer, or the next start.
pub async fn compact_from(server: &Server, tenant: TenantId, layers: u32) {
    server
        .configure(tenant, json!({"compaction_threshold": layers}))
        .await;
}

/// So many layers of level 0, in the object store.
pub async fn flush_layers(server: &Server, of: &(Arc<Timeline>, Postgres), count: usize) {
    let (timeline, postgres) = of;
    for _ in 0..count {
        postgres.script("postgres", "CREATE TABLE t (); DROP TABLE t;");
        let end = postgres.flush_lsn();
        server.wals.0.lock().expect("wals")[&timeline.id()]
            .limit
            .send_replace(end);
        timeline.wait_lsn(end, WAIT).await.expect("ingest");
        timeline.checkpoint().await.expect("checkpoint");
    }
}

pub async fn compacted(timeline: &Timeline) {
    let is_compacted = async {
        while !timeline
            .layer_infos()
            .iter()
            .any(|it| it.level == 1 && it.kind == "delta")
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(WAIT, is_compacted).await;
    waited.expect("level 0 is compacted");
}
