//! Layers and WAL on their way to the store and back: encrypted if the tenant has a data key.
//!
//! Invariant: what a tenant with a data key writes is encrypted. What is read says itself whether it is; a plain
//! object is refused where the tenant's key says that there are none.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use encryption::{EncryptionError, FileKey, Kind, ObjectName, Plain, TenantKey, is_encrypted};
use layers::{BlockSource, LayerError, Regions};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStoreExt, PutPayload};

use crate::error::BlobError;
use crate::file::LocalLayerFile;
use crate::index::RemoteLayer;
use crate::timeline::TimelineStore;

/// Content beyond it is encrypted into large pages, which the process keeps for the next layer.
const LARGE_BYTES: usize = 1 << 20;

impl TimelineStore {
    fn object<'a>(&self, kind: Kind, name: &'a str) -> ObjectName<'a> {
        ObjectName {
            timeline: self.timeline(),
            kind,
            name,
        }
    }

    /// The tenant's data key for a piece of WAL. A safekeeper may have the log longer than the tenant has its key: of
    /// a timeline that was deleted, nothing is written in clear. Fails with [`BlobError::Deleted`] then.
    async fn key_for_wal(&self) -> Result<Option<Arc<TenantKey>>, BlobError> {
        let found = self.store.tenant_key(self.tenant()).await;
        if matches!(found, Ok(Some(_))) || !self.store.has_keys() {
            return found;
        }
        match !self.has_index().await? && self.is_deleted().await? {
            true => Err(BlobError::Deleted(self.timeline())),
            false => found,
        }
    }

    /// The content as it is to be stored at `path`.
    pub(crate) async fn encrypted(
        &self,
        kind: Kind,
        name: &str,
        path: &ObjectPath,
        content: PutPayload,
    ) -> Result<PutPayload, BlobError> {
        let key = match kind {
            Kind::Layer => self.store.tenant_key(self.tenant()).await?,
            Kind::Wal => self.key_for_wal().await?,
        };
        let Some(key) = key else {
            return Ok(content);
        };
        let object = self.object(kind, name);
        stalls::off_worker(|| {
            let pieces: Vec<&[u8]> = content.iter().map(|piece| &piece[..]).collect();
            // Whole pages of memory, which can go past the kernel's page cache (`direct`).
            let mut file = Regions::new(content.content_length() > LARGE_BYTES);
            encryption::encrypt(&key, &object, pieces.into_iter(), &mut file)
                .map(|()| file.into_pieces().iter().collect())
                .map_err(|source| BlobError::File {
                    path: path.to_string().into(),
                    source,
                })
        })
    }

    /// How a file that begins with `begin` and has `stored` bytes is read: with which key, or as it is.
    fn file_key(
        &self,
        key: Option<&Arc<TenantKey>>,
        object: &ObjectName<'_>,
        begin: &[u8],
        stored: u64,
    ) -> Result<Option<FileKey>, EncryptionError> {
        match (is_encrypted(begin), key) {
            (true, Some(key)) => FileKey::open(key, object, begin, stored).map(Some),
            (true, None) => Err(EncryptionError::NoKey),
            (false, Some(key)) if key.plain() == Plain::Refused => {
                Err(EncryptionError::PlainRefused)
            }
            (false, _) => Ok(None),
        }
    }

    /// The content of an object whose bytes are `stored`.
    pub(crate) async fn decrypted(
        &self,
        kind: Kind,
        name: &str,
        path: &ObjectPath,
        stored: Bytes,
    ) -> Result<Bytes, BlobError> {
        let size = stored.len() as u64;
        let (content, _) = self.decrypted_head(kind, name, path, stored, size).await?;
        Ok(content)
    }

    /// What the first bytes of an object hold, whose size is `size`; and the length of the whole content.
    pub(crate) async fn decrypted_head(
        &self,
        kind: Kind,
        name: &str,
        path: &ObjectPath,
        head: Bytes,
        size: u64,
    ) -> Result<(Bytes, u64), BlobError> {
        let key = self.store.tenant_key(self.tenant()).await?;
        let object = self.object(kind, name);
        let decrypt = || -> Result<(Bytes, u64), EncryptionError> {
            let Some(key) = self.file_key(key.as_ref(), &object, &head, size)? else {
                return Ok((head, size));
            };
            let content = key.decrypt_head(&head)?;
            Ok((Bytes::from(content), key.length()))
        };
        stalls::off_worker(decrypt).map_err(|source| BlobError::Encryption {
            path: path.to_string(),
            source,
        })
    }

    /// Writes a layer, encrypted if the tenant has a data key; durable on return. Writing the same layer again is
    /// fine: equal names mean equal contents.
    pub async fn put_layer(
        &self,
        layer: &RemoteLayer,
        content: impl Into<PutPayload>,
    ) -> Result<(), BlobError> {
        let (path, content) = (self.layer_path(layer), content.into());
        let content = self
            .encrypted(Kind::Layer, &layer.object_name(), &path, content)
            .await?;
        self.store.put_layer(&path, content).await
    }

    /// The whole layer, decrypted, not verified.
    pub async fn get_layer(&self, layer: &RemoteLayer) -> Result<Bytes, BlobError> {
        let path = self.layer_path(layer);
        let stored = self.store.objects.get(&path).await?.bytes().await?;
        self.decrypted(Kind::Layer, &layer.object_name(), &path, stored)
            .await
    }

    /// Some ranges of a layer. Of a tenant that has a data key, the whole layer is fetched.
    pub async fn get_layer_ranges(
        &self,
        layer: &RemoteLayer,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<Bytes>, BlobError> {
        if self.store.tenant_key(self.tenant()).await?.is_some() {
            let layer = self.get_layer(layer).await?;
            let part = |range: &std::ops::Range<u64>| {
                let part =
                    layer.read_at(range.start, range.end.saturating_sub(range.start) as usize);
                part.map_err(|error| LayerError::Io {
                    layer: "a range of it".to_owned(),
                    source: error,
                })
            };
            return Ok(ranges.iter().map(part).collect::<Result<_, _>>()?);
        }
        Ok(self
            .store
            .objects
            .get_ranges(&self.layer_path(layer), ranges)
            .await?)
    }

    /// Opens a layer's file: the object itself, or a copy of it. The tenant's data key has to be in memory, as it is
    /// after [`Store::tenant_key`](crate::Store::tenant_key).
    pub fn open_layer(
        &self,
        layer: &RemoteLayer,
        path: &Path,
    ) -> Result<LocalLayerFile, BlobError> {
        let name = layer.object_name();
        let object = self.object(Kind::Layer, &name);
        let key = self.store.known_key(self.tenant());
        LocalLayerFile::open_with(path, |begin, stored| {
            self.file_key(key.as_ref(), &object, begin, stored)
        })
    }
}
