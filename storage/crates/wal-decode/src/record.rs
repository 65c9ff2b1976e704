//! One decoded WAL record, borrowed from the bytes it was read from.

use bytes::Bytes;
use pg_types::v15::image;
use pg_types::wal::{
    BKPBLOCK_HAS_DATA, BKPBLOCK_SAME_REL, BKPBLOCK_WILL_INIT, RECORD_HEADER_BYTES,
    XLR_BLOCK_ID_DATA_LONG, XLR_BLOCK_ID_DATA_SHORT, XLR_BLOCK_ID_ORIGIN,
    XLR_BLOCK_ID_TOPLEVEL_XID, record_crc,
};
use pg_types::{Lsn, RelTag};
use smallvec::SmallVec;

use crate::error::WalError;

mod headers;

use headers::{BlockHeader, BlockHeaders, ParseResult, split_off, walk};

/// Where a record's header has the link and the checksum.
const RECORD_PREV: std::ops::Range<usize> = 8..16;
const RECORD_CRC: std::ops::Range<usize> = 20..24;

/// A full-page image carried by a record, still compressed as it was logged.
/// Header: `xlogrecord.h: XLogRecordBlockImageHeader`, and `XLogRecordBlockCompressHeader` behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockImage<'a> {
    /// The page without its hole, compressed if `info` says so.
    pub bytes: &'a [u8],
    /// First byte of the page that was left out because it was zero; 0 when there is no hole.
    pub hole_offset: u16,
    /// Bytes that were left out; 0 when there is no hole.
    pub hole_length: u16,
    /// `bimg_info` bits as Postgres defines them for the major version (apply, compression method).
    pub info: u8,
    /// Whether redo must restore the image; false for images logged only for consistency checking.
    pub apply: bool,
}

/// One block a record refers to.
/// Header: `xlogrecord.h: XLogRecordBlockHeader`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRef<'a> {
    /// Block id within the record (0..=32).
    pub id: u8,
    /// The relation's fork.
    pub rel: RelTag,
    /// Number of the block in its fork.
    pub blkno: u32,
    /// The record initialises the page from nothing (`BKPBLOCK_WILL_INIT`).
    pub will_init: bool,
    /// The page after the record, if it was logged. Whether redo may use it says [`BlockImage::apply`].
    pub image: Option<BlockImage<'a>>,
    /// Data registered for this block; empty when there is none.
    pub data: &'a [u8],
}

/// A record with its headers parsed; all slices borrow from the record's bytes.
/// Header: `xlogrecord.h: XLogRecord`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedRecord<'a> {
    /// Where the record starts.
    pub start_lsn: Lsn,
    /// First byte after the record, MAXALIGNed: the LSN that pages changed by it carry.
    pub end_lsn: Lsn,
    /// Start of the record before (`xl_prev`); 0 for a record kept to be redone ([`unlink`]).
    pub prev_lsn: Lsn,
    /// The transaction that wrote the record (`xl_xid`), 0 where none with an id did.
    pub xid: u32,
    /// Resource manager id.
    pub rmid: u8,
    /// `xl_info`, including the low (XLR) bits.
    pub info: u8,
    /// Of a subtransaction's first record with `wal_level` logical, the transaction that it is part of.
    pub top_level_xid: Option<u32>,
    /// Id of the replication origin that the record was replayed from; `None` where none was logged.
    pub origin: Option<u16>,
    /// Blocks in the order of their ids, which may have gaps.
    pub blocks: SmallVec<[BlockRef<'a>; 4]>,
    /// What the resource manager logged for the record as a whole; empty when there is none. Of a long logical message
    /// only the begin ([`MESSAGE_KEPT`](crate::MESSAGE_KEPT)), and of a long record of a transaction where the stream
    /// was decoded for statistics.
    pub main_data: &'a [u8],
    /// The whole record as it stands in the WAL, without page headers; cut as `main_data` is.
    pub raw: &'a [u8],
}

