//! A store whose tenants have data keys, against somebody who can read and change what lies in it.

mod common;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use blob::{
    BlobError, EncryptionError, Generation, KeyFile, LocalLayerFile, Plain, RemoteLayer, Store,
    TimelineStore, WalHeader, WalPut, stored_length,
};
use bytes::Bytes;
use common::{TENANT, TIMELINE, layer, lsns_of};
use layers::{BlockSource, LayerReader};
use pg_types::{Lsn, TenantId, TimelineId};
use ring::digest::{SHA256, digest};

const OTHER: TimelineId = TimelineId([9; 16]);
/// Content that is found again wherever it lies in clear.
const SECRET: &[u8] = b"\x9e\x01\xf4\x77 a secret of a tenant \x9e\x01\xf4\x77";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write_keys(path: &Path, fills: &[u8]) {
    let line = |fill: &u8| {
        let named = [b"weir key-encryption key ", &[*fill; 32][..]].concat();
        let id = hex(&digest(&SHA256, &named).as_ref()[..8]);
        format!("{id} {}\n", hex(&[*fill; 32]))
    };
    let lines: String = fills.iter().map(line).collect();
    let text = format!("weir-encryption-keys 1\n{lines}end {}\n", fills.len());
    fs::write(path, text).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        write_keys(&folder.path().join("keys"), &[1]);
        Place { folder }
    }

    fn keys(&self) -> PathBuf {
        self.folder.path().join("keys")
    }

    fn objects(&self) -> PathBuf {
        self.folder.path().join("objects")
    }

    fn plain(&self) -> Store {
        Store::local(&self.objects()).unwrap()
    }

    /// As a program that was started anew.
    fn encrypting(&self) -> Store {
        let store = self.plain().with_key_file(Some(&self.keys()), true);
        store.unwrap()
    }

    /// The same, of a store that is far away.
    fn remote(&self) -> Store {
        let address = format!("mount://{}", self.objects().display());
        let store = Store::from_address(&address).unwrap();
        store.with_key_file(Some(&self.keys()), true).unwrap()
    }

    fn holds(&self, wanted: &[u8]) -> bool {
        files(&self.objects()).iter().any(|file| {
            let bytes = fs::read(file).unwrap();
            bytes.windows(wanted.len()).any(|part| part == wanted)
        })
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn named(desc: layers::LayerDesc) -> RemoteLayer {
    RemoteLayer {
        desc,
        generation: Generation(1),
    }
}

async fn put(store: &TimelineStore, lsns: &[u64]) -> (RemoteLayer, Bytes) {
    let (desc, bytes) = layer(lsns);
    let layer = named(desc);
    store.put_layer(&layer, bytes.clone()).await.unwrap();
    (layer, bytes)
}

fn wal_of(timeline: TimelineId, content: &[u8]) -> WalHeader {
    let begin = 1 << 24;
    WalHeader {
        tenant: TENANT,
        timeline,
        system_identifier: 7,
        pg_version: 15,
        begin: Lsn(begin),
        end: Lsn(begin + content.len() as u64),
        history: Vec::new(),
        crc: crc32c::crc32c(content),
    }
}

fn encryption_error(error: BlobError) -> EncryptionError {
    match error {
        BlobError::Encryption { source, .. } => source,
        other => panic!("{other}"),
    }
}

/// Promise: layers come back whole, in parts, and read in place, before and after a restart; on the disk they take
/// what they are said to, and nothing of them is in clear.
#[tokio::test]
async fn layers_come_back_and_are_not_in_clear() {
    let place = Place::new();
    let store = place.encrypting();
    store.make_tenant_key(TENANT, Plain::Refused).await.unwrap();
    let lsns: Vec<u64> = (1..3000).collect();
    let (layer, bytes) = put(&store.timeline(TENANT, TIMELINE), &lsns).await;
    for store in [store, place.encrypting()] {
        let timeline = store.timeline(TENANT, TIMELINE);
        assert_eq!(timeline.get_layer(&layer).await.unwrap(), bytes);
        let end = bytes.len() as u64;
        let ranges = [0..10, 100..4000, end - 7..end];
        let parts = timeline.get_layer_ranges(&layer, &ranges).await.unwrap();
        for (range, part) in ranges.into_iter().zip(parts) {
            assert_eq!(part, bytes.slice(range.start as usize..range.end as usize));
        }
        let path = timeline.local_layer_path(&layer).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            stored_length(end).unwrap()
        );
        let file = timeline.open_layer(&layer, &path).unwrap();
        assert!(file.is_encrypted() && file.size() == end);
        assert_eq!(file.read_at(0, bytes.len()).unwrap(), bytes);
        file.read_at(end, 1).unwrap_err();
        LayerReader::open("it", file).unwrap().check().unwrap();
        assert!(
            !fs::read(&path)
                .unwrap()
                .windows(8)
                .any(|part| part == b"WEIRLAYR")
        );
    }
}

