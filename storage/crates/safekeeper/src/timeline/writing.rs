//! What proposers ask of a timeline: votes, adoption, appends.

use consensus::{
    AppendHeader, AppendReply, ConfigureRequest, ElectedReply, ElectedRequest, LogPosition,
    Refusal, ResetRequest, VoteReply, VoteRequest,
};
use pg_types::{Lsn, Term};
use wal_decode::WalStreamDecoder;
use wire::wal::{Failure, FailureKind};

use super::{State, Timeline, TimelineError, failure};
use crate::control::{self, Control, Identity};
use crate::{cut_wal, metrics, recovery};

impl Timeline {
    /// Position for a greeting, after an fsync so that it is the best this log can offer. Blocks.
    pub fn position(&self) -> Result<(LogPosition, Lsn), Failure> {
        self.flush()?;
        let mut state = self.state();
        let state = self.running(&mut state)?;
        Ok((state.acceptor.position(), self.oldest(state)))
    }

    /// Blocks.
    pub fn vote(&self, request: &VoteRequest) -> Result<VoteReply, Failure> {
        self.flush()?;
        let mut promises = self.promises.lock();
        let mut state = self.state();
        let state = self.running(&mut state)?;
        if let Some(promise) = state.acceptor.vote(request) {
            let control = self.control(&promises, promise.clone(), state.readers.clone());
            self.store_locked(&mut promises, state, control)?;
            state.acceptor.install(promise);
            // Whoever wrote until now is fenced and gets told with the next reply.
            self.publish(state);
        }
        let reply = state.acceptor.vote_reply(request);
        metrics::ELECTIONS
            .with_label_values(&[if reply.granted { "true" } else { "false" }])
            .inc();
        Ok(reply)
    }

    /// Whether this safekeeper follows `term` and has promised itself to no higher one; the error says which otherwise.
    /// Waits for the disk only while an election stores a promise or cuts the log.
    ///
    /// A vote counts from its reply on, which follows the change of what this looks at: where this says yes, no newer
    /// term has this safekeeper's vote yet.
    pub fn check_promise(&self, term: Term) -> Result<(), TimelineError> {
        let mut state = self.state();
        let state = self.running(&mut state)?;
        Ok(state.acceptor.check_term(term)?)
    }

    /// Like [`Timeline::store`] for a caller that holds the state, which a stop needs.
    pub(super) fn store_locked(
        &self,
        stored: &mut Control,
        state: &mut State,
        control: Control,
    ) -> Result<(), Failure> {
        control::store(&self.dir, &control)
            .map_err(|error| self.stop(state, "store the control file", &error))?;
        *stored = control;
        Ok(())
    }

    /// Adopts a winner's history and takes appends from `connection` only. Blocks.
    pub fn elected(
        &self,
        connection: u64,
        request: &ElectedRequest,
    ) -> Result<ElectedReply, TimelineError> {
        self.flush()?;
        let mut promises = self.promises.lock();
        let mut state = self.state();
        let state = self.running(&mut state)?;
        let adoption = state.acceptor.elected(request).inspect_err(|refusal| {
            if matches!(refusal, Refusal::Diverged { .. }) {
                self.report_diverged(request, refusal);
            }
        })?;
        // A decoder that failed can't be continued: what came after the last good record goes, too.
        let to = if state.decoder.is_some() {
            adoption.truncate_to
        } else {
            adoption.truncate_to.min(state.acceptor.write_lsn())
        };
        if to < state.acceptor.end_lsn() {
            let kept = cut_wal::set_aside(&self.dir, &mut state.segments, to).map_err(|error| {
                self.stop(state, "set aside WAL that an election cuts off", &error)
            })?;
            state
                .segments
                .cut(to)
                .map_err(|error| self.stop(state, "cut the log", &error))?;
            tracing::info!(timeline = %self.identity.timeline, %to, end = %state.acceptor.end_lsn(), ?kept, "log cut");
            state.acceptor.truncated(to);
            state.decoder = None;
        }
        if state.decoder.is_none() {
            state.decoder = Some(recovery::decoder(&self.identity, state.acceptor.end_lsn()));
        }
        let control = self.control(&promises, adoption.state.clone(), state.readers.clone());
        self.store_locked(&mut promises, state, control)?;
        state.acceptor.install(adoption.state);
        state.writer = connection;
        self.publish(state);
        let decoder = state
            .decoder
            .as_ref()
            .filter(|decoder| decoder.boundary() == state.acceptor.flush_lsn());
        Ok(state
            .acceptor
            .elected_reply(decoder.and_then(WalStreamDecoder::last_record)))
    }

