//! One run: the start, step by step, and the wait for what ends it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use pg_types::{Lsn, Term};
use proposer::{ElectError, Elected, Fatal, PgConn, ProposerConfig, ProposerHandle, elect};
use tokio_util::sync::CancellationToken;

use super::fetch::{fetch_bundle, fetch_ingested};
use super::layout::Layout;
use super::live::{Live, Stack};
use super::state::State;
use super::status::StartTiming;
use super::storage::{StorageError, TimelineClient};
use super::{Agent, End, Terminate, audit, fpw, hold, prewarm, suspend, watch};
use crate::bundle::Bundle;
use crate::pages::{ClientConfig, PageClient, StorageSource};
use crate::postgres::{self, Postmaster};
use crate::spec::{SUPERUSER, Spec};
use crate::start::StartPoint;
use crate::volume::{WriteMode, WriteThroughNeeded};

/// Connections to the page service.
const PAGE_CONNECTIONS: usize = 4;
/// How long a page may take before Postgres sees an I/O error.
const PAGE_DEADLINE: Duration = Duration::from_secs(60);
/// How long Postgres may take to answer after its start.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_PAUSE: Duration = Duration::from_millis(5);

/// A start that succeeded.
struct Started {
    live: Arc<Live>,
    stack: Stack,
    timing: StartTiming,
}

impl From<StorageError> for End {
    fn from(error: StorageError) -> End {
        match error {
            StorageError::Fenced(reason) => End::Fenced(reason),
            other => End::Storage(other.to_string()),
        }
    }
}

impl From<anyhow::Error> for End {
    fn from(error: anyhow::Error) -> End {
        End::Start(error)
    }
}

impl Agent {
    /// `last_term` is the term of this process's run before.
    pub(super) async fn one_run(&self, last_term: &mut Option<Term>) -> End {
        let start = self.start(last_term);
        let started = tokio::select! {
            started = start => started,
            // Dropping the start ends whatever it had begun.
            _ = self.terminated() => return End::Terminated,
        };
        let Started {
            live,
            stack,
            timing,
        } = match started {
            Ok(started) => started,
            Err(end) => return end,
        };
        *self.live.lock() = Some(live.clone());
        self.now_running(live.term, timing);
        tracing::info!(term = %live.term, start_lsn = %live.start_lsn, ?timing, "running");
        let end = self.serve(&live, &stack).await;
        // A lost page may show first by what it does to Postgres.
        let end = match (end, live.volume.write_through_needed()) {
            (End::Lost(reason), Some(needed @ WriteThroughNeeded::Lost(_))) => {
                tracing::warn!("with a page lost, {reason}");
                End::WriteThrough(needed)
            }
            (end, _) => end,
        };
        if matches!(end, End::Lost(_) | End::WriteThrough(_)) {
            self.set(|status| status.state = State::Starting);
        }
        live.proposer.shutdown().await;
        if tokio::task::spawn_blocking(move || drop(stack))
            .await
            .is_err()
        {
            tracing::error!("cleaning up after Postgres panicked");
        }
        self.count_released(u32::MAX).await;
        self.count_stopped(&live);
        self.forget_idle();
        end
    }

    #[tracing::instrument(name = "start", skip_all)]
    async fn start(&self, last_term: &mut Option<Term>) -> Result<Started, End> {
        let mut spec = self.spec_to_start();
        self.choose_prewarm(&mut spec);
        let began = Instant::now();
        let timeline = self
            .client_of(&spec)
            .context("set up the client of the pageserver")?;
        self.check_not_replaced(&timeline, *last_term).await?;

        let ingested = fetch_ingested(&timeline, |why| self.waiting(why)).await?;
        let elected = self.elect(&spec, ingested).await?;
        *last_term = Some(elected.term);
        let elect_ms = millis(began);
        self.set(|status| {
            status.term = Some(elected.term.0);
            status.start_lsn = Some(elected.start_lsn);
        });

        let began_bundle = Instant::now();
        let bundle = fetch_bundle(&timeline, &elected, |why| self.waiting(why)).await?;
        if bundle.system_identifier != elected.system_identifier {
            return Err(End::Start(anyhow::anyhow!(
                "the pageserver has a timeline of another cluster ({}) than the safekeepers ({})",
                bundle.system_identifier,
                elected.system_identifier
            )));
        }
        // Known before anything grows, a branch's size is never short of what a busy start writes. Storage that cannot
        // say it yet is asked again while Postgres runs.
        let size = timeline.status().await.ok();
        let size = size.and_then(|status| status.current_logical_size);
        let bundle_ms = millis(began_bundle);

        let began_postgres = Instant::now();
        let mut stack = Stack::default();
        let start = (elected, bundle, size);
        let live = self.launch(&spec, start, &mut stack).await?;
        let timing = StartTiming {
            total_ms: millis(began),
            elect_ms,
            bundle_ms,
            postgres_ms: millis(began_postgres),
            pages_fetched: live.volume.stats().pages_fetched.load(Ordering::Relaxed),
            bytes_fetched: live.volume.stats().bytes_fetched.load(Ordering::Relaxed),
        };
        self.apply_spec(&spec, &live, &stack).await?;
        self.try_clients(&spec, &live).await?;
        Ok(Started {
            live,
            stack,
            timing,
        })
    }

