//! Promises of the upload queue: order, coalescing, retries, backpressure, fencing.

mod common;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use blob::{
    BlobError, Generation, INDEX_FORMAT_VERSION, IndexChange, IndexPart, Loaded, QueueOptions,
    Store, TimelineStore, UploadQueue,
};
use bytes::Bytes;
use common::{Faulty, TENANT, TIMELINE, at, empty, layer, lsns_of, quick};
use futures::poll;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use pg_types::Lsn;

/// The first claim of a timeline, made past whatever stands in front of the objects.
async fn claimed(objects: &Arc<dyn ObjectStore>) -> Generation {
    let store = Store::new(objects.clone()).timeline(TENANT, TIMELINE);
    store.claim_generation().await.unwrap()
}

async fn loaded(store: &TimelineStore) -> IndexPart {
    match store.load().await.unwrap() {
        Loaded::Index(index) => *index,
        other => panic!("expected an index, found {other:?}"),
    }
}

#[tokio::test]
async fn queued_index_changes_become_one_write_that_holds_them_all() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let gated = Faulty::gated(memory.clone());
    let store = Store::new(gated.clone()).timeline(TENANT, TIMELINE);
    let queue = UploadQueue::start(store.clone(), empty(), claimed(&memory).await, quick());
    let (desc, bytes) = layer(&[10]);
    queue.upload(desc.clone(), bytes).await.unwrap();
    for lsn in 1..=50 {
        queue.commit(at(lsn)).unwrap();
    }
    gated.gate.add_permits(2);
    let index = queue.flush().await.unwrap();
    assert_eq!(index.disk_consistent_lsn, Lsn(50));
    assert_eq!(loaded(&store).await, *index);
    assert_eq!(index.layers, [queue.remote(desc)]);
    let status = queue.status().borrow().clone();
    assert_eq!(
        (
            status.index_writes,
            status.uploaded_layers,
            status.disk_consistent_lsn
        ),
        (1, 1, Lsn(50))
    );
}

/// Promise: an index names a layer once, and a copy that is there, whoever else writes the same layer again.
#[tokio::test]
async fn a_layer_that_is_queued_again_is_named_once() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = Store::new(memory.clone()).timeline(TENANT, TIMELINE);
    let first = UploadQueue::start(store.clone(), empty(), claimed(&memory).await, quick());
    let (desc, bytes) = layer(&[10]);
    for _ in 0..2 {
        first.upload(desc.clone(), bytes.clone()).await.unwrap();
    }
    first.commit(at(10)).unwrap();
    let index = first.flush().await.unwrap();
    let named = [first.remote(desc.clone())];
    assert_eq!(index.layers, named);

    let (generation, loaded) = store.attach().await.unwrap();
    let Loaded::Index(loaded) = loaded else {
        panic!("there is an index");
    };
    let second = UploadQueue::start(store.clone(), *loaded, generation, quick());
    second.upload(desc, bytes).await.unwrap();
    second.commit(at(11)).unwrap();
    let index = second.flush().await.unwrap();
    assert_eq!(index.layers, named);
    store.get_layer(&named[0]).await.unwrap();
}

/// Promise: who has lost the timeline finds out although it has nothing to write, and says so.
#[tokio::test]
async fn a_superseded_queue_notices_while_it_is_idle() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = Store::new(memory.clone()).timeline(TENANT, TIMELINE);
    let options = QueueOptions {
        idle_look: Duration::from_millis(5),
        ..quick()
    };
    let queue = UploadQueue::start(store.clone(), empty(), claimed(&memory).await, options);
    queue.commit(at(1)).unwrap();
    queue.flush().await.unwrap();
    assert_eq!(queue.status().borrow().stopped, None);
    claimed(&memory).await;
    let mut status = queue.status();
    let stopped = status.wait_for(|status| status.stopped.is_some()).await;
    let stopped = stopped.unwrap().stopped.clone().expect("checked");
    assert!(stopped.contains("superseded by generation 2"), "{stopped}");
    let refused = queue.flush().await.unwrap_err();
    assert!(refused.to_string().contains("superseded"), "{refused}");
}

