//! Where one timeline's layer files are on local disk, and how they come there.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use blob::{RemoteLayer, TimelineStore};
use layers::{BlockCache, Pieces};

use crate::disk::DiskCache;
use crate::layer_file::{LayerFile, Place};
use crate::recent::RecentLayers;

/// Where one timeline's layer files are on local disk.
pub struct LayerCache {
    directory: PathBuf,
    blocks: Arc<BlockCache>,
    disk: Arc<DiskCache>,
    recent: Arc<RecentLayers>,
    remote: TimelineStore,
}

impl LayerCache {
    pub fn new(
        directory: PathBuf,
        blocks: Arc<BlockCache>,
        disk: Arc<DiskCache>,
        recent: Arc<RecentLayers>,
        remote: TimelineStore,
    ) -> LayerCache {
        LayerCache {
            directory,
            blocks,
            disk,
            recent,
            remote,
        }
    }

    /// A handle of a layer that has just been written. While it is new it is read from memory if it would be read in
    /// place.
    pub fn new_file(&self, remote: RemoteLayer, written: Pieces) -> Arc<LayerFile> {
        let file = self.file(remote);
        if !file.is_copy() {
            file.keep_in_memory(written);
            self.recent.add(&file);
        }
        file
    }

    /// A handle of a layer, wherever its bytes are.
    pub fn file(&self, remote: RemoteLayer) -> Arc<LayerFile> {
        let object = self.remote.local_layer_path(&remote);
        let is_copy = object.is_none();
        let path = object.unwrap_or_else(|| self.directory.join(remote.object_name()));
        let (blocks, looks) = (self.blocks.clone(), self.disk.looks().clone());
        let place = Place {
            store: self.remote.clone(),
            path,
            is_copy,
        };
        let file = Arc::new(LayerFile::new(remote, place, blocks, looks));
        if is_copy {
            self.disk.add(&file);
        }
        file
    }

    /// Makes sure the layer is on local disk.
    pub async fn fetch(&self, file: &LayerFile) -> Result<()> {
        let fetch = async {
            let _one_of_few = self.disk.fetch_permit().await;
            self.remote
                .make_resident(file.remote(), &self.directory)
                .await
        };
        file.fetched(fetch).await
    }

    /// Removes local files of layers that are not among these, and what downloads left unfinished.
    pub fn keep_only(&self, layers: &[RemoteLayer]) -> Result<()> {
        stalls::off_worker(|| self.remove_others(layers))
    }

    fn remove_others(&self, layers: &[RemoteLayer]) -> Result<()> {
        let named: std::collections::HashSet<String> =
            layers.iter().map(RemoteLayer::object_name).collect();
        let entries = match std::fs::read_dir(&self.directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.with_context(|| format!("list {}", self.directory.display()))?,
        };
        for entry in entries {
            let entry = entry.with_context(|| format!("list {}", self.directory.display()))?;
            if !named.contains(entry.file_name().to_string_lossy().as_ref()) {
                std::fs::remove_file(entry.path())
                    .with_context(|| format!("remove {}", entry.path().display()))?;
            }
        }
        Ok(())
    }

    /// Removes the local copy of a layer that no index names any more.
    pub async fn remove_copy(&self, file: &LayerFile) -> Result<()> {
        file.evict()
    }

    /// Removes all local copies.
    pub async fn remove_all(&self) -> Result<()> {
        match tokio::fs::remove_dir_all(&self.directory).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.directory.display()))
            }
            _ => Ok(()),
        }
    }
}
