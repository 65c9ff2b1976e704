//! WAL on disk: sparse files of one segment each.
//!
//! Blocking calls; positions are byte positions and mean nothing more here. Nothing is durable before
//! [`Segments::sync_job`] has run, except cuts, which are before they return.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_types::{Lsn, WAL_SEGMENT_BYTES};

use crate::control::sync_dir;

/// The segments of one log as files in its directory.
pub struct Segments {
    dir: PathBuf,
    /// Segments that exist, by number; opened when first used.
    files: BTreeMap<u64, Option<Arc<File>>>,
    /// Segments with writes that no fsync has covered.
    dirty: BTreeMap<u64, Arc<File>>,
    dir_dirty: bool,
    /// Segments before this number are complete: one that is too short is damaged, and stays as it is.
    complete_below: u64,
}

/// What one fsync covers; runs without any lock.
pub struct SyncJob {
    files: Vec<Arc<File>>,
    dir: Option<PathBuf>,
}

impl SyncJob {
    /// Fsyncs the files, and the directory if files were created. Blocks.
    pub fn run(&self) -> io::Result<()> {
        self.files.iter().try_for_each(|file| file.sync_data())?;
        self.dir.as_deref().map_or(Ok(()), sync_dir)
    }
}

/// Number of the segment that a file of this name holds; `None` for every other name.
pub fn number_of(name: &str) -> Option<u64> {
    if name.len() != 24 || !name.is_ascii() {
        return None;
    }
    let part = |range: std::ops::Range<usize>| u64::from_str_radix(&name[range], 16).ok();
    (part(0..8)? == 1).then_some(())?;
    Some(part(8..16)? * (0x1_0000_0000 / WAL_SEGMENT_BYTES) + part(16..24)?)
}

/// Name of the file of a segment.
pub fn name_of(number: u64) -> String {
    Lsn(number * WAL_SEGMENT_BYTES).segment_file_name(WAL_SEGMENT_BYTES)
}

