//! The agent: takes a compute from election to suspend, again and again while it should run.
//!
//! A run is: elect a term, fetch the bundle at its LSN, lay out and mount, start Postgres, carry its WAL, apply
//! the spec; then watch until something ends it. A crash of Postgres, a lost quorum or a storage that is away
//! lead to a new run with a new term and a new volume; being fenced or terminated ends the process.
//!
//! Nothing local survives a run. A crash of the agent takes Postgres and the mount with it.

mod activity;
mod audit;
mod configure;
mod fetch;
mod first_reads;
mod fpw;
mod hold;
pub mod http;
mod launch;
mod layout;
mod live;
mod load;
mod members;
mod options;
mod prewarm;
mod run;
mod settings;
mod state;
mod status;
mod storage;
mod suspend;
mod synchronous_commit;
mod unconfirmed;
mod unlogged;
mod wal_by_relation;
mod watch;
mod withheld;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use part_tls::Dialer;
use pg_types::Term;
use proposer::{RelationLedger, WalPace};
use serde::{Deserialize, Serialize};
use token::OwnToken;

pub use configure::{ConfigureError, Configured};
pub use fpw::{SwitchError, Switched};
pub use live::Live;
pub use load::Load;
pub use members::{ChangeMembersError, Member, Members};
pub use options::{Options, Paths};
pub use prewarm::{Prewarm, PrewarmState};
pub use settings::{FailedSetting, SettingState, SettingStatus, SettingsStatusError};
pub use state::State;
pub use status::{FullPageWrites, StartTiming, Status};
pub use synchronous_commit::{Chosen, ChosenError};
pub use unconfirmed::Unconfirmed;
pub use unlogged::{Unlogged, UnloggedError};
pub use wal_by_relation::{WalByRelation, WalByRelationError};

use crate::metrics::Metrics;
use crate::postgres::OsUser;
use crate::postgres::cgroups::{Bounds, Group};
use crate::postgres::confine::{Confinement, Measure};
use crate::postgres::limits::Limits;
use crate::spec::Spec;
use crate::volume::{WriteMode, WriteThroughNeeded};
use unconfirmed::LogWatch;

/// First pause before a new run after one that did not last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// A run this long was a success; the next one starts at once.
const LASTING: Duration = Duration::from_secs(10);
/// So many runs in a row that Postgres did not survive its start make the compute `failed`; it goes on trying.
const FAILED_AFTER: u32 = 5;

/// How to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Terminate {
    /// Stop cleanly, keep statistics and free space maps.
    Suspend,
    /// Stop at once; nothing acknowledged is lost.
    Immediate,
}

/// Why a run is over.
#[derive(Debug)]
pub(crate) enum End {
    /// The compute was asked to end.
    Terminated,
    /// A newer compute owns the timeline, as the text says.
    Fenced(String),
    /// Storage can't be reached or does not answer; it may come back.
    Storage(String),
    /// Postgres did not start, or something local is in the way.
    Start(anyhow::Error),
    /// Postgres or the proposer ended while the compute was running.
    Lost(String),
    /// The volume must be written through from the next run on.
    WriteThrough(WriteThroughNeeded),
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The compute was asked to end, and has.
    Terminated,
    /// A newer compute owns the timeline. A new start of this one would take the timeline from the newer one.
    Fenced,
}

/// What outlives a run.
pub struct Agent {
    paths: Paths,
    pg_user: OsUser,
    /// What holds of the agent's own process, and so of each Postgres.
    confinement: Confinement,
    options: Options,
    /// The control group below which each Postgres gets one.
    groups: Option<PathBuf>,
    /// What storage is shown.
    token: OwnToken,
    /// How it is connected to.
    dialer: Dialer,
    /// A write was lost: the runs that follow write through.
    write_through: AtomicBool,
    spec: Mutex<Spec>,
    choices: Mutex<settings::Choices>,
    status: Mutex<Status>,
    /// The state, for those who wait for another one.
    state: tokio::sync::watch::Sender<State>,
    /// Metrics of the compute, which go on counting over runs.
    pub metrics: Metrics,
    /// WAL of the last minutes by relation.
    relations: Arc<RelationLedger>,
    /// The rate that WAL is held to.
    pace: Arc<WalPace>,
    log: Arc<Mutex<LogWatch>>,
    warm: prewarm::Warm,
    terminate: tokio::sync::watch::Sender<Option<Terminate>>,
    live: Mutex<Option<Arc<Live>>>,
    /// One change to the running Postgres at a time.
    changing: tokio::sync::Mutex<()>,
    /// One change of the log's members at a time.
    changing_members: tokio::sync::Mutex<()>,
}