    /// The log here goes on as it is, readable: it may be the only one that holds what was acknowledged.
    fn report_diverged(&self, request: &ElectedRequest, refusal: &Refusal) {
        let Identity {
            tenant, timeline, ..
        } = self.identity;
        let announced = request.history.last();
        let (term, from) = announced.map_or((Term(0), Lsn::INVALID), |it| (it.term, it.start_lsn));
        tracing::error!(
            %tenant, %timeline, %term, start_lsn = %from,
            "a compute with another history of this timeline was refused: this safekeeper {refusal}. Keep its directory"
        );
        metrics::DIVERGED.inc();
    }

    /// Stores the configuration that the proposer of the current term has made. Blocks.
    pub fn configure(&self, request: &ConfigureRequest) -> Result<(), TimelineError> {
        let mut promises = self.promises.lock();
        let mut state = self.state();
        let state = self.running(&mut state)?;
        let durable = state.acceptor.configure(request)?;
        let control = self.control(&promises, durable.clone(), state.readers.clone());
        self.store_locked(&mut promises, state, control)?;
        state.acceptor.install(durable);
        self.publish(state);
        Ok(())
    }

    /// Empties the log to start again where nothing before is needed. Blocks.
    pub fn reset(
        &self,
        connection: u64,
        request: &ResetRequest,
    ) -> Result<AppendReply, TimelineError> {
        self.flush()?;
        let mut promises = self.promises.lock();
        let mut state = self.state();
        let state = self.running(&mut state)?;
        self.check_writer(state, connection)?;
        let durable = state.acceptor.reset(request)?;
        // In this order: WAL below a stored horizon is dropped by the next start, a missing log is not made up.
        let control = self.control(&promises, durable.clone(), state.readers.clone());
        self.store_locked(&mut promises, state, control)?;
        state
            .segments
            .clear()
            .map_err(|error| self.stop(state, "clear the log", &error))?;
        state.acceptor.install_reset(durable);
        state.decoder = Some(recovery::decoder(&self.identity, request.to));
        self.publish(state);
        Ok(state.acceptor.append_reply())
    }

    fn check_writer(&self, state: &State, connection: u64) -> Result<(), Failure> {
        if state.writer == connection {
            return Ok(());
        }
        Err(failure(
            FailureKind::Superseded,
            "another connection of a proposer has taken over this timeline",
        ))
    }

    /// Takes WAL into the page cache. Returns whether there is something to fsync, which is left to the caller.
    pub fn append(
        &self,
        connection: u64,
        header: &AppendHeader,
        wal: &[u8],
    ) -> Result<bool, TimelineError> {
        let mut state = self.state();
        let state = self.running(&mut state)?;
        // The term comes first: a fenced proposer must learn that it is.
        let plan = state.acceptor.append(header, wal.len() as u64)?;
        self.check_writer(state, connection)?;
        let fresh = &wal[plan.skip as usize..];
        if !fresh.is_empty() {
            self.check_room(state, plan.write_at + fresh.len() as u64)?;
            let boundary = self.boundary_after(state, plan.write_at, fresh)?;
            state
                .segments
                .write(plan.write_at, fresh)
                .map_err(|error| self.stop(state, "write WAL", &error))?;
            state
                .acceptor
                .written(plan.write_at + fresh.len() as u64, boundary);
            metrics::WAL_BYTES.inc_by(fresh.len() as u64);
        }
        state
            .acceptor
            .announce_commit(header.term, header.commit_lsn);
        self.publish(state);
        Ok(state.acceptor.begin_flush().is_some())
    }

    /// Checks new WAL record by record; the end of the last whole one.
    fn boundary_after(&self, state: &mut State, at: Lsn, wal: &[u8]) -> Result<Lsn, Failure> {
        let decoder = state.decoder.as_mut().ok_or_else(|| {
            failure(
                FailureKind::BadRequest,
                "announce the term again: the WAL sent before was damaged",
            )
        })?;
        // Padding, and what follows an XLOG_SWITCH, belongs to a record but may still be on its way.
        let mut reached = state.acceptor.write_lsn();
        let mut feed = || {
            let end = at + wal.len() as u64;
            let mut records = decoder.feed(at, wal)?;
            loop {
                if records.boundary() <= end {
                    reached = reached.max(records.boundary());
                }
                if records.next_record()?.is_none() {
                    return Ok(reached);
                }
            }
        };
        feed().map_err(|error: wal_decode::WalError| {
            state.decoder = None;
            failure(
                FailureKind::BadRequest,
                format!("the proposer sent damaged WAL: {error}"),
            )
        })
    }
}
