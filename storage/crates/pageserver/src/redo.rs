//! Pages from chains: deltas as layers keep them, and their redo.
//!
//! Invariant: a page that can't be made is an error that names key, LSN and record; a wrong page is never returned.

use anyhow::{Context, anyhow};
use bytes::{BufMut, Bytes, BytesMut};
use layers::{Base, Chain};
use pg_types::{BLCKSZ, Key, Lsn};
use smallvec::SmallVec;
use wal_decode::{PageDelta, unlink};
use wal_redo::ClusterSettings;

use crate::error::Result;

/// The number of [`PageDelta::Record`] among its variants.
const RECORD_VARIANT: u8 = 0;
/// What a delta with a record takes beside it, at most: the variant, a flag, two numbers.
pub const RECORD_OVERHEAD: usize = 1 + 10 + 1 + 10;

/// Appends the `postcard` form of a [`PageDelta::Record`], the record [`unlink`]ed, without a copy of it in between:
/// nearly all deltas are of this kind.
pub fn put_record(out: &mut BytesMut, end_lsn: Lsn, will_init: bool, record: &[u8]) {
    // Together: each call of the buffer looks for room.
    let mut head = SmallVec::<[u8; RECORD_OVERHEAD]>::new();
    head.push(RECORD_VARIANT);
    put_number(&mut head, end_lsn.0);
    head.push(u8::from(will_init));
    put_number(&mut head, record.len() as u64);
    out.put_slice(&head);
    let at = out.len();
    out.put_slice(record);
    unlink(&mut out[at..]);
}

/// Seven bits a byte, the lowest first; the highest bit says that more follow.
fn put_number(out: &mut SmallVec<[u8; RECORD_OVERHEAD]>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// End LSN and record of such a delta; `None` for any other, and for what is better left to `postcard` to refuse.
pub fn get_record(delta: &[u8]) -> Option<(Lsn, &[u8])> {
    let rest = delta.strip_prefix(&[RECORD_VARIANT])?;
    let (end_lsn, rest) = get_number(rest)?;
    let (_will_init, rest) = rest.split_first()?;
    let (length, record) = get_number(rest)?;
    (record.len() as u64 == length).then_some((Lsn(end_lsn), record))
}

fn get_number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().enumerate().take(9) {
        number |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[at + 1..]));
        }
    }
    None
}

/// A page made from its chain.
pub struct Page {
    /// 8192 bytes, or empty for a page of zeroes.
    pub bytes: Bytes,
    /// Deltas applied.
    pub chain_length: u32,
}

/// Redoes a chain. An error names the key, the LSN and the record; a wrong page is never returned.
pub fn redo(key: Key, chain: &Chain) -> Result<Page> {
    if let (Some((_, Base::Image(page))), true) = (&chain.base, chain.deltas.is_empty()) {
        return Ok(Page {
            bytes: page.clone(),
            chain_length: 0,
        });
    }
    if chain.deltas.is_empty() {
        return Ok(Page {
            bytes: Bytes::new(),
            chain_length: 0,
        });
    }
    let mut page = [0_u8; BLCKSZ];
    if let Some((lsn, Base::Image(image))) = &chain.base {
        if image.len() != BLCKSZ {
            return Err(anyhow!("image of {key} at {lsn} has {} bytes", image.len()).into());
        }
        page.copy_from_slice(image);
    }
    for delta in &chain.deltas {
        let redone = match get_record(&delta.bytes) {
            Some((end_lsn, record)) => {
                let settings = ClusterSettings::default();
                wal_redo::apply_record(settings, end_lsn, record, key, &mut page)
            }
            None => {
                let change: PageDelta = postcard::from_bytes(&delta.bytes)
                    .with_context(|| format!("decode the delta of {key} at {}", delta.lsn))?;
                wal_redo::apply(&change, key, &mut page)
            }
        };
        redone.with_context(|| {
            let what = describe_bytes(&delta.bytes);
            format!("redo {what} on {key} at {}", delta.lsn)
        })?;
    }
    let bytes = if page.iter().all(|byte| *byte == 0) {
        Bytes::new()
    } else {
        Bytes::copy_from_slice(&page)
    };
    Ok(Page {
        bytes,
        chain_length: chain.deltas.len() as u32,
    })
}

/// The same of an encoded delta.
pub fn describe_bytes(bytes: &[u8]) -> String {
    match postcard::from_bytes(bytes) {
        Ok(delta) => describe(&delta),
        Err(error) => format!("cannot be decoded: {error}"),
    }
}

/// What a delta is, for messages.
fn describe(delta: &PageDelta) -> String {
    match delta {
        PageDelta::Record { record, .. } => match pg_types::wal::RecordHeader::parse(record) {
            Some(header) => {
                format!(
                    "record {} op {:#04x}",
                    pg_types::wal::rmgr::name(header.rmid),
                    header.info & 0xF0
                )
            }
            None => "a record without a whole header".to_owned(),
        },
        PageDelta::VisibilityMapClear { .. } => "visibility map clear".to_owned(),
        PageDelta::VisibilityMapTruncate { .. } => "visibility map truncation".to_owned(),
        PageDelta::ClogSetStatus { .. } => "transaction status".to_owned(),
        PageDelta::MultixactOffset { .. } => "multixact offset".to_owned(),
        PageDelta::MultixactMembers { .. } => "multixact members".to_owned(),
        PageDelta::CommitTimestamp { .. } => "commit timestamp".to_owned(),
    }
}
