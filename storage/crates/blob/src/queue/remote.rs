//! The object store as the queue uses it: a failed operation is repeated after growing pauses, and the failure is
//! logged.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use object_store::PutPayload;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::{QueueOptions, UploadStatus};
use crate::error::BlobError;
use crate::index::RemoteLayer;
use crate::timeline::TimelineStore;

/// The store, as the queue uses it.
pub(super) struct Remote {
    pub(super) timeline: TimelineStore,
    pub(super) options: QueueOptions,
    pub(super) status: watch::Sender<UploadStatus>,
}

impl Remote {
    pub(super) async fn upload(
        &self,
        layer: &RemoteLayer,
        content: PutPayload,
        room: OwnedSemaphorePermit,
    ) -> Result<(), BlobError> {
        let what = format!("layer {}", layer.object_name());
        let bytes = content.content_length();
        crash::point!("upload.before-layer");
        let put = || async {
            // A process that has lost the timeline uploads no further layer, and learns of the loss at the first one.
            self.timeline.check_fence(layer.generation).await?;
            self.timeline.put_layer(layer, content.clone()).await
        };
        self.retry(&what, put).await?;
        crash::point!("upload.layer-stored");
        self.status.send_modify(|status| {
            status.uploaded_layers += 1;
            status.uploaded_bytes += bytes as u64;
        });
        drop(room);
        Ok(())
    }

    /// The time until the next idle check, shortened at random, so that not all timelines check at the same moment.
    pub(super) fn idle_look(&self) -> Duration {
        shortened(self.options.idle_look, RandomState::new().hash_one(()))
    }

    /// Takes note that nothing can be uploaded any more.
    pub(super) fn stop(&self, error: &BlobError) {
        tracing::error!(timeline = %self.timeline.timeline(), %error, "uploads stop");
        self.status
            .send_modify(|status| status.stopped = Some(error.to_string()));
    }

    /// Repeats an operation until it succeeds or can never succeed.
    pub(super) async fn retry<F>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<(), BlobError>
    where
        F: Future<Output = Result<(), BlobError>>,
    {
        let mut pause = self.options.first_pause;
        loop {
            let Err(error) = attempt().await else {
                self.status.send_if_modified(|status| {
                    status.failing_since = None;
                    status.last_error.take().is_some()
                });
                return Ok(());
            };
            if !error.is_transient() {
                return Err(error);
            }
            tracing::warn!(timeline = %self.timeline.timeline(), %error, ?pause, "upload of {what} failed, will retry");
            self.status.send_modify(|status| {
                status.retries += 1;
                status.last_error = Some(format!("{what}: {error}"));
                status.failing_since.get_or_insert_with(Instant::now);
            });
            tokio::time::sleep(shortened(pause, RandomState::new().hash_one(()))).await;
            pause = (pause * 2).min(self.options.longest_pause);
        }
    }
}

/// A pause, or down to half of it.
fn shortened(pause: Duration, random: u64) -> Duration {
    let half = pause / 2;
    half + half.mul_f64((random >> 11) as f64 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_spread_over_half_their_length() {
        let pause = Duration::from_secs(30);
        assert_eq!(shortened(pause, 0), pause / 2);
        let longest = shortened(pause, u64::MAX);
        assert!(
            longest <= pause && longest > pause * 99 / 100,
            "{longest:?}"
        );
        let drawn = || shortened(pause, RandomState::new().hash_one(()));
        assert!((0..20).any(|_| drawn() != drawn()));
    }
}
