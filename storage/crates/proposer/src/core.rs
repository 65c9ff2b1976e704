//! What the tasks of one proposer share.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use consensus::{
    CandidateId, Change, ChangeError, ConfigureRequest, ElectedRequest, Proposer, VoteOutcome,
    VoteReply, VoteRequest,
};
use parking_lot::Mutex;
use pg_types::{Lsn, Term};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use wire::wal::{AcceptorMessage, Greeting, Room};

use crate::buffer::WalBuffer;
use crate::lease::Lease;
use crate::metrics::Metrics;
use crate::moment::Moment;
use crate::peers::Peers;
use crate::reactor::Reactor;
use crate::tries::Tries;
use crate::{Fatal, FpwChange, Positions, ProposerConfig};

pub struct Shared {
    pub config: ProposerConfig,
    pub metrics: Metrics,
    core: Mutex<Core>,
    pub peers: Peers,
    /// Something of interest to the election happened.
    pub campaign: Notify,
    pub positions: watch::Sender<Positions>,
    pub fpw_change: watch::Sender<Option<FpwChange>>,
    pub fatal: watch::Sender<Option<Fatal>>,
    pub closed: CancellationToken,
    pub reactor: Reactor,
    pub traceparent: String,
}

/// What is known of one safekeeper.
#[derive(Default)]
pub struct Member {
    pub connected: bool,
    /// Has greeted or failed to at least once.
    pub settled: bool,
    pub last_error: Option<String>,
    /// Where its commit LSN is.
    pub commit_lsn: Lsn,
    /// Below this its WAL may be gone.
    pub trimmed_lsn: Lsn,
    /// When the term was announced to it last.
    pub announced: Option<Moment>,
    /// The peers that its WAL was fetched from.
    pub tries: Tries,
    /// How much more WAL it takes, as it said last; `None` for no limit.
    pub room: Option<Room>,
    ingested_lsn: Lsn,
    remote_consistent_lsn: Lsn,
}

pub struct Core {
    pub proposer: Proposer,
    pub request: Option<VoteRequest>,
    /// A change of the members that every peer has to store.
    pub configure: Option<ConfigureRequest>,
    /// The last vote was lost to this term.
    pub lost_to: Option<Term>,
    pub buffer: WalBuffer,
    pub members: Vec<Member>,
    pub lease: Lease,
    /// When the votes of the last campaign were asked for.
    pub asked: Moment,
    pub identity: Option<(u64, u32)>,
    pub prev_record_lsn: Option<Lsn>,
    record_end: Lsn,
    /// Ends of received pieces and when they came, until they are committed.
    in_flight: VecDeque<(Lsn, Instant)>,
}

impl Shared {
    /// Fails when there is no thread to run on.
    pub fn new(config: ProposerConfig) -> io::Result<Shared> {
        let count = config.safekeepers.len();
        let closed = CancellationToken::new();
        let candidate = CandidateId(*uuid::Uuid::new_v4().as_bytes());
        let now = Moment::now();
        Ok(Shared {
            metrics: Metrics::new(&config),
            core: Mutex::new(Core {
                proposer: Proposer::new(candidate, count),
                request: None,
                configure: None,
                lost_to: None,
                buffer: WalBuffer::new(Lsn::INVALID),
                members: (0..count).map(|_| Member::default()).collect(),
                lease: Lease::new(config.quorum_timeout, now),
                asked: now,
                identity: None,
                prev_record_lsn: None,
                record_end: Lsn::INVALID,
                in_flight: VecDeque::new(),
            }),
            peers: Peers::new(&config.safekeepers),
            campaign: Notify::new(),
            positions: watch::Sender::new(Positions::default()),
            fpw_change: watch::Sender::new(None),
            fatal: watch::Sender::new(None),
            reactor: Reactor::start(closed.clone())?,
            closed,
            traceparent: telemetry::current_traceparent(),
            config,
        })
    }

    pub fn core<T>(&self, with: impl FnOnce(&mut Core) -> T) -> T {
        with(&mut self.core.lock())
    }

    pub async fn woken(&self, member: usize) {
        self.peers.get(member).wake.notified().await;
    }

    pub fn wake_all(&self) {
        self.peers.wake_all();
    }

    pub fn address(&self, peer: usize) -> String {
        self.peers.get(peer).address.clone()
    }

    /// One more address; its number.
    pub fn add_peer(&self, address: &str) -> usize {
        self.core(|core| {
            self.peers.add(address.to_owned());
            core.members.push(Member::default());
            core.proposer.add_peer()
        })
    }

    /// Makes one change of the members, for every peer to store.
    pub fn change_members(&self, change: &Change) -> Result<(), ChangeError> {
        self.core(|core| self.make_change(core, change))
    }

