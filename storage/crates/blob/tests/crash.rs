//! Promise: the process may die at any write to object storage. What is found afterwards is an index that
//! holds everything acknowledged, names only whole layers, and can be worked on.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blob::{
    Ancestor, Generation, IndexChange, IndexPart, Loaded, QueueOptions, Store, TimelineStore,
    UploadQueue,
};
use common::{Faulty, LastWrite, TENANT, TIMELINE, layer, lsns_of};
use object_store::local::LocalFileSystem;
use pg_types::{Lsn, TimelineId};

fn options() -> QueueOptions {
    let pause = Duration::from_millis(1);
    QueueOptions {
        first_pause: pause,
        longest_pause: pause,
        ..QueueOptions::default()
    }
}

fn on_disk(directory: &Path) -> TimelineStore {
    Store::local(directory).unwrap().timeline(TENANT, TIMELINE)
}

/// The same directory through a process that dies at its `writes`-th write.
fn mortal(directory: &Path, writes: i64, last_write: LastWrite) -> (Arc<Faulty>, TimelineStore) {
    let local = LocalFileSystem::new_with_prefix(directory)
        .unwrap()
        .with_fsync(true)
        .with_automatic_cleanup(true);
    let faulty = Faulty::dying_after(Arc::new(local), writes, last_write);
    (
        faulty.clone(),
        Store::new(faulty).timeline(TENANT, TIMELINE),
    )
}

fn ancestor() -> Option<Ancestor> {
    Some(Ancestor {
        timeline: TimelineId([9; 16]),
        lsn: Lsn(10),
    })
}

fn index_of(loaded: Loaded) -> IndexPart {
    match loaded {
        Loaded::Index(index) => *index,
        Loaded::Absent => IndexPart::empty(TENANT, TIMELINE, ancestor()),
        Loaded::Deleting => panic!("nobody asked for a deletion"),
    }
}

/// Brings the timeline from wherever it is to LSN 400 in steps of 100, then merges all layers into one.
/// `acknowledged` follows what was reported durable.
async fn work(store: TimelineStore, acknowledged: &mut u64) -> Result<(), blob::BlobError> {
    let (generation, loaded) = store.attach().await?;
    let index = index_of(loaded);
    store.remove_orphans(&index, generation).await?;
    let queue = UploadQueue::start(store, index.clone(), generation, options());
    let mut reached = index.disk_consistent_lsn.0;
    while reached < 400 {
        // Two layers and one index a step, as when a flush had to catch up.
        for lsns in [[reached + 10, reached + 50], [reached + 60, reached + 100]] {
            let (desc, bytes) = layer(&lsns);
            queue.upload(desc, bytes).await?;
        }
        reached += 100;
        let metadata = Some(serde_json::json!({ "reached": reached }));
        queue.commit(IndexChange {
            disk_consistent_lsn: Some(Lsn(reached)),
            metadata,
            ..IndexChange::default()
        })?;
        queue.flush().await?;
        *acknowledged = reached;
    }
    let index = queue.flush().await?;
    let remove = index
        .layers
        .iter()
        .map(|layer| layer.desc.name())
        .collect::<Vec<_>>();
    if remove.len() > 1 {
        let lsns: Vec<u64> = (0..4)
            .flat_map(|step| [10, 50, 60, 100].map(|lsn| step * 100 + lsn))
            .collect();
        let (desc, bytes) = layer(&lsns);
        queue.upload(desc, bytes).await?;
        queue.commit(IndexChange {
            remove,
            ..IndexChange::default()
        })?;
        queue.flush().await?;
    }
    Ok(())
}

/// What a new process finds.
async fn check(directory: &Path, acknowledged: u64) {
    let store = on_disk(directory);
    let index = index_of(store.load().await.unwrap());
    let reached = index.disk_consistent_lsn.0;
    assert!(
        reached >= acknowledged,
        "{acknowledged} was acknowledged, {reached} is there"
    );
    let mut found = Vec::new();
    for remote in &index.layers {
        let bytes = store
            .get_layer(remote)
            .await
            .expect("an index names only layers that exist");
        assert_eq!(bytes.len() as u64, remote.desc.size);
        found.extend(lsns_of(bytes));
    }
    found.sort_unstable();
    let expected: Vec<u64> = (0..reached / 100)
        .flat_map(|step| [10, 50, 60, 100].map(|lsn| step * 100 + lsn))
        .collect();
    assert_eq!(
        found, expected,
        "the index at {reached} holds every version up to there, once"
    );
    assert_eq!(index.ancestor, ancestor());
    if reached > 0 {
        assert_eq!(index.metadata, serde_json::json!({ "reached": reached }));
    }
}

/// Runs what one process does, to its end or its death: what its threads had begun is over when this returns, as
/// it is when a real process is gone.
fn process<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(life)
}

#[test]
fn a_crash_at_any_write_loses_nothing_acknowledged_and_the_work_goes_on() {
    for last_write in [LastWrite::Lost, LastWrite::Applied] {
        let mut completed = false;
        for writes in 0..200 {
            let directory = tempfile::tempdir().unwrap();
            let (faulty, store) = mortal(directory.path(), writes, last_write);
            let mut acknowledged = 0;
            completed = process(async {
                tokio::select! {
                    result = work(store, &mut acknowledged) => result.is_ok(),
                    () = faulty.died.notified() => false,
                }
            });
            process(check(directory.path(), acknowledged));
            // A second process finishes what the first began, however that ended.
            process(work(on_disk(directory.path()), &mut acknowledged)).unwrap();
            assert_eq!(acknowledged.max(400), 400);
            process(check(directory.path(), 400));
            let (store, layers) = (on_disk(directory.path()), 1);
            assert_eq!(
                index_of(process(store.load()).unwrap()).layers.len(),
                layers,
                "all merged into one"
            );
            assert_eq!(
                process(store.list_layers()).unwrap().len(),
                layers,
                "no orphan is left ({writes} writes)"
            );
            if completed {
                assert!(writes > 20, "the work takes more than {writes} writes");
                break;
            }
        }
        assert!(completed, "some run must get to the end");
    }
}

#[test]
fn a_deletion_that_a_crash_interrupts_is_finished_later_and_never_half_read() {
    for last_write in [LastWrite::Lost, LastWrite::Applied] {
        let mut completed = false;
        for writes in 0..50 {
            let directory = tempfile::tempdir().unwrap();
            process(work(on_disk(directory.path()), &mut 0)).unwrap();
            let (_, store) = mortal(directory.path(), writes, last_write);
            completed = process(store.delete_all()).is_ok();
            let store = on_disk(directory.path());
            match process(store.load()).unwrap() {
                Loaded::Index(_) => process(check(directory.path(), 400)),
                Loaded::Deleting => {
                    assert_eq!(
                        process(store.attach()).unwrap(),
                        (Generation(0), Loaded::Deleting)
                    );
                    process(store.delete_all()).unwrap();
                    assert_eq!(process(store.load()).unwrap(), Loaded::Absent);
                }
                Loaded::Absent => {}
            }
            if completed {
                let store = Store::local(directory.path()).unwrap();
                assert_eq!(process(store.timelines(TENANT)).unwrap(), []);
                break;
            }
        }
        assert!(completed, "some deletion must get to the end");
    }
}
