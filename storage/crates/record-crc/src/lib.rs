//! The checksum of a WAL record, CRC-32C, made for records of a hundred bytes.
//!
//! Checking records is the larger part of what reading them takes, and general libraries are made for long inputs:
//! they take the bytes before the first and behind the last whole word one by one, and look up how to go on with each
//! call. Here every step takes eight bytes, the odd ones of the body included, on processors with the instruction
//! (SSE 4.2: every x86-64 since 2008); elsewhere the `crc32c` crate does the work. The value is the same.
//!
//! Each step waits for the one before, three cycles, while the processor could begin another every cycle. Records do
//! not wait for each other: [`right_prefix`] checks all records of a page one behind the other with nothing else in
//! between, so that the processor, which looks some hundred instructions ahead, works on several of them at a time.
//! With AVX-512 it takes 64 bytes in a step.
//!
//! Invariants: every way gives the same value for every input; a function compiled for a feature is called only where
//! the processor has it. This is the only code that needs `unsafe` to read WAL, for those calls and for loads of 64
//! bytes: the crates that take WAL apart forbid it.

#![warn(missing_docs)]

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
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the feature the function is compiled for.
        #[allow(unsafe_code)]
        return unsafe { sse42::record_crc(record) };
    }
    portable(record)
}

/// How many of these bytes, from the first on, are whole records that carry the right checksum, each with what there is
/// of its padding to eight bytes. `wal` begins with a record and has no page header in it. Nothing but length and
/// checksum is looked at: behind the last such record may be anything.
#[inline]
pub fn right_prefix(wal: &[u8]) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if wide::is_possible() {
            // SAFETY: the processor has the features the function is compiled for.
            #[allow(unsafe_code)]
            return unsafe { wide::right_prefix(wal) };
        }
        if std::arch::is_x86_feature_detected!("sse4.2") {
            // SAFETY: the processor has the feature the function is compiled for.
            #[allow(unsafe_code)]
            return unsafe { sse42::right_prefix(wal) };
        }
    }
    prefix(wal, portable)
}

fn portable(record: &[u8]) -> u32 {
    let body = crc32c::crc32c(&record[HEADER..]);
    crc32c::crc32c_append(body, &record[..HEADER - 4])
}

/// [`right_prefix`] with a way to make checksums, which is given whole records.
#[inline(always)]
fn prefix(wal: &[u8], crc: impl Fn(&[u8]) -> u32) -> usize {
    let mut at = 0;
    while let Some(length) = wal.get(at..).and_then(|rest| rest.first_chunk()) {
        let length = u32::from_le_bytes(*length) as usize;
        if length < HEADER || length > wal.len() - at {
            break;
        }
        let record = &wal[at..at + length];
        if crc(record).to_le_bytes() != record[HEADER - 4..HEADER] {
            break;
        }
        // Without a branch, which would often be mistaken for lengths that are as good as random.
        at += (length + 7) & !7;
    }
    at.min(wal.len())
}

#[cfg(target_arch = "x86_64")]
mod wide;

/// Eight bytes at a time.
#[cfg(target_arch = "x86_64")]
mod sse42 {
    use std::arch::x86_64::{_mm_crc32_u32, _mm_crc32_u64};

    use super::{HEADER, LONG, portable, prefix, word_at};

    /// As [`super::right_prefix`].
    #[target_feature(enable = "sse4.2")]
    pub fn right_prefix(wal: &[u8]) -> usize {
        prefix(wal, |record| record_crc(record))
    }

