//! Files that are read again when they change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(1);

/// What of a file changes with its content: device, number, size, and time of the last change to the nanosecond.
type Mark = Option<(u64, u64, u64, i64, i64)>;

fn mark(metadata: &Metadata) -> (u64, u64, u64, i64, i64) {
    (
        metadata.dev(),
        metadata.ino(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    )
}

fn marks(paths: &[PathBuf]) -> Vec<Mark> {
    paths
        .iter()
        .map(|path| std::fs::metadata(path).ok().as_ref().map(mark))
        .collect()
}

/// Calls `reload` each time one of the files has changed, once a second at most, and forever. When `reload` fails it is
/// called again after the next change; its error is logged.
pub async fn watch(
    what: &'static str,
    paths: Vec<PathBuf>,
    reload: impl Fn() -> anyhow::Result<()>,
) {
    let mut known = marks(&paths);
    loop {
        tokio::time::sleep(PERIOD).await;
        let now = marks(&paths);
        if now == known {
            continue;
        }
        known = now;
        match reload() {
            Ok(()) => tracing::info!(what, "read again after a change"),
            Err(error) => {
                tracing::error!(
                    what,
                    error = format!("{error:#}"),
                    "has changed and cannot be used; goes on with what it was"
                );
            }
        }
    }
}
