//! Encrypted files against somebody who has the disk: what was changed, moved, cut or mixed is refused.

use encryption::{
    BLOCK_BYTES, CONTENT_BYTES, EncryptionError, FileKey, HEADER_BYTES, Kind, ObjectName, Plain,
    TenantKey, decrypt, encrypt, is_encrypted, stored_length,
};
use pg_types::{TenantId, TimelineId};
use proptest::prelude::*;

const TIMELINE: TimelineId = TimelineId([7; 16]);

fn key(of: u8) -> TenantKey {
    TenantKey::create(TenantId([of; 16]), Plain::Refused).unwrap()
}

fn layer(name: &str) -> ObjectName<'_> {
    ObjectName {
        timeline: TIMELINE,
        kind: Kind::Layer,
        name,
    }
}

fn encrypted(tenant: &TenantKey, object: &ObjectName<'_>, content: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    encrypt(tenant, object, content.chunks(1000), &mut file).unwrap();
    file
}

/// What is read of a file that may be bad: opened, and then each block.
fn read(
    tenant: &TenantKey,
    object: &ObjectName<'_>,
    file: &[u8],
) -> Result<Vec<u8>, EncryptionError> {
    decrypt(tenant, object, file)
}

/// Lengths around the borders of blocks, and any others of a few blocks.
fn lengths() -> impl Strategy<Value = usize> {
    let border = (0..4_usize, -2..=2_isize);
    prop_oneof![
        border.prop_map(|(blocks, by)| (blocks * CONTENT_BYTES).saturating_add_signed(by)),
        0..4 * CONTENT_BYTES,
    ]
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    (lengths(), any::<u8>()).prop_map(|(length, seed)| {
        let byte = |at: usize| (at as u8).wrapping_mul(31).wrapping_add(seed);
        (0..length).map(byte).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Promise: what was encrypted is read back, whole and in any part, and takes the bytes it is said to.
    #[test]
    fn content_comes_back(content in content(), parts in prop::collection::vec(any::<(u64, u64)>(), 8)) {
        let (tenant, object) = (key(1), layer("a"));
        let file = encrypted(&tenant, &object, &content);
        prop_assert!(is_encrypted(&file));
        prop_assert_eq!(stored_length(content.len() as u64), Some(file.len() as u64));
        prop_assert_eq!(&read(&tenant, &object, &file).unwrap(), &content);

        let open = FileKey::open(&tenant, &object, &file[..HEADER_BYTES], file.len() as u64).unwrap();
        prop_assert_eq!(open.length(), content.len() as u64);
        for (begin, end) in parts {
            let size = content.len() as u64 + 1;
            let (begin, end) = ((begin % size).min(end % size), (begin % size).max(end % size));
            let stored = open.stored_range(begin, (end - begin) as usize).unwrap();
            let mut stored = file[stored.start as usize..stored.end as usize].to_vec();
            let part = open.decrypt_part(begin, (end - begin) as usize, &mut stored).unwrap();
            prop_assert_eq!(&part[..], &content[begin as usize..end as usize]);
        }
        prop_assert!(open.stored_range(content.len() as u64, 1).is_none());
        prop_assert!(open.stored_range(u64::MAX, 1).is_none());
    }

    /// Promise: any bit that flips, in the header or in a block, is an error.
    #[test]
    fn a_flipped_bit_is_an_error(content in content(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let (tenant, object) = (key(1), layer("a"));
        let mut file = encrypted(&tenant, &object, &content);
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        prop_assert!(read(&tenant, &object, &file).is_err(), "a flip at {at} goes unnoticed");
    }

    /// Promise: a file that was cut anywhere, or made longer, is refused when it is opened.
    #[test]
    fn a_cut_file_is_refused(content in content(), at in any::<prop::sample::Index>(), more in 1..20_000_usize) {
        let (tenant, object) = (key(1), layer("a"));
        let mut file = encrypted(&tenant, &object, &content);
        let cut = &file[..at.index(file.len())];
        prop_assert!(read(&tenant, &object, cut).is_err());
        if let Some(begin) = cut.get(..HEADER_BYTES) {
            let opened = FileKey::open(&tenant, &object, begin, cut.len() as u64);
            let is_length = matches!(opened, Err(EncryptionError::Length { .. }));
            prop_assert!(is_length);
        }
        file.resize(file.len() + more, 0);
        prop_assert!(read(&tenant, &object, &file).is_err());
    }

    /// Promise: bytes of any kind are refused or read, never a panic.
    #[test]
    fn any_bytes_are_refused(
        mut bytes in prop::collection::vec(any::<u8>(), 0..3 * HEADER_BYTES),
        good in any::<bool>(),
    ) {
        if good && bytes.len() >= 8 {
            bytes[..8].copy_from_slice(b"WEIRCRYP");
        }
        prop_assert!(read(&key(1), &layer("a"), &bytes).is_err());
    }
}

/// Blocks of a file, each of [`BLOCK_BYTES`].
fn swap_blocks(file: &mut [u8], one: usize, other: usize) {
    let place = |number: usize| HEADER_BYTES + number * BLOCK_BYTES;
    let (a, b) = (place(one), place(other));
    let block = file[a..a + BLOCK_BYTES].to_vec();
    file.copy_within(b..b + BLOCK_BYTES, a);
    file[b..b + BLOCK_BYTES].copy_from_slice(&block);
}

/// Promise: a block in another's place is refused, in its own file and in another of the same tenant, even where
/// that one is an older version of the same object.
#[test]
fn a_block_in_anothers_place_is_refused() {
    let (tenant, object) = (key(1), layer("a"));
    let content = vec![5; 3 * CONTENT_BYTES];
    let good = encrypted(&tenant, &object, &content);
    let mut swapped = good.clone();
    swap_blocks(&mut swapped, 0, 2);
    let error = read(&tenant, &object, &swapped).unwrap_err();
    assert!(matches!(error, EncryptionError::Block(0)), "{error}");
    swap_blocks(&mut swapped, 0, 2);
    assert_eq!(read(&tenant, &object, &swapped).unwrap(), content);

    let other = encrypted(&tenant, &object, &content);
    let mut mixed = good.clone();
    let block = HEADER_BYTES + BLOCK_BYTES..HEADER_BYTES + 2 * BLOCK_BYTES;
    mixed[block.clone()].copy_from_slice(&other[block]);
    let error = read(&tenant, &object, &mixed).unwrap_err();
    assert!(matches!(error, EncryptionError::Block(1)), "{error}");

    // The header of one with the blocks of the other.
    let mut mixed = good;
    mixed[HEADER_BYTES..].copy_from_slice(&other[HEADER_BYTES..]);
    let error = read(&tenant, &object, &mixed).unwrap_err();
    assert!(matches!(error, EncryptionError::Block(0)), "{error}");
}

/// Promise: a whole file in another's place is refused: of another name, kind, timeline or tenant.
#[test]
fn a_file_in_anothers_place_is_refused() {
    let (tenant, object) = (key(1), layer("a"));
    let file = encrypted(&tenant, &object, b"content");
    let elsewhere = [
        layer("b"),
        layer("aa"),
        layer(""),
        ObjectName {
            kind: Kind::Wal,
            ..object
        },
        ObjectName {
            timeline: TimelineId([8; 16]),
            ..object
        },
    ];
    for place in elsewhere {
        let error = read(&tenant, &place, &file).unwrap_err();
        assert!(
            matches!(error, EncryptionError::NotThisObject),
            "{place:?}: {error}"
        );
    }
    for other in [key(1), key(2)] {
        let error = read(&other, &object, &file).unwrap_err();
        assert!(matches!(error, EncryptionError::OtherKey { .. }), "{error}");
    }
}

/// Promise: the same content encrypted twice has no byte pattern in common: no file key is used for two contents.
#[test]
fn no_two_files_are_encrypted_alike() {
    let (tenant, object) = (key(1), layer("a"));
    let content = vec![0; 2 * CONTENT_BYTES];
    let files: Vec<Vec<u8>> = (0..50)
        .map(|_| encrypted(&tenant, &object, &content))
        .collect();
    let mut begins: Vec<&[u8]> = files
        .iter()
        .flat_map(|file| file[HEADER_BYTES..].chunks(BLOCK_BYTES))
        .map(|block| &block[..16])
        .collect();
    begins.sort_unstable();
    begins.dedup();
    assert_eq!(
        begins.len(),
        100,
        "of a content of zeroes, each block has its own key stream"
    );
    assert!(
        files
            .iter()
            .all(|file| !file[HEADER_BYTES..].windows(16).any(|it| it == [0; 16]))
    );
}

/// Promise: the header of a file of a newer format says so.
#[test]
fn a_newer_format_is_refused() {
    let (tenant, object) = (key(1), layer("a"));
    let mut file = encrypted(&tenant, &object, b"content");
    file[8] = 2;
    let error = read(&tenant, &object, &file).unwrap_err();
    assert!(matches!(error, EncryptionError::TooNew { .. }), "{error}");
}
