//! What unlogged relations hold, which ends with a run: each start begins them anew, from their init forks.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::Agent;
use super::live::Live;

impl Agent {
    /// Bytes of unlogged relations beyond what they begin with; `None` when that cannot be said now.
    pub(super) async fn unlogged_bytes(&self, live: &Arc<Live>) -> Option<u64> {
        let (live, root) = (live.clone(), self.paths.volume.clone());
        // Reads through the mount, which this process serves on other threads.
        let counted = tokio::task::spawn_blocking(move || count(&live, &root)).await;
        match counted {
            Ok(Ok(bytes)) => Some(bytes),
            Ok(Err(error)) => {
                tracing::debug!("cannot count what unlogged relations hold: {error:#}");
                None
            }
            Err(error) => {
                tracing::error!(%error, "counting what unlogged relations hold panicked");
                None
            }
        }
    }
}

/// Sizes as the kernel has them: it knows of writes that have not come to the volume yet.
fn count(live: &Live, root: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for (file, init) in live.volume.unlogged_files()? {
        bytes += size(&root.join(file))?.saturating_sub(size(&root.join(init))?);
    }
    Ok(bytes)
}

/// Of a file that may have been dropped meanwhile, or that there is no init fork of.
fn size(path: &Path) -> std::io::Result<u64> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}
