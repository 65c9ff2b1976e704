//! From a term that was won to a Postgres that answers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use pg_types::Term;
use proposer::{Elected, Fatal, PgConn};
use tokio::sync::watch::Receiver;

use super::layout::{LaidOut, Layout};
use super::live::{Live, Stack};
use super::run::{fatal_end, millis};
use super::status::{Laps, StartTiming};
use super::{Agent, End, first_reads, fpw};
use crate::bundle::Bundle;
use crate::pages::{ClientConfig, PageClient, StorageSource};
use crate::postgres::{self, Admin, DataDirectory, Postmaster};
use crate::spec::{SUPERUSER, Spec};
use crate::start::StartPoint;
use crate::volume::WriteMode;

/// Connections to the page service.
const PAGE_CONNECTIONS: usize = 4;
/// How long a page may take before Postgres sees an I/O error.
const PAGE_DEADLINE: Duration = Duration::from_secs(60);
/// How long Postgres may take to answer after its start.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_PAUSE: Duration = Duration::from_millis(2);
/// The file in which Postgres says how far its start is.
const POSTMASTER_FILE: &str = "postmaster.pid";
/// The line of that file, from 0, and what Postgres writes there, padded with blanks, once sessions can begin.
const STATUS_LINE: usize = 7;
const READY: &str = "ready";
/// A session is tried after so long whatever the file says.
const TRY_ANYWAY: Duration = Duration::from_millis(500);

impl Agent {
    /// Lays out the files, mounts, starts Postgres and waits until it answers; with the session that has its answer.
    #[tracing::instrument(name = "launch", skip_all)]
    pub(super) async fn launch(
        &self,
        spec: &Spec,
        (elected, bundle, size): (Elected, Bundle, Option<u64>),
        stack: &mut Stack,
        timing: &mut StartTiming,
    ) -> Result<(Arc<Live>, Admin), End> {
        let began = Instant::now();
        let mut laps = Laps::begin();
        let (term, lsn) = (elected.term, elected.start_lsn);
        let client = self.page_client(spec, term);
        stack.client = Some(client.clone());
        let layout = self.layout(spec, &elected, (bundle, size), client.clone());
        let laid_out = tokio::task::spawn_blocking(move || layout.apply());
        let LaidOut {
            volume,
            mounted,
            data,
            prewarm,
        } = laid_out.await.context("lay out the start")??;
        stack.mounted = Some(mounted);
        if let Some((pipe, list)) = prewarm {
            self.withhold(pipe, list, &data);
        }
        let back = i64::from(volume.writes().mode() == WriteMode::Back);
        self.metrics.write_back.set(back);
        timing.layout_ms = laps.take_ms();
        let postmaster = stack
            .postmaster
            .insert(self.start_postgres(spec, &data.path)?);
        timing.spawn_ms = laps.take_ms();
        // Until then Postgres refuses every session, by a process of its own for each.
        let fatal = elected.fatal();
        wait_recovered(&data, postmaster, fatal).await?;
        timing.recover_ms = laps.take_ms();
        // Commits wait for this standby, however early they come.
        let postgres = PgConn {
            socket_dir: self.paths.socket.clone(),
            port: spec.port,
            user: SUPERUSER.to_owned(),
            slot: postgres::SLOT.to_owned(),
        };
        let handle = postmaster.handle();
        let proposer = elected.stream(postgres, move || handle.quit());
        let live = Arc::new(Live {
            term,
            start_lsn: lsn,
            proposer,
            client,
            volume,
            data,
            postmaster: postmaster.handle(),
            socket: self.paths.socket.clone(),
            port: spec.port,
            ingested: AtomicU64::new(lsn.0),
            waiting: AtomicU64::new(0),
        });
        let admin = wait_ready(&live, postmaster).await?;
        timing.answer_ms = laps.take_ms();
        timing.postgres_ms = millis(began);
        Ok((live, admin))
    }

    /// What is to be laid out for a Postgres that begins where the election says.
    fn layout(
        &self,
        spec: &Spec,
        elected: &Elected,
        (bundle, size): (Bundle, Option<u64>),
        client: PageClient,
    ) -> Layout {
        let state = bundle.info.timeline_state;
        self.observe_full_page_writes(fpw::at_start(&state));
        let prev_record = elected
            .prev_record_lsn
            .unwrap_or(bundle.info.prev_record_lsn);
        let point = StartPoint {
            lsn: elected.start_lsn,
            prev_record,
            system_identifier: bundle.system_identifier,
            state,
            unix_seconds: unix_seconds(),
        };
        Layout {
            paths: self.paths.clone(),
            user: self.pg_user.clone(),
            spec: spec.clone(),
            point,
            prewarm: self.prewarm_list(spec, &bundle),
            first_reads: first_reads::of(&bundle),
            bundle,
            size,
            options: self.options(),
            source: StorageSource::new(
                client,
                elected.start_lsn,
                tokio::runtime::Handle::current(),
                self.metrics.misses.clone(),
            ),
        }
    }

