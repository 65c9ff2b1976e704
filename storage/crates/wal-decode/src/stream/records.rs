//! One piece of the stream: the records that end in it.

use pg_types::bytes_le::{at_u32, at_u64};
use pg_types::wal::{
    LONG_PAGE_HEADER_BYTES, RECORD_HEADER_BYTES, page_header_bytes, right_prefix, rmgr, stored_crc,
};
use pg_types::{Lsn, XLOG_BLCKSZ};

use super::{LeftOut, Partial, RawRecord, WalStreamDecoder, check_sum, is_switch};
use crate::error::WalError;

/// A record's buffer grows as its bytes arrive, so that a damaged length cannot claim gigabytes; and one that grew
/// beyond this is given back after its record. A record may have any length: Postgres 15 writes logical messages of up
/// to 2 GiB, though it could not read them itself.
const BUFFER_KEPT: usize = 1 << 20;

/// The records that end in one piece of WAL, lent one by one.
pub struct Records<'d> {
    decoder: &'d mut WalStreamDecoder,
    wal: &'d [u8],
    /// Everything in `wal` before is consumed.
    at: usize,
    /// Where what `wal` has of the current page ends, while a record may begin at `at`; 0 when something else is due.
    page_end: usize,
    /// From `at` up to here are whole records of the current page whose checksums are known to be right; unless this
    /// lies before `at`.
    checked: usize,
}

/// Where a whole record lies.
enum Place {
    /// In the piece, from here on, with this length.
    Piece(usize, usize),
    Assembled,
}

