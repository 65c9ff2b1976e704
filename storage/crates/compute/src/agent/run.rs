//! One run: the start, step by step, and the wait for what ends it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use pg_types::{Lsn, Term};
use proposer::{ElectError, Elected, Fatal, ProposerConfig, elect};
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;

use super::fetch::{fetch_bundle, fetch_ingested};
use super::live::{Live, Stack};
use super::state::State;
use super::status::{Laps, StartTiming};
use super::storage::{StorageError, TimelineClient};
use super::{
    Agent, End, Terminate, audit, first_reads, hold, layout, prewarm, settings, suspend, watch,
};
use crate::postgres::{self, Admin, system_calls};
use crate::spec::Spec;
use crate::volume::WriteThroughNeeded;

/// How long Postgres may take to switch page images as the spec says.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(60);

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
        let mut laps = Laps::begin();
        let timeline = self
            .client_of(&spec)
            .context("set up the client of the pageserver")?;
        self.check_not_replaced(&timeline, *last_term).await?;

        let cleared = self.clear();
        let elected = async {
            let ingested = fetch_ingested(&timeline, |why| self.waiting(why)).await?;
            self.elect(&spec, ingested).await
        };
        // Whatever becomes of the election, no other run finds the clearing still at work.
        let (elected, cleared) = tokio::join!(elected, cleared);
        let elected = elected?;
        cleared.context("clear what an earlier start left")?;
        *last_term = Some(elected.term);
        let elect_ms = laps.take_ms();
        self.set(|status| {
            status.term = Some(elected.term.0);
            status.start_lsn = Some(elected.start_lsn);
        });

        // Known before anything grows, a branch's size is never short of what a busy start writes. Storage that cannot
        // say it yet is asked again while Postgres runs.
        let (bundle, size) = tokio::join!(
            fetch_bundle(&timeline, &elected, |why| self.waiting(why)),
            timeline.status(),
        );
        let bundle = bundle?;
        // Where storage had to catch up with the log first, its size then is not that of the start.
        let size = match size {
            Ok(status) if status.last_record_lsn >= elected.start_lsn => Ok(status),
            _ => timeline.status().await,
        };
        let size = size.ok().and_then(|status| status.current_logical_size);
        if bundle.system_identifier != elected.system_identifier {
            return Err(End::Start(anyhow::anyhow!(
                "the pageserver has a timeline of another cluster ({}) than the safekeepers ({})",
                bundle.system_identifier,
                elected.system_identifier
            )));
        }
        let mut timing = StartTiming {
            elect_ms,
            bundle_ms: laps.take_ms(),
            ..StartTiming::default()
        };

        let mut stack = Stack::default();
        let start = (elected, bundle, size);
        let (live, admin) = self.launch(&spec, start, &mut stack, &mut timing).await?;
        timing.total_ms = millis(began);
        let stats = live.volume.stats();
        timing.pages_fetched = stats.pages_fetched.load(Ordering::Relaxed);
        timing.bytes_fetched = stats.bytes_fetched.load(Ordering::Relaxed);
        laps.take_ms();
        self.apply_spec(&spec, &live, &stack, admin).await?;
        timing.apply_ms = laps.take_ms();
        if self.trial_decides() {
            self.try_clients(&spec, &live).await?;
            timing.trial_ms = laps.take_ms();
        }
        Ok(Started {
            live,
            stack,
            timing,
        })
    }

    /// Takes away what an earlier start left, and makes ready what needs no term, beside the election.
    async fn clear(&self) -> anyhow::Result<()> {
        let (paths, user) = (self.paths.clone(), self.pg_user.clone());
        let cleared = tokio::task::spawn_blocking(move || {
            // Made once a process: the start of Postgres finds them.
            system_calls::filters().ok();
            layout::clear(&paths, &user)
        });
        Ok(cleared.await??)
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

    /// Makes Postgres what the spec says, while watching that it stays alive.
    #[tracing::instrument(name = "apply", skip_all)]
    async fn apply_spec(
        &self,
        spec: &Spec,
        live: &Arc<Live>,
        stack: &Stack,
        admin: Admin,
    ) -> Result<(), End> {
        let apply = async {
            let version = admin.version().await?;
            self.metrics.postgres_version(&version);
            self.set(|status| status.postgres_version = Some(version));
            postgres::apply(&admin, spec).await?;
            let current = self.status.lock().full_page_writes;
            if current.is_some_and(|current| current.enabled != spec.full_page_writes) {
                self.switch_on(live, spec.full_page_writes, SWITCH_TIMEOUT)
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
                settings::try_later(self, live),
                first_reads::watch(live),
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
            Ok(_) => fatal_end(&live.proposer.fatal())
                .unwrap_or_else(|| End::Lost("the proposer failed".into())),
            Err(_) => End::Lost("the proposer ended".into()),
        }
    };
    tokio::select! {
        end = exited => end,
        end = fatal => end,
        reason = live.client.fenced() => End::Fenced(format!("the pageserver refuses this compute's term: {reason}")),
    }
}

/// What the proposer cannot go on for, if anything.
pub(super) fn fatal_end(fatal: &Receiver<Option<Fatal>>) -> Option<End> {
    let fatal = fatal.borrow().clone()?;
    Some(match fatal {
        Fatal::Fenced { .. } => End::Fenced(fatal.to_string()),
        other => End::Lost(other.to_string()),
    })
}

/// Milliseconds since then.
pub(super) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
