//! Promises that hold on every kind of store: a local directory and an S3 server alike.

mod common;
#[path = "common/s3.rs"]
mod s3_server;

use std::time::{Duration, Instant};

use blob::{
    BlobError, Generation, IndexChange, IndexPart, Loaded, Store, UploadQueue, WalHeader, WalPut,
};
use bytes::Bytes;
use common::{TENANT, TIMELINE, at, empty, layer, lsns_of, quick};
use pg_types::{Lsn, Term, WAL_SEGMENT_BYTES};
use s3_server::{S3Server, SECRET};

macro_rules! on_every_store {
    ($($promise:ident),+ $(,)?) => {
        mod on_a_local_directory {
            $(#[tokio::test]
            async fn $promise() {
                let directory = tempfile::tempdir().expect("tempdir");
                super::$promise(super::Store::local(directory.path()).expect("store")).await;
            })+
        }
        mod on_s3 {
            $(#[tokio::test]
            async fn $promise() {
                let server = super::S3Server::start();
                super::$promise(server.store()).await;
            })+
        }
    };
}

on_every_store!(
    a_superseded_pageserver_changes_nothing_and_is_told,
    claims_at_the_same_time_get_different_generations,
    documents_are_replaced_whole_and_may_be_absent,
    a_deleted_timeline_takes_no_index_and_leaves_nothing,
    layers_come_back_whole_and_in_parts,
    what_is_stored_is_listed,
    an_object_is_created_once,
    wal_is_put_once_and_comes_back_verified,
);

fn index_of(loaded: Loaded) -> IndexPart {
    match loaded {
        Loaded::Index(index) => *index,
        other => panic!("expected an index, found {other:?}"),
    }
}

async fn a_superseded_pageserver_changes_nothing_and_is_told(store: Store) {
    let store = store.timeline(TENANT, TIMELINE);
    let (first, _) = store.attach().await.unwrap();
    let old = UploadQueue::start(store.clone(), empty(), first, quick());
    let (desc, bytes) = layer(&[10]);
    old.upload(desc.clone(), bytes.clone()).await.unwrap();
    old.commit(at(10)).unwrap();
    old.flush().await.unwrap();

    let (second, index) = store.attach().await.unwrap();
    let index = index_of(index);
    assert!(second > first);
    let new = UploadQueue::start(store.clone(), index, second, quick());

    let (more, more_bytes) = layer(&[20]);
    old.upload(more, more_bytes).await.unwrap();
    let remove = vec![desc.name()];
    old.commit(IndexChange { remove, ..at(20) }).unwrap();
    let error = old.flush().await.unwrap_err();
    assert!(
        matches!(&error, BlobError::Stopped(reason) if reason.contains("superseded")),
        "{error}"
    );
    assert!(matches!(old.commit(at(30)), Err(BlobError::Stopped(_))));

    new.commit(at(11)).unwrap();
    new.flush().await.unwrap();
    let index = index_of(store.load().await.unwrap());
    assert_eq!(
        (index.generation, index.disk_consistent_lsn),
        (second, Lsn(11))
    );
    assert_eq!(store.get_layer(&index.layers[0]).await.unwrap(), bytes);
    assert_eq!(
        store.remove_orphans(&index, second).await.unwrap(),
        0,
        "the old one leaves nothing behind"
    );
}

async fn claims_at_the_same_time_get_different_generations(store: Store) {
    let store = store.timeline(TENANT, TIMELINE);
    let claims = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.claim_generation().await.unwrap() })
    });
    let mut claimed: Vec<Generation> = futures::future::try_join_all(claims).await.unwrap();
    claimed.sort_unstable();
    claimed.dedup();
    assert_eq!(claimed.len(), 8);
    assert_eq!(
        store.newest_generation().await.unwrap(),
        claimed.last().copied()
    );
}