impl<'d> Records<'d> {
    pub(super) fn new(decoder: &'d mut WalStreamDecoder, wal: &'d [u8]) -> Records<'d> {
        Records {
            decoder,
            wal,
            at: 0,
            page_end: 0,
            checked: 0,
        }
    }

    /// End of the last record lent.
    pub fn boundary(&self) -> Lsn {
        self.decoder.boundary
    }

    /// Bytes of memory that the record takes which began before this piece and is not whole yet; 0 where none did.
    #[inline]
    pub fn bytes_awaited(&self) -> usize {
        self.decoder.bytes_awaited()
    }

    /// Bytes of memory that are given back when this is dropped, because the record that they were taken for has been
    /// lent.
    pub fn bytes_spent(&self) -> usize {
        let held = self.decoder.held_bytes();
        if self.decoder.partial.is_none() && held > BUFFER_KEPT {
            held
        } else {
            0
        }
    }

    /// The next whole record, or `None` when the piece has no more.
    // A result that goes through memory, written in pieces and read as a whole, takes longer than all else here.
    #[inline(always)]
    pub fn next_record(&mut self) -> Result<Option<RawRecord<'_>>, WalError> {
        // Nearly all records lie on one page and in one piece, and are checked before they are looked at here.
        if let Some(record) = self.take_checked() {
            return Ok(Some(record));
        }
        let Some((start_lsn, place)) = self.find()? else {
            return Ok(None);
        };
        Ok(Some(RawRecord {
            start_lsn,
            end_lsn: self.decoder.boundary,
            bytes: match place {
                Place::Piece(from, total) => &self.wal[from..from + total],
                Place::Assembled => &self.decoder.assembled,
            },
        }))
    }

    /// Consumes the record that begins here if its checksum is known to be right and nothing about it needs a second
    /// look: the short way through [`Records::find`].
    #[inline(always)]
    fn take_checked(&mut self) -> Option<RawRecord<'d>> {
        let wal = self.wal.get(self.at..self.checked)?;
        let header: &[u8; RECORD_HEADER_BYTES] = wal.first_chunk()?;
        let (prev, rmid) = (Lsn(at_u64(header, 8)), header[17]);
        let total = at_u32(header, 0) as usize;
        let start_lsn = self.decoder.position;
        let end_lsn = Lsn(start_lsn.0.wrapping_add(padded(total) as u64));
        let next = self.at.wrapping_add(padded(total));
        // A switch is one of XLOG's records.
        let is_plain = rmid != rmgr::XLOG && usize::from(rmid) < rmgr::COUNT;
        let is_linked = prev < start_lsn && self.decoder.last_record == Some(prev);
        if !is_plain || !is_linked || next > self.page_end {
            return None;
        }
        let bytes = wal.get(..total)?;
        self.at = next;
        self.decoder.position = end_lsn;
        self.decoder.passed(start_lsn, end_lsn);
        Some(RawRecord {
            start_lsn,
            end_lsn,
            bytes,
        })
    }

    #[inline(never)]
    fn find(&mut self) -> Result<Option<(Lsn, Place)>, WalError> {
        let start = self.decoder.position;
        let found = match self.length_here() {
            Some(total) => {
                let from = self.at;
                self.take_here(total)
                    .map(|()| Some((start, Place::Piece(from, total))))
            }
            None => self.advance(),
        };
        found.map_err(|error| {
            (self.page_end, self.checked) = (0, 0);
            self.decoder.fail(error)
        })
    }

    /// Length of the record that begins here, if all of it is here.
    #[inline]
    fn length_here(&self) -> Option<usize> {
        let page = self.wal.get(self.at..self.page_end)?;
        let total = u32::from_le_bytes(*page.first_chunk()?) as usize;
        (RECORD_HEADER_BYTES..=page.len())
            .contains(&total)
            .then_some(total)
    }

    /// Checks and consumes the record of `total` bytes that begins here.
    fn take_here(&mut self, total: usize) -> Result<(), WalError> {
        let start = self.decoder.position;
        let record = &self.wal[self.at..self.at + total];
        self.decoder.check_header(start, record)?;
        if self.checked <= self.at {
            // All that follow on the page at once, which is faster; a wrong one is found again when its turn comes.
            self.checked = self.at + right_prefix(&self.wal[self.at..self.page_end]);
            if self.checked <= self.at {
                check_sum(start, record)?;
            }
        }
        let padded = padded(total);
        if padded <= self.page_end - self.at && !is_switch(record) {
            self.at += padded;
            self.decoder.position = start + padded as u64;
            self.decoder.passed(start, self.decoder.position);
        } else {
            // The piece ends before the padding does, or nothing more comes in this segment.
            let switches = is_switch(record);
            self.consume(total);
            self.decoder.finish(start, switches);
            (self.page_end, self.checked) = (0, 0);
        }
        Ok(())
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
        self.decoder.position = self.decoder.position + bytes as u64;
    }

    /// Bytes of the piece that are left.
    fn left(&self) -> usize {
        self.wal.len() - self.at
    }

    /// Goes on to the next whole record, over whatever is before it: padding, page headers, parts of a record.
    fn advance(&mut self) -> Result<Option<(Lsn, Place)>, WalError> {
        self.decoder.check_fault()?;
        loop {
            (self.page_end, self.checked) = (0, 0);
            if self.decoder.position < self.decoder.skip_to {
                let gap = self.decoder.skip_to.0 - self.decoder.position.0;
                self.consume(self.left().min(usize::try_from(gap).unwrap_or(usize::MAX)));
                if self.decoder.position < self.decoder.skip_to {
                    return Ok(None);
                }
            }
            let position = self.decoder.position;
            let in_page = position.0 % XLOG_BLCKSZ;
            let page_left = (XLOG_BLCKSZ - in_page) as usize;
            if in_page == 0 {
                let length = page_header_bytes(position);
                let Some(header) = self.gather(length) else {
                    return Ok(None);
                };
                self.decoder.check_page_header(&header[..length])?;
                self.decoder.position = position + length as u64;
            } else if let Some(partial) = self.decoder.partial {
                if self.left() == 0 {
                    return Ok(None);
                }
                if self.continue_record(partial, page_left)? {
                    return Ok(Some((partial.start, Place::Assembled)));
                }
            } else {
                if (in_page as usize) < page_header_bytes(Lsn(position.0 - in_page)) {
                    return Err(WalError::NotABoundary {
                        lsn: position,
                        why: "it lies inside a page header",
                    });
                }
                if self.decoder.cut.is_empty() {
                    self.page_end = self.at + page_left.min(self.left());
                    if let Some(total) = self.length_here() {
                        let from = self.at;
                        self.take_here(total)?;
                        return Ok(Some((position, Place::Piece(from, total))));
                    }
                }
                if !self.begin_record()? {
                    return Ok(None);
                }
            }
        }
    }

    /// The next `length` bytes, at most 40, consumed but not yet counted in the position; `None` until all are there.
    fn gather(&mut self, length: usize) -> Option<[u8; LONG_PAGE_HEADER_BYTES]> {
        let cut = &mut self.decoder.cut;
        let take = (length - cut.len()).min(self.wal.len() - self.at);
        cut.extend_from_slice(&self.wal[self.at..self.at + take]);
        self.at += take;
        if cut.len() < length {
            return None;
        }
        let mut bytes = [0; LONG_PAGE_HEADER_BYTES];
        bytes[..length].copy_from_slice(cut);
        cut.clear();
        Some(bytes)
    }

    /// Sees the length of a record that is not whole here and begins to put it together; false when more bytes are
    /// needed for that.
    fn begin_record(&mut self) -> Result<bool, WalError> {
        let start = self.decoder.position;
        // The length is never split by a page: records start on 8-byte boundaries. The header may be.
        let Some(bytes) = self.gather(4) else {
            return Ok(false);
        };
        let length = &bytes[..4];
        let total = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
        if total == 0 {
            return Err(WalError::Zero { lsn: start });
        }
        if (total as usize) < RECORD_HEADER_BYTES {
            return Err(WalError::Record {
                lsn: start,
                why: format!("a length of {total} bytes"),
            });
        }
        let decoder = &mut *self.decoder;
        decoder.position = start + 4;
        decoder.assembled.clear();
        decoder.left_out = LeftOut::default();
        decoder.assembled.extend_from_slice(length);
        decoder.partial = Some(Partial {
            start,
            total: total as usize,
        });
        Ok(true)
    }

    /// Takes what this page has of the partial record; whether it is whole.
    fn continue_record(&mut self, partial: Partial, page_left: usize) -> Result<bool, WalError> {
        let had = self.decoder.come();
        let take = (partial.total - had).min(page_left).min(self.left());
        self.decoder
            .put(&partial, &self.wal[self.at..self.at + take]);
        self.consume(take);
        let decoder = &mut *self.decoder;
        if had < RECORD_HEADER_BYTES {
            decoder.check_header(partial.start, &decoder.assembled)?;
        }
        if decoder.come() < partial.total {
            return Ok(false);
        }
        decoder.partial = None;
        decoder.check_assembled(partial.start)?;
        let switches = is_switch(&decoder.assembled);
        decoder.finish(partial.start, switches);
        Ok(true)
    }
}

