//! What is known of a timeline that was deleted, and what of its WAL goes by that.

mod common;

use blob::{Store, TimelineStore, WalHeader};
use bytes::Bytes;
use common::{TENANT, TIMELINE, empty};
use pg_types::{Lsn, TimelineId};

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::local(directory.path()).unwrap();
    (directory, store)
}

/// A timeline that a pageserver has stored.
async fn stored(store: &Store, timeline: TimelineId) -> TimelineStore {
    let store = store.timeline(TENANT, timeline);
    let generation = store.claim_generation().await.unwrap();
    let index = blob::IndexPart {
        timeline,
        generation,
        ..empty()
    };
    store.put_index(&index).await.unwrap();
    store
}

/// WAL as a safekeeper puts it.
async fn put_wal(store: &TimelineStore, begin: u64, byte: u8) -> blob::WalName {
    let content = Bytes::from(vec![byte; 8]);
    let header = WalHeader {
        tenant: store.tenant(),
        timeline: store.timeline(),
        system_identifier: 7,
        pg_version: 15,
        begin: Lsn(begin),
        end: Lsn(begin + 8),
        history: Vec::new(),
        crc: crc32c::crc32c(&content),
    };
    store.put_wal(&header, content).await.unwrap();
    header.name()
}

async fn tombstones(store: &Store) -> Vec<TimelineId> {
    let found = store.tombstones().await.unwrap();
    found.iter().map(|tombstone| tombstone.timeline).collect()
}

/// Promise: what is put there after a deletion goes with the tombstone, and the store is empty then.
#[tokio::test]
async fn wal_that_comes_after_the_deletion_goes_with_the_tombstone() {
    let (directory, whole) = store();
    let store = stored(&whole, TIMELINE).await;
    put_wal(&store, 1 << 24, 1).await;
    assert!(!store.is_deleted().await.unwrap());
    store.delete_all().await.unwrap();
    assert!(store.is_deleted().await.unwrap());
    assert_eq!(tombstones(&whole).await, [TIMELINE]);
    assert_eq!(whole.timelines(TENANT).await.unwrap(), []);
    assert_eq!(whole.tenants().await.unwrap(), []);

    put_wal(&store, 1 << 24, 1).await;
    put_wal(&store, 2 << 24, 2).await;
    let half = directory
        .path()
        .join(format!("{TENANT}/{TIMELINE}/wal/half#1"));
    std::fs::write(half, "half").unwrap();
    assert_eq!(store.remove_tombstone().await.unwrap(), 2);
    assert!(!store.is_deleted().await.unwrap());
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(store.remove_tombstone().await.unwrap(), 0);
}

/// Promise: the WAL of a timeline whose index is lost, or which no pageserver has stored, may be the last copy.
#[tokio::test]
async fn without_proof_of_a_deletion_nothing_goes() {
    let (directory, whole) = store();
    let lost = stored(&whole, TIMELINE).await;
    let of_lost = put_wal(&lost, 1 << 24, 1).await;
    std::fs::remove_dir_all(directory.path().join(format!("{TENANT}/{TIMELINE}/index"))).unwrap();
    let never = whole.timeline(TENANT, TimelineId([3; 16]));
    let of_never = put_wal(&never, 1 << 24, 1).await;
    // One that was deleted beside them proves nothing of these.
    stored(&whole, TimelineId([4; 16]))
        .await
        .delete_all()
        .await
        .unwrap();
    for (store, name) in [(&lost, of_lost), (&never, of_never)] {
        assert!(!store.is_deleted().await.unwrap());
        assert_eq!(store.remove_tombstone().await.unwrap(), 0);
        assert_eq!(store.list_wal().await.unwrap(), [name]);
    }
}

/// Promise: of a timeline that lives, under an id that was used before, nothing goes.
#[tokio::test]
async fn a_timeline_that_is_made_again_loses_its_tombstone_only() {
    let (_directory, whole) = store();
    stored(&whole, TIMELINE).await.delete_all().await.unwrap();
    let again = stored(&whole, TIMELINE).await;
    let name = put_wal(&again, 1 << 24, 1).await;
    assert_eq!(again.remove_tombstone().await.unwrap(), 0);
    assert_eq!(tombstones(&whole).await, []);
    assert_eq!(again.list_wal().await.unwrap(), [name]);
    assert!(!again.is_deleted().await.unwrap());
}

#[tokio::test]
async fn a_tombstone_says_whose_and_when_and_what_else_is_there_is_left_alone() {
    let (directory, whole) = store();
    assert_eq!(whole.tombstones().await.unwrap(), []);
    let now = || {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        i64::try_from(since.as_micros()).unwrap()
    };
    let before = now();
    stored(&whole, TIMELINE).await.delete_all().await.unwrap();
    for name in ["notes.txt", "a-b"] {
        std::fs::write(directory.path().join("deleted").join(name), "").unwrap();
    }
    let found = whole.tombstones().await.unwrap();
    let [tombstone] = found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((tombstone.tenant, tombstone.timeline), (TENANT, TIMELINE));
    // File systems keep times in steps of some milliseconds.
    let steps = 100_000;
    assert!(
        (before - steps..=now() + steps).contains(&tombstone.since),
        "{found:?}"
    );
}
