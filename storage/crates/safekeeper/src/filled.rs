//! How WAL from the object store becomes a log's own: all of it, or nothing.
//!
//! It is gathered in `filling/` below the log's directory: the segments as they will be, what the log holds of the first of
//! them included, and the control file as it will be. Then that directory is renamed to `filled/`, which decides, and its
//! files replace the log's, the control file last.
//!
//! Invariants:
//! - everything below `filling/` is durable before the rename;
//! - who opens the log finishes a rename that was begun before it reads anything.
//!
//! A crash leaves the old log with a `filling/` beside it, which goes (the object store has all of it), or the new log in
//! parts, which [`finish`] puts in place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::control::sync_dir;
use crate::segments;

const GATHERED: &str = "filling";
const DECIDED: &str = "filled";

/// An empty directory to gather the new log in. Blocks.
pub fn begin(dir: &Path) -> io::Result<PathBuf> {
    let gathered = dir.join(GATHERED);
    remove(&gathered)?;
    fs::create_dir(&gathered)?;
    Ok(gathered)
}

/// Makes what was gathered the log. Each file is durable already. Blocks. When this fails, it may have been decided: the
/// log must be opened again.
pub fn decide(dir: &Path) -> io::Result<()> {
    let gathered = dir.join(GATHERED);
    sync_dir(&gathered)?;
    fs::rename(&gathered, dir.join(DECIDED))?;
    sync_dir(dir)?;
    finish(dir)
}

/// Finishes what [`decide`] has begun, and removes what was gathered for nothing. Blocks.
pub fn finish(dir: &Path) -> io::Result<()> {
    remove(&dir.join(GATHERED))?;
    let decided = dir.join(DECIDED);
    let entries = match fs::read_dir(&decided) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        if name.to_str().and_then(segments::number_of).is_some() {
            fs::rename(decided.join(&name), dir.join(&name))?;
        }
    }
    sync_dir(dir)?;
    sync_dir(&decided)?;
    match fs::rename(
        decided.join(crate::control::FILE),
        dir.join(crate::control::FILE),
    ) {
        // It was the last, and the directory is left.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        renamed => renamed?,
    }
    sync_dir(dir)?;
    remove(&decided)?;
    sync_dir(dir)
}

fn remove(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: [&str; 2] = ["old control", "old segment"];

    fn log(dir: &Path) {
        fs::write(dir.join("control"), OLD[0]).expect("write");
        fs::write(dir.join(segments::name_of(3)), OLD[1]).expect("write");
    }

    fn gather(dir: &Path) {
        let gathered = begin(dir).expect("begin");
        fs::write(gathered.join("control"), "new control").expect("write");
        for number in 3..6 {
            fs::write(gathered.join(segments::name_of(number)), "new segment").expect("write");
        }
    }

    fn content(dir: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(dir).expect("list");
        let mut files: Vec<_> = entries
            .map(|entry| {
                let entry = entry.expect("entry");
                let name = entry.file_name().into_string().expect("name");
                (name, fs::read_to_string(entry.path()).expect("a file"))
            })
            .collect();
        files.sort();
        files
    }

    /// Promise: wherever a crash comes, the next start finds the old log or the new one, whole.
    #[test]
    fn a_crash_leaves_the_old_log_or_the_new_one() {
        let whole = tempfile::tempdir().expect("temporary directory");
        log(whole.path());
        let old = content(whole.path());
        gather(whole.path());
        finish(whole.path()).expect("a start before it was decided");
        assert_eq!(content(whole.path()), old);
        gather(whole.path());
        decide(whole.path()).expect("decide");
        let new = content(whole.path());
        assert_eq!(new.len(), 4);
        assert!(new.iter().all(|(_, text)| text.starts_with("new")));
        // Any of the segments may have been moved before, in any order, and the control file after all of them.
        for moved in 0..16_u64 {
            let dir = tempfile::tempdir().expect("temporary directory");
            log(dir.path());
            gather(dir.path());
            fs::rename(dir.path().join(GATHERED), dir.path().join(DECIDED)).expect("rename");
            let mut names: Vec<String> = Vec::new();
            names.extend(
                (3..6)
                    .filter(|number| moved & 1 << (number - 3) != 0)
                    .map(segments::name_of),
            );
            names.extend((moved == 15).then(|| "control".to_owned()));
            for name in names {
                let from = dir.path().join(DECIDED).join(&name);
                fs::rename(from, dir.path().join(name)).expect("rename");
            }
            finish(dir.path()).expect("finish");
            assert_eq!(content(dir.path()), new, "{moved:b}");
        }
    }
}
