//! One safekeeper: connect, ask for its vote, announce the term, push WAL, hear what it has; for ever again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::{Buf as _, Bytes};
use consensus::{AppendHeader, Generation, Refusal};
use futures::StreamExt as _;
use part_tls::WriteHalf;
use pg_types::{Lsn, Term};
use tokio::sync::watch;
use tokio::time::Instant;
use wire::wal::{
    self, AcceptorMessage, FirstMessage, MAX_WAL_BYTES, ProposeRequest, ProposerMessage,
};

use crate::batch::Batch;
use crate::connection::{Frames, connect};
use crate::core::Shared;
use crate::moment::Moment;
use crate::{lease, supply};

const FIRST_BACKOFF: Duration = Duration::from_millis(20);
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// Of a safekeeper that is no member: how often it is asked who it is by now.
const STRANGER_BACKOFF: Duration = Duration::from_secs(5);
/// A moved commit LSN waits this long for WAL to travel with.
const COMMIT_DELAY: Duration = Duration::from_millis(3);
/// A safekeeper that says nothing for this long although heartbeats go out is connected to anew.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);

/// Serves one safekeeper until the proposer is closed or has failed.
pub async fn run(shared: Arc<Shared>, index: usize) {
    let address = shared.address(index);
    let mut backoff = FIRST_BACKOFF;
    while !shared.has_failed() {
        // Who is no member has nothing to hear; it is asked now and then who it is by now.
        let stranger = shared.core(|core| {
            core.proposer.election().is_some() && core.proposer.role_of(index).is_none()
        });
        let limit = if stranger {
            STRANGER_BACKOFF
        } else {
            MAX_BACKOFF
        };
        let begun = Instant::now();
        let ended = tokio::select! {
            ended = session(&shared, index, &address) => ended,
            () = shared.closed.cancelled() => return,
        };
        let error = ended.map_or_else(
            |error| format!("{error:#}"),
            |()| format!("safekeeper {address}: connection closed"),
        );
        tracing::info!(timeline = %shared.config.timeline, "{error}");
        shared.disconnected(index, error);
        if begun.elapsed() > MAX_BACKOFF {
            backoff = FIRST_BACKOFF;
        }
        tokio::select! {
            () = tokio::time::sleep(backoff) => {}
            () = shared.closed.cancelled() => return,
        }
        backoff = (backoff * 2).min(limit);
    }
}

async fn session(shared: &Shared, index: usize, address: &str) -> anyhow::Result<()> {
    let (mut frames, mut writer) = connect(address, &shared.config).await?;
    let hello = FirstMessage::Propose(ProposeRequest {
        version: wal::PROPOSE_VERSION,
        tenant: shared.config.tenant,
        timeline: shared.config.timeline,
        traceparent: shared.traceparent.clone(),
    });
    writer.send(&wal::encode(&hello)).await?;
    let greeting = tokio::time::timeout(SILENCE_LIMIT, frames.next())
        .await
        .with_context(|| format!("safekeeper {address}: no greeting"))?;
    match greeting
        .transpose()?
        .map(|frame| wal::decode::<AcceptorMessage>(&frame))
        .transpose()?
    {
        Some(AcceptorMessage::Greeting(greeting)) => {
            shared
                .greeted(index, &greeting)
                .map_err(|error| anyhow::anyhow!("safekeeper {address}: {error}"))?;
        }
        Some(AcceptorMessage::Failed(failure)) => bail!("safekeeper {address}: {failure}"),
        Some(other) => bail!("safekeeper {address}: unexpected greeting {other:?}"),
        None => bail!("safekeeper {address}: closed the connection without a greeting"),
    }
    let (position, positions) = watch::channel(None);
    let send = Sender {
        shared,
        index,
        writer,
        asked: Term(0),
        announced: false,
        configured: Generation::ZERO,
        sent: Lsn::INVALID,
        batch: Batch::new(),
        known_commit: Lsn::INVALID,
        positions,
        renewal_due: Instant::now(),
    };
    tokio::select! {
        ended = receive(shared, index, address, frames, position) => ended,
        ended = send.run() => ended.with_context(|| format!("safekeeper {address}: sending failed")),
    }
}