/// Promise: who waits for what can't be written any more is told why, however close the two are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_when_uploads_stop_is_told_the_reason() {
    for _ in 0..200 {
        let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let store = Store::new(memory.clone()).timeline(TENANT, TIMELINE);
        let queue = UploadQueue::start(store, empty(), claimed(&memory).await, quick());
        claimed(&memory).await;
        queue.commit(at(1)).unwrap();
        let refused = queue.flush().await.unwrap_err().to_string();
        assert!(refused.contains("superseded by generation 2"), "{refused}");
    }
}

/// Promise: the right to write is a claim, not an index that was left behind.
#[tokio::test]
async fn an_index_without_its_claim_is_no_right_to_write() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = Store::new(memory.clone()).timeline(TENANT, TIMELINE);
    let ours = claimed(&memory).await;
    let index = IndexPart {
        generation: ours,
        ..empty()
    };
    store.put_index(&index).await.unwrap();
    let claim = format!("{TENANT}/{TIMELINE}/generation/00000001");
    memory.delete(&ObjectPath::from(claim)).await.unwrap();
    let refused = store.check_fence(ours).await.unwrap_err();
    assert!(matches!(refused, BlobError::Deleted(_)), "{refused}");
}

/// Promise: however long the store is away, it is waited out: nothing counts as durable meanwhile, it is said since
/// when and why, the store is asked ever more slowly, and once it is back everything is there.
#[tokio::test]
async fn a_store_that_is_away_costs_time_and_nothing_else() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let faulty = Faulty::out(memory.clone());
    let store = Store::new(faulty.clone()).timeline(TENANT, TIMELINE);
    // An hour at the usual pauses, 15 to 30 s, is as many attempts as these are in seconds.
    let options = QueueOptions {
        longest_pause: Duration::from_millis(20),
        ..quick()
    };
    let (parallel, longest) = (options.parallel as u128, options.longest_pause);
    let queue = UploadQueue::start(store.clone(), empty(), claimed(&memory).await, options);
    let begun = tokio::time::Instant::now();
    for lsn in 1..=20 {
        let (desc, bytes) = layer(&[lsn]);
        queue.upload(desc, bytes).await.unwrap();
        queue.commit(at(lsn)).unwrap();
    }
    let mut watched = queue.status();
    let long_since = |status: &blob::UploadStatus| status.retries > 400;
    let status = watched.wait_for(long_since).await.unwrap().clone();
    assert_eq!((status.uploaded_layers, status.index_writes), (0, 0));
    assert_eq!(status.disk_consistent_lsn, Lsn::INVALID);
    let (since, waited) = (status.failing_since.expect("since when"), begun.elapsed());
    assert!(since >= begun && since.elapsed() >= longest);
    let why = status.last_error.expect("a reason");
    assert!(
        why.contains("layer ") && why.contains("the store is out"),
        "{why}"
    );
    // Each of the few at a time waits at least half the longest pause, the first five times less.
    let at_most = parallel * (waited.as_millis() / (longest.as_millis() / 2) + 7);
    let writes = u128::from(faulty.writes());
    assert!(writes <= at_most, "{writes} writes in {waited:?}");

    faulty.set_out(false);
    let index = queue.flush().await.unwrap();
    assert_eq!(
        (index.layers.len(), index.disk_consistent_lsn),
        (20, Lsn(20))
    );
    let status = queue.status().borrow().clone();
    assert_eq!((status.failing_since, status.last_error), (None, None));
    for remote in &index.layers {
        store.get_layer(remote).await.unwrap();
    }
}

#[tokio::test]
async fn failures_are_retried_until_all_is_durable() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = Store::new(Faulty::failing_every(memory.clone(), 2)).timeline(TENANT, TIMELINE);
    let queue = UploadQueue::start(store, empty(), claimed(&memory).await, quick());
    for lsn in 1..=10 {
        let (desc, bytes) = layer(&[lsn]);
        queue.upload(desc, bytes).await.unwrap();
        queue.commit(at(lsn)).unwrap();
    }
    queue.flush().await.unwrap();
    let status = queue.status().borrow().clone();
    assert!(status.retries > 5, "{status:?}");
    assert_eq!(status.last_error, None);
    let store = Store::new(memory).timeline(TENANT, TIMELINE);
    let index = loaded(&store).await;
    assert_eq!(
        (index.layers.len(), index.disk_consistent_lsn),
        (10, Lsn(10))
    );
    for remote in &index.layers {
        assert_eq!(lsns_of(store.get_layer(remote).await.unwrap()).len(), 1);
    }
}

