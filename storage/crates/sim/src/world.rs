//! The run: one queue of events in virtual time.

mod disk_events;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use consensus::{Configuration, MemberId};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::acceptor::{Flush, Outcome, SimAcceptor};
use crate::checker::{Checker, Violation};
use crate::log::START;
use crate::network::{Network, ToAcceptor, ToProposer};
use crate::proposer::{SimProposer, Standing};
use crate::report::Report;
use crate::store::ObjectStore;
use crate::trace::{self, Trace};
use crate::{Bug, disks, log};

/// Virtual milliseconds of trouble before everything heals.
const TROUBLE: u64 = 6_000;
/// Virtual milliseconds after which the last election must have committed something.
const PATIENCE: u64 = 5_000;

enum Event {
    ToAcceptor {
        from: usize,
        to: usize,
        message: ToAcceptor,
    },
    ToProposer {
        from: usize,
        sender: MemberId,
        to: usize,
        message: ToProposer,
    },
    Flushed {
        acceptor: usize,
        flush: Flush,
    },
    Tick {
        proposer: usize,
    },
    Restart {
        acceptor: usize,
        incarnation: u32,
    },
    Trouble,
}

struct World {
    rng: ChaCha8Rng,
    now: u64,
    sequence: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    network: Network,
    acceptors: Vec<SimAcceptor>,
    /// What the control plane founds a log with, whenever it is asked to.
    founders: Configuration,
    disks: u64,
    /// Of finished WAL.
    store: ObjectStore,
    proposers: Vec<SimProposer>,
    checker: Checker,
    report: Report,
    bug: Option<Bug>,
    healed: bool,
    trace: Trace,
}

/// Runs one seed with the code as it is.
pub fn run(seed: u64) -> Result<Report, Violation> {
    run_with(seed, None)
}

/// Runs one seed, with a planted bug if one is given.
pub fn run_with(seed: u64, bug: Option<Bug>) -> Result<Report, Violation> {
    World::new(seed, bug, Trace::default()).judged(seed)
}

/// Runs one seed again and tells everything that happened in it, until the violation if there is one.
pub fn run_traced(seed: u64, bug: Option<Bug>) -> (Result<Report, Violation>, Vec<String>) {
    let mut world = World::new(seed, bug, Trace::on());
    let outcome = world.judged(seed);
    (outcome, world.trace.lines())
}
impl World {
    fn judged(&mut self, seed: u64) -> Result<Report, Violation> {
        self.play().map_err(|what| Violation {
            seed,
            time: self.now,
            what,
        })?;
        self.report.committed_bytes = self.checker.committed_end().0 - log::START.0;
        Ok(self.report.clone())
    }

    fn new(seed: u64, bug: Option<Bug>, trace: Trace) -> World {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (acceptors, founders) = disks::populate(&mut rng, bug);
        World {
            network: Network::random(&mut rng),
            rng,
            now: 0,
            sequence: 0,
            queue: BinaryHeap::new(),
            events: std::collections::HashMap::new(),
            disks: acceptors.len() as u64,
            acceptors,
            founders,
            store: ObjectStore::default(),
            proposers: Vec::new(),
            checker: Checker::default(),
            report: Report::default(),
            bug,
            healed: false,
            trace,
        }
    }

    fn at(&mut self, delay: u64, event: Event) {
        self.sequence += 1;
        self.queue.push(Reverse((self.now + delay, self.sequence)));
        self.events.insert(self.sequence, event);
    }

    fn play(&mut self) -> Result<(), String> {
        self.add_proposer();
        self.at(1, Event::Trouble);
        self.until(TROUBLE)?;
        let committed = self.heal()?;
        self.until(TROUBLE + PATIENCE)?;
        // A change that was under way can still have arrived since everything healed.
        let available = disks::majority_kept(&self.acceptors);
        self.report.changes = self.proposers.iter().map(|proposer| proposer.changes).sum();
        self.report.unavailable = u32::from(!available);
        if available && self.checker.committed_end() <= committed {
            return Err(format!(
                "nothing was committed past {committed} although everything had healed"
            ));
        }
        Ok(())
    }

