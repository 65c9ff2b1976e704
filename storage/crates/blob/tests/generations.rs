//! Promise: any number of pageservers may believe that a timeline is theirs. The newest one is right; the others
//! can neither take away anything it relies on nor report as durable what it will not find.

mod common;
#[path = "common/s3.rs"]
mod s3_server;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use blob::{
    BlobError, IndexChange, IndexPart, Loaded, QueueOptions, Store, TimelineStore, UploadQueue,
};
use bytes::Bytes;
use common::{TENANT, TIMELINE, layer, lsns_of};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;
use pg_types::Lsn;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use s3_server::S3Server;

/// Most turns that others get before, and after, an operation of the store.
const LONGEST_PAUSE: u32 = 12;
/// Where the work ends.
const END: u64 = 1000;

/// A store at which every operation takes its time: on one thread, with one seed, an order of events that is always
/// the same.
#[derive(Debug)]
struct Unhurried {
    inner: Arc<dyn ObjectStore>,
    random: Mutex<StdRng>,
}

async fn turns(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

impl Unhurried {
    async fn pause(&self) {
        let drawn = self.random.lock().random_range(0..=LONGEST_PAUSE);
        turns(drawn).await;
    }

    async fn slowly<T>(&self, operation: impl Future<Output = T>) -> T {
        self.pause().await;
        let done = operation.await;
        self.pause().await;
        done
    }
}

impl fmt::Display for Unhurried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unhurried")
    }
}

#[async_trait]
impl ObjectStore for Unhurried {
    async fn put_opts(
        &self,
        to: &Path,
        content: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.slowly(self.inner.put_opts(to, content, opts)).await
    }

    async fn put_multipart_opts(
        &self,
        to: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.slowly(self.inner.put_multipart_opts(to, opts)).await
    }

    async fn get_opts(&self, from: &Path, options: GetOptions) -> Result<GetResult> {
        self.slowly(self.inner.get_opts(from, options)).await
    }

    async fn get_ranges(&self, from: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.slowly(self.inner.get_ranges(from, ranges)).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let pause = self.random.lock().random_range(0..=LONGEST_PAUSE);
        let inner = self.inner.clone();
        let late = async move {
            turns(pause).await;
            inner.delete_stream(locations)
        };
        futures::stream::once(late).flatten().boxed()
    }

    /// As a directory is listed: first the names, then each of them, if it is still there.
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (before, between) = {
            let mut random = self.random.lock();
            // Now and then so long that somebody takes over.
            let between = if random.random_bool(0.05) { 30 } else { 1 } * LONGEST_PAUSE;
            (
                random.random_range(0..=LONGEST_PAUSE),
                random.random_range(0..=between),
            )
        };
        let (inner, prefix) = (self.inner.clone(), prefix.cloned());
        let late = async move {
            turns(before).await;
            let names: Vec<Result<ObjectMeta>> = inner.list(prefix.as_ref()).collect().await;
            turns(between).await;
            let mut still_there = Vec::new();
            for listed in names.into_iter().flatten() {
                match inner.head(&listed.location).await {
                    Err(object_store::Error::NotFound { .. }) => {}
                    found => still_there.push(found),
                }
            }
            futures::stream::iter(still_there)
        };
        futures::stream::once(late).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.slowly(self.inner.list_with_delimiter(prefix)).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.slowly(self.inner.copy_opts(from, to, options)).await
    }
}

/// What all pageservers together have reported as durable: safekeepers trim up to there.
#[derive(Clone, Default)]
struct Acknowledged(Arc<Mutex<u64>>);

impl Acknowledged {
    fn raise(&self, lsn: Lsn) {
        let mut highest = self.0.lock();
        *highest = lsn.0.max(*highest);
    }

    fn highest(&self) -> u64 {
        *self.0.lock()
    }
}

/// Every LSN up to where the index says it reaches is in its layers.
async fn check_whole(store: &TimelineStore, index: &IndexPart) {
    let mut found = Vec::new();
    for remote in &index.layers {
        let content = store.get_layer(remote).await;
        found.extend(lsns_of(
            content.expect("an index names only layers that exist"),
        ));
    }
    found.sort_unstable();
    found.dedup();
    let expected: Vec<u64> = (1..=index.disk_consistent_lsn.0).collect();
    let reached = found.partition_point(|lsn| *lsn <= index.disk_consistent_lsn.0);
    assert_eq!(
        found[..reached],
        expected,
        "not all that the index reaches is there"
    );
}