/// Promise: WAL comes back, is found to be there, and is not in clear; without a key it is, which shows that the look
/// finds it.
#[tokio::test]
async fn wal_comes_back_and_is_not_in_clear() {
    for encrypts in [true, false] {
        let place = Place::new();
        let store = if encrypts {
            place.encrypting()
        } else {
            place.plain()
        };
        if encrypts {
            store.make_tenant_key(TENANT, Plain::Refused).await.unwrap();
        }
        let timeline = store.timeline(TENANT, TIMELINE);
        let content = Bytes::from([SECRET, &[5; 100_000], SECRET].concat());
        let header = wal_of(TIMELINE, &content);
        assert!(!timeline.has_wal(&header).await.unwrap());
        let put = timeline.put_wal(&header, content.clone()).await.unwrap();
        assert_eq!(put, WalPut::Written);
        let again = timeline.put_wal(&header, content.clone()).await.unwrap();
        assert_eq!(again, WalPut::Present);
        assert!(timeline.has_wal(&header).await.unwrap());
        assert_eq!(timeline.list_wal().await.unwrap(), [header.name()]);
        let found = timeline.get_wal(header.name()).await.unwrap();
        assert_eq!(found, Some((header.clone(), content.clone())));
        let (head, length) = timeline.wal_header(header.name()).await.unwrap().unwrap();
        assert_eq!(head, header);
        assert_eq!(length, (header.encode().len() + content.len()) as u64);
        assert_eq!(place.holds(SECRET), !encrypts);
    }
}