/// A file that was lost before needs no removal.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Segments {
    /// Finds the segments in `dir`, and opens none.
    pub fn open(dir: &Path) -> io::Result<Segments> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(dir)? {
            if let Some(number) = entry?.file_name().to_str().and_then(number_of) {
                files.insert(number, None);
            }
        }
        Ok(Segments {
            dir: dir.to_owned(),
            files,
            dirty: BTreeMap::new(),
            dir_dirty: false,
            complete_below: 0,
        })
    }

    /// The segments that hold bytes of `[from, to)` and do not exist.
    pub fn lacking(&self, from: Lsn, to: Lsn) -> Vec<u64> {
        let segment = |lsn: u64| lsn / WAL_SEGMENT_BYTES;
        let numbers = segment(from.0)..=segment(to.0.saturating_sub(1));
        numbers
            .filter(|number| from < to && !self.files.contains_key(number))
            .collect()
    }

    /// Everything before `to` was there once: a file that is not counts as one that can't be opened, one that is too short
    /// as one that can't be read to its end.
    pub fn expect(&mut self, from: Lsn, to: Lsn) {
        for number in self.lacking(from, to) {
            self.files.insert(number, None);
        }
        self.complete_below = to.0 / WAL_SEGMENT_BYTES;
    }

    /// Whether the segment exists, or has to ([`Segments::expect`]).
    pub fn has(&self, number: u64) -> bool {
        self.files.contains_key(&number)
    }

    /// `file` is what the segment's name stands for now, and all of it is durable.
    pub fn replace(&mut self, number: u64, file: File) {
        self.dirty.remove(&number);
        self.files.insert(number, Some(Arc::new(file)));
    }

    fn path(&self, number: u64) -> PathBuf {
        self.dir.join(name_of(number))
    }

    /// Start of the first segment that exists.
    pub fn first(&self) -> Option<Lsn> {
        self.files
            .keys()
            .next()
            .map(|number| Lsn(number * WAL_SEGMENT_BYTES))
    }

    /// Whether every segment that holds bytes of `[from, to)` exists.
    pub fn cover(&self, from: Lsn, to: Lsn) -> bool {
        let segment = |lsn: u64| lsn / WAL_SEGMENT_BYTES;
        from >= to
            || (segment(from.0)..=segment(to.0 - 1)).all(|number| self.files.contains_key(&number))
    }

    /// Whether a segment exists at or behind `lsn`.
    pub fn has_from(&self, lsn: Lsn) -> bool {
        self.files
            .range(lsn.0 / WAL_SEGMENT_BYTES..)
            .next()
            .is_some()
    }

    /// The open file of a segment; the caller may read from it without holding any lock.
    pub fn file(&mut self, number: u64) -> io::Result<Arc<File>> {
        let path = self.path(number);
        let slot = self.files.get_mut(&number).ok_or(io::ErrorKind::NotFound)?;
        match slot {
            Some(file) => Ok(file.clone()),
            None => {
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                // A crash within a creation or a cut leaves it short.
                let may_be_short = number >= self.complete_below;
                if may_be_short && file.metadata()?.len() < WAL_SEGMENT_BYTES {
                    file.set_len(WAL_SEGMENT_BYTES)?;
                }
                let file = Arc::new(file);
                *slot = Some(file.clone());
                Ok(file)
            }
        }
    }

    fn file_for_write(&mut self, number: u64) -> io::Result<Arc<File>> {
        let file = if self.files.contains_key(&number) {
            self.file(number)?
        } else {
            let path = self.path(number);
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)?;
            file.set_len(WAL_SEGMENT_BYTES)?;
            self.dir_dirty = true;
            let file = Arc::new(file);
            self.files.insert(number, Some(file.clone()));
            file
        };
        self.dirty.entry(number).or_insert_with(|| file.clone());
        Ok(file)
    }

    /// Writes `bytes` from position `at` on, over what is there; segments that do not exist are created.
    pub fn write(&mut self, at: Lsn, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (at.0, bytes);
        while !rest.is_empty() {
            let offset = at % WAL_SEGMENT_BYTES;
            let length = rest.len().min((WAL_SEGMENT_BYTES - offset) as usize);
            let (piece, behind) = rest.split_at(length);
            self.file_for_write(at / WAL_SEGMENT_BYTES)?
                .write_all_at(piece, offset)?;
            (at, rest) = (at + length as u64, behind);
        }
        Ok(())
    }

    /// What has to be fsynced for everything written until now; taken as done.
    pub fn sync_job(&mut self) -> SyncJob {
        let files = std::mem::take(&mut self.dirty).into_values().collect();
        // Only the newest segments are written; the others must not cost a file descriptor each.
        for slot in self.files.values_mut().rev().skip(2) {
            *slot = None;
        }
        SyncJob {
            files,
            dir: std::mem::take(&mut self.dir_dirty).then(|| self.dir.clone()),
        }
    }

    /// Everything from `at` on becomes zero, durably.
    pub fn cut(&mut self, at: Lsn) -> io::Result<()> {
        let number = at.0 / WAL_SEGMENT_BYTES;
        // From the end, so that a crash never leaves a hole with old WAL behind it.
        let behind: Vec<u64> = self
            .files
            .range(number + 1..)
            .map(|(number, _)| *number)
            .rev()
            .collect();
        for number in &behind {
            remove(&self.path(*number))?;
            self.files.remove(number);
            self.dirty.remove(number);
        }
        if !behind.is_empty() {
            sync_dir(&self.dir)?;
        }
        if self.files.contains_key(&number) {
            let file = self.file(number)?;
            file.set_len(at.0 % WAL_SEGMENT_BYTES)?;
            file.set_len(WAL_SEGMENT_BYTES)?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// Removes every segment that ends at or before `lsn`.
    pub fn remove_below(&mut self, lsn: Lsn) -> io::Result<u64> {
        let keep = lsn.0 / WAL_SEGMENT_BYTES;
        let below: Vec<u64> = self
            .files
            .range(..keep)
            .map(|(number, _)| *number)
            .collect();
        for number in &below {
            remove(&self.path(*number))?;
            self.files.remove(number);
            self.dirty.remove(number);
        }
        Ok(below.len() as u64)
    }

    /// Removes all WAL, durably.
    pub fn clear(&mut self) -> io::Result<()> {
        self.cut(Lsn(0))?;
        if self.files.remove(&0).is_some() {
            fs::remove_file(self.path(0))?;
        }
        sync_dir(&self.dir)
    }

    /// Reads up to `buffer.len()` bytes at `at`, to the end of the segment at most.
    pub fn read(&mut self, at: Lsn, buffer: &mut [u8]) -> io::Result<usize> {
        let offset = at.0 % WAL_SEGMENT_BYTES;
        let length = buffer.len().min((WAL_SEGMENT_BYTES - offset) as usize);
        self.file(at.0 / WAL_SEGMENT_BYTES)?
            .read_exact_at(&mut buffer[..length], offset)?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_leaves_zeroes_whatever_was_written_behind_it() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut segments = Segments::open(dir.path()).expect("open");
        let start = Lsn(3 * WAL_SEGMENT_BYTES - 100);
        segments
            .write(start, &[7; 300])
            .expect("write across a boundary");
        segments.sync_job().run().expect("fsync");
        segments.cut(start + 50).expect("cut");
        drop(segments);

        let mut segments = Segments::open(dir.path()).expect("open again");
        let mut buffer = [1; 300];
        assert_eq!(segments.read(start, &mut buffer).expect("read"), 100);
        assert_eq!(
            (&buffer[..50], &buffer[50..100]),
            (&[7; 50][..], &[0; 50][..])
        );
        assert!(
            !segments.cover(start, start + 101),
            "the segment behind the cut is gone"
        );
        assert!(segments.cover(start, start + 100));
    }
}
