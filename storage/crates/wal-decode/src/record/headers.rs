//! The headers of a record: what they say, whether they make sense and add up to its length.

use pg_types::bytes_le::at_u32;
use pg_types::v15::image;
use pg_types::wal::{
    BKPBLOCK_FORK_MASK, BKPBLOCK_HAS_DATA, BKPBLOCK_HAS_IMAGE, BKPBLOCK_SAME_REL,
    BKPBLOCK_WILL_INIT, RECORD_HEADER_BYTES, RecordHeader, XLR_BLOCK_ID_DATA_LONG,
    XLR_BLOCK_ID_DATA_SHORT, XLR_BLOCK_ID_ORIGIN, XLR_BLOCK_ID_TOPLEVEL_XID, XLR_MAX_BLOCK_ID,
};
use pg_types::{BLCKSZ, ForkNumber, RelTag};

use crate::stream::{CAN_BE_CUT, MESSAGE_KEPT};

pub(super) type ParseResult<T> = Result<T, &'static str>;

const CUT_SHORT: &str = "its headers are cut short";

/// What the headers of a record say of one block; the bytes of its image and its data come later.
#[derive(Clone, Copy)]
pub(super) struct BlockHeader {
    pub(super) id: u8,
    pub(super) rel: RelTag,
    pub(super) blkno: u32,
    pub(super) will_init: bool,
    pub(super) image: Option<ImageHeader>,
    pub(super) data_len: u16,
}

#[derive(Clone, Copy)]
pub(super) struct ImageHeader {
    pub(super) length: u16,
    pub(super) hole_offset: u16,
    pub(super) hole_length: u16,
    pub(super) info: u8,
}

/// What the headers of a record say besides its blocks.
pub(super) struct Head {
    pub(super) header: RecordHeader,
    pub(super) top_level_xid: Option<u32>,
    pub(super) origin: Option<u16>,
    /// Bytes of all headers; images and data of the blocks follow, then the main data.
    pub(super) bytes: usize,
}

/// Takes what the headers say of each block. Its one method has to be compiled into [`walk`]: a header that went
/// through memory, written field by field and then read as a whole, would make the processor wait longer than all the
/// rest.
pub(super) trait BlockHeaders {
    fn block(&mut self, header: BlockHeader);
}

/// Reads all headers of a record, checks that they make sense and add up to its length, and hands out its blocks.
#[inline(always)]
pub(super) fn walk(bytes: &[u8], blocks: &mut impl BlockHeaders) -> ParseResult<Head> {
    let header = RecordHeader::parse(bytes).ok_or("it is shorter than a record header")?;
    let total = header.total_len as usize;
    if total != bytes.len() && !is_cut(&header, bytes.len()) {
        return Err("its length field differs from its length");
    }
    // At the end of the main data, which no block follows.
    let left_out = total.wrapping_sub(bytes.len());
    let mut rest = &bytes[RECORD_HEADER_BYTES..];
    // Bytes of blocks announced by the headers so far; headers end where only these are left. Of at most 33 blocks
    // with two lengths of 16 bits each, so that adding up cannot overflow.
    let mut payload = 0usize;
    // Relation of the last block reference, for `SAME_REL`.
    let mut rel = None;
    let mut next_id = 0;
    let mut main_len = 0;
    let mut odd = OddHeaders::default();
    while rest.len() > payload {
        let id = rest[0];
        if id <= XLR_MAX_BLOCK_ID {
            if id < next_id {
                return Err("its block references are out of order");
            }
            next_id = id + 1;
            let found = block_header(&mut rest, &mut rel)?;
            payload = payload.wrapping_add(usize::from(found.data_len));
            if let Some(image) = found.image {
                payload = payload.wrapping_add(usize::from(image.length));
            }
            blocks.block(found);
        } else if id >= XLR_BLOCK_ID_DATA_LONG {
            main_len = if id == XLR_BLOCK_ID_DATA_SHORT {
                let [_, length] = array(&mut rest)?;
                usize::from(length)
            } else {
                let [_, length @ ..]: [u8; 5] = array(&mut rest)?;
                u32::from_le_bytes(length) as usize
            };
            // The main data's header is always the last one.
            break;
        } else {
            rest = odd.take(rest)?;
        }
    }
    if rest.len().wrapping_add(left_out) != payload.wrapping_add(main_len) {
        return Err("its headers do not add up to its length");
    }
    Ok(Head {
        header,
        top_level_xid: odd.top_level_xid,
        origin: odd.origin,
        bytes: bytes.len() - rest.len(),
    })
}

