//! A file that is read again when it changes.
//!
//! A thread looks at the file twice a second, so that whoever uses what the file says never waits for a disk. What is
//! in memory stays when the new file can't be read or makes no sense, and the log says so once for each such file.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use nix::libc::O_NOFOLLOW;
use parking_lot::{Mutex, RwLock};

/// How often the file is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
/// None of the files is longer.
const LONGEST_FILE_BYTES: u64 = 128 << 10;

type Parse<T> = fn(&[u8]) -> anyhow::Result<T>;

/// What a file says, as of its newest state that made sense.
pub struct Watched<T> {
    path: PathBuf,
    parse: Parse<T>,
    current: RwLock<Arc<T>>,
    seen: Mutex<Option<Stamp>>,
}

/// By what a file is known to be the same. Files are replaced by renaming, so that a new one is another inode.
#[derive(PartialEq, Eq, Clone, Copy)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads the file, and looks at it from then on for as long as the answer is held.
    ///
    /// # Errors
    ///
    /// The file can't be read, or `parse` can't use it: there is nothing older to go on with.
    pub fn open(path: &Path, parse: Parse<T>) -> anyhow::Result<Arc<Watched<T>>> {
        let (stamp, bytes) = read(path).with_context(|| format!("read {}", path.display()))?;
        let first = parse(&bytes).with_context(|| format!("use {}", path.display()))?;
        let watched = Arc::new(Watched {
            path: path.to_owned(),
            parse,
            current: RwLock::new(Arc::new(first)),
            seen: Mutex::new(Some(stamp)),
        });
        let weak = Arc::downgrade(&watched);
        std::thread::Builder::new()
            .name("token-file".to_owned())
            .spawn(move || {
                loop {
                    std::thread::sleep(LOOK_EVERY);
                    let Some(watched) = weak.upgrade() else {
                        return;
                    };
                    watched.refresh();
                }
            })
            .context("start the thread that looks at the file")?;
        Ok(watched)
    }

    /// What the file says.
    pub fn current(&self) -> Arc<T> {
        self.current.read().clone()
    }

    /// Looks at the file now.
    pub fn refresh(&self) {
        let mut seen = self.seen.lock();
        let found = read(&self.path);
        let stamp = found.as_ref().ok().map(|(stamp, _)| *stamp);
        if *seen == stamp {
            return;
        }
        *seen = stamp;
        let file = self.path.display();
        match found.and_then(|(_, bytes)| (self.parse)(&bytes)) {
            Ok(value) => {
                *self.current.write() = Arc::new(value);
                tracing::info!(%file, "the file has changed and was read again");
            }
            Err(error) => {
                tracing::warn!(%file, "the file has changed and can't be used, what it said before holds: {error:#}");
            }
        }
    }
}

/// The file is small: reading it costs no more than asking whether it has changed.
fn read(path: &Path) -> anyhow::Result<(Stamp, Vec<u8>)> {
    // A token lies in a folder in which a database's own user may write; a link there leads nowhere.
    let mut options = File::options();
    let file = options.read(true).custom_flags(O_NOFOLLOW).open(path)?;
    let meta = file.metadata()?;
    anyhow::ensure!(meta.is_file(), "it is not a regular file");
    let stamp = Stamp {
        inode: meta.ino(),
        bytes: meta.len(),
        changed: (meta.mtime(), meta.mtime_nsec()),
    };
    let mut bytes = Vec::new();
    file.take(LONGEST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    anyhow::ensure!(
        bytes.len() as u64 <= LONGEST_FILE_BYTES,
        "it is longer than {LONGEST_FILE_BYTES} bytes"
    );
    Ok((stamp, bytes))
}