    /// A run after a run must not take the timeline back from a compute that came in between.
    async fn check_not_replaced(
        &self,
        timeline: &TimelineClient,
        last_term: Option<Term>,
    ) -> Result<(), End> {
        let Some(last) = last_term else { return Ok(()) };
        match timeline.status().await {
            Ok(status) if status.max_term > last.0 => Err(End::Fenced(format!(
                "a newer compute has taken over this timeline with term {}; this one had {last}",
                status.max_term
            ))),
            // The election will tell whether storage is there.
            _ => Ok(()),
        }
    }

    /// `ingested`: where the pageserver was before the election began. No log that ends before it may win.
    async fn elect(&self, spec: &Spec, ingested: Lsn) -> Result<Elected, End> {
        let mut config = ProposerConfig::new(
            spec.tenant_id,
            spec.timeline_id,
            spec.safekeepers.clone(),
            spec.compute_id.clone(),
        );
        config.quorum_timeout = Duration::from_millis(spec.quorum_timeout_ms);
        config.relations = self.relations.clone();
        self.set_wal_rate(spec.wal_bytes_per_second);
        config.pace = self.pace.clone();
        config.ingested_lsn = ingested;
        config.token = self.token.clone();
        config.dialer = self.dialer.clone();
        elect(config).await.map_err(|error| match error {
            ElectError::Fatal(Fatal::Fenced { .. }) => End::Fenced(error.to_string()),
            other => End::Storage(other.to_string()),
        })
    }

