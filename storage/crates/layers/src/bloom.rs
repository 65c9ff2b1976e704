//! A bloom filter over a layer's keys: a read skips most layers that do not hold its key without touching
//! their blocks. About 10 bits a key, 1 % false positives.

use pg_types::Key;

const BITS_PER_KEY: usize = 10;
const PROBES: u64 = 7;

/// FNV-1a over the key's binary form, then a finalizer so that all bits depend on all bytes.
pub(crate) fn hash(key: &Key) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in key.to_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

/// The bit positions of a key: double hashing with the two halves of its hash.
fn probes(hash: u64, bits: u64) -> impl Iterator<Item = u64> {
    let (low, high) = (hash & 0xffff_ffff, hash >> 32 | 1);
    (0..PROBES).map(move |i| (low + i * high) % bits)
}

/// The filter's bytes for these key hashes.
pub(crate) fn build(hashes: &[u64]) -> Vec<u8> {
    let bytes = (hashes.len() * BITS_PER_KEY).div_ceil(8).max(8);
    let mut filter = vec![0; bytes];
    for hash in hashes {
        for bit in probes(*hash, bytes as u64 * 8) {
            filter[(bit / 8) as usize] |= 1 << (bit % 8);
        }
    }
    filter
}

/// False only if the key is certainly absent.
pub(crate) fn may_contain(filter: &[u8], key: &Key) -> bool {
    let bits = filter.len() as u64 * 8;
    bits == 0
        || probes(hash(key), bits).all(|bit| filter[(bit / 8) as usize] & (1 << (bit % 8)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_and_few_others_are() {
        let hashes: Vec<u64> = (0..10_000).map(|n| hash(&Key::aux(n))).collect();
        let filter = build(&hashes);
        assert!((0..10_000).all(|n| may_contain(&filter, &Key::aux(n))));
        let wrong = (10_000..110_000)
            .filter(|n| may_contain(&filter, &Key::aux(*n)))
            .count();
        assert!(
            wrong < 2_000,
            "{wrong} of 100000 absent keys pass the filter"
        );
    }
}
