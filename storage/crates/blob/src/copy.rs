//! Copies layers of one timeline to another, inside the object store where the store can copy. An encrypted layer is
//! bound to its place, so it is decrypted and encrypted anew.

use object_store::{ObjectStoreExt, PutPayload};

use crate::error::BlobError;
use crate::generation::Generation;
use crate::index::RemoteLayer;
use crate::timeline::TimelineStore;

impl TimelineStore {
    /// Copies a layer of another timeline of the tenant, with the same content, to be named by an index of the
    /// generation `ours`; durable on return. Copying it again is fine. A crash leaves a whole object that no index
    /// names.
    pub async fn copy_layer(
        &self,
        from: &TimelineStore,
        layer: &RemoteLayer,
        ours: Generation,
    ) -> Result<RemoteLayer, BlobError> {
        self.check_fence(ours).await?;
        let copied = RemoteLayer {
            desc: layer.desc.clone(),
            generation: ours,
        };
        if self.store.tenant_key(self.tenant()).await?.is_some() {
            let content = PutPayload::from(from.get_layer(layer).await?);
            self.put_layer(&copied, content).await?;
            return Ok(copied);
        }
        let (from, to) = (from.layer_path(layer), self.layer_path(&copied));
        self.store.objects.copy(&from, &to).await?;
        Ok(copied)
    }
}