/// Whether a record of which so many bytes are there is one that the stream has cut.
#[cold]
fn is_cut(header: &RecordHeader, there: usize) -> bool {
    let is_longer = header.total_len as usize > MESSAGE_KEPT;
    CAN_BE_CUT.contains(&header.rmid) && there == MESSAGE_KEPT && is_longer
}

/// Headers that few records have.
#[derive(Default)]
struct OddHeaders {
    top_level_xid: Option<u32>,
    origin: Option<u16>,
}

impl OddHeaders {
    /// `rest` begins with the header's kind; returns what is behind it.
    #[cold]
    fn take<'a>(&mut self, mut rest: &'a [u8]) -> ParseResult<&'a [u8]> {
        match rest.first() {
            Some(&XLR_BLOCK_ID_ORIGIN) => {
                let [_, number @ ..]: [u8; 3] = array(&mut rest)?;
                self.origin = Some(u16::from_le_bytes(number));
            }
            Some(&XLR_BLOCK_ID_TOPLEVEL_XID) => {
                let [_, xid @ ..]: [u8; 5] = array(&mut rest)?;
                self.top_level_xid = Some(u32::from_le_bytes(xid));
            }
            _ => return Err("an unknown header byte"),
        }
        Ok(rest)
    }
}

/// `rest` begins with the block's id.
#[inline(always)]
fn block_header(
    rest: &mut &[u8],
    last_rel: &mut Option<(u32, u32, u32)>,
) -> ParseResult<BlockHeader> {
    let [id, flags, data_len @ ..]: [u8; 4] = array(rest)?;
    let data_len = u16::from_le_bytes(data_len);
    if (flags & BKPBLOCK_HAS_DATA != 0) != (data_len > 0) {
        return Err("a block's data flag and data length disagree");
    }
    let image = if flags & BKPBLOCK_HAS_IMAGE != 0 {
        Some(image_header(rest)?)
    } else {
        None
    };
    let ((spc, db, rel), blkno) = if flags & BKPBLOCK_SAME_REL == 0 {
        let place: [u8; 16] = array(rest)?;
        let rel = (at_u32(&place, 0), at_u32(&place, 4), at_u32(&place, 8));
        *last_rel = Some(rel);
        (rel, at_u32(&place, 12))
    } else {
        let rel = last_rel.ok_or("its first block names no relation")?;
        (rel, u32::from_le_bytes(array(rest)?))
    };
    let fork =
        ForkNumber::from_u8(flags & BKPBLOCK_FORK_MASK).ok_or("a block names an unknown fork")?;
    Ok(BlockHeader {
        id,
        rel: RelTag { spc, db, rel, fork },
        blkno,
        will_init: flags & BKPBLOCK_WILL_INIT != 0,
        image,
        data_len,
    })
}

#[inline]
fn image_header(rest: &mut &[u8]) -> ParseResult<ImageHeader> {
    let [length_low, length_high, offset_low, offset_high, info] = array(rest)?;
    let image_len = u16::from_le_bytes([length_low, length_high]);
    let hole_offset = u16::from_le_bytes([offset_low, offset_high]);
    let length = usize::from(image_len);
    let compressed = info & image::COMPRESS_MASK != 0;
    let has_hole = info & image::HAS_HOLE != 0;
    if length > BLCKSZ || (compressed && length == BLCKSZ) {
        return Err("an image is longer than a page");
    }
    let hole_length = match (compressed, has_hole) {
        (true, true) => u16::from_le_bytes(array(rest)?),
        (true, false) => 0,
        (false, _) => (BLCKSZ - length) as u16,
    };
    let hole_end = usize::from(hole_offset) + usize::from(hole_length);
    let hole_is_real = hole_offset > 0 && hole_length > 0 && hole_end <= BLCKSZ;
    if has_hole != (hole_offset > 0 || hole_length > 0) || (has_hole && !hole_is_real) {
        return Err("an image's hole makes no sense");
    }
    Ok(ImageHeader {
        length: image_len,
        hole_offset,
        hole_length,
        info,
    })
}

#[inline(always)]
fn array<const N: usize>(rest: &mut &[u8]) -> ParseResult<[u8; N]> {
    let (found, behind) = rest.split_first_chunk().ok_or(CUT_SHORT)?;
    *rest = behind;
    Ok(*found)
}

#[inline]
pub(super) fn split_off<'a>(rest: &mut &'a [u8], length: usize) -> ParseResult<&'a [u8]> {
    let (found, behind) = rest.split_at_checked(length).ok_or(CUT_SHORT)?;
    *rest = behind;
    Ok(found)
}