    fn make_change(&self, core: &mut Core, change: &Change) -> Result<(), ChangeError> {
        let request = core.proposer.change(change)?;
        let generation = request.configuration.generation;
        tracing::info!(timeline = %self.config.timeline, %generation, ?change, "the members change");
        core.configure = Some(request);
        self.wake_all();
        Ok(())
    }

    /// Reports why the compute must stop; the first reason stays.
    pub fn fail(&self, fatal: Fatal) {
        let first = self.fatal.send_if_modified(|current| {
            let first = current.is_none();
            current.get_or_insert(fatal.clone());
            first
        });
        if first {
            tracing::error!(timeline = %self.config.timeline, "{fatal}");
        }
    }

    pub fn has_failed(&self) -> bool {
        self.fatal.borrow().is_some()
    }

    pub fn fenced(&self, by: Term) {
        self.fail(Fatal::Fenced { by });
    }

    pub fn greeted(&self, index: usize, greeting: &Greeting) -> Result<(), String> {
        self.check_history(index, &greeting.position)?;
        self.core(|core| {
            let identity = (greeting.system_identifier, greeting.pg_version);
            let expected = *core.identity.get_or_insert(identity);
            if expected != identity {
                return Err(format!(
                    "it holds a timeline of system {} version {}, the others hold {} version {}",
                    identity.0, identity.1, expected.0, expected.1
                ));
            }
            let member = &mut core.members[index];
            (member.connected, member.settled, member.last_error) = (true, true, None);
            member.trimmed_lsn = greeting.position.remote_consistent_lsn;
            member.commit_lsn = greeting.position.commit_lsn;
            core.proposer.greeted(index, greeting.position.clone());
            Ok(())
        })?;
        self.campaign.notify_one();
        Ok(())
    }

    pub fn disconnected(&self, index: usize, error: String) {
        self.core(|core| {
            core.proposer.disconnected(index);
            let member = &mut core.members[index];
            (member.connected, member.settled, member.last_error) = (false, true, Some(error));
        });
        self.metrics.safekeeper(&self.address(index), false, 0);
        self.campaign.notify_one();
    }

    pub fn voted(&self, index: usize, reply: VoteReply) {
        let mut lost_wal = None;
        self.core(|core| {
            if core.proposer.election().is_some() {
                return;
            }
            match core.proposer.voted(index, reply) {
                VoteOutcome::Pending => {}
                VoteOutcome::Lost { highest } => core.lost_to = Some(highest),
                VoteOutcome::LostWal(lost) => lost_wal = Some(lost),
                VoteOutcome::Won(election) => {
                    core.buffer = WalBuffer::new(election.start_lsn);
                    core.record_end = election.start_lsn;
                    core.lease.begin(core.asked);
                }
            }
        });
        if let Some(lost) = lost_wal {
            self.wal_is_lost(&lost);
        }
        self.campaign.notify_one();
        self.wake_all();
    }

    /// A reply with positions. Returns false when this proposer is fenced.
    pub fn replied(&self, index: usize, message: &AcceptorMessage) -> bool {
        let outcome = self.core(|core| {
            let outcome = match message {
                AcceptorMessage::Elected(reply) => {
                    if let Some(announced) = core.members[index].announced {
                        core.lease.prove(index, announced, Moment::now());
                    }
                    let won = core
                        .proposer
                        .election()
                        .map(|election| (election.donor, election.start_lsn));
                    if won == Some((index, reply.flush_lsn)) {
                        core.prev_record_lsn = reply.prev_record_lsn;
                    }
                    core.proposer.adopted(index, reply)
                }
                AcceptorMessage::Append {
                    reply,
                    ingested_lsn,
                    remote_consistent_lsn,
                } => {
                    let member = &mut core.members[index];
                    member.commit_lsn = reply.commit_lsn;
                    member.ingested_lsn = member.ingested_lsn.max(*ingested_lsn);
                    member.trimmed_lsn = member.trimmed_lsn.max(*remote_consistent_lsn);
                    member.remote_consistent_lsn =
                        member.remote_consistent_lsn.max(*remote_consistent_lsn);
                    core.proposer.appended(index, reply)
                }
                _ => Ok(false),
            };
            if outcome == Ok(true) {
                self.observe_commits(core);
            }
            self.write_members_down(core);
            core.trim(self.config.buffer_bytes);
            self.publish(core);
            outcome
        });
        self.campaign.notify_one();
        match outcome {
            Ok(moved) => {
                if moved {
                    self.wake_all();
                }
                true
            }
            Err(fenced) => {
                self.fenced(fenced.by);
                false
            }
        }
    }

    /// A safekeeper was still promised to this term at `moment` of this machine's clock, or later.
    pub fn renewed(&self, index: usize, moment: Moment) {
        self.core(|core| core.lease.prove(index, moment, Moment::now()));
    }

    /// When the compute must have stopped unless a majority renews the lease.
    pub fn lease_end(&self) -> Moment {
        self.core(|core| core.lease.end(&core.proposer.voters()))
    }

