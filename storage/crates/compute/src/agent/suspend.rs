//! A clean end: everything committed, statistics and free space maps kept for the next start.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pg_types::Lsn;
use pg_types::v15::ControlFile;

use super::live::Live;
use super::spec::Spec;
use super::storage::Timeline;
use crate::bundle::pack;
use crate::postgres::Postmaster;

/// How long a fast shutdown may take, the last checkpoint and its way to the safekeepers included.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(45);
const COMMIT_PATIENCE: Duration = Duration::from_secs(10);
/// How long auxiliary files are offered to a pageserver that is away; they are a convenience.
const UPLOAD_PATIENCE: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Bytes of a checkpoint record.
const CHECKPOINT_RECORD_BYTES: u64 = 114;
/// Where Postgres keeps its statistics while it is down.
const STATISTICS: &str = "pg_stat/pgstat.stat";

/// Stops Postgres cleanly and returns where its WAL ends.
pub async fn run(spec: &Spec, live: &Live, postmaster: &Postmaster) -> anyhow::Result<Lsn> {
    postmaster.stop_fast();
    let exit = tokio::time::timeout(SHUTDOWN_PATIENCE, postmaster.exited())
        .await
        .with_context(|| {
            format!(
                "Postgres did not shut down within {} s",
                SHUTDOWN_PATIENCE.as_secs()
            )
        })?;
    if !exit.status.success() {
        bail!("Postgres ended with {exit}: {}", postmaster.complaint());
    }
    let end = checkpoint_end(live).await?;
    tokio::time::timeout(COMMIT_PATIENCE, live.proposer.committed(end))
        .await
        .with_context(|| {
            format!(
                "the safekeepers did not take the last WAL within {} s",
                COMMIT_PATIENCE.as_secs()
            )
        })??;
    let reached = live.proposer.positions().borrow().record_end;
    if reached != end {
        bail!("the WAL ends at {reached}, behind the shutdown checkpoint's end {end}");
    }
    ship_auxiliary(spec, live, end)
        .await
        .context("keep statistics and free space maps")?;
    Ok(end)
}

/// End of the shutdown checkpoint, which is the last record.
async fn checkpoint_end(live: &Live) -> anyhow::Result<Lsn> {
    let volume = live.volume.clone();
    let bytes = tokio::task::spawn_blocking(move || volume.get_file("global/pg_control")).await??;
    let control = ControlFile::parse(&bytes).context("read pg_control")?;
    Ok(pg_types::wal::record_end(
        control.checkpoint(),
        CHECKPOINT_RECORD_BYTES,
    ))
}

async fn ship_auxiliary(spec: &Spec, live: &Live, lsn: Lsn) -> anyhow::Result<()> {
    let (volume, statistics) = (live.volume.clone(), live.data.path.join(STATISTICS));
    let tar = tokio::task::spawn_blocking(move || {
        let mut files = Vec::new();
        match std::fs::read(&statistics) {
            Ok(content) => files.push((STATISTICS.to_owned(), content)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("read the statistics"),
        }
        for path in volume.local_free_space_maps()? {
            let content = volume.get_file(&path)?;
            files.push((path, content));
        }
        pack(&files).context("pack")
    })
    .await??;
    let timeline = Timeline::new(&spec.pageserver.http, spec.tenant_id, spec.timeline_id)?;
    let deadline = Instant::now() + UPLOAD_PATIENCE;
    loop {
        match timeline.put_auxiliary(lsn, live.term, tar.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(error) => tracing::info!("trying again to keep the auxiliary files: {error}"),
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
