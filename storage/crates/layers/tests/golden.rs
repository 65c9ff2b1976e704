//! Promise: layer files written by any released program can still be read. `golden/v1-*.layer` are files of format
//! version 1, `golden/v2-*.layer` of version 2, and so on; they are never written again. A new format version adds files, it
//! does not change these.

use bytes::Bytes;
use layers::{
    FORMAT_VERSION, LayerKind, LayerReader, LayerWriter, Value, Version, WriterOptions, image_layer,
};
use pg_types::{ForkNumber, Key, Lsn, RelTag};

fn delta_versions() -> Vec<(Key, Version)> {
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16384,
        fork: ForkNumber::Main,
    };
    let delta = |text: &'static str, starts_chain| Value::Delta {
        bytes: Bytes::from_static(text.as_bytes()),
        starts_chain,
    };
    let mut versions = Vec::new();
    for block in 0..4 {
        versions.push((
            Key::rel_block(rel, block),
            Version {
                lsn: Lsn(0x0100_0028),
                seq: 0,
                value: delta("first", true),
            },
        ));
        versions.push((
            Key::rel_block(rel, block),
            Version {
                lsn: Lsn(0x0100_0060),
                seq: 0,
                value: delta("second", false),
            },
        ));
        versions.push((
            Key::rel_block(rel, block),
            Version {
                lsn: Lsn(0x0100_0060),
                seq: 1,
                value: delta("third", false),
            },
        ));
        let image = Value::Image(Bytes::from(vec![block as u8; 8192]));
        versions.push((
            Key::rel_block(rel, block),
            Version {
                lsn: Lsn(0x0100_0060),
                seq: Version::GENERATED,
                value: image,
            },
        ));
        versions.push((
            Key::rel_block(rel, block),
            Version {
                lsn: Lsn(0x0100_0090),
                seq: 0,
                value: Value::Zero,
            },
        ));
    }
    let size = Value::Meta(Bytes::from_static(&[4, 0, 0, 0]));
    versions.push((
        Key::rel_size(rel),
        Version {
            lsn: Lsn(0x0100_0028),
            seq: 0,
            value: size,
        },
    ));
    versions.push((
        Key::rel_size(rel),
        Version {
            lsn: Lsn(0x0100_00C8),
            seq: 0,
            value: Value::Tombstone,
        },
    ));
    versions
}

fn image_values() -> Vec<(Key, Value)> {
    (0..3)
        .map(|number| {
            (
                Key::aux(number),
                Value::Meta(Bytes::from(format!("file {number}"))),
            )
        })
        .collect()
}

fn write_delta() -> Vec<u8> {
    let options = WriterOptions {
        block_bytes: 1000,
        compression: 1,
    };
    let mut writer = LayerWriter::delta(Vec::new(), 1, options).unwrap();
    for (key, version) in delta_versions() {
        writer.push(&key, &version).unwrap();
    }
    writer.finish().unwrap().1
}

fn reads_as_the_delta_layer(file: &'static [u8]) {
    let file = Bytes::from_static(file);
    let reader = LayerReader::open("golden", file.clone()).unwrap();
    reader.verify().unwrap();
    reader.check().unwrap();
    let found: Vec<_> = reader.iter().collect::<Result<_, _>>().unwrap();
    assert_eq!(found, delta_versions());
    let desc = reader.desc();
    assert_eq!(
        (desc.kind, desc.level, desc.size),
        (LayerKind::Delta, 1, file.len() as u64)
    );
    assert_eq!(
        (desc.lsns.first, desc.lsns.last),
        (Lsn(0x0100_0028), Lsn(0x0100_00C8))
    );
    assert!(
        delta_versions()
            .iter()
            .all(|(key, _)| reader.may_contain(key))
    );
    let stats = reader.key_stats().unwrap();
    assert_eq!(
        (stats.len(), stats[0].deltas, stats[0].total_deltas),
        (5, 0, 3)
    );
    assert_eq!(
        (stats[0].start_lsn, stats[0].last_lsn),
        (Lsn(0x0100_0090), Lsn(0x0100_0090))
    );
}

fn reads_as_the_image_layer(file: &'static [u8]) {
    let reader = LayerReader::open("golden", Bytes::from_static(file)).unwrap();
    reader.verify().unwrap();
    reader.check().unwrap();
    let found: Vec<_> = reader.iter().collect::<Result<_, _>>().unwrap();
    let expected = image_values().into_iter().map(|(key, value)| {
        (
            key,
            Version {
                lsn: Lsn(0x0150_0000),
                seq: Version::GENERATED,
                value,
            },
        )
    });
    assert_eq!(found, expected.collect::<Vec<_>>());
    assert_eq!(reader.desc().kind, LayerKind::Image);
}

#[test]
fn delta_layers_of_all_versions_read_as_they_were_written() {
    reads_as_the_delta_layer(include_bytes!("golden/v1-delta.layer"));
    reads_as_the_delta_layer(include_bytes!("golden/v2-delta.layer"));
    reads_as_the_delta_layer(include_bytes!("golden/v3-delta.layer"));
}

#[test]
fn image_layers_of_all_versions_read_as_they_were_written() {
    reads_as_the_image_layer(include_bytes!("golden/v1-image.layer"));
    reads_as_the_image_layer(include_bytes!("golden/v2-image.layer"));
    reads_as_the_image_layer(include_bytes!("golden/v3-image.layer"));
}

/// What is not compressed is the same byte for byte: header, footer layout, end.
#[test]
fn the_writer_still_writes_version_3() {
    assert_eq!(FORMAT_VERSION, 3);
    let golden = include_bytes!("golden/v3-delta.layer");
    let written = write_delta();
    assert_eq!(written[..16], golden[..16]);
    let fields = |file: &[u8]| file[file.len() - 148..file.len() - 76].to_vec();
    assert_eq!(fields(&written), fields(golden));
    assert_eq!(written[written.len() - 8..], golden[golden.len() - 8..]);
}

/// Writes the files of a *new* format version: `cargo test -p layers --test golden -- --ignored`.
#[test]
#[ignore = "writes the golden files of a new format version"]
fn write_golden_files() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let write = |kind: &str, file: &[u8]| {
        let path = format!("{directory}/v{FORMAT_VERSION}-{kind}.layer");
        assert!(
            !std::path::Path::new(&path).exists(),
            "{path} exists; golden files are never written again"
        );
        std::fs::write(path, file).unwrap();
    };
    write("delta", &write_delta());
    let options = WriterOptions::default();
    write(
        "image",
        &image_layer(Lsn(0x0150_0000), image_values(), &options)
            .unwrap()
            .1,
    );
}