    fn page_client(&self, spec: &Spec, term: Term) -> PageClient {
        PageClient::new(ClientConfig {
            address: spec.pageserver.pages.clone(),
            tenant: spec.tenant_id,
            timeline: spec.timeline_id,
            term,
            connections: PAGE_CONNECTIONS,
            deadline: PAGE_DEADLINE,
            traceparent: telemetry::current_traceparent(),
            opened: self.metrics.page_connections.clone(),
            token: self.token.clone(),
            dialer: self.dialer.clone(),
        })
    }

    fn start_postgres(&self, spec: &Spec, data: &Path) -> anyhow::Result<Postmaster> {
        let program = spec.pg_bin_dir.join("postgres");
        let group = self.group(spec);
        let (log, user) = (&self.paths.log, &self.pg_user);
        let postmaster = Postmaster::start(&program, data, log, user, spec.port, group)?;
        self.confined(postmaster.confinement());
        self.bounded(postmaster.bounds().as_ref());
        // Numbers in Postgres's own log may be those of its namespace.
        tracing::info!(pid = postmaster.pid(), "started Postgres");
        Ok(postmaster)
    }
}

/// Waits until Postgres says that sessions can begin, or has said nothing for long.
async fn wait_recovered(
    data: &DataDirectory,
    postmaster: &Postmaster,
    fatal: Receiver<Option<Fatal>>,
) -> Result<(), End> {
    let began = Instant::now();
    while began.elapsed() < TRY_ANYWAY && !says_ready(data) {
        check_starting(postmaster, &fatal).await?;
        tokio::time::sleep(READY_PAUSE).await;
    }
    Ok(())
}

/// A hint and no more: Postgres's user may write what it likes there.
fn says_ready(data: &DataDirectory) -> bool {
    data.read(POSTMASTER_FILE)
        .is_ok_and(|bytes| is_ready(&String::from_utf8_lossy(&bytes)))
}

fn is_ready(text: &str) -> bool {
    let line = text.lines().nth(STATUS_LINE);
    line.is_some_and(|line| line.trim_end() == READY)
}

/// The first session, once it has had an answer.
async fn wait_ready(live: &Live, postmaster: &Postmaster) -> Result<Admin, End> {
    let deadline = Instant::now() + READY_TIMEOUT;
    let fatal = live.proposer.fatal();
    loop {
        let error = match live.admin().await {
            Ok(admin) => match admin.run("answer the first query", "SELECT 1").await {
                Ok(()) => return Ok(admin),
                Err(error) => error,
            },
            Err(error) => error,
        };
        check_starting(postmaster, &fatal).await?;
        if Instant::now() > deadline {
            return Err(End::Start(anyhow::anyhow!(
                "Postgres does not answer {} s after its start ({error}): {}",
                READY_TIMEOUT.as_secs(),
                postmaster.complaint()
            )));
        }
        tokio::time::sleep(READY_PAUSE).await;
    }
}

/// Fails once Postgres has ended, or its WAL can go nowhere.
async fn check_starting(
    postmaster: &Postmaster,
    fatal: &Receiver<Option<Fatal>>,
) -> Result<(), End> {
    if postmaster.has_exited() {
        let exit = postmaster.exited().await;
        return Err(End::Start(anyhow::anyhow!(
            "Postgres ended with {exit} while starting: {}",
            postmaster.complaint()
        )));
    }
    match fatal_end(fatal) {
        Some(end) => Err(end),
        None => Ok(()),
    }
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_says_in_the_eighth_line_whether_sessions_can_begin() {
        let of = |status: &str| {
            format!(
                "1\n/pgdata\n1700000000\n5432\n/sock\n127.0.0.1\n  5432001     98304\n{status}\n"
            )
        };
        assert!(is_ready(&of("ready   ")));
        for other in ["starting", "stopping", "standby ", "not ready", ""] {
            assert!(!is_ready(&of(other)), "{other:?}");
        }
        assert!(
            !is_ready("1\n/pgdata\nready\n"),
            "a file that is being written"
        );
        assert!(!is_ready(""));
    }
}
