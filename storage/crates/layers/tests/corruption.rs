//! Promise: whatever the bytes of a layer file are, reading it gives the right versions or an error that
//! names the layer. It never panics and never gives wrong versions.

use std::ops::ControlFlow;

use bytes::Bytes;
use layers::{
    LayerError, LayerReader, LayerWriter, Value, Version, VersionSource, Window, WriterOptions,
};
use pg_types::{Key, KeyKind, KeyRange, Lsn};
use proptest::prelude::*;

const FOOTER_BYTES: usize = 148;

/// A layer with all sorts of values in several blocks.
fn sample() -> (Bytes, Vec<(Key, Version)>) {
    let mut versions = Vec::new();
    for number in 0..40_u32 {
        for lsn in 0..4_u64 {
            let text = Bytes::from(format!("value {number} {lsn}").repeat(3));
            let value = match (number + lsn as u32) % 6 {
                0 => Value::Image(text),
                1 => Value::Zero,
                2 => Value::Meta(text),
                3 => Value::Tombstone,
                4 => Value::Delta {
                    bytes: text,
                    starts_chain: true,
                },
                _ => Value::Delta {
                    bytes: text,
                    starts_chain: false,
                },
            };
            versions.push((
                Key::aux(number),
                Version {
                    lsn: Lsn(100 + lsn * 8),
                    seq: 0,
                    value,
                },
            ));
        }
    }
    let options = WriterOptions {
        block_bytes: 256,
        compression: 1,
    };
    let mut writer = LayerWriter::delta(Vec::new(), 0, options).unwrap();
    for (key, version) in &versions {
        writer.push(key, version).unwrap();
    }
    (Bytes::from(writer.finish().unwrap().1), versions)
}

/// Everything a reader can be asked; one error does not keep the other questions from being put.
fn read_everything(bytes: Bytes) -> Result<Vec<(Key, Version)>, LayerError> {
    let reader = LayerReader::open("the-layer", bytes)?;
    let found = reader.iter().collect();
    let stats = reader.key_stats().map(drop);
    let all = KeyRange {
        first: Key::min_of(KeyKind::RelBlock),
        last: Key::max_of(KeyKind::Aux),
    };
    let scanned = reader.scan(&all, Window::upto(Lsn::MAX), &mut |_, _| {
        ControlFlow::Continue(())
    });
    let read = |number| {
        reader.newest_first(&Key::aux(number), Window::upto(Lsn::MAX), &mut |_| {
            ControlFlow::Continue(())
        })
    };
    let results: Vec<_> = (0..45).map(read).collect();
    results
        .into_iter()
        .chain([stats, scanned])
        .collect::<Result<(), _>>()?;
    found
}

fn assert_harmless(bytes: Bytes, expected: Option<&[(Key, Version)]>) {
    match read_everything(bytes) {
        Ok(found) => {
            if let Some(expected) = expected {
                assert_eq!(
                    found, expected,
                    "damage went unnoticed and changed what is read"
                );
            }
        }
        Err(error) => assert!(
            error.to_string().contains("the-layer"),
            "{error} does not name the layer"
        ),
    }
}

#[test]
fn every_flipped_byte_is_noticed_by_the_checksum_and_never_changes_a_read() {
    let (good, versions) = sample();
    assert_eq!(read_everything(good.clone()).unwrap(), versions);
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 1 << (at % 8);
        let bad = Bytes::from(bad);
        match LayerReader::open("the-layer", bad.clone()) {
            Ok(reader) => {
                assert!(reader.verify().is_err(), "flip at {at} passes verification");
                assert!(
                    reader.check().is_err(),
                    "flip at {at} passes the whole check"
                );
            }
            Err(error) => assert!(error.to_string().contains("the-layer")),
        }
        assert_harmless(bad, Some(&versions));
    }
}

#[test]
fn a_sound_layer_passes_the_whole_check_and_is_counted() {
    let (good, versions) = sample();
    let content = LayerReader::open("the-layer", good).unwrap().check();
    let content = content.unwrap();
    assert_eq!((content.versions, content.keys), (160, 40));
    let deltas = versions
        .iter()
        .filter(|(_, version)| version.value.is_delta());
    assert_eq!(content.deltas, deltas.count() as u64);
    assert!(content.blocks > 10 && content.longest_chain >= 1);
}

