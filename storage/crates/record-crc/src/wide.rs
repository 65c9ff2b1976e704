//! 64 bytes at a time, for processors with AVX-512 and carry-less multiplication of such registers (servers since about
//! 2020).
//!
//! A checksum is the remainder of the input, taken as a polynomial over one bit, divided by a fixed one. Sixteen bytes
//! that stand some distance before others can be multiplied by what that distance leaves as remainder and added to the
//! others, and the remainder of the whole stays the same. So the blocks of a record are added up into one of 64 bytes,
//! that into one of 16 bytes, and the processor's instruction for checksums does the rest.
//!
//! The crate's root chooses among the ways to make a checksum, of which this is one, and has what all of them share.

use std::arch::x86_64::*;

use super::{HEADER, LONG, portable, prefix, word_at};

/// CRC-32C's polynomial without its highest term; as everywhere here the lowest power is in the highest bit.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// Bytes taken at once.
const BLOCK: usize = 64;

/// What a step further does to a remainder: multiplied by x.
const fn times_x(value: u32) -> u32 {
    value >> 1 ^ (if value & 1 == 1 { POLYNOMIAL } else { 0 })
}

const fn over_x(value: u32) -> u32 {
    let carry = value >> 31;
    (value ^ (if carry == 1 { POLYNOMIAL } else { 0 })) << 1 | carry
}

/// The remainder of x to this power, in the upper half of a word.
const fn power(exponent: i32) -> i64 {
    let (mut value, mut at) = (1u32 << 31, 0);
    while at < exponent {
        value = times_x(value);
        at += 1;
    }
    while at > exponent {
        value = over_x(value);
        at -= 1;
    }
    ((value as u64) << 32) as i64
}

/// What the two halves of sixteen bytes are multiplied by to count `bytes` earlier. The first half stands eight bytes
/// before the second, and the product of two words comes out one bit low.
const fn earlier_by(bytes: i32) -> [i64; 2] {
    [power(8 * bytes + 63), power(8 * bytes - 1)]
}

/// To be added to the block behind.
const BY_BLOCK: [i64; 2] = earlier_by(BLOCK as i32);
/// For each sixteen bytes of a block, to be added to the last of them.
const TO_LAST: [[i64; 2]; 4] = [
    earlier_by(48),
    earlier_by(32),
    earlier_by(16),
    earlier_by(0),
];

/// By a body's length: what a checksum's begin and end as all ones make of a record whose bytes count for nothing.
static ONES: [u32; LONG] = {
    let mut table = [0; LONG];
    let (mut state, mut bits, mut length) = (u32::MAX, 8 * (HEADER - 4), 0);
    while length < LONG {
        while bits > 0 {
            state = times_x(state);
            bits -= 1;
        }
        table[length] = !state;
        (bits, length) = (8, length + 1);
    }
    table
};

/// Whether the processor has what the functions here are compiled for.
#[inline]
pub fn is_possible() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("vpclmulqdq") && has!("bmi2") && has!("sse4.2")
}

/// As [`super::right_prefix`].
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,bmi2,sse4.2")]
pub fn right_prefix(wal: &[u8]) -> usize {
    prefix(wal, |record| record_crc(record))
}

/// As [`super::record_crc`].
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,bmi2,sse4.2")]
#[inline]
fn record_crc(record: &[u8]) -> u32 {
    if record.len() >= LONG {
        return portable(record);
    }
    let body = &record[HEADER..];
    let (odd, blocks) = body.split_at(body.len() % BLOCK);
    let by_block = {
        let [first, second] = BY_BLOCK;
        _mm512_set_epi64(second, first, second, first, second, first, second, first)
    };
    let mut sum = load_at_end(odd);
    for block in blocks.as_chunks().0 {
        sum = multiplied(sum, by_block, load(block));
    }
    let to_last = {
        let [a, b, c, d] = TO_LAST;
        _mm512_set_epi64(d[1], d[0], c[1], c[0], b[1], b[0], a[1], a[0])
    };
    let sum = multiplied(sum, to_last, _mm512_setzero_si512());
    let half = _mm256_xor_si256(
        _mm512_castsi512_si256(sum),
        _mm512_extracti64x4_epi64::<1>(sum),
    );
    let last = _mm_xor_si128(
        _mm256_castsi256_si128(half),
        _mm256_extracti128_si256::<1>(half),
    );
    let mut crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(last) as u64);
    crc = _mm_crc32_u64(crc, _mm_extract_epi64::<1>(last) as u64);
    crc = _mm_crc32_u64(crc, word_at(record, 0));
    crc = _mm_crc32_u64(crc, word_at(record, 8));
    _mm_crc32_u32(crc as u32, word_at(record, 16) as u32) ^ ONES[body.len()]
}

/// Multiplies each sixteen bytes' halves and adds up the products and another block.
#[target_feature(enable = "avx512f,vpclmulqdq")]
#[inline]
fn multiplied(value: __m512i, by: __m512i, plus: __m512i) -> __m512i {
    let first = _mm512_clmulepi64_epi128::<0x00>(value, by);
    let second = _mm512_clmulepi64_epi128::<0x11>(value, by);
    // Exclusive or of all three.
    _mm512_ternarylogic_epi64::<0x96>(first, second, plus)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn load(block: &[u8; BLOCK]) -> __m512i {
    // SAFETY: reads 64 bytes, which the block has.
    #[allow(unsafe_code)]
    unsafe {
        _mm512_loadu_si512(block.as_ptr().cast())
    }
}

/// A block that ends with these bytes, fewer than 64, and is zero before.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn load_at_end(bytes: &[u8]) -> __m512i {
    let mask = (!1u64) << (BLOCK - 1 - bytes.len() % BLOCK);
    let from = bytes.as_ptr_range().end.wrapping_sub(BLOCK);
    // SAFETY: what the mask leaves out is not read; the rest are the bytes of the slice.
    #[allow(unsafe_code)]
    unsafe {
        _mm512_maskz_loadu_epi8(mask, from.cast())
    }
}
