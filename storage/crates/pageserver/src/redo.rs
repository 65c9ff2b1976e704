//! Makes pages from chains: decodes the deltas as layers keep them and applies them to the image they start from.
//!
//! Invariant: a page that cannot be made is an error that names the key, the LSN and the record; a wrong page is
//! never returned.

use anyhow::{Context, anyhow};
use bytes::Bytes;
use layers::{Base, Chain};
use pg_types::{BLCKSZ, Key};
use wal_decode::PageDelta;
use wal_redo::ClusterSettings;

use crate::error::Result;

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
    let mut record = Vec::new();
    for delta in &chain.deltas {
        let is_packed = wal_decode::unpack(&key, &delta.bytes, &mut record)
            .with_context(|| format!("unpack the delta of {key} at {}", delta.lsn))?;
        let redone = if is_packed {
            let settings = ClusterSettings::default();
            wal_redo::apply_record(settings, delta.lsn, &record, key, &mut page)
        } else {
            let change: PageDelta = postcard::from_bytes(&delta.bytes)
                .with_context(|| format!("decode the delta of {key} at {}", delta.lsn))?;
            wal_redo::apply(&change, key, &mut page)
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

/// What a delta as layers keep it is, for messages.
pub fn describe_bytes(bytes: &[u8]) -> String {
    if let Some((rmid, info)) = wal_decode::packed_operation(bytes) {
        return describe_record(rmid, info);
    }
    match postcard::from_bytes(bytes) {
        Ok(delta) => describe(&delta),
        Err(error) => format!("cannot be decoded: {error}"),
    }
}

fn describe_record(rmid: u8, info: u8) -> String {
    let rmgr = pg_types::wal::rmgr::name(rmid);
    format!("record {rmgr} op {:#04x}", info & 0xF0)
}

fn describe(delta: &PageDelta) -> String {
    match delta {
        PageDelta::Record { record, .. } => match pg_types::wal::RecordHeader::parse(record) {
            Some(header) => describe_record(header.rmid, header.info),
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
