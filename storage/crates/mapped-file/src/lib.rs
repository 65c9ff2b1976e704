//! A finished file where it lies in memory, read without a copy.
//!
//! For programs that go through files nobody writes any more, such as the WAL of a server that has ended. Servers read
//! files by position: an error of the disk is an error there, and a signal in a mapping.
//!
//! Invariant: while it is mapped nobody changes or shortens the file. Nothing can check that, so it is the caller's
//! promise, by the name of [`MappedFile::of_finished`]; this crate is the one place that needs `unsafe` for it.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

use memmap2::Mmap;

/// The bytes of a file.
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps a file that nobody writes any more.
    ///
    /// # Errors
    ///
    /// What opening or mapping it says.
    pub fn of_finished(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        // SAFETY: nobody changes the file while it is mapped, which callers promise.
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