async fn documents_are_replaced_whole_and_may_be_absent(store: Store) {
    let name = "config.json";
    assert_eq!(store.get_document(TENANT, name).await.unwrap(), None);
    for text in ["{}", "{\"image_threshold\": 8}"] {
        let put = store.put_document(TENANT, name, Bytes::from(text)).await;
        put.unwrap();
        let got = store.get_document(TENANT, name).await.unwrap();
        assert_eq!(got.unwrap(), text);
    }
    store.delete_document(TENANT, name).await.unwrap();
    store.delete_document(TENANT, name).await.unwrap();
    assert_eq!(store.get_document(TENANT, name).await.unwrap(), None);
}

async fn a_deleted_timeline_takes_no_index_and_leaves_nothing(whole: Store) {
    let store = whole.timeline(TENANT, TIMELINE);
    let generation = store.claim_generation().await.unwrap();
    let queue = UploadQueue::start(store.clone(), empty(), generation, quick());
    let (desc, bytes) = layer(&[10]);
    queue.upload(desc, bytes).await.unwrap();
    queue.commit(at(10)).unwrap();
    queue.flush().await.unwrap();
    store.delete_all().await.unwrap();
    queue.commit(at(20)).unwrap();
    let error = queue.flush().await.unwrap_err();
    assert!(error.to_string().contains("deleted"), "{error}");
    assert_eq!(store.load().await.unwrap(), Loaded::Absent);
    assert_eq!(whole.timelines(TENANT).await.unwrap(), []);
}

async fn layers_come_back_whole_and_in_parts(store: Store) {
    let store = store.timeline(TENANT, TIMELINE);
    let generation = store.claim_generation().await.unwrap();
    let queue = UploadQueue::start(store.clone(), empty(), generation, quick());
    let lsns: Vec<u64> = (1..2000).collect();
    let (desc, bytes) = layer(&lsns);
    let remote = queue.upload(desc, bytes.clone()).await.unwrap();
    queue.commit(at(2000)).unwrap();
    queue.flush().await.unwrap();
    assert_eq!(lsns_of(store.get_layer(&remote).await.unwrap()), lsns);
    let end = bytes.len() as u64;
    let ranges = [0..10, 100..4000, end - 7..end];
    let parts = store.get_layer_ranges(&remote, &ranges).await.unwrap();
    for (range, part) in ranges.into_iter().zip(parts) {
        assert_eq!(part, bytes.slice(range.start as usize..range.end as usize));
    }
    let cache = tempfile::tempdir().unwrap();
    let path = store.make_resident(&remote, cache.path()).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), bytes);
}

async fn what_is_stored_is_listed(store: Store) {
    assert_eq!(store.tenants().await.unwrap(), []);
    let timeline = store.timeline(TENANT, TIMELINE);
    let generation = timeline.claim_generation().await.unwrap();
    let queue = UploadQueue::start(timeline.clone(), empty(), generation, quick());
    let mut remotes = Vec::new();
    for lsn in [10, 20] {
        let (desc, bytes) = layer(&[lsn]);
        remotes.push(queue.upload(desc, bytes).await.unwrap());
    }
    queue.commit(at(20)).unwrap();
    queue.flush().await.unwrap();
    let mut listed = timeline.list_layers().await.unwrap();
    listed.sort_by_key(|layer| layer.desc.lsns.first);
    assert_eq!(listed, remotes);
    assert_eq!(store.tenants().await.unwrap(), [TENANT]);
    assert_eq!(store.timelines(TENANT).await.unwrap(), [TIMELINE]);
}

async fn an_object_is_created_once(store: Store) {
    for _ in 0..3 {
        store.check().await.expect("a store to keep layers in");
    }
    assert_eq!(
        store.tenants().await.unwrap(),
        [],
        "what it leaves is no tenant"
    );
}