/// Takes replies; `position` tells the sending half where the safekeeper's log is once it has adopted the term.
async fn receive(
    shared: &Shared,
    index: usize,
    address: &str,
    mut frames: Frames,
    position: watch::Sender<Option<Lsn>>,
) -> anyhow::Result<()> {
    loop {
        let frame = tokio::time::timeout(SILENCE_LIMIT, frames.next())
            .await
            .with_context(|| format!("safekeeper {address}: silent for {SILENCE_LIMIT:?}"))?;
        let Some(frame) = frame.transpose()? else {
            return Ok(());
        };
        let message = wal::decode::<AcceptorMessage>(&frame)?;
        match &message {
            AcceptorMessage::Vote(reply) => shared.voted(index, reply.clone()),
            AcceptorMessage::Elected(reply) => {
                if !shared.replied(index, &message) {
                    bail!("fenced");
                }
                // Wakes this safekeeper's sender. The others wait for what `replied` tells them: a commit, or a change of
                // the members.
                position.send_replace(Some(reply.flush_lsn));
            }
            AcceptorMessage::Append { reply, .. } => {
                // Before the announcement such replies only say that the safekeeper lives.
                let announced = shared.core(|core| core.announcement().is_some());
                if announced && !shared.replied(index, &message) {
                    bail!("fenced");
                }
                position.send_if_modified(|position| match position {
                    Some(known) if *known < reply.flush_lsn => {
                        *known = reply.flush_lsn;
                        true
                    }
                    _ => false,
                });
            }
            AcceptorMessage::Refused(Refusal::HigherTerm(term)) => {
                if shared.core(|core| core.announcement().is_some()) {
                    shared.fenced(*term);
                } else {
                    shared.core(|core| core.lost_to = Some(*term));
                    shared.campaign.notify_one();
                }
                bail!("safekeeper {address}: promised to term {term}");
            }
            AcceptorMessage::Refused(refusal @ Refusal::Diverged { .. }) => {
                shared.diverged(index, refusal);
                bail!("safekeeper {address}: {refusal}");
            }
            AcceptorMessage::Refused(Refusal::OlderGeneration(newer)) => {
                shared.generation_replaced(index, newer);
                bail!("safekeeper {address} knows generation {}", newer.generation);
            }
            AcceptorMessage::Refused(refusal) => bail!("safekeeper {address}: {refusal}"),
            AcceptorMessage::Failed(failure) => bail!("safekeeper {address}: {failure}"),
            AcceptorMessage::Room(room) => shared.has_room(index, *room),
            AcceptorMessage::Renewed { sent_us, held_us } => {
                let moment = lease::vouched(*sent_us, *held_us);
                if moment > Moment::now() {
                    bail!(
                        "safekeeper {address} vouches for a moment to come: its clock runs too fast"
                    );
                }
                shared.renewed(index, moment);
            }
            AcceptorMessage::Greeting(_) => bail!("safekeeper {address}: greeted twice"),
        }
    }
}

struct Sender<'a> {
    shared: &'a Shared,
    index: usize,
    writer: WriteHalf,
    /// Term of the last vote asked for on this connection.
    asked: Term,
    announced: bool,
    /// The newest configuration sent on this connection.
    configured: Generation,
    /// Where the next append begins.
    sent: Lsn,
    batch: Batch,
    known_commit: Lsn,
    /// Flushed position, once the term is adopted.
    positions: watch::Receiver<Option<Lsn>>,
    renewal_due: Instant,
}

enum Work {
    Message(ProposerMessage),
    Wal(AppendHeader, Bytes),
    /// WAL that memory does not hold any more, or never did, up to here.
    Fetch {
        to: Lsn,
    },
    /// The commit LSN moved and there is no WAL for it to travel with.
    Commit,
    Nothing,
}