impl Agent {
    /// `directory` is the compute's own; what an earlier process left there is replaced. `rights`: whether the process
    /// has dropped what it does not need of root's rights, or why not ([`crate::postgres::confine::agent`]).
    pub fn new(
        spec: Spec,
        directory: &Path,
        options: Options,
        rights: Result<(), String>,
    ) -> anyhow::Result<Agent> {
        spec.check()?;
        let pg_user = match options.user {
            Some(uid) => OsUser::of_compute(uid)?,
            None => OsUser::for_postgres(&spec.pg_user)?,
        };
        let mut confinement = Confinement::new(&pg_user);
        let shared = || {
            format!(
                "no user was given for this compute alone, so that Postgres runs as {}",
                pg_user.name
            )
        };
        confinement.note(Measure::OwnUser, options.user.map(drop).ok_or_else(shared));
        confinement.note(Measure::FewRightsOfRoot, rights);
        let directory = std::path::absolute(directory)?;
        let metrics = Metrics::new(&spec);
        let status = Status::new(spec.compute_id.clone(), spec.port);
        let (terminate, _) = tokio::sync::watch::channel(None);
        let paths = Paths::below(&directory);
        Ok(Agent {
            log: Arc::new(Mutex::new(LogWatch::new(&paths.log))),
            choices: Mutex::new(settings::Choices::with_good(settings::kept(
                &paths.good_settings,
            ))),
            paths,
            pg_user,
            confinement,
            options,
            groups: None,
            token: OwnToken::default(),
            dialer: Dialer::default(),
            write_through: AtomicBool::new(false),
            spec: Mutex::new(spec),
            state: tokio::sync::watch::Sender::new(status.state),
            status: Mutex::new(status),
            metrics,
            relations: Arc::default(),
            pace: Arc::default(),
            warm: prewarm::Warm::default(),
            terminate,
            live: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            changing_members: tokio::sync::Mutex::default(),
        })
    }

    /// Bounds what Postgres takes of the machine by a control group below this one, as its size says.
    pub fn within(mut self, groups: Option<PathBuf>) -> Agent {
        self.groups = groups;
        self
    }

    /// The spec in force: the one that was applied last, or else the one that the process was started with.
    pub fn spec(&self) -> Spec {
        self.spec.lock().clone()
    }

    /// The status with what is known right now.
    pub fn status(&self) -> Status {
        let mut status = self.status.lock().clone();
        if let Some(live) = self.live() {
            let positions = *live.proposer.positions().borrow();
            status.commit_lsn = Some(positions.commit.max(live.start_lsn));
            status.members = Some(live.proposer.members().into());
            status.ingested_lsn = Some(live.ingested().max(positions.applied));
        }
        if status.state == State::Running {
            status.synchronous_commit = self.given_synchronous_commit();
            status.compute_units = Some(self.spec.lock().compute_units);
        }
        status
    }

    /// What the next run is to go by: it writes through once a write was lost.
    fn options(&self) -> Options {
        let mut options = self.options;
        if self.write_through.load(Ordering::Relaxed) {
            options.writes = WriteMode::Through;
        }
        options
    }

    /// Takes notice of what this run's Postgres is kept from; what it is not kept from is logged once.
    fn confined(&self, of_postgres: &Confinement) {
        let found = self.confinement.clone().and(of_postgres);
        let known = self.status.lock().confinement.replace(found.clone());
        if known.as_ref() != Some(&found) {
            for missing in &found.missing {
                let (measure, reason) = (missing.measure, &missing.reason);
                tracing::warn!(?measure, reason, "Postgres is kept apart from others less");
            }
        }
    }

    /// A control group for a Postgres that is about to start.
    fn group(&self, spec: &Spec) -> Option<Group> {
        let limits = Limits::of_units(spec.compute_units);
        let parent = self.groups.as_ref()?;
        Some(Group::make(parent, &spec.compute_id, limits))
    }

    /// Takes notice of what bounds this run's Postgres; what does not is logged once.
    fn bounded(&self, bounds: Option<&Bounds>) {
        let known = std::mem::replace(&mut self.status.lock().limits, bounds.cloned());
        let Some(bounds) = bounds.filter(|bounds| known.as_ref() != Some(*bounds)) else {
            return;
        };
        for missing in &bounds.missing {
            let (controller, reason) = (missing.controller, &missing.reason);
            tracing::warn!(
                ?controller,
                reason,
                "nothing bounds what Postgres takes of it"
            );
        }
    }