/// Promise: who can't reach the store, or is not let in, learns what to do within seconds; no secret is told.
#[tokio::test]
async fn what_is_wrong_with_an_s3_store_is_said() {
    let mut server = S3Server::start();
    let said = async |store: Store| {
        let begun = Instant::now();
        let error = store.check().await.expect_err("refused").to_string();
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{:?}",
            begun.elapsed()
        );
        assert!(
            !error.contains(SECRET) && error.lines().count() == 1,
            "{error}"
        );
        error
    };
    let error = said(server.store_at("s3://weir/x", "a wrong secret")).await;
    assert!(error.contains("SignatureDoesNotMatch"), "{error}");
    assert!(error.contains("AWS_SECRET_ACCESS_KEY"), "{error}");
    let error = said(server.store_at("s3://no-such-bucket/x", SECRET)).await;
    assert!(error.contains("NoSuchBucket"), "{error}");
    let absent = server.store_at("s3://no-such-bucket/x", SECRET);
    assert!(
        absent.tenants().await.is_err(),
        "no bucket is not an empty one"
    );
    let store = server.store();
    store.check().await.unwrap();
    server.stop();
    let begun = Instant::now();
    let error = store
        .tenants()
        .await
        .expect_err("nobody is there")
        .to_string();
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert!(
        error.contains("127.0.0.1") && error.contains("refused"),
        "{error}"
    );
}

/// Promise: an upload goes on where it was once a store that was away is back.
#[tokio::test]
async fn uploads_outlive_an_outage_of_the_store() {
    let mut server = S3Server::start();
    let store = server.store().timeline(TENANT, TIMELINE);
    let generation = store.claim_generation().await.unwrap();
    let queue = UploadQueue::start(store.clone(), empty(), generation, quick());
    server.stop();
    let (desc, bytes) = layer(&[10]);
    queue.upload(desc, bytes).await.unwrap();
    queue.commit(at(10)).unwrap();
    let mut status = queue.status();
    let failed = status.wait_for(|status| status.last_error.is_some());
    tokio::time::timeout(Duration::from_secs(20), failed)
        .await
        .expect("the failure is reported")
        .unwrap();
    server.start_again();
    assert_eq!(queue.flush().await.unwrap().disk_consistent_lsn, Lsn(10));
    assert_eq!(queue.status().borrow().last_error, None);
}

/// Twice is once, two histories lie side by side, and a deletion of the timeline takes all of it along.
async fn wal_is_put_once_and_comes_back_verified(store: Store) {
    let timeline = store.timeline(TENANT, TIMELINE);
    assert_eq!(timeline.list_wal().await.unwrap(), []);
    let header = |content: &Bytes| WalHeader {
        tenant: TENANT,
        timeline: TIMELINE,
        system_identifier: 7,
        pg_version: 15,
        begin: Lsn(WAL_SEGMENT_BYTES),
        end: Lsn(2 * WAL_SEGMENT_BYTES),
        history: vec![(Term(1), Lsn(100)), (Term(4), Lsn(WAL_SEGMENT_BYTES + 10))],
        crc: crc32c::crc32c(content),
    };
    let [one, other] = [1, 2].map(|byte| Bytes::from(vec![byte; WAL_SEGMENT_BYTES as usize]));
    let (of_one, of_other) = (header(&one), header(&other));
    for (content, header) in [(&one, &of_one), (&other, &of_other)] {
        assert!(!timeline.has_wal(header).await.unwrap());
        for expected in [WalPut::Written, WalPut::Present] {
            let put = timeline.put_wal(header, content.clone()).await.unwrap();
            assert_eq!(put, expected);
        }
        assert!(timeline.has_wal(header).await.unwrap());
    }
    let mut names = vec![of_one.name(), of_other.name()];
    names.sort();
    assert_eq!(timeline.list_wal().await.unwrap(), names);
    let found = timeline.get_wal(of_one.name()).await.unwrap();
    assert!(found == Some((of_one.clone(), one)));
    let found = timeline.wal_header(of_other.name()).await.unwrap();
    assert_eq!(found.map(|(header, _)| header), Some(of_other.clone()));
    timeline.delete_wal(of_other.name()).await.unwrap();
    timeline.delete_wal(of_other.name()).await.unwrap();
    assert_eq!(timeline.list_wal().await.unwrap(), [of_one.name()]);
    timeline.delete_all().await.unwrap();
    assert_eq!(timeline.list_wal().await.unwrap(), []);
    assert!(timeline.get_wal(of_one.name()).await.unwrap().is_none());
}
