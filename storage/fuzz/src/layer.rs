//! Layer files whose content is damage and whose checksums hold.

use std::ops::ControlFlow;

use bytes::Bytes;
use layers::{FORMAT_VERSION, LayerReader, Version, VersionSource, Window};
use pg_types::{Key, KeyKind, KeyRange, Lsn};

const KEY_BYTES: usize = 18;

/// A file of format version 2 as `docs/formats.md` describes it, with these blocks stored as they are. The index names
/// the key and LSN that a block begins with.
fn forged(blocks: &[&[u8]]) -> Bytes {
    let head = [FORMAT_VERSION.to_le_bytes(), [1, 0]].concat();
    let mut file = [b"WEIRLAYR", &head[..], &[0; 4]].concat();
    let section = |bytes: &[u8], file: &mut Vec<u8>| {
        let mut place = (file.len() as u64).to_le_bytes().to_vec();
        for number in [
            bytes.len() as u32,
            bytes.len() as u32,
            crc32c::crc32c(bytes),
        ] {
            place.extend(number.to_le_bytes());
        }
        file.extend_from_slice(bytes);
        place
    };
    let (first, last) = (Key::min_of(KeyKind::RelBlock), Key::max_of(KeyKind::Aux));
    let mut index = Vec::new();
    for block in blocks {
        match block.get(1..1 + KEY_BYTES + 8) {
            Some(begins) => index.extend_from_slice(begins),
            None => index.extend([&first.to_bytes()[..], &[0; 8]].concat()),
        }
        index.extend(section(block, &mut file));
    }
    let mut fields = head;
    fields.extend(first.to_bytes());
    fields.extend(last.to_bytes());
    for number in [0, u64::MAX, 1, 0] {
        fields.extend(number.to_le_bytes());
    }
    for part in [&index[..], &[], &[0xFF; 8]] {
        fields.extend(section(part, &mut file));
    }
    let crc = crc32c::crc32c(&fields).to_le_bytes();
    file.extend(fields);
    file.extend(crc);
    let crc = crc32c::crc32c(&file).to_le_bytes();
    file.extend(crc);
    file.extend(b"RYALRIEW");
    file.into()
}

/// Whatever blocks hold, a reader answers or refuses; and where it can walk a block it finds each key's versions in it.
/// The first byte says how many of the rest are the first of two blocks, in sixteenths; none: there is one block.
pub fn layer(data: &[u8]) {
    let Some((&parts, rest)) = data.split_first() else {
        return;
    };
    let (before, behind) = rest.split_at(rest.len() * usize::from(parts % 16) / 16);
    let blocks: &[&[u8]] = if before.is_empty() {
        &[behind]
    } else {
        &[before, behind]
    };
    let Ok(reader) = LayerReader::open("forged", forged(blocks)) else {
        return;
    };
    reader.verify().expect("the checksum is right");
    let _ = (reader.check(), reader.key_stats());
    let walked: Result<Vec<(Key, Version)>, _> = reader.iter().collect();
    let all = KeyRange {
        first: Key::min_of(KeyKind::RelBlock),
        last: Key::max_of(KeyKind::Aux),
    };
    let everything = Window::upto(Lsn::MAX);
    let mut scanned = Vec::new();
    let scan = reader.scan(&all, everything, &mut |key, version| {
        scanned.push((key, version));
        ControlFlow::Continue(())
    });
    let Ok(walked) = walked else {
        return;
    };
    let mut keys: Vec<Key> = walked.iter().map(|(key, _)| *key).collect();
    keys.dedup();
    for key in keys {
        let mut found = Vec::new();
        let looked = reader.newest_first(&key, everything, &mut |version| {
            found.push(version);
            ControlFlow::Continue(())
        });
        // Two blocks may disagree about their order, which only `check` looks for.
        if blocks.len() > 1 || looked.is_err() {
            continue;
        }
        let seen = |version: &Version| everything.contains(version.lsn);
        let of_key = walked
            .iter()
            .rev()
            .filter(|(of, version)| *of == key && seen(version));
        let expected: Vec<Version> = of_key.map(|(_, version)| version.clone()).collect();
        assert_eq!(found, expected, "versions of {key}");
    }
    if blocks.len() == 1 && scan.is_ok() {
        let seen: Vec<_> = walked
            .into_iter()
            .filter(|(_, version)| everything.contains(version.lsn))
            .collect();
        assert_eq!(scanned, seen);
    }
}
