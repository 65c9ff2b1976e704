//! Staging files of stores that are directories: a file that is still being written lies beside its final place,
//! under its final name followed by `#` and a number. The `object_store` crate names its own staging files so, and
//! lists none of them.
//!
//! A crash leaves staging files. No read uses them, but they take room: the timeline's next owner removes them.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

/// Creates a staging file beside `path`. The file is removed when its [`TempPath`] is dropped without having been
/// persisted.
pub(crate) fn stage(path: &Path) -> io::Result<(File, TempPath)> {
    let mut number = 1;
    loop {
        let mut name = path.as_os_str().to_owned();
        name.push(format!("#{number}"));
        match OpenOptions::new().write(true).create_new(true).open(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
            Ok(file) => return Ok((file, TempPath::try_from_path(PathBuf::from(name))?)),
        }
    }
}

/// Removes from a directory the staging files for whose final name `may_go` is true. Returns how many were removed.
pub(crate) fn remove(directory: &Path, may_go: impl Fn(&str) -> bool) -> io::Result<usize> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    let mut removed = 0;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let becomes = name.to_str().and_then(|name| name.rsplit_once('#'));
        if becomes.is_some_and(|(name, _)| may_go(name)) {
            std::fs::remove_file(entry.path())?;
            removed += 1;
        }
    }
    if removed > 0 {
        // The store removes directories that its own deletions have emptied. This one may hold more: then it stays.
        let _ = std::fs::remove_dir(directory);
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: what a crash left of a write stands in no other's way, and goes when it may, alone.
    #[test]
    fn what_a_crash_left_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["one", "two"] {
            let (_, left) = stage(&path(name)).unwrap();
            left.keep().unwrap();
        }
        let (_, second) = stage(&path("one")).unwrap();
        assert_eq!(second.to_path_buf(), path("one#2"));
        second.persist(path("one")).unwrap();

        assert_eq!(remove(directory.path(), |name| name == "one").unwrap(), 1);
        assert!(path("one").exists() && path("two#1").exists());
        assert_eq!(remove(directory.path(), |_| true).unwrap(), 1);
        assert!(path("one").exists());
    }

    /// Promise: a directory that held nothing else goes with it; one that is missing holds none.
    #[test]
    fn an_empty_directory_goes() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("layers");
        std::fs::create_dir(&directory).unwrap();
        let (_, left) = stage(&directory.join("one")).unwrap();
        left.keep().unwrap();
        assert_eq!(remove(&directory, |_| true).unwrap(), 1);
        assert!(!directory.exists());
        assert_eq!(remove(&directory, |_| true).unwrap(), 0);
    }
}
