//! A project, and a data directory that Postgres starts from without recovery.

use std::path::PathBuf;

use anyhow::Result;
use pg_types::PgMajor;
use pg_types::v15::ControlFile;
use serde_json::{Value, json};
use wal_decode::TimelineState;

use crate::common::compare::materialize;
use crate::common::postgres::{Bundle, Postgres, give_to_postgres};
use crate::common::server::{Server, Wals, lsn, tenant_id, timeline_id, timeline_path};

#[derive(clap::Args)]
pub struct Arguments {
    directory: PathBuf,
}

pub async fn run(arguments: Arguments) -> Result<Value> {
    let root = &arguments.directory;
    let server = Server::start(root, Wals::default()).await;
    let (tenant, timeline) = (tenant_id(), timeline_id());
    let path = format!("/v1/tenant/{tenant}");
    server.request("PUT", &path, None).await;
    let body = json!({"new_timeline_id": timeline});
    let path = format!("{path}/timeline");
    let (status, created) = server.request("POST", &path, Some(body)).await;
    anyhow::ensure!(status == 201, "cannot make a timeline: {created}");
    let start = lsn(&created["start_lsn"]);
    let path = timeline_path(tenant, timeline);
    let (_, tar) = server
        .get_bytes(&format!("{path}/bundle?lsn={start}&term=1"))
        .await;
    let bundle = Bundle::parse(&tar);
    let pgdata = root.join("pgdata");
    let store = server.timeline(tenant, timeline);
    let template = server.data_dir.join("templates/15");
    materialize(&template, &store, &bundle, &pgdata).await;
    Postgres::prepare(&pgdata, &bundle, true);
    give_to_postgres(&pgdata);
    server.stop().await;
    Ok(json!({"start": start}))
}

#[derive(clap::Args)]
pub struct EndArguments {
    pgdata: PathBuf,
}

/// The end of a stopped cluster's last record.
pub fn end(arguments: EndArguments) -> Result<Value> {
    let control = std::fs::read(arguments.pgdata.join("global/pg_control"))?;
    let state = TimelineState::from_control_file(&ControlFile::parse(&control)?, PgMajor::V15);
    Ok(json!({"end": state.last_record_lsn}))
}
