//! Copies of layers on the local disk, fetched from the object store.

use std::path::{Path, PathBuf};

use futures::StreamExt;
use layers::BlockSource;
use object_store::ObjectStoreExt;
use tokio::io::AsyncWriteExt;

use crate::error::BlobError;
use crate::file::LocalLayerFile;
use crate::index::RemoteLayer;
use crate::timeline::TimelineStore;

impl TimelineStore {
    /// A local file with the layer's bytes: the object itself when the store is a local directory, else a copy in
    /// `cache`, fetched now if it is not there, and checked against the layer's checksum. An encrypted layer is
    /// encrypted in the copy, too. When the fetch ends early, by an error or because the caller drops it, the bytes
    /// fetched so far are removed, because no limit of the disk cache counts them.
    pub async fn make_resident(
        &self,
        layer: &RemoteLayer,
        cache: &Path,
    ) -> Result<PathBuf, BlobError> {
        if let Some(path) = self.local_layer_path(layer) {
            return Ok(path);
        }
        let target = cache.join(layer.object_name());
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| BlobError::File { path, source }
        };
        if tokio::fs::try_exists(&target)
            .await
            .map_err(failed(&target))?
        {
            return Ok(target);
        }
        tokio::fs::create_dir_all(cache)
            .await
            .map_err(failed(cache))?;
        let staging = cache.join(format!("{}.part", layer.object_name()));
        let mut file = tokio::fs::File::create(&staging)
            .await
            .map_err(failed(&staging))?;
        let unfinished = tempfile::TempPath::try_from_path(&staging).map_err(failed(&staging))?;
        let mut body = self
            .store
            .objects
            .get(&self.layer_path(layer))
            .await?
            .into_stream();
        let mut check = Checksum::new(layer.desc.size);
        crash::point!("download.begun");
        while let Some(chunk) = body.next().await {
            let chunk = chunk?;
            check.add(&chunk);
            file.write_all(&chunk).await.map_err(failed(&staging))?;
            crash::point!("download.first-chunk");
        }
        // Only this tells of an error of the last write, such as a full disk: syncing does not.
        file.flush().await.map_err(failed(&staging))?;
        self.store.tenant_key(self.tenant()).await?;
        let copy = stalls::off_worker(|| self.open_layer(layer, &staging))?;
        if copy.is_encrypted() {
            check = stalls::off_worker(|| Checksum::of(&copy, layer.desc.size));
        }
        if !check.matches(layer.desc.checksum) {
            let path = self.layer_path(layer).to_string();
            return Err(BlobError::Corrupt {
                path,
                reason: "size or checksum does not match its name".to_owned(),
            });
        }
        file.sync_all().await.map_err(failed(&staging))?;
        crash::point!("download.before-rename");
        stalls::off_worker(|| unfinished.persist(&target))
            .map_err(|error| failed(&target)(error.error))?;
        crash::point!("download.renamed");
        Ok(target)
    }
}

/// The checksum of a layer file, taken while it streams by: all bytes but the last 12.
struct Checksum {
    covered: u64,
    size: u64,
    seen: u64,
    crc: u32,
}

impl Checksum {
    fn new(size: u64) -> Checksum {
        Checksum {
            covered: size.saturating_sub(12),
            size,
            seen: 0,
            crc: 0,
        }
    }

    /// Of a file that decrypts what it reads. A block that cannot be decrypted leaves it without its end.
    fn of(file: &LocalLayerFile, size: u64) -> Checksum {
        const PART: u64 = 1 << 20;
        let mut check = Checksum::new(size);
        while check.seen < file.size() {
            let len = PART.min(file.size() - check.seen) as usize;
            match file.read_at(check.seen, len) {
                Ok(part) => check.add(&part),
                Err(_) => break,
            }
        }
        check
    }

    fn add(&mut self, chunk: &[u8]) {
        let covered = self
            .covered
            .saturating_sub(self.seen)
            .min(chunk.len() as u64) as usize;
        self.crc = crc32c::crc32c_append(self.crc, &chunk[..covered]);
        self.seen += chunk.len() as u64;
    }

    fn matches(&self, checksum: u32) -> bool {
        self.seen == self.size && self.crc == checksum
    }
}