    fn until(&mut self, end: u64) -> Result<(), String> {
        while let Some(Reverse((time, sequence))) = self.queue.pop() {
            let event = self.events.remove(&sequence).ok_or("an event vanished")?;
            if time > end {
                self.queue.push(Reverse((time, sequence)));
                self.events.insert(sequence, event);
                return Ok(());
            }
            self.now = time;
            self.step(event)?;
        }
        Ok(())
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::ToAcceptor { from, to, message } => {
                if self.acceptors[to].machine.is_some() {
                    let id = self.acceptors[to].id;
                    self.trace.note(self.now, || {
                        format!(
                            "a{} <- p{from} {}",
                            trace::member(id),
                            trace::to_acceptor(&message)
                        )
                    });
                    let outcome = self.acceptors[to].handle(&mut self.rng, from, message);
                    self.after(from, to, outcome);
                    self.checker
                        .acceptor(&self.acceptors[to])
                        .map_err(|what| format!("acceptor {to}: {what}"))?;
                }
            }
            Event::ToProposer {
                from,
                sender,
                to,
                message,
            } => {
                if self.proposers[to].alive {
                    self.trace.note(self.now, || {
                        format!(
                            "p{to} <- a{} {}",
                            trace::member(sender),
                            trace::to_proposer(&message)
                        )
                    });
                    let (standing, sends) = self.proposers[to].handle(from, sender, message);
                    self.send(to, sends);
                    self.judge(to, standing)?;
                }
            }
            Event::Flushed { acceptor, flush } => {
                let (reply, next) = self.acceptors[acceptor].flushed(flush);
                if let Some((to, message)) = reply {
                    self.reply(acceptor, to, message);
                }
                self.fsync(acceptor, next);
            }
            Event::Tick { proposer } => {
                if self.proposers[proposer].alive {
                    let sends = self.proposers[proposer].tick(&mut self.rng);
                    self.send(proposer, sends);
                    let pause = self.rng.random_range(5..40);
                    self.at(pause, Event::Tick { proposer });
                }
            }
            Event::Restart {
                acceptor,
                incarnation,
            } => {
                let down = &self.acceptors[acceptor];
                if down.incarnation == incarnation && down.machine.is_none() {
                    self.trace
                        .note(self.now, || format!("a{acceptor} restarts"));
                    self.acceptors[acceptor].restart();
                }
            }
            Event::Trouble => return self.trouble(),
        }
        Ok(())
    }

    fn judge(&mut self, proposer: usize, standing: Standing) -> Result<(), String> {
        match standing {
            Standing::Running => Ok(()),
            Standing::Won => {
                self.trace.note(self.now, || format!("p{proposer} wins"));
                self.report.elections += 1;
                let machine = &self.proposers[proposer].machine;
                let donor = machine.election().map(|election| election.donor);
                let voted = donor.and_then(|donor| self.proposers[proposer].id_of(donor));
                if voted != donor.map(|donor| self.acceptors[donor].id) {
                    // The donor's disk was lost after it had voted; nobody can be given its log.
                    return self.give_up(proposer);
                }
                self.take_over(proposer)?;
                self.checker.won(&self.proposers[proposer], &self.acceptors)
            }
            Standing::Committed => {
                self.report.commits += 1;
                let commit = self.proposers[proposer].commit_lsn();
                self.trace
                    .note(self.now, || format!("p{proposer} commits {commit}"));
                self.checker
                    .committed(&self.proposers[proposer], &self.acceptors)
            }
            // No acceptor of this world loses what it has acknowledged.
            Standing::LostWal => Err(format!(
                "proposer {proposer} saw committed WAL that no voter holds"
            )),
            Standing::Fenced => self.give_up(proposer),
        }
    }

    fn give_up(&mut self, proposer: usize) -> Result<(), String> {
        self.proposers[proposer].alive = false;
        if self.healed {
            // A vote request of a dead candidate was still under way: a new compute is started.
            self.add_proposer();
        }
        Ok(())
    }

    /// The winner inherits the donor's log, for the checker to compare.
    fn take_over(&mut self, proposer: usize) -> Result<(), String> {
        let won = &mut self.proposers[proposer];
        let election = won
            .machine
            .election()
            .ok_or("won without an election")?
            .clone();
        let donor = &self.acceptors[election.donor];
        let mut log = donor.log.clone();
        if log.end() >= election.start_lsn {
            log.cut(election.start_lsn);
        } else if election.term < self.checker.highest_won() {
            // A later term has cut the donor's log since it voted; this one comes too late.
            log.skip_to(election.start_lsn);
        } else {
            return Err(format!(
                "donor {} ends at {}, before the {} it voted with",
                election.donor,
                log.end(),
                election.start_lsn
            ));
        }
        won.inherit(log, donor.oldest);
        Ok(())
    }

    fn after(&mut self, from: usize, acceptor: usize, outcome: Outcome) {
        if outcome.crashed {
            self.crash(acceptor);
        }
        if let Some(reply) = outcome.reply {
            self.reply(acceptor, from, reply);
        }
        self.fsync(acceptor, outcome.flush);
    }

    fn fsync(&mut self, acceptor: usize, flush: Option<Flush>) {
        if let Some(flush) = flush {
            let delay = if self.rng.random_bool(0.05) { 200 } else { 8 };
            let delay = self.rng.random_range(1..=delay);
            self.at(delay, Event::Flushed { acceptor, flush });
        }
    }

    fn reply(&mut self, from: usize, to: usize, message: ToProposer) {
        let sender = self.acceptors[from].id;
        for delay in self.network.deliveries(&mut self.rng, (to, from)) {
            self.at(
                delay,
                Event::ToProposer {
                    from,
                    sender,
                    to,
                    message: message.clone(),
                },
            );
        }
    }

    fn send(&mut self, from: usize, sends: Vec<(usize, ToAcceptor)>) {
        for (to, message) in sends {
            for delay in self.network.deliveries(&mut self.rng, (from, to)) {
                self.at(
                    delay,
                    Event::ToAcceptor {
                        from,
                        to,
                        message: message.clone(),
                    },
                );
            }
        }
    }

    fn add_proposer(&mut self) {
        let id = self.proposers.len();
        // The control plane's list can be outdated. It must be complete where the log does not name its members.
        let complete = self.healed || self.founders.is_unlisted() || self.rng.random_bool(0.6);
        let listed = (0..self.acceptors.len())
            .map(|_| complete || self.rng.random_bool(0.7))
            .collect();
        self.proposers.push(SimProposer::new(id, listed, self.bug));
        let delay = self.rng.random_range(1..50);
        self.at(delay, Event::Tick { proposer: id });
    }

    fn crash(&mut self, acceptor: usize) {
        self.report.crashes += 1;
        self.trace.note(self.now, || format!("a{acceptor} crashes"));
        self.acceptors[acceptor].crash(&mut self.rng);
        let incarnation = self.acceptors[acceptor].incarnation;
        let delay = self.rng.random_range(10..600);
        self.at(
            delay,
            Event::Restart {
                acceptor,
                incarnation,
            },
        );
    }

    /// Something happens to somebody.
    fn trouble(&mut self) -> Result<(), String> {
        if self.healed {
            return Ok(());
        }
        let acceptor = self.rng.random_range(0..self.acceptors.len());
        match self.rng.random_range(0..14) {
            0 | 1 if self.proposers.len() < 12 => self.add_proposer(),
            2 => {
                let proposer = self.rng.random_range(0..self.proposers.len());
                self.proposers[proposer].alive = false;
            }
            3 | 4 => {
                let (proposers, acceptors) = (self.proposers.len(), self.acceptors.len());
                self.network.partition(&mut self.rng, proposers, acceptors);
            }
            5 | 6 if self.acceptors[acceptor].machine.is_some() => self.crash(acceptor),
            5 | 6 => {}
            7 | 8 => {
                // A pageserver reports that some of what is committed is in object storage; only one of the
                // acceptors hears of it now.
                let trim = self
                    .rng
                    .random_bool(0.5)
                    .then(|| {
                        self.acceptors[acceptor]
                            .machine
                            .as_ref()
                            .map(|machine| machine.commit_lsn())
                    })
                    .flatten();
                self.acceptors[acceptor].tidy(trim.filter(|lsn| *lsn > START));
            }
            9 => self.network = Network::random(&mut self.rng),
            10 => self.acceptors[acceptor].back_up(),
            11 => self.offload(acceptor),
            12 => self.fill(acceptor)?,
            _ if self.rng.random_bool(0.12) => self.replace_disk(acceptor),
            _ => {}
        }
        let pause = self.rng.random_range(10..150);
        self.at(pause, Event::Trouble);
        Ok(())
    }

    /// Everything works again and one more compute starts. Returns what was committed until now.
    fn heal(&mut self) -> Result<pg_types::Lsn, String> {
        self.healed = true;
        self.network.heal();
        for proposer in &mut self.proposers {
            proposer.alive = false;
        }
        for acceptor in 0..self.acceptors.len() {
            if self.acceptors[acceptor].machine.is_none() {
                self.acceptors[acceptor].restart();
            }
        }
        if self.rng.random_bool(0.15) {
            self.lose_all()?;
        }
        self.add_proposer();
        Ok(self.checker.committed_end())
    }
}
