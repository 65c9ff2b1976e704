//! A record as Postgres would have written it without consistency checking.
//!
//! Redo must not see the answer. Some index kinds reach storage by the very images that are logged to check
//! them, so the oracle takes these out before it interprets a record.

use bytes::Bytes;
use pg_types::v15::image;
use pg_types::wal::{
    BKPBLOCK_HAS_DATA, BKPBLOCK_HAS_IMAGE, BKPBLOCK_SAME_REL, BKPBLOCK_WILL_INIT,
    RECORD_HEADER_BYTES, XLR_BLOCK_ID_DATA_LONG, XLR_BLOCK_ID_DATA_SHORT, XLR_BLOCK_ID_ORIGIN,
    XLR_BLOCK_ID_TOPLEVEL_XID, XLR_CHECK_CONSISTENCY, record_crc,
};
use wal_decode::{BlockImage, BlockRef, DecodedRecord};

/// The record's bytes without the images that redo does not apply; `None` when it has none.
pub(super) fn without_check_images(rec: &DecodedRecord<'_>) -> Option<Bytes> {
    let checks = |block: &BlockRef<'_>| block.image.is_some_and(|image| !image.apply);
    if !rec.blocks.iter().any(checks) {
        return None;
    }
    let mut out = Vec::with_capacity(rec.raw.len());
    out.extend_from_slice(&rec.raw[..RECORD_HEADER_BYTES]);
    out[16] &= !XLR_CHECK_CONSISTENCY;
    let mut last_rel = None;
    for block in &rec.blocks {
        push_block(&mut out, block, &mut last_rel);
    }
    if let Some(origin) = rec.origin {
        out.push(XLR_BLOCK_ID_ORIGIN);
        out.extend_from_slice(&origin.to_le_bytes());
    }
    if let Some(xid) = rec.top_level_xid {
        out.push(XLR_BLOCK_ID_TOPLEVEL_XID);
        out.extend_from_slice(&xid.to_le_bytes());
    }
    match u8::try_from(rec.main_data.len()) {
        Ok(0) => {}
        Ok(short) => out.extend_from_slice(&[XLR_BLOCK_ID_DATA_SHORT, short]),
        Err(_) => {
            out.push(XLR_BLOCK_ID_DATA_LONG);
            out.extend_from_slice(&(rec.main_data.len() as u32).to_le_bytes());
        }
    }
    for block in &rec.blocks {
        if let Some(image) = restored(block) {
            out.extend_from_slice(image.bytes);
        }
        out.extend_from_slice(block.data);
    }
    out.extend_from_slice(rec.main_data);
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_le_bytes());
    let crc = record_crc(&out);
    out[RECORD_HEADER_BYTES - 4..RECORD_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    Some(out.into())
}

/// The block's image if redo restores it.
fn restored<'a>(block: &BlockRef<'a>) -> Option<BlockImage<'a>> {
    block.image.filter(|image| image.apply)
}

fn push_block(out: &mut Vec<u8>, block: &BlockRef<'_>, last_rel: &mut Option<(u32, u32, u32)>) {
    let rel = (block.rel.spc, block.rel.db, block.rel.rel);
    let same = *last_rel == Some(rel);
    let image = restored(block);
    let mut flags = block.rel.fork as u8;
    for (is, flag) in [
        (image.is_some(), BKPBLOCK_HAS_IMAGE),
        (!block.data.is_empty(), BKPBLOCK_HAS_DATA),
        (block.will_init, BKPBLOCK_WILL_INIT),
        (same, BKPBLOCK_SAME_REL),
    ] {
        if is {
            flags |= flag;
        }
    }
    out.extend_from_slice(&[block.id, flags]);
    out.extend_from_slice(&(block.data.len() as u16).to_le_bytes());
    if let Some(image) = image {
        out.extend_from_slice(&(image.bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(&image.hole_offset.to_le_bytes());
        out.push(image.info);
        if image.info & image::COMPRESS_MASK != 0 && image.info & image::HAS_HOLE != 0 {
            out.extend_from_slice(&image.hole_length.to_le_bytes());
        }
    }
    if !same {
        for part in [rel.0, rel.1, rel.2] {
            out.extend_from_slice(&part.to_le_bytes());
        }
        *last_rel = Some(rel);
    }
    out.extend_from_slice(&block.blkno.to_le_bytes());
}