    fn set(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.status.lock();
        change(&mut status);
        self.state.send_if_modified(|known| {
            let changes = *known != status.state;
            *known = status.state;
            changes
        });
    }

    /// Waits until the compute is in another state than `starting`, or for so long.
    pub async fn started(&self, limit: Duration) {
        let mut state = self.state.subscribe();
        let another = state.wait_for(|state| *state != State::Starting);
        tokio::time::timeout(limit, another).await.ok();
    }

    fn live(&self) -> Option<Arc<Live>> {
        self.live.lock().clone()
    }

    /// The running Postgres, if there is one to talk to.
    fn running(&self) -> Option<Arc<Live>> {
        let state = self.status.lock().state;
        self.live().filter(|_| state == State::Running)
    }

    /// Asks the compute to end; `Immediate` overrules a suspend under way.
    pub fn terminate(&self, mode: Terminate) {
        self.terminate.send_if_modified(|asked| {
            let change = asked.is_none_or(|asked| asked < mode);
            if change {
                *asked = Some(mode);
            }
            change
        });
    }

    async fn terminated(&self) -> Terminate {
        let mut asked = self.terminate.subscribe();
        match asked.wait_for(Option::is_some).await {
            Ok(mode) => mode.unwrap_or(Terminate::Immediate),
            Err(_) => std::future::pending().await,
        }
    }

    /// Runs the compute until it is terminated or fenced.
    pub async fn run(self: Arc<Agent>) -> Verdict {
        let (mut pause, mut failures) = (FIRST_PAUSE, 0);
        let mut last_term = None;
        loop {
            let began = Instant::now();
            let end = self.one_run(&mut last_term).await;
            self.metrics.up.set(0);
            let was_running = self.live.lock().take().is_some();
            match end {
                End::Terminated => {
                    self.set(|status| (status.state, status.reason) = (State::Stopped, None));
                    return Verdict::Terminated;
                }
                End::Fenced(reason) => {
                    tracing::error!("stopping: {reason}");
                    self.set(|status| {
                        (status.state, status.reason) = (State::Fenced, Some(reason))
                    });
                    return Verdict::Fenced;
                }
                End::Storage(reason) => {
                    tracing::warn!("cannot start: {reason}");
                    self.waiting(reason);
                }
                End::Start(error) => {
                    failures += 1;
                    tracing::error!(failures, "cannot start: {error:#}");
                    self.start_failed(&format!("{error:#}"));
                    self.warm.start_failed();
                    self.waiting(format!("{error:#}"));
                    if failures >= FAILED_AFTER {
                        self.set(|status| status.state = State::Failed);
                    }
                }
                End::Lost(reason) => {
                    tracing::error!("starting anew: {reason}");
                    self.waiting(reason);
                }
                End::WriteThrough(needed) => {
                    tracing::warn!("starting anew: {needed}");
                    if let WriteThroughNeeded::Lost(_) = needed {
                        self.write_through.store(true, Ordering::Relaxed);
                    }
                    self.waiting(needed.to_string());
                }
            }
            if was_running {
                failures = 0;
                self.metrics.restarts.inc();
                self.set(|status| status.restarts += 1);
            }
            if began.elapsed() >= LASTING {
                pause = FIRST_PAUSE;
            } else {
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    _ = self.terminated() => {}
                }
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }

    /// Between runs. A compute that has failed stays so until it runs.
    fn waiting(&self, reason: String) {
        self.set(|status| {
            if status.state != State::Failed {
                status.state = State::Starting;
            }
            status.reason = Some(reason);
            status.active_connections = None;
            status.commits_waiting = None;
            status.base_backups = None;
            status.load = None;
            status.postgres_version = None;
        });
    }

    fn now_running(&self, term: Term, timing: StartTiming) {
        self.metrics.up.set(1);
        for (part, ms) in [
            ("total", timing.total_ms),
            ("elect", timing.elect_ms),
            ("bundle", timing.bundle_ms),
            ("postgres", timing.postgres_ms),
            ("layout", timing.layout_ms),
            ("spawn", timing.spawn_ms),
            ("recover", timing.recover_ms),
            ("answer", timing.answer_ms),
            ("apply", timing.apply_ms),
            ("trial", timing.trial_ms),
        ] {
            self.metrics.start_seconds(part, ms as f64 / 1000.0);
        }
        self.set(|status| {
            status.state = State::Running;
            status.reason = None;
            status.term = Some(term.0);
            status.started_at = Some(telemetry::rfc3339(SystemTime::now()));
            status.start = Some(timing);
        });
    }
}
