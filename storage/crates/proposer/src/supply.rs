//! WAL for a lagging safekeeper out of a peer's log.
//!
//! A peer's disk can have damaged WAL, fail to read it, or be slow to say that it can't. So whoever was asked for WAL from
//! a place, and it is needed from there again, is asked once more only after all others.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use consensus::ResetRequest;
use futures::StreamExt as _;
use pg_types::Lsn;
use wire::wal::{self, FailureKind, FetchReply, FetchRequest, FirstMessage};

use crate::connection::{Frames, connect};
use crate::core::Shared;

pub struct Fetched {
    frames: Frames,
    at: Lsn,
    end: Lsn,
}

pub enum Piece {
    Wal(Bytes),
    End,
    /// The peer does not have it any more either.
    Trimmed,
}

/// The peer to ask for what `lagging` lacks behind `from`: follows this term, holds more than that, and most of all that
/// were not asked in vain.
pub fn source(shared: &Shared, lagging: usize, from: Lsn) -> Option<usize> {
    shared.core(|core| {
        let holders: Vec<(Lsn, usize)> = (0..core.members.len())
            .filter(|peer| *peer != lagging && core.members[*peer].connected)
            .filter_map(|peer| Some((core.proposer.flush_of(peer)?, peer)))
            .filter(|(flush, _)| *flush > from)
            .collect();
        core.members[lagging].tries.choose(from, &holders)
    })
}

pub async fn open(shared: &Shared, source: usize, from: Lsn, to: Lsn) -> anyhow::Result<Fetched> {
    let (term, held) = shared.core(|core| (core.proposer.term(), core.proposer.flush_of(source)));
    let end = to.min(held.context("the peer is no longer in this term")?);
    let (frames, mut writer) = connect(&shared.address(source), &shared.config).await?;
    let request = FirstMessage::Fetch(FetchRequest {
        version: wal::VERSION,
        tenant: shared.config.tenant,
        timeline: shared.config.timeline,
        term,
        start_lsn: from,
        end_lsn: end,
    });
    writer.send(&wal::encode(&request)).await?;
    Ok(Fetched {
        frames,
        at: from,
        end,
    })
}

impl Fetched {
    pub async fn next(&mut self) -> anyhow::Result<Piece> {
        if self.at >= self.end {
            return Ok(Piece::End);
        }
        let frame = self
            .frames
            .next()
            .await
            .transpose()?
            .context("the peer closed the connection")?;
        match wal::decode_with_wal::<FetchReply>(frame.freeze())? {
            (FetchReply::Wal { start_lsn }, wal) if start_lsn == self.at => {
                self.at = self.at + wal.len() as u64;
                Ok(Piece::Wal(wal))
            }
            (FetchReply::Wal { start_lsn }, _) => {
                bail!("the peer sent WAL of {start_lsn} instead of {}", self.at)
            }
            (FetchReply::Failed(failure), _) if failure.kind == FailureKind::Trimmed => {
                Ok(Piece::Trimmed)
            }
            (FetchReply::Failed(failure), _) => bail!("{failure}"),
        }
    }
}

/// Where a safekeeper whose log ends at `end` can start again with the WAL that `source` has.
pub fn reset_to(shared: &Shared, source: usize, end: Lsn) -> Option<ResetRequest> {
    shared.core(|core| {
        let (to, commit_lsn) = (core.members[source].trimmed_lsn, core.proposer.commit_lsn());
        (to > end && to <= commit_lsn).then(|| ResetRequest {
            term: core.proposer.term(),
            to,
            commit_lsn,
        })
    })
}
