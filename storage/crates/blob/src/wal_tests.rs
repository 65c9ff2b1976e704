//! What the header of a piece of WAL promises, and the store of them.

use proptest::prelude::*;

use super::*;
use crate::Store;

const SEGMENT: u64 = WAL_SEGMENT_BYTES;

fn header(begin: u64, content: &[u8], history: &[(u64, u64)]) -> WalHeader {
    WalHeader {
        tenant: TenantId([1; 16]),
        timeline: TimelineId([2; 16]),
        system_identifier: 7,
        pg_version: 15,
        begin: Lsn(begin),
        end: Lsn(begin + content.len() as u64),
        history: history.iter().map(|it| (Term(it.0), Lsn(it.1))).collect(),
        crc: crc32c::crc32c(content),
    }
}

fn any_header() -> impl Strategy<Value = WalHeader> {
    let place = (0..1_u64 << 20, 0..SEGMENT - 1, 1..SEGMENT);
    let steps = prop::collection::vec((1_u64..1 << 40, 0_u64..1 << 20), 0..40);
    (place, steps, any::<(u64, u32, u32)>()).prop_map(|((number, offset, length), steps, any)| {
        let begin = number * SEGMENT + offset;
        let end = begin + length.min(SEGMENT - offset);
        let mut history = Vec::new();
        let mut last = (0, 0);
        for (terms, bytes) in steps {
            last = (last.0 + terms, last.1 + bytes);
            if last.1 < end {
                history.push((Term(last.0), Lsn(last.1)));
            }
        }
        WalHeader {
            end: Lsn(end),
            history,
            system_identifier: any.0,
            pg_version: any.1,
            crc: any.2,
            ..header(begin, &[0], &[])
        }
    })
}

proptest! {
    /// Promise: a header comes back as it was, whatever follows it; its name, too.
    #[test]
    fn a_header_comes_back(header in any_header(), behind in prop::collection::vec(any::<u8>(), 0..50)) {
        let encoded = header.encode();
        let bytes = [encoded.clone(), behind].concat();
        let (decoded, length) = WalHeader::decode("it", &bytes).unwrap();
        prop_assert_eq!((&decoded, length), (&header, encoded.len()));
        prop_assert_eq!(WalName::parse(&header.name().to_string()), Some(header.name()));
    }

    /// Promise: one that is cut short, or has any bit flipped, is refused.
    #[test]
    fn a_damaged_header_is_refused(header in any_header(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = header.encode();
        let at = at.index(bytes.len());
        prop_assert!(WalHeader::decode("it", &bytes[..at]).is_err());
        bytes[at] ^= 1 << bit;
        prop_assert!(WalHeader::decode("it", &bytes).is_err());
    }

    /// Promise: no bytes make the parsers panic, and what they accept makes sense.
    #[test]
    fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..400), seal in any::<bool>()) {
        if seal && bytes.len() > FIXED_BYTES + CRC_BYTES {
            let length = bytes.len() - (bytes.len() - FIXED_BYTES - CRC_BYTES) % ENTRY_BYTES;
            bytes.truncate(length);
            bytes[..8].copy_from_slice(MAGIC);
            bytes[8..12].copy_from_slice(&WAL_FORMAT_VERSION.to_le_bytes());
            bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
            let crc = crc32c::crc32c(&bytes[..length - CRC_BYTES]).to_le_bytes();
            bytes[length - CRC_BYTES..].copy_from_slice(&crc);
        }
        if let Ok((header, _)) = WalHeader::decode("it", &bytes) {
            prop_assert!(header.is_sound());
        }
    }

    #[test]
    fn any_name_is_read_or_refused(name in "[0-9A-F-]{0,70}|\\PC{0,70}") {
        if let Some(parsed) = WalName::parse(&name) {
            prop_assert_eq!(parsed.to_string(), name);
        }
    }
}

#[test]
fn a_newer_format_is_named_as_such() {
    let mut bytes = header(0, &[1; 10], &[(1, 0)]).encode();
    bytes[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let error = WalHeader::decode("it", &bytes).unwrap_err();
    assert!(
        matches!(error, BlobError::TooNew { found: 2, .. }),
        "{error}"
    );
}

#[test]
fn no_name_is_longer_than_a_segment_or_empty() {
    let name = |begin: u64, end: u64| format!("{begin:016X}-{end:016X}-{:016X}-{:08X}", 1, 2);
    assert!(WalName::parse(&name(SEGMENT, 2 * SEGMENT)).is_some_and(|name| name.is_finished()));
    assert!(WalName::parse(&name(SEGMENT + 8, SEGMENT + 9)).is_some());
    for wrong in [
        name(SEGMENT, SEGMENT),
        name(SEGMENT, SEGMENT - 1),
        name(SEGMENT - 1, SEGMENT + 1),
        format!("{}-1", name(0, 1)),
    ] {
        assert_eq!(WalName::parse(&wrong), None, "{wrong}");
    }
}

/// Promise: an object that is not what its name says is named, not read, and not replaced.
#[tokio::test]
async fn a_damaged_object_is_refused_and_left() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::local(directory.path()).unwrap();
    let timeline = store.timeline(TenantId([1; 16]), TimelineId([2; 16]));
    let content = Bytes::from(vec![1; 1000]);
    let header = header(0, &content, &[(1, 0)]);
    timeline.put_wal(&header, content.clone()).await.unwrap();
    let path = timeline.wal_path(header.name());
    let file = directory.path().join(path.as_ref());
    let good = std::fs::read(&file).unwrap();
    for (at, length) in [
        (9, good.len()),
        (good.len() - 1, good.len()),
        (0, good.len() - 1),
    ] {
        let mut bad = good[..length].to_vec();
        bad[at] ^= u8::from(length == good.len());
        std::fs::write(&file, &bad).unwrap();
        let error = timeline.get_wal(header.name()).await.unwrap_err();
        assert!(error.to_string().contains(path.as_ref()), "{error}");
        let _ = timeline.put_wal(&header, content.clone()).await;
        assert_eq!(std::fs::read(&file).unwrap(), bad);
    }
}