/// Promise: lies that carry right checksums are found by the whole check.
#[test]
fn a_layer_whose_checksums_hold_but_whose_parts_disagree_is_found() {
    let (good, _) = sample();
    let footer = good.len() - FOOTER_BYTES;
    // Last LSN, number of versions, number of keys.
    for field in [48, 56, 64] {
        let mut bad = good.to_vec();
        bad[footer + field] ^= 1;
        let checked = LayerReader::open("the-layer", resealed(bad)).and_then(|it| it.check());
        assert!(checked.unwrap_err().to_string().contains("the-layer"));
    }
}

#[test]
fn a_file_cut_off_anywhere_is_not_a_layer() {
    let (good, _) = sample();
    for length in 0..good.len() {
        assert!(
            LayerReader::open("the-layer", good.slice(..length)).is_err(),
            "cut to {length} bytes"
        );
    }
}

/// Puts the checksums of a changed file right, so that the checks behind them are reached.
fn resealed(mut bytes: Vec<u8>) -> Bytes {
    let end = bytes.len();
    let fields = end - FOOTER_BYTES..end - 16;
    let footer_crc = crc32c(&bytes[fields]);
    bytes[end - 16..end - 12].copy_from_slice(&footer_crc.to_le_bytes());
    let file_crc = crc32c(&bytes[..end - 12]);
    bytes[end - 12..end - 8].copy_from_slice(&file_crc.to_le_bytes());
    Bytes::from(bytes)
}

/// CRC-32C written out from its definition: the documented checksum, not the library's word for it.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                crc >> 1 ^ 0x82F6_3B78
            } else {
                crc >> 1
            }
        })
    };
    !bytes.iter().fold(!0, step)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        assert_harmless(Bytes::from(bytes), None);
    }

    #[test]
    fn a_forged_footer_with_right_checksums_is_harmless(
        changes in prop::collection::vec((0..FOOTER_BYTES - 16, any::<u8>()), 1..4),
    ) {
        let (good, _) = sample();
        let mut bytes = good.to_vec();
        let footer = bytes.len() - FOOTER_BYTES;
        for (at, byte) in changes {
            bytes[footer + at] = byte;
        }
        assert_harmless(resealed(bytes), None);
    }

    #[test]
    fn forged_sections_are_harmless(
        index in prop::collection::vec(any::<u8>(), 0..200),
        block in prop::collection::vec(any::<u8>(), 0..200),
        valid_key in any::<bool>(),
        version in 1..=2_u8,
    ) {
        // A file of one block and one index slot, assembled by the description of the format, with
        // arbitrary content behind right checksums.
        let mut file = b"WEIRLAYR\x01\x00\x01\x00\0\0\0\0".to_vec();
        file[8] = version;
        let section = |raw: &[u8], compressed: bool, file: &mut Vec<u8>| {
            let stored = if compressed { zstd::bulk::compress(raw, 1).unwrap() } else { raw.to_vec() };
            let mut slot = (file.len() as u64).to_le_bytes().to_vec();
            slot.extend((stored.len() as u32).to_le_bytes());
            slot.extend((raw.len() as u32).to_le_bytes());
            slot.extend(crc32c(&stored).to_le_bytes());
            file.extend(stored);
            slot
        };
        let block = section(&block, true, &mut file);
        let index_raw = if valid_key {
            let mut slot = Key::aux(1).to_bytes().to_vec();
            slot.extend(5_u64.to_le_bytes());
            slot.extend(block);
            slot
        } else {
            index
        };
        let index = section(&index_raw, true, &mut file);
        let mut stat = Key::aux(1).to_bytes().to_vec();
        stat.extend([0; 24]);
        let keys = section(&stat, true, &mut file);
        let bloom = section(&[0xFF; 8], false, &mut file);
        let mut footer = vec![version, 0, 1, 0];
        footer.extend(Key::aux(0).to_bytes());
        footer.extend(Key::aux(50).to_bytes());
        for number in [1_u64, 1000, 1, 1] {
            footer.extend(number.to_le_bytes());
        }
        footer.extend(index.into_iter().chain(keys).chain(bloom));
        file.extend(footer);
        file.extend([0; 8]);
        file.extend(b"RYALRIEW");
        assert_harmless(resealed(file), None);
    }
}
