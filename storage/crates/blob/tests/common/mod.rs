//! An object store that dies, fails now and then, or holds writes back, in front of a real one; and layers
//! to put into it.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use blob::{IndexChange, IndexPart, QueueOptions};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use layers::{LayerDesc, LayerReader, MemoryLayer, Value, WriterOptions};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use pg_types::{Key, Lsn, TenantId, TimelineId};
use tokio::sync::{Notify, Semaphore};

pub const TENANT: TenantId = TenantId([1; 16]);
pub const TIMELINE: TimelineId = TimelineId([2; 16]);

/// What happens to the write at which the process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LastWrite {
    Lost,
    /// The write took effect, but its caller got no answer.
    Applied,
}

#[derive(Debug)]
pub struct Faulty {
    inner: Arc<dyn ObjectStore>,
    /// Writes until death; negative once dead.
    left: AtomicI64,
    last_write: LastWrite,
    /// Every n-th write fails without effect; 0: none.
    fail_every: u64,
    /// While it is set all writes fail.
    out: AtomicBool,
    writes: AtomicU64,
    pub died: Notify,
    /// A write is about to begin.
    pub arrived: Notify,
    /// A write needs a permit of it.
    pub gate: Arc<Semaphore>,
}

impl Faulty {
    pub fn dying_after(
        inner: Arc<dyn ObjectStore>,
        writes: i64,
        last_write: LastWrite,
    ) -> Arc<Faulty> {
        Faulty::new(inner, writes, last_write, 0, Semaphore::MAX_PERMITS)
    }

    pub fn failing_every(inner: Arc<dyn ObjectStore>, every: u64) -> Arc<Faulty> {
        Faulty::new(
            inner,
            i64::MAX,
            LastWrite::Lost,
            every,
            Semaphore::MAX_PERMITS,
        )
    }

    /// Holds every write until permits are added to `gate`.
    pub fn gated(inner: Arc<dyn ObjectStore>) -> Arc<Faulty> {
        Faulty::new(inner, i64::MAX, LastWrite::Lost, 0, 0)
    }

    fn new(
        inner: Arc<dyn ObjectStore>,
        left: i64,
        last_write: LastWrite,
        fail_every: u64,
        permits: usize,
    ) -> Arc<Faulty> {
        Arc::new(Faulty {
            inner,
            left: AtomicI64::new(left),
            last_write,
            fail_every,
            out: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            died: Notify::new(),
            arrived: Notify::new(),
            gate: Arc::new(Semaphore::new(permits)),
        })
    }

    /// Takes no writes until it is told to.
    pub fn out(inner: Arc<dyn ObjectStore>) -> Arc<Faulty> {
        let faulty = Faulty::failing_every(inner, 0);
        faulty.set_out(true);
        faulty
    }

    pub fn set_out(&self, out: bool) {
        self.out.store(out, Ordering::SeqCst);
    }

    /// Writes tried so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    pub fn is_dead(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }

    fn failure(what: &str) -> object_store::Error {
        object_store::Error::Generic {
            store: "faulty",
            source: what.to_owned().into(),
        }
    }

    fn check_alive(&self) -> Result<()> {
        if self.is_dead() {
            Err(Faulty::failure("the process is dead"))
        } else {
            Ok(())
        }
    }

    /// Carries out a write, or what is left of it.
    async fn write<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        self.arrived.notify_one();
        self.gate.acquire().await.expect("never closed").forget();
        let number = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
        if self.out.load(Ordering::SeqCst) {
            return Err(Faulty::failure("the store is out"));
        }
        if self.fail_every > 0 && number.is_multiple_of(self.fail_every) {
            return Err(Faulty::failure("try again"));
        }
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        if left > 0 {
            return operation.await;
        }
        if left == 0 && self.last_write == LastWrite::Applied {
            let _ = operation.await;
        }
        self.died.notify_one();
        Err(Faulty::failure("the process is dead"))
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({})", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.write(self.inner.put_opts(location, payload, opts))
            .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.write(self.inner.put_multipart_opts(location, opts))
            .await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.check_alive()?;
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.check_alive()?;
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        // One location at a time, so that each deletion is a write of its own.
        let (inner, left) = (self.inner.clone(), self.left.fetch_sub(1, Ordering::SeqCst));
        let applied = left > 0 || (left == 0 && self.last_write == LastWrite::Applied);
        if left <= 0 {
            self.died.notify_one();
        }
        let outcome = locations.then(move |location| {
            let inner = inner.clone();
            async move {
                let location = location?;
                let once = futures::stream::once(async move { Ok(location) }).boxed();
                let deleted = if applied {
                    inner.delete_stream(once).next().await
                } else {
                    None
                };
                match deleted {
                    Some(result) if left > 0 => result,
                    _ => Err(Faulty::failure("the process is dead")),
                }
            }
        });
        outcome.boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.check_alive() {
            Ok(()) => self.inner.list(prefix),
            Err(error) => futures::stream::once(async move { Err(error) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check_alive()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.write(self.inner.copy_opts(from, to, options)).await
    }
}

/// A queue that tries again at once.
pub fn quick() -> QueueOptions {
    let pause = Duration::from_millis(1);
    QueueOptions {
        first_pause: pause,
        longest_pause: pause,
        ..QueueOptions::default()
    }
}

/// A change that only moves what is on disk.
pub fn at(lsn: u64) -> IndexChange {
    IndexChange {
        disk_consistent_lsn: Some(Lsn(lsn)),
        ..IndexChange::default()
    }
}

pub fn empty() -> IndexPart {
    IndexPart::empty(TENANT, TIMELINE, None)
}

/// A level-0 layer with one version of each of three keys at these LSNs.
pub fn layer(lsns: &[u64]) -> (LayerDesc, Bytes) {
    let memory = MemoryLayer::new();
    for lsn in lsns {
        for number in 0..3 {
            let text = Bytes::from(format!("{number} at {lsn}"));
            memory
                .put(Key::aux(number), Lsn(*lsn), Value::Meta(text))
                .unwrap();
        }
    }
    memory.freeze();
    let (desc, pieces) = memory.write_delta_layer(&WriterOptions::default()).unwrap();
    (desc, pieces.to_bytes())
}

/// The LSNs a layer file holds; checks it from end to end.
pub fn lsns_of(bytes: Bytes) -> Vec<u64> {
    let reader = LayerReader::open("test", bytes).unwrap();
    reader.verify().unwrap();
    let mut lsns: Vec<u64> = reader.iter().map(|found| found.unwrap().1.lsn.0).collect();
    lsns.sort_unstable();
    lsns.dedup();
    lsns
}