    /// A safekeeper says how much more WAL it takes.
    pub fn has_room(&self, index: usize, room: Option<Room>) {
        self.core(|core| {
            core.members[index].room = room;
            self.publish(core);
        });
        self.peers.get(index).wake.notify_one();
    }

    /// A log that was founded before logs knew their members gets to know them as soon as all of them follow this term.
    fn write_members_down(&self, core: &mut Core) {
        if !core.proposer.configuration().is_unlisted() || core.proposer.election().is_none() {
            return;
        }
        let Some(members) = core.proposer.listable() else {
            return;
        };
        if let Err(error) = self.make_change(core, &Change::List(members)) {
            tracing::debug!(%error, "the members are not written down yet");
        }
    }

    fn observe_commits(&self, core: &mut Core) {
        let commit = core.proposer.commit_lsn();
        while let Some((end, since)) = core.in_flight.front()
            && *end <= commit
        {
            self.metrics
                .commit_seconds
                .observe(since.elapsed().as_secs_f64());
            core.in_flight.pop_front();
        }
    }

    /// More WAL from Postgres.
    pub fn received(&self, wal: bytes::Bytes) {
        self.core(|core| core.buffer.push(wal));
        self.wake_all();
    }

    /// The records in the WAL received so far end at `lsn`.
    pub fn records_end(&self, lsn: Lsn, since: Instant) {
        self.core(|core| {
            if lsn > core.record_end {
                core.record_end = lsn;
                core.in_flight.push_back((lsn, since));
                // The majority may have been faster than the decoder.
                self.observe_commits(core);
            }
            self.publish(core);
        });
    }

    pub fn fpw_changed(&self, mut change: FpwChange) {
        change.committed = self.core(|core| core.proposer.commit_lsn() >= change.end_lsn);
        self.fpw_change.send_replace(Some(change));
    }

    fn publish(&self, core: &Core) {
        if core.proposer.election().is_none() {
            return;
        }
        let commit = core.proposer.commit_lsn();
        let furthest = |position: fn(&Member) -> Lsn| {
            core.members.iter().map(position).max().unwrap_or_default()
        };
        let positions = Positions {
            received: core.buffer.end(),
            record_end: core.record_end,
            written: core.proposer.write_quorum().max(commit),
            commit,
            applied: furthest(|member| member.ingested_lsn).min(commit),
            remote_consistent: furthest(|member| member.remote_consistent_lsn).min(commit),
            room: core.room(),
        };
        self.positions
            .send_if_modified(|current| std::mem::replace(current, positions) != positions);
        self.fpw_change.send_if_modified(|change| match change {
            Some(change) if !change.committed && change.end_lsn <= commit => {
                change.committed = true;
                true
            }
            _ => false,
        });
    }

    /// Every half second: metrics that need no better.
    pub async fn measure(&self) {
        let mut clock = tokio::time::interval(Duration::from_millis(500));
        clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            clock.tick().await;
            self.metrics.positions(&self.positions.borrow());
            let left = self.lease_end().since(Moment::now());
            self.metrics.lease_seconds.set(left.as_secs_f64());
            self.core(|core| {
                for (index, member) in core.members.iter().enumerate() {
                    let flushed = core.proposer.flush_of(index).unwrap_or_default();
                    let lag = core.record_end.checked_sub(flushed).unwrap_or(0);
                    self.metrics
                        .safekeeper(&self.address(index), member.connected, lag);
                }
            });
        }
    }
}

impl Core {
    pub fn errors(&self) -> Vec<String> {
        self.members
            .iter()
            .filter_map(|member| member.last_error.clone())
            .collect()
    }

    /// Lets go of WAL that every connected safekeeper has fsynced, and of committed WAL beyond the limit.
    fn trim(&mut self, limit: usize) {
        let Some(election) = self.proposer.election() else {
            return;
        };
        let commit = self.proposer.commit_lsn();
        let slowest = (0..self.members.len())
            .filter(|index| self.members[*index].connected)
            .filter(|index| self.proposer.role_of(*index).is_some())
            .map(|index| self.proposer.flush_of(index).unwrap_or(election.start_lsn))
            .min()
            .unwrap_or(commit);
        let excess = Lsn(self.buffer.end().0.saturating_sub(limit as u64));
        self.buffer.trim(slowest.max(excess).min(commit));
    }

    /// End of the last whole record received from Postgres.
    pub fn record_end(&self) -> Lsn {
        self.record_end
    }

    pub fn announcement(&self) -> Option<ElectedRequest> {
        self.proposer.announcement()
    }

    /// Whether a majority knows that L is committed.
    pub fn is_announced(&self) -> bool {
        let Some(election) = self.proposer.election() else {
            return false;
        };
        let knows = |peer: usize| self.members[peer].commit_lsn >= election.start_lsn;
        self.proposer.is_established() && self.proposer.majority_of(knows)
    }
}
