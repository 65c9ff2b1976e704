//! What computes and safekeepers tell each other, and what comes of it when it arrives.

use consensus::VoteRequest;

use crate::log::START;
use crate::model::{Nothing, ProtocolModel};
use crate::safekeeper::Safekeeper;
use crate::state::{Late, State};
use crate::step::What;

impl ProtocolModel {
    pub(crate) fn campaign(
        &self,
        state: &mut State,
        compute: usize,
        greeters: u32,
    ) -> Result<(), Nothing> {
        let State {
            safekeepers,
            computes,
            ..
        } = state;
        let asks = computes[compute].change(|it| {
            let greets = |node: &usize| greeters & 1 << node != 0;
            for node in (0..safekeepers.len()).filter(greets) {
                it.greeted(node, safekeepers[node].machine.position());
            }
            it.campaign() && it.machine.term().0 <= self.scenario.highest_term
        });
        if asks { Ok(()) } else { Err(Nothing) }
    }

    /// Some safekeepers greet and vote before anything else happens.
    pub(crate) fn elect(
        &self,
        state: &mut State,
        compute: usize,
        voters: u32,
    ) -> Result<(), Nothing> {
        self.campaign(state, compute, voters)?;
        let request = state.computes[compute].request.clone().ok_or(Nothing)?;
        let votes = |node: &usize| voters & 1 << node != 0;
        for node in (0..state.safekeepers.len()).filter(votes) {
            // It is asked, too, when the election is decided already.
            let reply = self.vote(state, compute, node, &request);
            self.arrive(state, &reply);
        }
        Ok(())
    }

    /// Every winner hears what there is to hear.
    pub(crate) fn hear_all(&self, state: &mut State) {
        for compute in 0..state.computes.len() {
            for safekeeper in 0..state.safekeepers.len() {
                if state.computes[compute].has_won() {
                    // Nothing to hear is as good as nothing new.
                    let _ = self.hear(state, compute, safekeeper);
                }
            }
        }
    }

    /// The safekeeper is asked for its vote: its reply.
    pub(crate) fn vote(
        &self,
        state: &mut State,
        compute: usize,
        from: usize,
        request: &VoteRequest,
    ) -> Late {
        let safekeeper = &mut state.safekeepers[from];
        safekeeper.change(|it| it.vote(request));
        Late::Voted {
            from,
            compute,
            reply: safekeeper.vote_reply(request),
            log: safekeeper.log.clone(),
        }
    }

    pub(crate) fn message(
        &self,
        state: &mut State,
        what: What,
        compute: usize,
        safekeeper: usize,
    ) -> Result<Late, Nothing> {
        match what {
            What::Vote => self.asked_vote(state, compute, safekeeper),
            What::History => self.history(state, compute, safekeeper),
            What::Change => self.change(state, compute, safekeeper),
            What::Record => self.record(state, compute, safekeeper),
            What::Reply => self.reply(state, compute, safekeeper),
        }
    }

    pub(crate) fn asked_vote(
        &self,
        state: &mut State,
        compute: usize,
        from: usize,
    ) -> Result<Late, Nothing> {
        let request = state.computes[compute].request.clone().ok_or(Nothing)?;
        Ok(self.vote(state, compute, from, &request))
    }

    /// A connection begins with a greeting, by which the compute learns whom it has reached.
    fn connect(&self, state: &mut State, compute: usize, peer: usize) {
        let safekeeper = &state.safekeepers[peer];
        if state.computes[compute].machine.id_of(peer) != Some(safekeeper.id) {
            let position = safekeeper.machine.position();
            state.computes[compute].change(|it| it.greeted(peer, position));
        }
    }

    fn history(&self, state: &mut State, compute: usize, to: usize) -> Result<Late, Nothing> {
        self.connect(state, compute, to);
        let request = state.computes[compute].machine.announcement();
        Ok(Late::Elected {
            to,
            id: state.safekeepers[to].id,
            request: request.ok_or(Nothing)?,
        })
    }

