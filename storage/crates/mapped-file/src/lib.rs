//! A finished file, mapped into memory and read without a copy.
//!
//! The crate serves programs that read files which are no longer written, such as the WAL of a server that has ended.
//! Servers read files by position instead: an error of the disk is an error there, and a signal in a mapping.
//!
//! Invariant: while a file is mapped no process changes or shortens it. No code can check that, so it is the caller's
//! promise, as the name of [`MappedFile::of_finished`] says; this crate exists to hold the `unsafe` that relies on
//! it.

#![warn(missing_docs)]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// The bytes of a finished file, mapped until this is dropped.
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a file that no process writes any more.
    ///
    /// # Errors
    ///
    /// The error of opening or mapping the file.
    pub fn of_finished(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        // SAFETY: the caller promises that the file does not change while it is mapped.
        #[allow(unsafe_code)]
        let map = unsafe { Mmap::map(&file) }?;
        Ok(MappedFile(map))
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_its_bytes_also_an_empty_one_and_one_that_has_been_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        for content in [&b""[..], b"a page and some more"] {
            std::fs::write(&path, content).unwrap();
            let mapped = MappedFile::of_finished(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            assert_eq!(&*mapped, content);
        }
        let missing = MappedFile::of_finished(&path).err().map(|it| it.kind());
        assert_eq!(missing, Some(io::ErrorKind::NotFound));
    }
}