    /// Lays out the files, mounts, starts Postgres and waits until it answers.
    async fn launch(
        &self,
        spec: &Spec,
        (elected, bundle, size): (Elected, Bundle, Option<u64>),
        stack: &mut Stack,
    ) -> Result<Arc<Live>, End> {
        let (term, lsn) = (elected.term, elected.start_lsn);
        let client = PageClient::new(ClientConfig {
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
        });
        stack.client = Some(client.clone());
        let state = bundle.info.timeline_state;
        self.observe_full_page_writes(fpw::at_start(&state));
        let prev_record = elected
            .prev_record_lsn
            .unwrap_or(bundle.info.prev_record_lsn);
        let point = StartPoint {
            lsn,
            prev_record,
            system_identifier: bundle.system_identifier,
            state,
            unix_seconds: unix_seconds(),
        };
        let layout = Layout {
            paths: self.paths.clone(),
            user: self.pg_user.clone(),
            spec: spec.clone(),
            point,
            prewarm: self.prewarm_list(spec, &bundle),
            bundle,
            size,
            options: self.options(),
            source: StorageSource::new(
                client.clone(),
                lsn,
                tokio::runtime::Handle::current(),
                self.metrics.misses.clone(),
            ),
        };
        let laid_out = tokio::task::spawn_blocking(move || layout.apply());
        let (volume, mounted, data) = laid_out.await.context("lay out the start")??;
        stack.mounted = Some(mounted);
        let back = i64::from(volume.writes().mode() == WriteMode::Back);
        self.metrics.write_back.set(back);
        let postmaster = stack
            .postmaster
            .insert(self.start_postgres(spec, &data.path)?);
        // Before anything can commit: commits wait for this standby, and it is there from the first one on.
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
        self.wait_ready(&live, postmaster).await.map(|()| live)
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

    async fn wait_ready(&self, live: &Live, postmaster: &Postmaster) -> Result<(), End> {
        let deadline = Instant::now() + READY_TIMEOUT;
        loop {
            let error = match live.admin().await {
                Ok(admin) => match admin.run("answer the first query", "SELECT 1").await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if postmaster.has_exited() {
                let exit = postmaster.exited().await;
                return Err(End::Start(anyhow::anyhow!(
                    "Postgres ended with {exit} while starting: {}",
                    postmaster.complaint()
                )));
            }
            if let Some(end) = fatal_end(&live.proposer) {
                return Err(end);
            }
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

    /// Makes Postgres what the spec says, while watching that it stays alive.
    async fn apply_spec(&self, spec: &Spec, live: &Arc<Live>, stack: &Stack) -> Result<(), End> {
        let apply = async {
            let admin = live.admin().await?;
            let version = admin.version().await?;
            self.metrics.postgres_version(&version);
            self.set(|status| status.postgres_version = Some(version));
            postgres::apply(&admin, spec).await?;
            let current = self.status.lock().full_page_writes;
            if current.is_some_and(|current| current.enabled != spec.full_page_writes) {
                self.switch_on(live, spec.full_page_writes, READY_TIMEOUT)
                    .await?;
            }
            anyhow::Ok(())
        };
        let applied = tokio::select! {
            applied = apply => applied,
            end = ending(live, stack) => return Err(end),
        };
        applied.context("apply the spec").map_err(End::Start)
    }

    /// Until something ends the run. Leaves Postgres running unless it was suspended.
    async fn serve(&self, live: &Arc<Live>, stack: &Stack) -> End {
        let stop = CancellationToken::new();
        let _stop_watchers = stop.clone().drop_guard();
        let watchers = async {
            tokio::join!(
                watch::full_page_writes(self, live),
                audit::run(self, live),
                prewarm::watch(self, live),
                watch::size(self, live),
            );
        };
        tokio::select! {
            end = ending(live, stack) => end,
            end = watch::timeline(self, live) => end,
            end = watch::vitals(self, live) => end,
            end = watch::writes(live) => end,
            end = hold::start(self, live) => end,
            () = watchers => End::Lost("the watchers ended".into()),
            mode = self.terminated() => {
                self.set(|status| status.state = State::Stopping);
                if mode == Terminate::Suspend {
                    self.suspend(live, stack).await;
                }
                End::Terminated
            }
        }
    }

    async fn suspend(&self, live: &Arc<Live>, stack: &Stack) {
        let Some(postmaster) = &stack.postmaster else {
            return;
        };
        let spec = self.spec();
        let mut overruled = self.terminate.subscribe();
        let suspended = tokio::select! {
            suspended = suspend::run(self, &spec, live, postmaster) => suspended,
            _ = overruled.wait_for(|mode| *mode == Some(Terminate::Immediate)) => {
                tracing::warn!("the suspend was overruled by an immediate stop");
                return;
            }
        };
        match suspended {
            Ok(lsn) => tracing::info!(%lsn, "suspended"),
            // What was acknowledged is on the safekeepers all the same.
            Err(error) => tracing::warn!("suspended without a clean end: {error:#}"),
        }
    }
}

/// Resolves with what makes it impossible to go on.
async fn ending(live: &Live, stack: &Stack) -> End {
    let exited = async {
        match &stack.postmaster {
            Some(postmaster) => {
                let exit = postmaster.exited().await;
                End::Lost(format!(
                    "Postgres ended with {exit}: {}",
                    postmaster.complaint()
                ))
            }
            None => std::future::pending().await,
        }
    };
    let fatal = async {
        let mut fatal = live.proposer.fatal();
        match fatal.wait_for(Option::is_some).await {
            Ok(_) => {
                fatal_end(&live.proposer).unwrap_or_else(|| End::Lost("the proposer failed".into()))
            }
            Err(_) => End::Lost("the proposer ended".into()),
        }
    };
    tokio::select! {
        end = exited => end,
        end = fatal => end,
        reason = live.client.fenced() => End::Fenced(format!("the pageserver refuses this compute's term: {reason}")),
    }
}

fn fatal_end(proposer: &ProposerHandle) -> Option<End> {
    let fatal = proposer.fatal().borrow().clone()?;
    Some(match fatal {
        Fatal::Fenced { .. } => End::Fenced(fatal.to_string()),
        other => End::Lost(other.to_string()),
    })
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