/// Promise: an object in another's place is refused, of the same timeline or of another, in place and fetched whole;
/// a changed one is a damaged layer to its reader.
#[tokio::test]
async fn objects_in_other_places_are_refused() {
    let place = Place::new();
    let store = place.encrypting();
    store.make_tenant_key(TENANT, Plain::Refused).await.unwrap();
    let (one, other) = (
        store.timeline(TENANT, TIMELINE),
        store.timeline(TENANT, OTHER),
    );
    let (first, _) = put(&one, &[10]).await;
    let (second, bytes) = put(&one, &[20]).await;
    other.put_layer(&first, layer(&[10]).1).await.unwrap();
    let path = |timeline: &TimelineStore, layer| timeline.local_layer_path(layer).unwrap();
    for (from, to, timeline, layer) in [
        (path(&one, &first), path(&one, &second), &one, &second),
        (path(&one, &first), path(&other, &first), &other, &first),
    ] {
        let good = fs::read(&to).unwrap();
        fs::copy(from, &to).unwrap();
        let error = encryption_error(timeline.get_layer(layer).await.unwrap_err());
        assert!(matches!(error, EncryptionError::NotThisObject), "{error}");
        let opened = timeline.open_layer(layer, &to).unwrap_err();
        assert!(opened.is_damage() && !opened.is_transient());
        fs::write(to, good).unwrap();
    }
    let to = path(&one, &second);
    let good = fs::read(&to).unwrap();
    for at in [4096 + 30, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        fs::write(&to, &bad).unwrap();
        let file = one.open_layer(&second, &to).unwrap();
        let error = file.read_at(0, bytes.len()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    }
    fs::write(&to, &good[..good.len() - 1]).unwrap();
    let error = encryption_error(one.open_layer(&second, &to).unwrap_err());
    assert!(matches!(error, EncryptionError::Length { .. }), "{error}");
}

/// Promise: a plain object is refused where the tenant has had its key from the start, and read where it is older
/// than its key; what is written to both is encrypted.
#[tokio::test]
async fn plain_objects_count_only_beside_a_younger_key() {
    for accepted in [true, false] {
        let place = Place::new();
        let old = place.plain().timeline(TENANT, TIMELINE);
        let (layer, bytes) = put(&old, &[10]).await;
        let content = Bytes::from_static(SECRET);
        let header = wal_of(TIMELINE, &content);
        old.put_wal(&header, content.clone()).await.unwrap();

        let store = place.encrypting();
        let plain = if accepted {
            Plain::Accepted
        } else {
            Plain::Refused
        };
        store.make_tenant_key(TENANT, plain).await.unwrap();
        let timeline = store.timeline(TENANT, TIMELINE);
        let path = timeline.local_layer_path(&layer).unwrap();
        let (got, wal) = (
            timeline.get_layer(&layer).await,
            timeline.get_wal(header.name()).await,
        );
        let opened = timeline.open_layer(&layer, &path);
        if accepted {
            assert_eq!(got.unwrap(), bytes);
            assert_eq!(wal.unwrap(), Some((header, content)));
            assert!(!opened.unwrap().is_encrypted());
        } else {
            for error in [got.unwrap_err(), wal.unwrap_err(), opened.unwrap_err()] {
                let error = encryption_error(error);
                assert!(matches!(error, EncryptionError::PlainRefused), "{error}");
            }
        }
        let (second, bytes) = put(&timeline, &[20]).await;
        assert_eq!(timeline.get_layer(&second).await.unwrap(), bytes);
        assert!(LocalLayerFile::open(&timeline.local_layer_path(&second).unwrap()).is_err());
    }
}

/// Promise: a branch that is made independent gets layers of its own place, with the same content.
#[tokio::test]
async fn a_copied_layer_is_encrypted_anew() {
    let place = Place::new();
    let store = place.encrypting();
    store.make_tenant_key(TENANT, Plain::Refused).await.unwrap();
    let (from, to) = (
        store.timeline(TENANT, TIMELINE),
        store.timeline(TENANT, OTHER),
    );
    let (layer, bytes) = put(&from, &[10, 20]).await;
    let generation = to.claim_generation().await.unwrap();
    let copied = to.copy_layer(&from, &layer, generation).await.unwrap();
    assert_eq!(to.get_layer(&copied).await.unwrap(), bytes);
    let path = |store: &TimelineStore, layer| store.local_layer_path(layer).unwrap();
    let files = [path(&from, &layer), path(&to, &copied)].map(|path| fs::read(path).unwrap());
    assert!(files[0][4096..] != files[1][4096..]);
}

/// Promise: a copy on local disk of a layer that is far away is encrypted, and checked when it is fetched.
#[tokio::test]
async fn copies_on_local_disk_are_encrypted() {
    let place = Place::new();
    let store = place.remote();
    store.make_tenant_key(TENANT, Plain::Refused).await.unwrap();
    let (layer, bytes) = put(&store.timeline(TENANT, TIMELINE), &[10, 20, 30]).await;
    let timeline = place.remote().timeline(TENANT, TIMELINE);
    let cache = tempfile::tempdir().unwrap();
    let path = timeline.make_resident(&layer, cache.path()).await.unwrap();
    let file = timeline.open_layer(&layer, &path).unwrap();
    assert!(file.is_encrypted());
    assert_eq!(lsns_of(file.read_at(0, bytes.len()).unwrap()), [10, 20, 30]);

    let object = place
        .plain()
        .timeline(TENANT, TIMELINE)
        .local_layer_path(&layer)
        .unwrap();
    let mut bad = fs::read(&object).unwrap();
    bad[4096 + 30] ^= 4;
    fs::write(&object, bad).unwrap();
    fs::remove_file(&path).unwrap();
    let error = timeline
        .make_resident(&layer, cache.path())
        .await
        .unwrap_err();
    assert!(error.is_damage(), "{error}");
    assert!(files(cache.path()).is_empty());
}

/// Promise: without the tenant's data key nothing is written, in clear or otherwise, and no other key is made for it;
/// with the object back, everything is as it was.
#[tokio::test]
async fn a_lost_data_key_stops_the_tenant_alone() {
    let place = Place::new();
    let neighbour = TenantId([5; 16]);
    let store = place.encrypting();
    store.make_tenant_key(TENANT, Plain::Refused).await.unwrap();
    store
        .make_tenant_key(neighbour, Plain::Refused)
        .await
        .unwrap();
    let (kept, bytes) = put(&store.timeline(TENANT, TIMELINE), &[10]).await;
    let document = place.objects().join(TENANT.to_string()).join("keys.json");
    let good = fs::read(&document).unwrap();
    fs::remove_file(&document).unwrap();

    // A program that encrypts everything, and one that knows of this tenant alone.
    let expecting = place
        .plain()
        .with_key_file(Some(&place.keys()), false)
        .unwrap();
    expecting.expect_key(TENANT);
    for store in [place.encrypting(), expecting] {
        let timeline = store.timeline(TENANT, TIMELINE);
        let (desc, content) = layer(&[20]);
        let error = timeline.put_layer(&named(desc), content).await.unwrap_err();
        assert!(matches!(error, BlobError::NoDataKey(TENANT)), "{error}");
        assert!(error.is_transient(), "it may be put back");
        let secret = Bytes::from_static(SECRET);
        timeline
            .put_wal(&wal_of(TIMELINE, &secret), secret)
            .await
            .unwrap_err();
        assert!(timeline.get_layer(&kept).await.is_err());
        assert!(!document.exists() && !place.holds(SECRET));
        put(&store.timeline(neighbour, TIMELINE), &[20]).await;

        fs::write(&document, &good).unwrap();
        assert_eq!(timeline.get_layer(&kept).await.unwrap(), bytes);
        fs::remove_file(&document).unwrap();
    }
}

/// Promise: of a timeline that was deleted with its tenant's data key, a safekeeper writes nothing in clear, whether
/// everything is to be encrypted or not; of one that never had a key it does where that is allowed.
#[tokio::test]
async fn wal_of_a_deleted_tenant_is_not_written_in_clear() {
    let place = Place::new();
    let store = place.encrypting();
    store.make_tenant_key(TENANT, Plain::Refused).await.unwrap();
    store.timeline(TENANT, TIMELINE).delete_all().await.unwrap();
    store.delete_tenant_key(TENANT).await.unwrap();
    let keyed = || {
        place
            .plain()
            .with_key_file(Some(&place.keys()), false)
            .unwrap()
    };
    let secret = Bytes::from_static(SECRET);
    for store in [keyed(), place.encrypting()] {
        let timeline = store.timeline(TENANT, TIMELINE);
        let put = timeline
            .put_wal(&wal_of(TIMELINE, &secret), secret.clone())
            .await;
        let error = put.unwrap_err();
        assert!(matches!(error, BlobError::Deleted(TIMELINE)), "{error}");
    }
    assert!(!place.holds(SECRET));
    let other = keyed().timeline(TENANT, OTHER);
    other
        .put_wal(&wal_of(OTHER, &secret), secret.clone())
        .await
        .unwrap();
    assert!(place.holds(SECRET));
}

/// Promise: the wrong key file, none, a lost and a torn one are refused; nothing is changed by that.
#[tokio::test]
async fn a_wrong_key_file_is_refused() {
    let place = Place::new();
    let store = place.encrypting();
    store.make_tenant_key(TENANT, Plain::Refused).await.unwrap();
    let (layer, bytes) = put(&store.timeline(TENANT, TIMELINE), &[10]).await;
    let before = files(&place.objects());

    let store = place.plain().timeline(TENANT, TIMELINE);
    let error = encryption_error(store.get_layer(&layer).await.unwrap_err());
    assert!(matches!(error, EncryptionError::NoKey), "{error}");
    write_keys(&place.keys(), &[2]);
    let store = place.encrypting().timeline(TENANT, TIMELINE);
    let error = store.get_layer(&layer).await.unwrap_err();
    assert!(error.is_transient());
    let error = encryption_error(error);
    assert!(
        matches!(error, EncryptionError::UnknownKey { .. }),
        "{error}"
    );
    let path = store.local_layer_path(&layer).unwrap();
    assert!(store.open_layer(&layer, &path).is_err());

    let torn = fs::read(place.keys()).unwrap();
    fs::write(place.keys(), &torn[..torn.len() - 3]).unwrap();
    let error = place
        .plain()
        .with_key_file(Some(&place.keys()), true)
        .unwrap_err();
    assert!(matches!(error, BlobError::Keys(_)), "{error}");
    fs::remove_file(place.keys()).unwrap();
    place
        .plain()
        .with_key_file(Some(&place.keys()), false)
        .unwrap_err();

    // The right one is put in place while the program runs.
    write_keys(&place.keys(), &[1]);
    assert_eq!(store.get_layer(&layer).await.unwrap(), bytes);
    assert_eq!(files(&place.objects()), before);
}

/// Promise: after a rotation everything is read with the old key gone, also by a program that ran all the time; a
/// data key that is made while a program runs is wrapped by the newest key.
#[tokio::test]
async fn a_rotation_keeps_everything_readable() {
    let place = Place::new();
    let running = place.encrypting();
    running
        .make_tenant_key(TENANT, Plain::Refused)
        .await
        .unwrap();
    let (layer, bytes) = put(&running.timeline(TENANT, TIMELINE), &[10]).await;
    let first = running.wrapped_key(TENANT).await.unwrap().unwrap();
    assert!(!running.rewrap_key(TENANT).await.unwrap());

    write_keys(&place.keys(), &[1, 2]);
    assert!(place.encrypting().rewrap_key(TENANT).await.unwrap());
    assert!(!place.encrypting().rewrap_key(TENANT).await.unwrap());
    let second = running.wrapped_key(TENANT).await.unwrap().unwrap();
    assert_eq!(second.data_key, first.data_key);
    assert_ne!(second.wrapped_by, first.wrapped_by);

    write_keys(&place.keys(), &[2]);
    for store in [running.clone(), place.encrypting()] {
        let timeline = store.timeline(TENANT, TIMELINE);
        assert_eq!(timeline.get_layer(&layer).await.unwrap(), bytes);
    }
    let late = TenantId([5; 16]);
    running.make_tenant_key(late, Plain::Refused).await.unwrap();
    let wrapped = running.wrapped_key(late).await.unwrap().unwrap();
    assert_eq!(wrapped.wrapped_by, second.wrapped_by);
    KeyFile::open(&place.keys()).unwrap();
}

/// Promise: a data key is made once; who comes second, at the same time or after a crash, takes the first one.
/// Deleted, it makes what it has encrypted unreadable.
#[tokio::test(flavor = "multi_thread")]
async fn a_data_key_is_made_once_and_deleted_for_good() {
    let place = Place::new();
    let stores: Vec<Store> = (0..8).map(|_| place.encrypting()).collect();
    let made = stores.iter().map(|store| {
        let store = store.clone();
        tokio::spawn(async move {
            store
                .make_tenant_key(TENANT, Plain::Refused)
                .await
                .unwrap()
                .id()
        })
    });
    let ids = futures::future::try_join_all(made).await.unwrap();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");

    let (layer, _) = put(&stores[0].timeline(TENANT, TIMELINE), &[10]).await;
    stores[0].delete_tenant_key(TENANT).await.unwrap();
    stores[0].delete_tenant_key(TENANT).await.unwrap();
    for store in [&stores[0], &place.encrypting()] {
        let timeline = store.timeline(TENANT, TIMELINE);
        let error = timeline.get_layer(&layer).await.unwrap_err();
        assert!(matches!(error, BlobError::NoDataKey(TENANT)), "{error}");
    }
    let store = place.encrypting();
    let other = store
        .make_tenant_key(TENANT, Plain::Accepted)
        .await
        .unwrap();
    assert_ne!(other.id(), ids[0]);
    let error = store
        .timeline(TENANT, TIMELINE)
        .get_layer(&layer)
        .await
        .unwrap_err();
    let error = encryption_error(error);
    assert!(matches!(error, EncryptionError::OtherKey { .. }), "{error}");
}
