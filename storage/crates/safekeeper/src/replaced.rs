//! How a whole segment takes the place of a damaged one: entirely, or not at all.
//!
//! The new file is written in `repairing/` below the log's directory. The damaged one gets a second name,
//! `damaged/<segment>-<number>`, which is evidence: nothing here removes it, changes it or uses the name again. Then the
//! new file is renamed over the old one.
//!
//! Invariants:
//! - the new file is durable as a whole, and as long as a segment, before the rename;
//! - the old file, if there is one, has its second name durably before the rename, and is the same file;
//! - the segment's name stands for the old or the new file at every moment, never for none.
//!
//! A crash leaves the old file or the new one. Beside the old one it can leave a `repairing/`, which goes at the next
//! start (peers have all of it), and a second name of what is still the log's own file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use pg_types::WAL_SEGMENT_BYTES;

use crate::control::sync_dir;
use crate::segments;

const FOLDER: &str = "repairing";
/// Where evidence is kept, below a timeline's directory.
pub const EVIDENCE: &str = "damaged";

/// A segment that is about to replace another one.
pub struct Beside {
    dir: PathBuf,
    number: u64,
    path: PathBuf,
    file: File,
}

/// What came of a replacement.
pub struct Replaced {
    /// The new file, open for reading and writing.
    pub file: File,
    /// The second name of what was replaced; none where there was no file.
    pub evidence: Option<PathBuf>,
}

/// A replacement that did not come about.
#[derive(Debug)]
pub struct PutError {
    /// The error of the file system.
    pub source: io::Error,
    /// The segment's name may stand for the new file: whoever has the old one open has to open it again.
    pub is_decided: bool,
}

impl From<io::Error> for PutError {
    fn from(source: io::Error) -> PutError {
        let is_decided = false;
        PutError { source, is_decided }
    }
}

/// A place that a crash can come at; an error stands for one.
pub type Step<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Removes what was written beside the log and never became part of it. Blocks.
pub fn clear(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Beside {
    /// Blocks.
    pub fn begin(dir: &Path, number: u64) -> io::Result<Beside> {
        clear(dir)?;
        let folder = dir.join(FOLDER);
        fs::create_dir(&folder)?;
        let path = folder.join(segments::name_of(number));
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)?;
        file.set_len(WAL_SEGMENT_BYTES)?;
        Ok(Beside {
            dir: dir.to_owned(),
            number,
            path,
            file,
        })
    }

    /// Blocks.
    pub fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        assert!(
            offset + bytes.len() as u64 <= WAL_SEGMENT_BYTES,
            "{} bytes at {offset} are more than a segment",
            bytes.len()
        );
        self.file.write_all_at(bytes, offset)
    }

    /// Blocks.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Puts it in place. After an error the segment's name stands for the old file or the new one. Blocks.
    pub fn put(self, step: Step<'_>) -> Result<Replaced, PutError> {
        let Beside {
            dir,
            number,
            path,
            file,
        } = self;
        step()?;
        file.sync_all()?;
        sync_dir(&dir.join(FOLDER))?;
        step()?;
        let facts = file.metadata()?;
        assert_eq!(
            facts.len(),
            WAL_SEGMENT_BYTES,
            "length of {}",
            path.display()
        );
        let target = dir.join(segments::name_of(number));
        let evidence = keep(&dir, number, &target, step)?;
        fs::rename(&path, &target)?;
        let placed = step()
            .and_then(|()| sync_dir(&dir))
            .and_then(|()| fs::metadata(&target))
            .map_err(|source| PutError {
                source,
                is_decided: true,
            })?;
        assert_eq!(
            (placed.dev(), placed.ino()),
            (facts.dev(), facts.ino()),
            "{} is not what was put there",
            target.display()
        );
        Ok(Replaced { file, evidence })
    }
}

/// Gives the file of a segment a second name, durably.
fn keep(dir: &Path, number: u64, target: &Path, step: Step<'_>) -> io::Result<Option<PathBuf>> {
    let facts = match fs::metadata(target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        facts => facts?,
    };
    let folder = dir.join(EVIDENCE);
    fs::create_dir_all(&folder)?;
    let name = segments::name_of(number);
    for count in 0_u32.. {
        let path = folder.join(format!("{name}-{count}"));
        match fs::hard_link(target, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // What an attempt before this one left.
                let known = fs::metadata(&path)?;
                if (known.dev(), known.ino()) != (facts.dev(), facts.ino()) {
                    continue;
                }
            }
            linked => linked?,
        }
        step()?;
        sync_dir(&folder)?;
        sync_dir(dir)?;
        step()?;
        let kept = fs::metadata(&path)?;
        assert_eq!(
            (kept.dev(), kept.ino()),
            (facts.dev(), facts.ino()),
            "{} is not the file it has to keep",
            path.display()
        );
        return Ok(Some(path));
    }
    Err(io::Error::other(
        "every name for a damaged segment is taken",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: u64 = 3;

    fn written(dir: &Path, fill: u8) -> Beside {
        let beside = Beside::begin(dir, NUMBER).expect("begin");
        beside.write(&[fill; 64], 100).expect("write");
        beside
    }

    fn byte(path: &Path) -> u8 {
        fs::read(path).expect("read")[100]
    }

    fn evidence(dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir.join(EVIDENCE));
        let entries = entries.into_iter().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|it| it.expect("entry").path()).collect();
        paths.sort();
        paths
    }

    /// Promise: wherever a crash comes, the segment is the old one or the new one, whole, and once it is the new one the
    /// old one is among the evidence; repeating it ends with the new one.
    #[test]
    fn a_crash_leaves_the_old_segment_or_the_new_one() {
        let mut crashes = 0;
        loop {
            let dir = tempfile::tempdir().expect("temporary directory");
            let target = dir.path().join(segments::name_of(NUMBER));
            fs::write(&target, [7; 4096]).expect("a segment");
            let mut left = crashes;
            let mut crash = || {
                left -= 1;
                if left < 0 {
                    return Err(io::Error::other("a crash"));
                }
                Ok(())
            };
            let put = written(dir.path(), 9).put(&mut crash);
            let whole = fs::metadata(&target).expect("there is one").len();
            let now = byte(&target);
            match now {
                7 => assert_eq!(whole, 4096),
                9 => assert_eq!(whole, WAL_SEGMENT_BYTES),
                other => panic!("{other} after {crashes} steps"),
            }
            if now == 9 {
                assert_eq!(evidence(dir.path()).len(), 1, "after {crashes} steps");
            }
            clear(dir.path()).expect("the next start");
            if put.is_ok() {
                assert_eq!(now, 9);
                assert!(crashes >= 5, "only {crashes} steps");
                return;
            }
            written(dir.path(), 9).put(&mut || Ok(())).expect("again");
            assert_eq!(byte(&target), 9);
            let kept = evidence(dir.path());
            assert_eq!(byte(&kept[0]), 7, "after {crashes} steps");
            crashes += 1;
        }
    }

    #[test]
    fn evidence_is_never_written_over_and_a_missing_file_leaves_none() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let put = |fill| written(dir.path(), fill).put(&mut || Ok(())).expect("put");
        assert!(put(1).evidence.is_none());
        let second = put(2).evidence.expect("what was there");
        let third = put(3).evidence.expect("what was there");
        assert_ne!(second, third);
        assert_eq!((byte(&second), byte(&third)), (1, 2));
    }
}