impl WalStreamDecoder {
    /// Adds bytes of the partial record: to those kept, or to those left out.
    fn put(&mut self, partial: &Partial, bytes: &[u8]) {
        let room = self.kept_of(partial).saturating_sub(self.assembled.len());
        let (kept, left_out) = bytes.split_at(bytes.len().min(room));
        if self.assembled.capacity() - self.assembled.len() < kept.len() {
            // By halves, and never beyond the record: doubling would take twice a record of a gigabyte.
            let more = kept.len().max(self.assembled.len() / 2).min(room);
            self.assembled.reserve_exact(more);
        }
        self.assembled.extend_from_slice(kept);
        if left_out.is_empty() {
            return;
        }
        if self.left_out.bytes == 0 {
            self.left_out.crc = crc32c::crc32c(&self.assembled[RECORD_HEADER_BYTES..]);
        }
        self.left_out.crc = crc32c::crc32c_append(self.left_out.crc, left_out);
        self.left_out.bytes += left_out.len();
    }

    /// Whether the checksum of the assembled record is right.
    fn check_assembled(&self, start: Lsn) -> Result<(), WalError> {
        if self.left_out.bytes == 0 {
            return check_sum(start, &self.assembled);
        }
        let before_sum = &self.assembled[..RECORD_HEADER_BYTES - 4];
        let computed = crc32c::crc32c_append(self.left_out.crc, before_sum);
        let stored = stored_crc(&self.assembled);
        if stored == computed {
            return Ok(());
        }
        Err(WalError::Checksum {
            lsn: start,
            stored,
            computed,
        })
    }
}

/// Length up to where the next record may begin: on eight bytes. Without a branch, which would often be mistaken for
/// lengths that are as good as random.
#[inline(always)]
fn padded(length: usize) -> usize {
    (length + 7) & !7
}

impl Drop for Records<'_> {
    fn drop(&mut self) {
        if self.bytes_spent() > 0 {
            self.decoder.assembled = Vec::new();
        }
        if self.at < self.wal.len() && self.decoder.fault.is_none() {
            self.decoder.fault = Some(WalError::NotTaken {
                lsn: self.decoder.position,
            });
        }
    }
}