#[tokio::test]
async fn a_producer_waits_while_too_many_bytes_are_queued() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let gated = Faulty::gated(memory.clone());
    let store = Store::new(gated.clone()).timeline(TENANT, TIMELINE);
    let (first, bytes) = layer(&[10]);
    let options = QueueOptions {
        backlog_bytes: bytes.len(),
        ..quick()
    };
    let queue = UploadQueue::start(store, empty(), claimed(&memory).await, options);
    queue.upload(first, bytes).await.unwrap();
    let (second, bytes) = layer(&[20]);
    let mut waiting = pin!(queue.upload(second, bytes));
    assert!(poll!(&mut waiting).is_pending(), "the backlog is full");
    gated.gate.add_permits(10);
    waiting.await.unwrap();
    queue.commit(at(20)).unwrap();
    assert_eq!(queue.flush().await.unwrap().layers.len(), 2);
}

/// The narrowest race: the old owner has checked that it still owns the timeline, then stalls; the new one
/// takes over and loads the index; the old one goes on.
#[tokio::test]
async fn an_owner_superseded_while_it_writes_an_index_deletes_nothing() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let gated = Faulty::gated(memory.clone());
    gated.gate.add_permits(3);
    let store = Store::new(gated.clone()).timeline(TENANT, TIMELINE);
    let (generation, _) = store.attach().await.unwrap();
    let old = UploadQueue::start(store, empty(), generation, quick());
    let (desc, bytes) = layer(&[10]);
    let remote = old.upload(desc.clone(), bytes.clone()).await.unwrap();
    old.commit(at(10)).unwrap();
    old.flush().await.unwrap();
    for _ in 0..2 {
        // Whatever is left of earlier notifications.
        let _ = poll!(pin!(gated.arrived.notified()));
    }
    old.commit(IndexChange {
        remove: vec![desc.name()],
        ..at(20)
    })
    .unwrap();
    gated.arrived.notified().await;

    let direct = Store::new(memory).timeline(TENANT, TIMELINE);
    let (_, index) = direct.attach().await.unwrap();
    let Loaded::Index(index) = index else {
        panic!("the first index is there")
    };
    assert_eq!(index.layers, std::slice::from_ref(&remote));
    gated.gate.add_permits(100);
    assert!(matches!(old.flush().await, Err(BlobError::Stopped(_))));
    assert_eq!(
        direct.get_layer(&remote).await.unwrap(),
        bytes,
        "the new owner relies on it"
    );
}

/// Equal names mean equal bytes: a merge may have an output that is one of its inputs.
#[tokio::test]
async fn a_layer_that_comes_out_of_a_merge_as_it_went_in_stays() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = Store::new(memory.clone()).timeline(TENANT, TIMELINE);
    let queue = UploadQueue::start(store.clone(), empty(), claimed(&memory).await, quick());
    let (same, same_bytes) = layer(&[10]);
    let (other, other_bytes) = layer(&[20]);
    queue
        .upload(same.clone(), same_bytes.clone())
        .await
        .unwrap();
    queue.upload(other.clone(), other_bytes).await.unwrap();
    queue.commit(at(20)).unwrap();
    queue.flush().await.unwrap();
    let remote = queue
        .upload(same.clone(), same_bytes.clone())
        .await
        .unwrap();
    queue.flush().await.unwrap();
    let remove = vec![same.name(), other.name()];
    queue
        .commit(IndexChange {
            remove,
            ..IndexChange::default()
        })
        .unwrap();
    let index = queue.flush().await.unwrap();
    assert_eq!(index.layers, std::slice::from_ref(&remote));
    assert_eq!(loaded(&store).await, *index);
    assert_eq!(store.get_layer(&remote).await.unwrap(), same_bytes);
}

#[tokio::test]
async fn a_layer_is_made_resident_once_and_only_if_it_is_whole() {
    let memory: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = Store::new(memory.clone()).timeline(TENANT, TIMELINE);
    let queue = UploadQueue::start(store.clone(), empty(), claimed(&memory).await, quick());
    let (desc, bytes) = layer(&[10]);
    let remote = queue.upload(desc, bytes.clone()).await.unwrap();
    queue.flush().await.unwrap();
    let cache = tempfile::tempdir().unwrap();
    let object = ObjectPath::from(format!(
        "{TENANT}/{TIMELINE}/layers/{}",
        remote.object_name()
    ));
    let mut damaged = bytes.to_vec();
    damaged[40] ^= 1;

    memory
        .put(&object, Bytes::from(damaged).into())
        .await
        .unwrap();
    let error = store
        .make_resident(&remote, cache.path())
        .await
        .unwrap_err();
    assert!(matches!(error, BlobError::Corrupt { .. }), "{error}");

    memory.put(&object, bytes.clone().into()).await.unwrap();
    let path = store.make_resident(&remote, cache.path()).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
    memory.delete(&object).await.unwrap();
    assert_eq!(
        store.make_resident(&remote, cache.path()).await.unwrap(),
        path,
        "no second fetch"
    );
    assert_eq!(
        std::fs::read_dir(cache.path()).unwrap().count(),
        1,
        "no staging file is left"
    );
}

