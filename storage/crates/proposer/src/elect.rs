//! Winning a term and settling where it begins.

use std::sync::Arc;
use std::time::Duration;

use pg_types::{Lsn, Term};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::core::Shared;
use crate::member;
use crate::moment::Moment;
use crate::running::Running;
use crate::stream::{self, ProposerHandle};
use crate::watch::Watch;
use crate::{Fatal, PgConn, ProposerConfig};

/// How long a majority waits for the rest before it votes: the rest may hold the best log.
const STRAGGLERS: Duration = Duration::from_millis(150);

/// A vote that is neither won nor lost after this long is asked for anew, in a higher term.
const VOTE_PATIENCE: Duration = Duration::from_secs(2);

/// Why no term was won; nothing of this proposer runs any more.
#[derive(Debug, thiserror::Error)]
pub enum ElectError {
    /// [`ProposerConfig::safekeepers`] is empty.
    #[error("no safekeepers are configured")]
    NoSafekeepers,
    /// No term was won, or its log not brought to a majority, within the time for elections. May be tried again.
    #[error("timeline {timeline}: no term was won within {timeout:?}; {detail}")]
    NoQuorum {
        /// The timeline's id.
        timeline: String,
        /// [`ProposerConfig::election_timeout`].
        timeout: Duration,
        /// For people: how many answer, which voters do not, and the last error of each safekeeper that has one.
        detail: String,
    },
    /// The system gives no thread.
    #[error("cannot start the proposer's threads: {0}")]
    Thread(#[source] std::io::Error),
    /// The compute must not start: a newer one has the term, or the log is not the one that was acknowledged.
    #[error(transparent)]
    Fatal(#[from] Fatal),
}

/// A won election. A majority holds the log up to `start_lsn` and knows that it is committed. Dropping it ends
/// what it started.
#[derive(Debug)]
pub struct Elected {
    /// The term that was won.
    pub term: Term,
    /// L: the compute's first record begins behind it.
    pub start_lsn: Lsn,
    /// Start of the record that ends at L, when the tail of the log told.
    pub prev_record_lsn: Option<Lsn>,
    /// Postgres's identifier of the cluster that the log belongs to, as the safekeepers say.
    pub system_identifier: u64,
    /// Postgres's major version, such as 15, as the safekeepers say.
    pub pg_version: u32,
    shared: Running,
}

impl Elected {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared.shared
    }

    /// Why this compute has to stop, as soon as it has to; fencing can come before Postgres is up.
    pub fn fatal(&self) -> watch::Receiver<Option<Fatal>> {
        self.shared.shared.fatal.subscribe()
    }

    /// Follows Postgres from L on. Connects as soon as Postgres answers. `stop` stops Postgres at once, without waiting
    /// for its end; it is called, on a thread of its own, when the read lease has run out.
    pub fn stream(self, postgres: PgConn, stop: impl FnOnce() + Send + 'static) -> ProposerHandle {
        self.shared.watch.guard(Box::new(stop));
        stream::start(
            self.shared,
            postgres,
            self.start_lsn,
            self.prev_record_lsn,
            self.system_identifier,
        )
    }
}

/// Wins a term, finds L, brings a majority up to it, and makes it known there as committed.
pub async fn elect(config: ProposerConfig) -> Result<Elected, ElectError> {
    if config.safekeepers.is_empty() {
        return Err(ElectError::NoSafekeepers);
    }
    let span =
        tracing::info_span!("elect", timeline = %config.timeline, term = tracing::field::Empty);
    async move {
        let timeout = config.election_timeout;
        let timeline = config.timeline.to_string();
        let shared = Arc::new(Shared::new(config).map_err(ElectError::Thread)?);
        shared.core(|core| core.proposer.require(shared.config.ingested_lsn));
        let guard = shared.closed.clone().drop_guard();
        for index in 0..shared.config.safekeepers.len() {
            shared.reactor.spawn(member::run(shared.clone(), index));
        }
        match tokio::time::timeout(timeout, win(&shared)).await {
            Ok(settled) => settled?,
            Err(_) => {
                let detail = shared.core(|core| match core.announcement() {
                    Some(_) => format!(
                        "the vote was won but the log could not be brought to a majority ({})",
                        core.errors().join("; ")
                    ),
                    None => format!("{} ({})", unanswered(core), core.errors().join("; ")),
                });
                return Err(ElectError::NoQuorum {
                    timeline,
                    timeout,
                    detail,
                });
            }
        }
        Ok(elected(Running {
            watch: Watch::start(&shared).map_err(ElectError::Thread)?,
            _guard: guard,
            shared,
        }))
    }
    .instrument(span)
    .await
}

fn unanswered(core: &crate::core::Core) -> String {
    let answering = core
        .members
        .iter()
        .filter(|member| member.connected)
        .count();
    let answering = format!("{answering} of {} safekeepers answer", core.members.len());
    let unheard = core.proposer.unheard_voters();
    if unheard.is_empty() {
        return answering;
    }
    let unheard: Vec<String> = unheard.iter().map(ToString::to_string).collect();
    format!(
        "{answering}, and these voters of the log are not among them: {}. Start those safekeepers, with the disks they had",
        unheard.join("; ")
    )
}

fn elected(running: Running) -> Elected {
    let shared = &running.shared;
    let (term, start_lsn, prev_record_lsn, identity) = shared.core(|core| {
        let start_lsn = core
            .proposer
            .election()
            .map_or(Lsn::INVALID, |election| election.start_lsn);
        (
            core.proposer.term(),
            start_lsn,
            core.prev_record_lsn,
            core.identity.unwrap_or_default(),
        )
    });
    shared.metrics.term.set(term.0 as i64);
    tracing::Span::current().record("term", term.0);
    tracing::info!(%term, %start_lsn, "elected");
    let watched = shared.clone();
    shared.reactor.spawn(async move {
        tokio::select! {
            () = watched.measure() => {}
            () = watched.closed.cancelled() => {}
        }
    });
    Elected {
        term,
        start_lsn,
        prev_record_lsn,
        system_identifier: identity.0,
        pg_version: identity.1,
        shared: running,
    }
}

/// Votes until won, then waits until L is settled.
async fn win(shared: &Shared) -> Result<(), Fatal> {
    let mut majority_since: Option<Instant> = None;
    let mut asked_at = Instant::now();
    let mut attempt: u32 = 0;
    loop {
        if let Some(fatal) = shared.fatal.borrow().clone() {
            return Err(fatal);
        }
        let (greeted, settled, lost, asked, won, announced) = shared.core(|core| {
            let greeted = core
                .proposer
                .majority_of(|peer| core.members[peer].connected);
            let settled = core.members.iter().all(|member| member.settled);
            (
                greeted,
                settled,
                core.lost_to.take(),
                core.request.is_some(),
                core.proposer.election().is_some(),
                core.is_announced(),
            )
        });
        if announced {
            return Ok(());
        }
        if let Some(term) = lost {
            tracing::info!(%term, "vote lost, trying again");
            attempt += 1;
            // Two computes that start at once must not keep outbidding each other.
            let random = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
            tokio::time::sleep(Duration::from_millis(
                random * u64::from(attempt.min(8)) / 4,
            ))
            .await;
            campaign(shared, Some(term));
            asked_at = Instant::now();
        } else if greeted && !asked {
            let since = *majority_since.get_or_insert_with(Instant::now);
            if settled || since.elapsed() >= STRAGGLERS {
                campaign(shared, None);
                asked_at = Instant::now();
            }
        } else if asked && greeted && asked_at.elapsed() >= VOTE_PATIENCE && !won {
            // The voter whose vote is missing may never come back, and the others may have voted for somebody else.
            campaign(shared, None);
            asked_at = Instant::now();
        }
        tokio::select! {
            () = shared.campaign.notified() => {}
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
    }
}

fn campaign(shared: &Shared, above: Option<Term>) {
    shared.core(|core| {
        if let Some(term) = above {
            core.proposer.outbid(term);
        }
        core.asked = Moment::now();
        core.request = core.proposer.campaign();
    });
    shared.wake_all();
}