/// One pageserver's life: takes the timeline over, brings it on, merges its layers now and then; ends when it is
/// done, or fenced.
async fn pageserver(
    store: TimelineStore,
    seed: u64,
    acknowledged: Acknowledged,
) -> Result<(), BlobError> {
    let mut random = StdRng::seed_from_u64(seed);
    let (generation, loaded) = store.attach().await?;
    let index = match loaded {
        Loaded::Index(index) => *index,
        _ => IndexPart::empty(TENANT, TIMELINE, None),
    };
    assert!(
        index.disk_consistent_lsn.0 >= acknowledged.highest(),
        "what was acknowledged before is missing: {} of {}",
        index.disk_consistent_lsn.0,
        acknowledged.highest()
    );
    store.remove_orphans(&index, generation).await?;
    let mut reached = index.disk_consistent_lsn.0;
    let options = QueueOptions::default();
    let queue = UploadQueue::start(store.clone(), index, generation, options);
    while reached < END {
        let mut change = IndexChange::default();
        if random.random_bool(0.2) {
            // All that is durable becomes one layer.
            let index = queue.flush().await?;
            change.remove = index.layers.iter().map(|it| it.desc.name()).collect();
            let lsns: Vec<u64> = (1..=index.disk_consistent_lsn.0).collect();
            if lsns.is_empty() {
                continue;
            }
            let (desc, content) = layer(&lsns);
            change.remove.retain(|name| *name != desc.name());
            queue.upload(desc, content).await?;
        } else {
            for _ in 0..random.random_range(1..3) {
                let next: Vec<u64> = (reached + 1..=reached + random.random_range(1..60)).collect();
                let (desc, content) = layer(&next);
                queue.upload(desc, content).await?;
                reached += next.len() as u64;
            }
            change.disk_consistent_lsn = Some(Lsn(reached));
        }
        queue.commit(change)?;
        if random.random_bool(0.7) {
            acknowledged.raise(queue.flush().await?.disk_consistent_lsn);
        }
    }
    acknowledged.raise(queue.flush().await?.disk_consistent_lsn);
    Ok(())
}

fn was_fenced(error: &BlobError) -> bool {
    match error {
        BlobError::Fenced { .. } => true,
        BlobError::Stopped(reason) => reason.contains("superseded"),
        _ => false,
    }
}

async fn struggle(seed: u64, objects: Arc<dyn ObjectStore>) -> usize {
    let mut random = StdRng::seed_from_u64(seed);
    let acknowledged = Acknowledged::default();
    let mut lives = Vec::new();
    for number in 0..4 {
        let unhurried = Unhurried {
            inner: objects.clone(),
            random: Mutex::new(StdRng::seed_from_u64(random.random())),
        };
        let store = Store::new(Arc::new(unhurried)).timeline(TENANT, TIMELINE);
        let life = pageserver(store, random.random(), acknowledged.clone());
        lives.push(tokio::spawn(life));
        turns(random.random_range(0..400)).await;
        // Some are gone before anybody takes over.
        if number < 3 && random.random_bool(0.3) {
            lives[number].abort();
        }
    }
    let mut fenced = 0;
    for life in lives {
        match life.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                assert!(was_fenced(&error), "{error}");
                fenced += 1;
            }
            Err(ended) if ended.is_cancelled() => {}
            Err(ended) => std::panic::resume_unwind(ended.into_panic()),
        }
    }
    let store = Store::new(objects).timeline(TENANT, TIMELINE);
    let Loaded::Index(index) = store.load().await.expect("load") else {
        panic!("there is an index")
    };
    assert!(index.disk_consistent_lsn.0 >= acknowledged.highest());
    check_whole(&store, &index).await;
    fenced
}

#[test]
fn whoever_else_believes_to_own_a_timeline_does_no_harm() {
    let mut fenced = 0;
    for seed in 0..400 {
        let ended = std::panic::catch_unwind(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let memory = Arc::new(InMemory::new());
            runtime.expect("runtime").block_on(struggle(seed, memory))
        });
        fenced += ended.unwrap_or_else(|_| panic!("seed {seed}"));
    }
    assert!(
        fenced > 200,
        "only {fenced} were ever fenced: nobody got into another's way"
    );
}

/// The same where creating an object once, and replacing one whole, is done by a server. Which request comes first is
/// not drawn here but happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_on_s3() {
    let mut fenced = 0;
    for seed in 0..6 {
        let server = S3Server::start();
        fenced += struggle(seed, server.store().objects()).await;
    }
    assert!(fenced > 2, "only {fenced} were ever fenced");
}