    pub(crate) fn die_adopting(
        &self,
        state: &mut State,
        compute: usize,
        safekeeper: usize,
    ) -> Result<(), Nothing> {
        let Late::Elected { request, .. } = self.history(state, compute, safekeeper)? else {
            return Err(Nothing);
        };
        state.faults.crashes -= 1;
        let adopts = |it: &mut Safekeeper| it.elected(&request, true);
        let dies = state.safekeepers[safekeeper].change(adopts);
        if dies { Ok(()) } else { Err(Nothing) }
    }

    /// Whether the compute's connection to the safekeeper was made to who is there now.
    fn is_connected(&self, state: &State, compute: usize, peer: usize) -> bool {
        let reached = state.computes[compute].machine.id_of(peer);
        reached == Some(state.safekeepers[peer].id)
    }

    fn change(&self, state: &State, compute: usize, to: usize) -> Result<Late, Nothing> {
        let sender = &state.computes[compute];
        if !self.is_connected(state, compute, to) || sender.machine.has_configured(to) {
            return Err(Nothing);
        }
        Ok(Late::Configure {
            to,
            id: state.safekeepers[to].id,
            request: sender.configure(),
        })
    }

    fn record(&self, state: &State, compute: usize, to: usize) -> Result<Late, Nothing> {
        if !self.is_connected(state, compute, to) {
            return Err(Nothing);
        }
        let receiver = &state.safekeepers[to];
        let begin_lsn = receiver.machine.end_lsn().max(START);
        let append = state.computes[compute].append(begin_lsn);
        let (header, wal) = append.ok_or(Nothing)?;
        if wal.is_empty() && !self.scenario.empty_appends {
            return Err(Nothing);
        }
        Ok(Late::Append {
            to,
            id: receiver.id,
            header,
            wal: wal.to_vec(),
        })
    }

    fn reply(&self, state: &State, compute: usize, from: usize) -> Result<Late, Nothing> {
        let known = state.computes[compute].machine.flush_of(from);
        if !self.is_connected(state, compute, from) || known.is_none() {
            return Err(Nothing);
        }
        let sender = &state.safekeepers[from];
        Ok(Late::Appended {
            from,
            id: sender.id,
            compute,
            reply: sender.append_reply(),
        })
    }

    /// The reply to the announcement, if the compute has not had it, or to an append.
    pub(crate) fn hear(
        &self,
        state: &mut State,
        compute: usize,
        from: usize,
    ) -> Result<(), Nothing> {
        if let Ok(reply) = self.reply(state, compute, from) {
            self.arrive(state, &reply);
            return Ok(());
        }
        let sender = &state.safekeepers[from];
        let term = state.computes[compute].machine.term();
        if !self.is_connected(state, compute, from) || !sender.machine.follows(term) {
            return Err(Nothing);
        }
        let reply = sender.machine.elected_reply(None);
        state.computes[compute].change(|it| it.adopted(from, &reply));
        Ok(())
    }

    /// A message arrives. Refusals are not told to the sender: at most they would stop it, and a compute that does
    /// nothing more is among the things that can happen anyway.
    pub(crate) fn arrive(&self, state: &mut State, message: &Late) -> bool {
        match message {
            Late::Append {
                to,
                id,
                header,
                wal,
            } => {
                let synced = !self.scenario.slow_fsync;
                let receiver = &mut state.safekeepers[*to];
                receiver.id == *id
                    && receiver.change(|it| {
                        let taken = it.append(header, wal);
                        while synced && it.flushed() {}
                        taken
                    })
            }
            Late::Elected { to, id, request } => {
                let receiver = &mut state.safekeepers[*to];
                receiver.id == *id && receiver.change(|it| it.elected(request, false))
            }
            Late::Configure { to, id, request } => {
                let receiver = &mut state.safekeepers[*to];
                receiver.id == *id && receiver.change(|it| it.configure(request))
            }
            Late::Appended {
                from,
                id,
                compute,
                reply,
            } => {
                let receiver = &mut state.computes[*compute];
                let connected = receiver.machine.id_of(*from) == Some(*id);
                let told = connected && !receiver.knows(*from, reply.flush_lsn, reply.generation);
                if told {
                    receiver.change(|it| it.appended(*from, *reply));
                }
                told
            }
            Late::Voted {
                from,
                compute,
                reply,
                log,
            } => {
                state.computes[*compute].change(|it| it.voted(*from, reply.clone(), log));
                true
            }
        }
    }
}
