//! Encrypted files, key files and documents of data keys that somebody else has written.

use encryption::{
    BLOCK_BYTES, EncryptionError, FileKey, HEADER_BYTES, KeyRing, Kind, ObjectName, Plain,
    TenantKey, Wrapped, decrypt, encrypt,
};
use pg_types::{TenantId, TimelineId};

/// Whatever bytes are taken for an encrypted file, a reader refuses them: no key has made them. Of a file that a key
/// has made, one with bytes put over it is refused or the same. The first two bytes say where they are put.
pub fn encrypted(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = KeyRing::parse(text);
    }
    let _ = Wrapped::of(data);
    let key = TenantKey::create(TenantId([1; 16]), Plain::Refused).expect("random bytes");
    let object = ObjectName {
        timeline: TimelineId([2; 16]),
        kind: Kind::Layer,
        name: "a",
    };
    decrypt(&key, &object, data).expect_err("no key has made it");
    let mut longer = data.to_vec();
    longer.resize(HEADER_BYTES + data.len() % BLOCK_BYTES, 0);
    FileKey::open(&key, &object, &longer, longer.len() as u64).expect_err("no key has made it");

    let Some((place, over)) = data.split_first_chunk::<2>() else {
        return;
    };
    let content = vec![7; 3 * BLOCK_BYTES];
    let mut file = Vec::new();
    encrypt(&key, &object, content.chunks(999), &mut file).expect("memory takes it");
    let good = file.clone();
    let at = usize::from(u16::from_le_bytes(*place)) % file.len();
    let end = file.len().min(at + over.len());
    file[at..end].copy_from_slice(&over[..end - at]);
    match decrypt(&key, &object, &file) {
        Ok(read) => assert!(file == good && read == content),
        Err(error) => {
            assert!(file != good);
            assert!(!matches!(error, EncryptionError::NoKey));
        }
    }
}