impl<'a> DecodedRecord<'a> {
    /// The block with this id.
    pub fn block(&self, id: u8) -> Option<&BlockRef<'a>> {
        self.blocks.iter().find(|block| block.id == id)
    }

    /// Bytes of the record as it stands in the WAL, without page headers.
    pub fn total_len(&self) -> u32 {
        let length = self.raw.first_chunk().copied();
        length.map_or(0, u32::from_le_bytes)
    }

    /// The resource manager's own bits of `xl_info` (`~XLR_INFO_MASK`).
    pub fn op(&self) -> u8 {
        self.info & 0xF0
    }

    #[inline(always)]
    fn unread(start_lsn: Lsn, end_lsn: Lsn, raw: &[u8]) -> DecodedRecord<'_> {
        DecodedRecord {
            start_lsn,
            end_lsn,
            prev_lsn: Lsn::INVALID,
            xid: 0,
            rmid: 0,
            info: 0,
            top_level_xid: None,
            origin: None,
            blocks: SmallVec::new(),
            main_data: &[],
            raw,
        }
    }

    /// Fills in everything that the record's bytes say.
    #[inline(always)]
    fn read(&mut self) -> ParseResult<()> {
        let mut found = Found {
            blocks: &mut self.blocks,
            lengths: SmallVec::new(),
        };
        let head = walk(self.raw, &mut found)?;
        let mut payload = &self.raw[head.bytes..];
        for (block, (image_len, data_len)) in found.blocks.iter_mut().zip(&found.lengths) {
            let image_bytes = split_off(&mut payload, usize::from(*image_len))?;
            if let Some(image) = &mut block.image {
                image.bytes = image_bytes;
            }
            block.data = split_off(&mut payload, usize::from(*data_len))?;
        }
        self.main_data = payload;
        self.prev_lsn = head.header.prev;
        self.xid = head.header.xid;
        self.rmid = head.header.rmid;
        self.info = head.header.info;
        self.top_level_xid = head.top_level_xid;
        self.origin = head.origin;
        Ok(())
    }

    /// The figures of this record that statistics need.
    pub fn summary(&self) -> Summary {
        let images = self.blocks.iter().filter_map(|block| block.image.as_ref());
        let (mut count, mut bytes) = (0, 0);
        for image in images.filter(|image| image.apply) {
            count += 1;
            bytes += image.bytes.len() as u32;
        }
        Summary {
            rmid: self.rmid,
            info: self.info,
            bytes: self.total_len(),
            images: count,
            image_bytes: bytes,
        }
    }
}

/// Blocks as the headers have them.
struct Found<'b, 'a> {
    blocks: &'b mut SmallVec<[BlockRef<'a>; 4]>,
    /// Bytes of image and data of each block; the payload comes behind all headers, in the same order.
    lengths: SmallVec<[(u16, u16); 8]>,
}

impl BlockHeaders for Found<'_, '_> {
    #[inline(always)]
    fn block(&mut self, block: BlockHeader) {
        let image_len = block.image.map_or(0, |image| image.length);
        self.lengths.push((image_len, block.data_len));
        self.blocks.push(BlockRef {
            id: block.id,
            rel: block.rel,
            blkno: block.blkno,
            will_init: block.will_init,
            image: block.image.map(|image| BlockImage {
                bytes: &[],
                hole_offset: image.hole_offset,
                hole_length: image.hole_length,
                info: image.info,
                apply: image.info & image::APPLY != 0,
            }),
            data: &[],
        });
    }
}

/// Images that redo must restore, and their bytes.
#[derive(Default)]
struct Images {
    count: u32,
    bytes: u32,
}

impl BlockHeaders for Images {
    #[inline(always)]
    fn block(&mut self, block: BlockHeader) {
        if let Some(image) = block.image.filter(|image| image.info & image::APPLY != 0) {
            self.count += 1;
            self.bytes += u32::from(image.length);
        }
    }
}

/// What counts in statistics of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Resource manager id, `xl_rmid`.
    pub rmid: u8,
    /// `xl_info`, including the low (XLR) bits.
    pub info: u8,
    /// Bytes of the record, images included.
    pub bytes: u32,
    /// Page images that redo must restore, and their bytes as logged.
    pub images: u32,
    /// Bytes of those images.
    pub image_bytes: u32,
}

/// Parses a whole record's headers. The checksum is not looked at (the stream decoder did).
#[inline]
pub fn decode(start_lsn: Lsn, end_lsn: Lsn, bytes: &[u8]) -> Result<DecodedRecord<'_>, WalError> {
    let mut record = DecodedRecord::unread(start_lsn, end_lsn, bytes);
    match record.read() {
        Ok(()) => Ok(record),
        Err(why) => Err(malformed(start_lsn, why)),
    }
}

/// As [`decode`], for one use of the record, which stays where it was put together: to hand out a value of some
/// hundred bytes, just written, takes longer than to make it.
#[inline]
pub fn decode_for<'a, T>(
    start_lsn: Lsn,
    end_lsn: Lsn,
    bytes: &'a [u8],
    then: impl FnOnce(&DecodedRecord<'a>) -> T,
) -> Result<T, WalError> {
    let mut record = DecodedRecord::unread(start_lsn, end_lsn, bytes);
    match record.read() {
        Ok(()) => Ok(then(&record)),
        Err(why) => Err(malformed(start_lsn, why)),
    }
}