#[tokio::test]
async fn a_local_directory_serves_layers_in_place_and_hides_what_a_crash_left() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::local(directory.path()).unwrap();
    let timeline = store.timeline(TENANT, TIMELINE);
    let generation = timeline.claim_generation().await.unwrap();
    let queue = UploadQueue::start(timeline.clone(), empty(), generation, quick());
    let (desc, bytes) = layer(&[10, 20]);
    let remote = queue.upload(desc, bytes.clone()).await.unwrap();
    queue.commit(at(20)).unwrap();
    queue.flush().await.unwrap();
    let path = timeline
        .make_resident(&remote, directory.path())
        .await
        .unwrap();
    assert_eq!(Some(&path), timeline.local_layer_path(&remote).as_ref());
    let file = blob::LocalLayerFile::open(&path).unwrap();
    let reader = layers::LayerReader::open(remote.object_name(), file).unwrap();
    reader.verify().unwrap();
    assert_eq!(reader.iter().count(), 6);

    std::fs::write(format!("{}#1", path.display()), b"torn").unwrap();
    assert_eq!(timeline.list_layers().await.unwrap(), [remote]);
    assert_eq!(
        (
            store.tenants().await.unwrap(),
            store.timelines(TENANT).await.unwrap()
        ),
        (vec![TENANT], vec![TIMELINE])
    );
}

#[test]
fn an_address_that_cannot_be_served_is_refused_with_the_reason() {
    for (address, reason) in [
        ("ftp://bucket", "s3://"),
        ("file://relative/path", "absolute"),
        ("/tmp", "file://"),
    ] {
        let error = Store::from_address(address).unwrap_err().to_string();
        assert!(error.contains(address) && error.contains(reason), "{error}");
    }
}

/// The index as format version 1 wrote it must stay readable.
#[test]
fn an_index_of_version_1_is_read_and_a_newer_one_refused() {
    let text = r#"{
        "format_version": 1,
        "tenant": "01010101010101010101010101010101", "timeline": "02020202020202020202020202020202",
        "generation": 3, "disk_consistent_lsn": "0/16B3748",
        "ancestor": {"timeline": "09090909090909090909090909090909", "lsn": "0/1500000"},
        "metadata": {"pg_version": 15},
        "layers": [{
            "name": "200000000000000000000000000000000000-220000000000000000000000000000000007__00000000016b3748-0000000100000000__d1-deadbeef",
            "size": 12345, "generation": 2
        }],
        "added_by_a_later_minor_version": true
    }"#;
    let index = IndexPart::decode("index", text.as_bytes()).unwrap();
    assert_eq!(
        (index.generation, index.disk_consistent_lsn),
        (Generation(3), Lsn(0x16B_3748))
    );
    assert_eq!(index.ancestor.unwrap().lsn, Lsn(0x150_0000));
    assert_eq!(
        (index.layers[0].generation, index.layers[0].desc.size),
        (Generation(2), 12345)
    );
    let written = IndexPart::decode("index", &index.encode()).unwrap();
    assert_eq!(written.format_version, INDEX_FORMAT_VERSION);
    assert_eq!(
        (&written.layers, &written.metadata),
        (&index.layers, &index.metadata)
    );

    let newer = text.replace("\"format_version\": 1", "\"format_version\": 3");
    assert!(matches!(
        IndexPart::decode("index", newer.as_bytes()),
        Err(BlobError::TooNew { found: 3, .. })
    ));
    for bad in [
        "",
        "{}",
        &text[..100],
        &text.replace("d1-deadbeef", "d1-xyz"),
    ] {
        let error = IndexPart::decode("the-index", bad.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("the-index"), "{error}");
    }
}
