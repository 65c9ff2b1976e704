//! State files of prepared transactions, in pieces.
//!
//! A transaction's state grows with its subtransactions, locks and invalidations, up to a gigabyte. One value of a
//! layer takes 16 MiB, and a flush, a merge or a read holds whole values in memory. So a state longer than a piece is
//! stored under several keys: the first piece where a short state lies whole ([`Key::two_phase`]), the others under
//! their numbers ([`Key::two_phase_piece`]). How long the state is in all, its first bytes say (`twophase.c:
//! TwoPhaseFileHeader.total_len`, which counts the checksum at the end of the file). Layers of programs that knew no
//! pieces have whole states of up to 16 MiB under the first key; they are read alike.
//!
//! Invariants: all pieces of a state but the last are as long as the first; all have the LSN of the prepare record, and
//! are removed at the LSN at which the transaction ends.

use anyhow::{Context, ensure};
use bytes::Bytes;
use layers::Value;
use pg_types::bytes_le::get_u32;
use pg_types::{Key, KeyKind, Lsn};

use super::reads::{self, Reads};
use crate::error::Result;

/// Bytes of a piece.
const PIECE: usize = 1 << 20;
/// Where a state says how long it is.
const TOTAL_LEN: usize = 4;

/// The values that store a state.
pub(super) fn pieces(xid: u32, content: &[u8]) -> impl Iterator<Item = (Key, Value)> {
    let key = move |number: usize| match number {
        0 => Key::two_phase(xid),
        // A state has less than 4 GiB.
        number => Key::two_phase_piece(xid, number as u32),
    };
    // Copied, so that the memory of a piece is given back with the layer that has it.
    let value = |piece: &[u8]| Value::Meta(Bytes::copy_from_slice(piece));
    let pieces = content.chunks(PIECE).enumerate();
    pieces.map(move |(number, piece)| (key(number), value(piece)))
}

/// The values that remove the state which is there at `before`.
pub(super) async fn removal(reads: &Reads, xid: u32, before: Lsn) -> Result<Vec<(Key, Value)>> {
    let key = Key::two_phase(xid);
    let first = reads.value(key, before).await?;
    let further = first.map_or(0, |first| {
        let total = get_u32(&first, TOTAL_LEN).unwrap_or(0) as usize;
        total.div_ceil(first.len().max(1)).saturating_sub(1)
    });
    let further = (1..=further).map(|number| Key::two_phase_piece(xid, number as u32));
    let keys = std::iter::once(key).chain(further);
    Ok(keys.map(|key| (key, Value::Tombstone)).collect())
}

/// The states of all transactions that are prepared at an LSN, with their ids.
pub(super) async fn states(reads: &Reads, at: Lsn) -> Result<Vec<(u32, Bytes)>> {
    let firsts = reads.scan(reads::whole(KeyKind::TwoPhase), at).await?;
    let mut states = Vec::with_capacity(firsts.len());
    for (key, first) in firsts {
        let total =
            get_u32(&first, TOTAL_LEN).context("a prepared transaction's state is cut short")?;
        states.push((
            key.e,
            joined(reads, key.e, first, total as usize, at).await?,
        ));
    }
    Ok(states)
}

async fn joined(reads: &Reads, xid: u32, first: Bytes, total: usize, at: Lsn) -> Result<Bytes> {
    if first.len() >= total {
        return Ok(first);
    }
    let count = total.div_ceil(first.len());
    let mut content = Vec::with_capacity(total);
    content.extend_from_slice(&first);
    for number in 1..count as u32 {
        let piece = reads.value(Key::two_phase_piece(xid, number), at).await?;
        let piece = piece.with_context(|| {
            format!("piece {number} of {count} of prepared transaction {xid} is missing at {at}")
        })?;
        content.extend_from_slice(&piece);
        // Pieces that memory has come without a wait, and there may be a thousand.
        tokio::task::yield_now().await;
    }
    check(&content, total, xid)?;
    Ok(content.into())
}

fn check(content: &[u8], total: usize, xid: u32) -> anyhow::Result<()> {
    let there = content.len();
    ensure!(
        there == total,
        "prepared transaction {xid} has {there} bytes of state instead of {total}"
    );
    Ok(())
}
