//! The background tasks of a timeline, from its start to its shutdown.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Timeline;
use crate::schedule::{Schedule, Scheduled};
use crate::wal_source::WalSource;

/// Ticks of the schedule after which what is in memory is asked for its age, and images for changed settings.
const LAYERS_PERIOD: u64 = 1;
const IMAGES_PERIOD: u64 = 2;
/// How long a branch waits for its ancestors before it says so.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);

impl Timeline {
    /// Runs a task until it ends or the timeline does.
    fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.until_shutdown(task);
        self.tasks.spawn(stalls::watched(name, task));
    }

    /// Spawns a task on the background threads, which run behind everything that a request waits for.
    pub(crate) fn spawn_behind(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks
            .spawn_on(self.until_shutdown(task), &self.background);
    }

    fn until_shutdown<T: Future<Output = ()> + Send + 'static>(
        &self,
        task: T,
    ) -> impl Future<Output = ()> + Send + 'static + use<T> {
        let cancel = self.cancel.clone();
        async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = task => {}
            }
        }
    }

    /// Starts the background work. Ingest begins once the chain lengths of the past are known, so that
    /// no page's chain is ever undercounted.
    pub(crate) fn start(
        self: &Arc<Timeline>,
        source: Option<Arc<dyn WalSource>>,
        schedule: &Schedule,
    ) {
        let layers: Weak<dyn Scheduled> = Arc::downgrade(&self.layers) as _;
        schedule.add(layers, LAYERS_PERIOD);
        let images: Weak<dyn Scheduled> = Arc::downgrade(&self.images) as _;
        schedule.add(images, IMAGES_PERIOD);
        self.spawn_behind(self.layers.clone().flush_task());
        self.spawn_behind(self.images.clone().image_task());
        self.spawn_behind(self.compaction.clone().l0_task());
        self.spawn_behind(self.compaction.clone().settling_task());
        let timeline = self.clone();
        self.spawn("ingest", async move {
            timeline.prepare().await;
            if let Some(source) = source {
                timeline.ingest.follow(&*source).await;
            }
        });
    }

    /// Waits for ancestors to be where this branch left them, and counts chains.
    async fn prepare(self: &Arc<Timeline>) {
        loop {
            let prepared = async {
                if let Some((ancestor, branch_lsn)) = self.ancestor() {
                    self.wait_for_ancestors(PREPARE_TIMEOUT).await?;
                    // Chain lengths are read from layers; this also makes the branch point durable early.
                    if ancestor.remote_consistent_lsn() < branch_lsn {
                        ancestor.checkpoint().await?;
                    }
                }
                self.images.load_chain_counts().await
            };
            match prepared.await {
                Ok(()) => return,
                Err(error) => {
                    tracing::warn!(tenant = %self.tenant(), timeline = %self.id(), "cannot start ingest yet: {error}");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }

    /// Ends all background work and waits for it. What is only in memory comes from the WAL next time.
    pub async fn shutdown(&self) {
        self.cancel.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}
