//! A clean end: everything committed, statistics, free space maps and the list of pages in buffers kept for the next
//! start.
//!
//! A fast shutdown terminates sessions, and one whose commit waits for the majority makes its rows visible before it
//! goes. So it begins when nobody waits, or, under a load that never pauses, once a majority has confirmed what was
//! written a moment ago; without a majority it does not begin at all, and the caller stops Postgres at once. What is
//! left is a session terminated between the look and the signal, while a majority answers: its client is told
//! nothing, and the shutdown waits until its commit is confirmed like all others.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use pg_types::Lsn;
use pg_types::v15::ControlFile;

use super::live::Live;
use super::{Agent, first_reads, prewarm};
use crate::bundle::pack;
use crate::postgres::Postmaster;
use crate::spec::Spec;

/// How long commits that wait may take to be confirmed.
const CONFIRM_PATIENCE: Duration = Duration::from_secs(10);
/// How long to look for a moment in which no commit waits, while a majority confirms them.
const QUIET_PATIENCE: Duration = Duration::from_millis(500);
const LOOK_PAUSE: Duration = Duration::from_millis(5);
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
const CONTROL_FILE: &str = "global/pg_control";

/// Stops Postgres cleanly and returns where its WAL ends. After a failure Postgres may still run, with or without
/// having been asked to stop, and has to be stopped at once. Takes a minute at most.
pub async fn run(
    agent: &Agent,
    spec: &Spec,
    live: &Live,
    postmaster: &Postmaster,
) -> anyhow::Result<Lsn> {
    tokio::time::timeout(CONFIRM_PATIENCE, quiet(agent, live))
        .await
        .unwrap_or_else(|_| {
            bail!(
                "commits still wait for a majority of the safekeepers after {} s",
                CONFIRM_PATIENCE.as_secs()
            )
        })?;
    // What is left of the WAL must be through before the shutdown's patience ends.
    agent.pace.set(None);
    postmaster.stop_fast();
    // A list that Postgres waits for keeps it from ending. From here on it reads the list and loads nothing.
    agent.warm.hand_over();
    // Whoever waits from here on is let go by Postgres, which logs it.
    live.waiting.store(0, Ordering::Relaxed);
    let mut fatal = live.proposer.fatal();
    let exit = tokio::select! {
        exit = postmaster.exited() => exit,
        _ = fatal.wait_for(Option::is_some) => bail!("the safekeepers take no more WAL"),
        () = tokio::time::sleep(SHUTDOWN_PATIENCE) => bail!(
            "Postgres did not shut down within {} s",
            SHUTDOWN_PATIENCE.as_secs()
        ),
    };
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
    ship_auxiliary(agent, spec, live, end)
        .await
        .context("keep statistics and free space maps")?;
    Ok(end)
}

/// Waits until a fast shutdown lets no commit go that a majority may never confirm.
async fn quiet(agent: &Agent, live: &Live) -> anyhow::Result<()> {
    let admin = live.admin().await.context("look for commits that wait")?;
    let mut fatal = live.proposer.fatal();
    let mut written = None;
    let mut confirmed_since = None;
    loop {
        let vitals = admin.vitals().await?;
        agent.see_waiting(live, vitals.commits_waiting);
        if vitals.commits_waiting == 0 {
            return Ok(());
        }
        let written = *written.get_or_insert(vitals.insert_lsn);
        if live.commit_lsn() >= written {
            // Postgres lets those that wait go a moment after the majority has confirmed them.
            let since = *confirmed_since.get_or_insert_with(Instant::now);
            if since.elapsed() > QUIET_PATIENCE {
                return Ok(());
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_PAUSE) => {}
            _ = fatal.wait_for(Option::is_some) => bail!("the safekeepers take no more WAL"),
        }
    }
}

/// End of the shutdown checkpoint, which is the last record.
async fn checkpoint_end(live: &Live) -> anyhow::Result<Lsn> {
    // Through the mount, here and below: what Postgres wrote last may be with the kernel alone.
    let data = live.data.clone();
    let bytes = tokio::task::spawn_blocking(move || data.read(CONTROL_FILE))
        .await?
        .with_context(|| format!("read {CONTROL_FILE}"))?;
    let control = ControlFile::parse(&bytes).context("read pg_control")?;
    Ok(pg_types::wal::record_end(
        control.checkpoint(),
        CHECKPOINT_RECORD_BYTES,
    ))
}

async fn ship_auxiliary(agent: &Agent, spec: &Spec, live: &Live, lsn: Lsn) -> anyhow::Result<()> {
    let (volume, data) = (live.volume.clone(), live.data.clone());
    let (warm, unfinished) = (spec.prewarm, agent.warm.unfinished());
    let tar = tokio::task::spawn_blocking(move || {
        let mut files = Vec::new();
        match data.read(STATISTICS) {
            Ok(content) => files.push((STATISTICS.to_owned(), content)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).context("read the statistics"),
        }
        for path in volume.local_free_space_maps()? {
            let content = data.read(&path).with_context(|| format!("read {path}"))?;
            files.push((path, content));
        }
        files.extend(first_reads::collect(&volume));
        if warm {
            files.extend(prewarm::collect(&data, unfinished));
        }
        pack(&files).context("pack")
    })
    .await??;
    let timeline = agent.client_of(spec)?;
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
