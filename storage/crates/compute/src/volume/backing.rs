//! The local cache files behind a volume's files: created when first needed, opened on demand, closed when
//! too many are open.
//!
//! A cache file is private to one start. What a crash leaves of it is deleted by the next start.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::uio::pwritev;
use parking_lot::Mutex;

/// How many cache files of a volume are open.
#[derive(Debug, Default)]
pub struct OpenFiles {
    count: AtomicUsize,
}

impl OpenFiles {
    /// Files that are open right now.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

/// One cache file. Offsets are those of the volume's file; what was never written reads as zeroes.
#[derive(Debug)]
pub struct Backing {
    path: PathBuf,
    slot: Mutex<Slot>,
    open_files: Arc<OpenFiles>,
}

#[derive(Debug, Default)]
struct Slot {
    exists: bool,
    file: Option<Arc<File>>,
}

impl Backing {
    /// A cache file at `path`. The first write makes the file, in place of any that is there.
    pub fn new(path: PathBuf, open_files: Arc<OpenFiles>) -> Backing {
        Backing {
            path,
            slot: Mutex::default(),
            open_files,
        }
    }

    /// The open file; `None` when nothing was ever written and `create` is not asked for.
    fn file(&self, create: bool) -> io::Result<Option<Arc<File>>> {
        let mut slot = self.slot.lock();
        if let Some(file) = &slot.file {
            return Ok(Some(file.clone()));
        }
        if !slot.exists && !create {
            return Ok(None);
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(!slot.exists)
            .truncate(!slot.exists)
            .open(&self.path)
            .map_err(|error| annotate(error, "open", &self.path))?;
        let file = Arc::new(file);
        slot.exists = true;
        slot.file = Some(file.clone());
        self.open_files.count.fetch_add(1, Ordering::Relaxed);
        Ok(Some(file))
    }

    /// Fills the whole buffer.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(file) = self.file(false)? else {
            buffer.fill(0);
            return Ok(());
        };
        let mut done = 0;
        while done < buffer.len() {
            match file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => {
                    buffer[done..].fill(0);
                    break;
                }
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(annotate(error, "read", &self.path)),
            }
        }
        Ok(())
    }

    /// Writes at `offset`, making the file if need be.
    ///
    /// # Errors
    ///
    /// What the file system says; part of `data` may have been written.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self.file(true)? {
            Some(file) => file
                .write_all_at(data, offset)
                .map_err(|error| annotate(error, "write", &self.path)),
            None => Ok(()),
        }
    }

    /// Writes the parts one after another from `offset` on, in as few calls as the kernel takes.
    pub fn write_all(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let Some(file) = self.file(true)? else {
            return Ok(());
        };
        let annotated = |error| annotate(error, "write", &self.path);
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let at = offset as i64;
        let written = match pwritev(&*file, &slices, at) {
            Ok(written) => written,
            Err(Errno::EINTR) => 0,
            Err(error) => return Err(annotated(error.into())),
        };
        // Whatever the kernel did not take at once.
        let mut skip = written;
        let mut at = offset + written as u64;
        for part in parts {
            let rest = &part[skip.min(part.len())..];
            skip -= part.len() - rest.len();
            if !rest.is_empty() {
                file.write_all_at(rest, at).map_err(annotated)?;
                at += rest.len() as u64;
            }
        }
        Ok(())
    }

    /// Gives the disk a range back, which reads as zeroes then.
    pub fn forget(&self, offset: u64, length: u64) -> io::Result<()> {
        let Some(file) = self.file(false)? else {
            return Ok(());
        };
        let hole = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&*file, hole, offset as i64, length as i64)
            .map_err(|error| annotate(error.into(), "give back a part of", &self.path))
    }

    /// Forgets everything from `size` on.
    pub fn truncate(&self, size: u64) -> io::Result<()> {
        let Some(file) = self.file(false)? else {
            return Ok(());
        };
        let length = file.metadata()?.len();
        if length > size {
            file.set_len(size)
                .map_err(|error| annotate(error, "truncate", &self.path))?;
        }
        Ok(())
    }

    /// Closes the file if nobody is using it right now; it is opened again when needed.
    pub fn close_idle(&self) {
        let Some(mut slot) = self.slot.try_lock() else {
            return;
        };
        if slot.file.take().is_some() {
            self.open_files.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        let slot = self.slot.get_mut();
        if slot.file.take().is_some() {
            self.open_files.count.fetch_sub(1, Ordering::Relaxed);
        }
        if slot.exists
            && let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove a cache file");
        }
    }
}

fn annotate(error: io::Error, verb: &str, path: &Path) -> io::Error {
    // The number must survive: Postgres is told "no space" as such.
    tracing::error!(path = %path.display(), %error, "cannot {verb} a cache file");
    error
}
