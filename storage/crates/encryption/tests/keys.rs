//! Key files and wrapped data keys: lost, torn, wrong and older ones.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use encryption::{
    EncryptionError, KeyFile, KeyProvider, KeyRing, Kind, ObjectName, Plain, TenantKey, Wrapped,
    decrypt, encrypt,
};
use pg_types::{TenantId, TimelineId};
use proptest::prelude::*;
use ring::digest::{SHA256, digest};

const TENANT: TenantId = TenantId([1; 16]);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Id and line of a key, as `docs/formats.md` has them.
fn line(fill: u8) -> (String, String) {
    let secret = [fill; 32];
    let named = [b"weir key-encryption key ", &secret[..]].concat();
    let id = hex(&digest(&SHA256, &named).as_ref()[..8]);
    (id.clone(), format!("{id} {}\n", hex(&secret)))
}

fn text(fills: &[u8]) -> String {
    let lines: String = fills.iter().map(|fill| line(*fill).1).collect();
    format!("weir-encryption-keys 1\n{lines}end {}\n", fills.len())
}

fn put(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

struct Folder {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn folder(fills: &[u8]) -> Folder {
    let made = tempfile::tempdir().unwrap();
    let path = made.path().join("encryption_keys");
    put(&path, &text(fills));
    Folder {
        _folder: made,
        path,
    }
}

fn reason(error: EncryptionError) -> String {
    match error {
        EncryptionError::KeyFile { reason, .. } => reason,
        other => panic!("{other}"),
    }
}

/// Promise: the keys of a file are known by their ids, in its order.
#[test]
fn a_key_file_is_read() {
    let ring = KeyRing::parse(&text(&[1, 2, 3])).unwrap();
    assert_eq!(ring.ids(), [line(1).0, line(2).0, line(3).0]);
    // As the control plane makes it of the same key (backend/tests/cli/test_encryption.py).
    assert_eq!(ring.ids()[0], "d8b3b0618d518ef7");
    assert!(!format!("{ring:?}").contains(&hex(&[1; 32])));
}

/// Promise: a file that was cut anywhere is refused; so is one of which a digit was changed.
#[test]
fn a_torn_key_file_is_refused() {
    let whole = text(&[1, 2]);
    for end in 0..whole.len() {
        assert!(KeyRing::parse(&whole[..end]).is_err(), "cut at {end}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone().into_bytes();
        changed[at] = if changed[at] == b'0' { b'3' } else { b'0' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(KeyRing::parse(&changed).is_err(), "changed at {at}");
    }
    let (one, end) = (line(1).1, "end 1\n");
    for (bad, why) in [
        (
            "weir-encryption-keys 1\nend 0\n".to_owned(),
            "number of keys",
        ),
        (
            format!("weir-encryption-keys 1\n{one}{one}end 2\n"),
            "before",
        ),
        (
            format!("weir-encryption-keys 1\n{one}{end}{one}"),
            "behind the end",
        ),
        (format!("weir-encryption-keys 2\n{one}{end}"), "begin"),
    ] {
        let error = KeyRing::parse(&bad).unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(!error.contains(&hex(&[1; 32])), "{error}");
    }
}

/// Promise: a key file that is lost, or that others can read, is refused; the error says what to do.
#[test]
fn a_lost_or_open_key_file_is_refused() {
    let folder = folder(&[1]);
    fs::set_permissions(&folder.path, Permissions::from_mode(0o644)).unwrap();
    let error = KeyFile::open(&folder.path).unwrap_err();
    assert!(reason(error).contains("chmod 600"));
    fs::remove_file(&folder.path).unwrap();
    let error = KeyFile::open(&folder.path).unwrap_err();
    assert!(
        error.to_string().contains("put the right one back"),
        "{error}"
    );
    assert!(error.may_be_mended());
    assert!(!folder.path.exists());
}

/// Promise: the newest key wraps and older ones unwrap; a program that runs sees a rotation of its key file; what was
/// wrapped anew is read when the old key is gone, with the same data key.
#[test]
fn keys_rotate() {
    let folder = folder(&[1]);
    let provider = KeyFile::open(&folder.path).unwrap();
    let key = TenantKey::create(TENANT, Plain::Accepted).unwrap();
    let first = key.document(&provider).unwrap();
    assert_eq!(Wrapped::of(&first).unwrap().wrapped_by, line(1).0);

    let object = ObjectName {
        timeline: TimelineId([2; 16]),
        kind: Kind::Wal,
        name: "a",
    };
    let mut file = Vec::new();
    encrypt(&key, &object, [&b"content"[..]].into_iter(), &mut file).unwrap();

    put(&folder.path, &text(&[1, 2]));
    let opened = TenantKey::from_document(TENANT, &first, &provider).unwrap();
    let second = opened.document(&provider).unwrap();
    assert_eq!(Wrapped::of(&second).unwrap().wrapped_by, line(2).0);
    assert_eq!(opened.id(), key.id());

    put(&folder.path, &text(&[2]));
    let provider = KeyFile::open(&folder.path).unwrap();
    let opened = TenantKey::from_document(TENANT, &second, &provider).unwrap();
    assert_eq!(decrypt(&opened, &object, &file).unwrap(), b"content");
    let error = TenantKey::from_document(TENANT, &first, &provider).unwrap_err();
    assert!(
        matches!(error, EncryptionError::UnknownKey { .. }),
        "{error}"
    );
    let said = error.to_string();
    assert!(
        said.contains(&line(1).0) && said.contains(&line(2).0),
        "{said}"
    );
}

/// Promise: a key file that gets lost while a program runs wraps nothing more.
#[test]
fn nothing_is_wrapped_without_the_file() {
    let folder = folder(&[1]);
    let provider = KeyFile::open(&folder.path).unwrap();
    let key = TenantKey::create(TENANT, Plain::Refused).unwrap();
    let document = key.document(&provider).unwrap();
    fs::remove_file(&folder.path).unwrap();
    reason(key.document(&provider).unwrap_err());
    reason(provider.newest().unwrap_err());
    TenantKey::from_document(TENANT, &document, &provider).unwrap();
}

/// Promise: the document of another tenant is refused, as is one that was changed anywhere it matters, among that
/// whether plain files are accepted.
#[test]
fn a_changed_document_is_refused() {
    let folder = folder(&[1]);
    let provider = KeyFile::open(&folder.path).unwrap();
    let key = TenantKey::create(TENANT, Plain::Refused).unwrap();
    let good = String::from_utf8(key.document(&provider).unwrap()).unwrap();
    assert!(!good.contains(&hex(&[1; 32])));
    let open = |tenant, text: &str| TenantKey::from_document(tenant, text.as_bytes(), &provider);
    assert_eq!(open(TENANT, &good).unwrap().id(), key.id());

    let other = TenantId([2; 16]);
    for moved in [
        good.clone(),
        good.replace(&TENANT.to_string(), &other.to_string()),
    ] {
        let error = open(other, &moved).unwrap_err();
        assert!(matches!(error, EncryptionError::Unwrap { .. }), "{error}");
    }
    let accepting = good.replace("\"refused\"", "\"accepted\"");
    assert!(accepting != good);
    let error = open(TENANT, &accepting).unwrap_err();
    assert!(matches!(error, EncryptionError::Unwrap { .. }), "{error}");
    let renamed = good.replace(&key.id(), &"0".repeat(32));
    assert!(open(TENANT, &renamed).is_err());
    let wrapped = Wrapped::of(good.as_bytes()).unwrap();
    assert_eq!((wrapped.tenant, wrapped.plain), (TENANT, Plain::Refused));
    assert!(
        open(
            TENANT,
            &good.replace("\"format_version\": 1", "\"format_version\": 2")
        )
        .is_err()
    );
    assert!(open(TENANT, &good[..good.len() / 2]).is_err());
}

proptest! {
    /// Promise: no text is a panic, and none but a whole key file is read.
    #[test]
    fn any_text_is_refused(text in ".{0,200}", good in any::<bool>()) {
        let text = if good { format!("weir-encryption-keys 1\n{text}") } else { text };
        prop_assert!(KeyRing::parse(&text).is_err());
    }
}
