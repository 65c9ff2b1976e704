//! WAL for a lagging safekeeper out of a peer's log.
//!
//! A peer's disk can have damaged WAL, fail to read it, or be slow to say that it can't. So whoever was asked for WAL from
//! a place, and it is needed from there again, is asked once more only after all others.

use anyhow::{Context as _, bail};
use bytes::Bytes;
use consensus::ResetRequest;
use futures::StreamExt as _;
use pg_types::Lsn;
use tokio::io::AsyncWriteExt as _;
use wire::wal::{self, FailureKind, FetchReply, FetchRequest, FirstMessage};

use crate::core::Shared;
use crate::member::{Frames, connect};

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

/// Who was asked for WAL from a place, while a safekeeper's log ended there.
#[derive(Default)]
pub struct Tries {
    at: Lsn,
    asked: Vec<usize>,
}

impl Tries {
    /// Of those that hold WAL behind `at`, each with how much, the one that holds most of all that were not asked for it
    /// yet; takes note of it. Once everyone was, it begins anew.
    fn choose(&mut self, at: Lsn, holders: &[(Lsn, usize)]) -> Option<usize> {
        if self.at != at {
            *self = Tries {
                at,
                asked: Vec::new(),
            };
        }
        if holders.iter().all(|(_, peer)| self.asked.contains(peer)) {
            self.asked.clear();
        }
        let fresh = holders.iter();
        let fresh = fresh.filter(|(_, peer)| !self.asked.contains(peer));
        let (_, peer) = *fresh.max()?;
        self.asked.push(peer);
        Some(peer)
    }
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
    let (frames, mut writer) =
        connect(&shared.address(source), shared.config.connect_timeout).await?;
    let request = FirstMessage::Fetch(FetchRequest {
        version: wal::VERSION,
        tenant: shared.config.tenant,
        timeline: shared.config.timeline,
        term,
        start_lsn: from,
        end_lsn: end,
    });
    writer.write_all(&wal::encode(&request)).await?;
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
        let (to, commit_lsn) = (core.members[source].horizon_lsn, core.proposer.commit_lsn());
        (to > end && to <= commit_lsn).then(|| ResetRequest {
            term: core.proposer.term(),
            to,
            commit_lsn,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_asked_in_vain_comes_after_all_others() {
        let mut tries = Tries::default();
        let holders = [(Lsn(300), 0), (Lsn(500), 1), (Lsn(400), 3)];
        let mut at = |lsn| tries.choose(Lsn(lsn), &holders).expect("a holder");
        assert_eq!([at(100), at(100), at(100), at(100)], [1, 3, 0, 1]);
        assert_eq!([at(200), at(200)], [1, 3], "another place, another try");
        assert_eq!(
            tries.choose(Lsn(200), &holders[1..2]),
            Some(1),
            "nobody else is there"
        );
        assert_eq!(tries.choose(Lsn(200), &[]), None);
    }
}