/// What statistics need of a record. Checks every header as [`decode`] does, but keeps none of them.
// Compiled into its caller: a result that goes through memory takes as long as making it.
#[inline(always)]
pub fn summarize(start_lsn: Lsn, bytes: &[u8]) -> Result<Summary, WalError> {
    let mut images = Images::default();
    let head = walk(bytes, &mut images).map_err(|why| malformed(start_lsn, why))?;
    Ok(Summary {
        rmid: head.header.rmid,
        info: head.header.info,
        bytes: head.header.total_len,
        images: images.count,
        image_bytes: images.bytes,
    })
}

#[cold]
fn malformed(lsn: Lsn, why: &'static str) -> WalError {
    WalError::Record {
        lsn,
        why: why.to_owned(),
    }
}

/// The record as kept to redo block `block_id`: images of all blocks and the data of the other blocks are
/// left out, their addresses stay, and it is [`unlink`]ed. It decodes like any record.
///
/// Redo of a block may therefore use the main data, the block's own data, and where the other blocks are,
/// but never what they hold; no resource manager of Postgres needs more.
pub fn strip_images(record: &DecodedRecord<'_>, block_id: u8) -> Bytes {
    let mut scratch = Vec::new();
    let mut kept = stripped(record, block_id, &mut scratch).to_vec();
    unlink(&mut kept);
    Bytes::from(kept)
}

/// Zeroes what only the stream of records needs: the link to the record before, and the checksum. Both are as good as
/// random and would be a tenth of a compressed record's bytes; layers, which keep the record, have checksums of their
/// own. Bytes too short for a record's header stay as they are.
pub fn unlink(record: &mut [u8]) {
    if let Some(header) = record.first_chunk_mut::<RECORD_HEADER_BYTES>() {
        header[RECORD_PREV].fill(0);
        header[RECORD_CRC].fill(0);
    }
}

/// As [`strip_images`], but not unlinked; without a copy where there is nothing to leave out, and into `scratch`
/// otherwise.
pub fn stripped<'r>(
    record: &'r DecodedRecord<'_>,
    block_id: u8,
    scratch: &'r mut Vec<u8>,
) -> &'r [u8] {
    let keep_data = |block: &BlockRef<'_>| block.id == block_id;
    if record
        .blocks
        .iter()
        .all(|block| block.image.is_none() && (block.data.is_empty() || keep_data(block)))
    {
        return record.raw;
    }
    scratch.clear();
    let out = scratch;
    out.extend_from_slice(&record.raw[..RECORD_HEADER_BYTES]);
    let mut last_rel = None;
    for block in &record.blocks {
        let data_len = if keep_data(block) {
            block.data.len()
        } else {
            0
        };
        let rel = (block.rel.spc, block.rel.db, block.rel.rel);
        let mut flags = block.rel.fork as u8;
        if data_len > 0 {
            flags |= BKPBLOCK_HAS_DATA;
        }
        if block.will_init {
            flags |= BKPBLOCK_WILL_INIT;
        }
        if last_rel == Some(rel) {
            flags |= BKPBLOCK_SAME_REL;
        }
        out.extend_from_slice(&[block.id, flags]);
        out.extend_from_slice(&(data_len as u16).to_le_bytes());
        if last_rel != Some(rel) {
            for part in [rel.0, rel.1, rel.2] {
                out.extend_from_slice(&part.to_le_bytes());
            }
            last_rel = Some(rel);
        }
        out.extend_from_slice(&block.blkno.to_le_bytes());
    }
    if let Some(origin) = record.origin {
        out.push(XLR_BLOCK_ID_ORIGIN);
        out.extend_from_slice(&origin.to_le_bytes());
    }
    if let Some(xid) = record.top_level_xid {
        out.push(XLR_BLOCK_ID_TOPLEVEL_XID);
        out.extend_from_slice(&xid.to_le_bytes());
    }
    push_main_data_header(out, record.main_data.len());
    for block in record.blocks.iter().filter(|block| keep_data(block)) {
        out.extend_from_slice(block.data);
    }
    out.extend_from_slice(record.main_data);
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

/// Appends the header for main data of this length, none for none.
pub(crate) fn push_main_data_header(out: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(0) => {}
        Ok(short) => out.extend_from_slice(&[XLR_BLOCK_ID_DATA_SHORT, short]),
        Err(_) => {
            out.push(XLR_BLOCK_ID_DATA_LONG);
            out.extend_from_slice(&(length as u32).to_le_bytes());
        }
    }
}

/// Makes length and checksum of a record under construction right.
pub(crate) fn seal(record: &mut [u8]) {
    let length = record.len() as u32;
    record[..4].copy_from_slice(&length.to_le_bytes());
    let crc = record_crc(record);
    record[RECORD_HEADER_BYTES - 4..RECORD_HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
}
