//! The layers that the index names.

use anyhow::Context;
use blob::{IndexChange, PutPayload, RemoteLayer};
use layers::{LayerDesc, LayerName};

use super::TimelineIndex;
use crate::error::Result;

impl TimelineIndex {
    /// Begins to bring a layer to the object store, to be named by the next change of the index.
    pub async fn upload_layer(
        &self,
        desc: LayerDesc,
        content: impl Into<PutPayload>,
    ) -> Result<RemoteLayer> {
        let uploading = self.queue.upload(desc, content).await;
        Ok(uploading.context("upload a layer")?)
    }

    /// Waits until all layers given so far are durable.
    pub async fn uploaded(&self) -> Result<()> {
        self.queue.flush().await.context("upload layers")?;
        Ok(())
    }

    /// Takes layers out of the index, then deletes them; durable once the future is ready. Every change that is queued
    /// after this call is stored with them out of the index, or not at all. The caller takes them out of the layer map
    /// in the same step ([`VersionStore::replace_files`](crate::version_store::VersionStore::replace_files)), so that no
    /// new read starts on them.
    pub fn remove_layers(
        &self,
        remove: Vec<LayerName>,
    ) -> impl Future<Output = Result<()>> + Send + use<'_> {
        let change = IndexChange {
            remove,
            ..IndexChange::default()
        };
        let queued = self.queue.commit(change);
        let flushed = self.queue.flush();
        async move {
            queued.context("change the index")?;
            flushed.await.context("store the index")?;
            Ok(())
        }
    }

    /// Takes layers out of the index that were uploaded for nothing, then deletes them; durable on return. No layer map
    /// has them.
    pub async fn discard_layers(&self, layers: Vec<LayerName>) -> Result<()> {
        // A change names what was uploaded before it, and does not remove what it names itself.
        self.commit(IndexChange::default()).await?;
        self.remove_layers(layers).await
    }
}
