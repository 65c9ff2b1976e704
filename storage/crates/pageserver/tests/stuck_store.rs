//! An object store that does not answer for one timeline: the others must not notice.

mod common;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use common::level_0::{WAIT, compacted, flush_layers, project};
use common::server::{Server, Wals};
use futures::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

/// Answers no request to store an object whose path has both parts of `stuck`, as long as there are any.
#[derive(Debug)]
struct Stuck {
    inner: LocalFileSystem,
    stuck: watch::Sender<Option<[String; 2]>>,
    waiting: watch::Sender<usize>,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, partly stuck", self.inner)
    }
}

#[async_trait]
impl ObjectStore for Stuck {
    async fn put_opts(
        &self,
        location: &ObjectPath,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let is_stuck = |parts: &Option<[String; 2]>| {
            let of_these = |part: &String| location.as_ref().contains(part.as_str());
            parts
                .as_ref()
                .is_some_and(|parts| parts.iter().all(of_these))
        };
        let mut stuck = self.stuck.subscribe();
        if is_stuck(&stuck.borrow()) {
            self.waiting.send_modify(|waiting| *waiting += 1);
        }
        let _ = stuck.wait_for(|parts| !is_stuck(parts)).await;
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &ObjectPath,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &ObjectPath, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<ObjectPath>>,
    ) -> BoxStream<'static, Result<ObjectPath>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &ObjectPath,
        to: &ObjectPath,
        options: CopyOptions,
    ) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Promise: while the object store takes nothing of what one timeline's compaction has made, others are compacted;
/// once it does, that timeline is as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeline_whose_uploads_hang_keeps_nobody_from_compacting() {
    let root = tempfile::tempdir().expect("tempdir");
    let objects = root.path().join("objects");
    std::fs::create_dir_all(&objects).expect("objects");
    let store = Arc::new(Stuck {
        inner: LocalFileSystem::new_with_prefix(objects).expect("store"),
        stuck: watch::Sender::new(None),
        waiting: watch::Sender::new(0),
    });
    let objects = blob::Store::new(store.clone());
    let server = Server::start_on(root.path(), Wals::default(), objects, 1 << 30).await;
    let unlucky = project(&server, root.path(), 2).await;
    let other = project(&server, root.path(), 2).await;
    let parts = [unlucky.0.id().to_string(), "__d1-".to_owned()];
    store.stuck.send_replace(Some(parts));

    flush_layers(&server, &unlucky, 2).await;
    let mut waiting = store.waiting.subscribe();
    let hangs = tokio::time::timeout(WAIT, waiting.wait_for(|waiting| *waiting > 0)).await;
    hangs
        .expect("a merged layer is to be stored")
        .expect("store");
    flush_layers(&server, &other, 2).await;
    compacted(&other.0).await;
    let levels: Vec<u8> = unlucky.0.layer_infos().iter().map(|it| it.level).collect();
    assert!(levels.iter().filter(|level| **level == 0).count() >= 2);

    store.stuck.send_replace(None);
    compacted(&unlucky.0).await;
    drop((unlucky.1, other.1));
    server.stop().await;
}
