//! The checksum of a WAL record, CRC-32C, made for records of a hundred bytes.
//!
//! Checking a record is a third of what reading it takes, and general libraries are made for long inputs: they take
//! the bytes before the first and behind the last whole word one by one, and look up how to go on with each call.
//! Here every step takes eight bytes, the last ones of the body included, on processors with the instruction
//! (SSE 4.2: every x86-64 since 2008); elsewhere the `crc32c` crate does the work. The value is the same.
//!
//! This is the only code that needs `unsafe` to read WAL, in one place, to call what the processor was asked for
//! before: the crates that take WAL apart forbid it.

/// From this length on, with a page image in the record most of the time, the library is faster: it takes three
/// stretches of the record at once.
const LONG: usize = 1024;

/// Bytes of a record's header; the last four are the checksum.
const HEADER: usize = 24;

/// The checksum a whole record must carry: CRC-32C of what follows the header, then of the header's
/// bytes before the checksum. `record` is at least a header long, 24 bytes.
#[inline]
pub fn record_crc(record: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if record.len() < LONG && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the feature the function is compiled for.
        #[allow(unsafe_code)]
        return unsafe { sse42::record_crc(record) };
    }
    portable(record)
}

fn portable(record: &[u8]) -> u32 {
    let body = crc32c::crc32c(&record[HEADER..]);
    crc32c::crc32c_append(body, &record[..HEADER - 4])
}

#[cfg(target_arch = "x86_64")]
mod sse42 {
    use std::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};

    use super::HEADER;

    #[target_feature(enable = "sse4.2")]
    pub fn record_crc(record: &[u8]) -> u32 {
        let (header, body) = record.split_at(HEADER);
        let mut crc = u64::from(u32::MAX);
        if let Some(last) = body.len().checked_sub(1) {
            // The last word has one to eight bytes.
            let whole = last / 8 * 8;
            for word in body[..whole].chunks_exact(8) {
                crc = _mm_crc32_u64(crc, word_at(word, 0));
            }
            let bits = 8 * (body.len() - whole) as u32;
            // What is before the last word's bytes in these eight goes out; a record has at least as many.
            let word = word_at(record, record.len() - 8) >> (64 - bits);
            // A word with zeroes in front, from a state of zero, leaves what its other bytes alone would; the part
            // of the state that fewer than four bytes do not meet moves up by as many.
            let met = (word ^ crc) << (64 - bits);
            crc = _mm_crc32_u64(0, met) ^ (crc >> (bits / 2) >> (bits / 2));
        }
        crc = _mm_crc32_u64(crc, word_at(header, 0));
        crc = _mm_crc32_u64(crc, word_at(header, 8));
        !_mm_crc32_u32(crc as u32, word_at(header, 16) as u32)
    }

    #[inline(always)]
    fn word_at(bytes: &[u8], at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_checksum_is_that_of_the_library(record in vec(any::<u8>(), HEADER..1200)) {
            prop_assert_eq!(record_crc(&record), portable(&record));
        }
    }

    #[test]
    fn every_short_length_is_right() {
        let bytes: Vec<u8> = (0..200u32).map(|i| (i * i / 8) as u8).collect();
        for length in HEADER..bytes.len() {
            let record = &bytes[..length];
            assert_eq!(record_crc(record), portable(record), "{length} bytes");
        }
    }
}