    /// As [`super::record_crc`].
    #[target_feature(enable = "sse4.2")]
    #[inline]
    pub fn record_crc(record: &[u8]) -> u32 {
        if record.len() >= LONG {
            return portable(record);
        }
        let (header, body) = record.split_at(HEADER);
        // The body's first odd bytes come as a word with zeroes in front, from a state of zero, which leaves what
        // they alone would. The state to begin with counts like the body's first four bytes.
        let odd = body.len() % 8;
        let up = 63 - 8 * odd as u32;
        let first = word_at(record, HEADER - 8 + odd) & (!1 << up);
        let mut crc = _mm_crc32_u64(0, first ^ (u64::from(u32::MAX) << 1 << up));
        crc ^= u64::from(u32::MAX) >> (8 * odd);
        let (fours, words) = body[odd..].as_chunks::<32>();
        for four in fours {
            crc = _mm_crc32_u64(crc, word_at(four, 0));
            crc = _mm_crc32_u64(crc, word_at(four, 8));
            crc = _mm_crc32_u64(crc, word_at(four, 16));
            crc = _mm_crc32_u64(crc, word_at(four, 24));
        }
        for word in words.as_chunks::<8>().0 {
            crc = _mm_crc32_u64(crc, word_at(word, 0));
        }
        crc = _mm_crc32_u64(crc, word_at(header, 0));
        crc = _mm_crc32_u64(crc, word_at(header, 8));
        !_mm_crc32_u32(crc as u32, word_at(header, 16) as u32)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Every way of finding the prefix that this processor has.
    fn prefixes(wal: &[u8]) -> Vec<usize> {
        #[allow(unused_mut)]
        let mut found = vec![prefix(wal, portable), right_prefix(wal)];
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("sse4.2") {
            // SAFETY: the processor has the feature the function is compiled for.
            #[allow(unsafe_code)]
            found.push(unsafe { sse42::right_prefix(wal) });
        }
        found
    }

    /// Records of these bodies, each padded to eight bytes, and where each begins.
    fn wal_of(bodies: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut wal, mut starts) = (Vec::new(), Vec::new());
        for body in bodies {
            let mut record = ((HEADER + body.len()) as u32).to_le_bytes().to_vec();
            record.extend(body.iter().cycle().chain(&[7; HEADER]).take(HEADER - 4));
            record.truncate(HEADER - 4);
            record.resize(HEADER, 0);
            record.extend(body);
            let crc = portable(&record);
            record[HEADER - 4..HEADER].copy_from_slice(&crc.to_le_bytes());
            starts.push(wal.len());
            wal.extend(&record);
            wal.resize(wal.len().next_multiple_of(8), 0);
        }
        starts.push(wal.len());
        (wal, starts)
    }

    proptest! {
        #[test]
        fn the_checksum_is_that_of_the_library(record in vec(any::<u8>(), HEADER..1200)) {
            prop_assert_eq!(record_crc(&record), portable(&record));
        }

        /// Promise: the records before the first that is damaged or cut short are found right, and none behind.
        #[test]
        fn right_records_end_where_damage_begins(
            bodies in vec(vec(any::<u8>(), 0..1100), 1..12),
            damaged in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<prop::sample::Index>(),
        ) {
            let (mut wal, starts) = wal_of(&bodies);
            prop_assert!(prefixes(&wal).iter().all(|found| *found == wal.len()));

            let cut = cut.index(wal.len() + 1);
            let whole = bodies.iter().zip(&starts).take_while(|(body, start)| *start + HEADER + body.len() <= cut);
            let expected = starts[whole.count()].min(cut);
            prop_assert!(prefixes(&wal[..cut]).iter().all(|found| *found == expected));

            let at = damaged.index(wal.len());
            let number = starts.partition_point(|start| *start <= at) - 1;
            let in_record = at < starts[number] + HEADER + bodies[number].len();
            wal[at] ^= flip;
            let expected = if in_record { starts[number] } else { wal.len() };
            prop_assert!(prefixes(&wal).iter().all(|found| *found == expected), "{:?} {}", prefixes(&wal), expected);
        }
    }

    /// Promise: no length of a record, and no place in memory where it may begin, makes a difference.
    #[test]
    fn every_length_is_right() {
        let bytes: Vec<u8> = (0..1400u32).map(|i| (i * i / 8 + i) as u8).collect();
        for length in HEADER..1100 {
            let mut record = bytes[length % 64..][..length].to_vec();
            assert_eq!(record_crc(&record), portable(&record), "{length} bytes");
            record[..4].copy_from_slice(&(length as u32).to_le_bytes());
            let crc = portable(&record);
            record[HEADER - 4..HEADER].copy_from_slice(&crc.to_le_bytes());
            let found = prefixes(&record);
            assert!(
                found.iter().all(|found| *found == length),
                "{length} bytes: {found:?}"
            );
        }
    }
}