impl Sender<'_> {
    async fn run(mut self) -> anyhow::Result<()> {
        let period = lease::period(self.shared.config.quorum_timeout);
        let mut heartbeat = tokio::time::interval(period);
        heartbeat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut commit_due: Option<Instant> = None;
        loop {
            // Here as well: while there is always more WAL, no heartbeat's turn comes.
            if self.renewal_due <= Instant::now() {
                self.renew().await?;
            }
            match self.next() {
                Work::Message(message) => self.writer.send(&wal::encode(&message)).await?,
                Work::Wal(header, bytes) => {
                    commit_due = None;
                    self.append(header, bytes).await?;
                    continue;
                }
                Work::Fetch { to } => {
                    self.fetch(to).await?;
                    continue;
                }
                Work::Commit => {
                    let due = *commit_due.get_or_insert_with(|| Instant::now() + COMMIT_DELAY);
                    if due <= Instant::now() {
                        commit_due = None;
                        self.beat().await?;
                        continue;
                    }
                }
                Work::Nothing => commit_due = None,
            }
            let due = commit_due.unwrap_or_else(|| Instant::now() + period);
            tokio::select! {
                () = self.shared.woken(self.index) => {}
                changed = self.positions.changed() => changed?,
                () = tokio::time::sleep_until(due), if commit_due.is_some() => {}
                () = tokio::time::sleep_until(self.renewal_due) => {}
                _ = heartbeat.tick() => self.beat().await?,
            }
        }
    }

    fn next(&mut self) -> Work {
        let position = *self.positions.borrow_and_update();
        self.shared.core(|core| {
            let Some(announcement) = core.announcement() else {
                return match &core.request {
                    Some(request) if request.term > self.asked => {
                        self.asked = request.term;
                        Work::Message(ProposerMessage::Vote(request.clone()))
                    }
                    _ => Work::Nothing,
                };
            };
            if !self.announced {
                // Who is no member has nothing to adopt, and may become a member while this connection lasts.
                if core.proposer.role_of(self.index).is_none() {
                    return Work::Nothing;
                }
                self.announced = true;
                core.members[self.index].announced = Some(Moment::now());
                self.configured = announcement.configuration.generation;
                return Work::Message(ProposerMessage::Elected(announcement));
            }
            let Some(position) = position else {
                return Work::Nothing;
            };
            if let Some(request) = &core.configure
                && request.configuration.generation > self.configured
            {
                self.configured = request.configuration.generation;
                return Work::Message(ProposerMessage::Configure(request.clone()));
            }
            self.sent = self.sent.max(position);
            let commit_lsn = core.proposer.commit_lsn();
            // WAL of before this term may have been acknowledged, and is taken whatever room there is.
            let room = core.members[self.index].room;
            let begun = core
                .proposer
                .election()
                .map_or(Lsn::INVALID, |it| it.start_lsn);
            let takes = room.map_or(Lsn::MAX, |room| room.limit_lsn.max(begun));
            if self.sent < core.buffer.start().min(takes) {
                return Work::Fetch {
                    to: core.buffer.start().min(takes),
                };
            }
            let (end, record_end) = (core.buffer.end().min(takes), core.record_end());
            if !self.batch.is_due(position, self.sent, end, record_end) && end > self.sent {
                return Work::Nothing;
            }
            let most = (end.0.saturating_sub(self.sent.0) as usize).min(MAX_WAL_BYTES);
            if let Some(bytes) = core.buffer.piece(self.sent, most)
                && !bytes.is_empty()
            {
                let end_lsn = self.sent + bytes.len() as u64;
                let header = AppendHeader {
                    term: core.proposer.term(),
                    generation: self.configured,
                    begin_lsn: self.sent,
                    end_lsn,
                    commit_lsn,
                };
                return Work::Wal(header, bytes);
            }
            if commit_lsn > self.known_commit {
                Work::Commit
            } else {
                Work::Nothing
            }
        })
    }

    async fn append(&mut self, header: AppendHeader, wal: Bytes) -> anyhow::Result<()> {
        let head = wal::encode_head(&ProposerMessage::Append(header), wal.len());
        self.writer.send_all(&mut head.chain(wal)).await?;
        self.sent = header.end_lsn;
        self.known_commit = self.known_commit.max(header.commit_lsn);
        Ok(())
    }

    /// An append without WAL: says what is committed, and asks for a sign of life.
    async fn beat(&mut self) -> anyhow::Result<()> {
        if self.positions.borrow().is_none() {
            return Ok(());
        }
        let (term, commit_lsn) = self
            .shared
            .core(|core| (core.proposer.term(), core.proposer.commit_lsn()));
        let header = AppendHeader {
            term,
            generation: self.configured,
            begin_lsn: self.sent,
            end_lsn: self.sent,
            commit_lsn,
        };
        self.append(header, Bytes::new()).await
    }

    /// Renews the read lease while `work` goes on.
    async fn renewing<T>(&mut self, work: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(done),
                () = tokio::time::sleep_until(self.renewal_due) => self.renew().await?,
            }
        }
    }

    /// Asks the safekeeper to renew the read lease, once it follows the term.
    async fn renew(&mut self) -> anyhow::Result<()> {
        self.renewal_due = Instant::now() + lease::period(self.shared.config.quorum_timeout);
        if self.positions.borrow().is_none() {
            return Ok(());
        }
        let message = ProposerMessage::Renew {
            term: self.shared.core(|core| core.proposer.term()),
            sent_us: Moment::now().micros(),
        };
        Ok(self.writer.send(&wal::encode(&message)).await?)
    }

    /// Sends WAL up to `to` from a peer's log; at least one piece, or waits a moment.
    async fn fetch(&mut self, to: Lsn) -> anyhow::Result<()> {
        let Some(source) = supply::source(self.shared, self.index, self.sent) else {
            tokio::time::sleep(FIRST_BACKOFF).await;
            return Ok(());
        };
        let opening = supply::open(self.shared, source, self.sent, to);
        let mut fetched = match self.renewing(opening).await? {
            Ok(fetched) => fetched,
            Err(error) => {
                tracing::info!(
                    "cannot fetch WAL for {}: {error:#}",
                    self.shared.address(self.index)
                );
                tokio::time::sleep(FIRST_BACKOFF).await;
                return Ok(());
            }
        };
        loop {
            match self.renewing(fetched.next()).await? {
                Ok(supply::Piece::Wal(wal)) => {
                    let (term, commit_lsn) = self
                        .shared
                        .core(|core| (core.proposer.term(), core.proposer.commit_lsn()));
                    let end_lsn = self.sent + wal.len() as u64;
                    let header = AppendHeader {
                        term,
                        generation: self.configured,
                        begin_lsn: self.sent,
                        end_lsn,
                        commit_lsn,
                    };
                    self.append(header, wal).await?;
                }
                Ok(supply::Piece::End) => return Ok(()),
                Ok(supply::Piece::Trimmed) => return self.reset(source).await,
                Err(error) => {
                    tracing::info!(
                        "fetching WAL for {} broke off: {error:#}",
                        self.shared.address(self.index)
                    );
                    tokio::time::sleep(FIRST_BACKOFF).await;
                    return Ok(());
                }
            }
        }
    }

    /// What this safekeeper lacks is gone everywhere: it starts again where `source` still has WAL.
    async fn reset(&mut self, source: usize) -> anyhow::Result<()> {
        let Some(request) = supply::reset_to(self.shared, source, self.sent) else {
            tokio::time::sleep(FIRST_BACKOFF).await;
            return Ok(());
        };
        tracing::warn!(to = %request.to, from = %self.sent, "safekeeper {} was away too long and starts again", self.shared.address(self.index));
        self.writer
            .send(&wal::encode(&ProposerMessage::Reset(request)))
            .await?;
        self.sent = request.to;
        Ok(())
    }
}
