//! A layer file on local disk, read by position, and decrypted if it is encrypted.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use encryption::{EncryptionError, FileKey, HEADER_BYTES, is_encrypted};
use layers::BlockSource;

use crate::error::BlobError;

/// Enough to tell whether a file is encrypted.
const MARK_BYTES: u64 = 8;

/// An open file; reads need no lock. It stays readable after the file has been unlinked.
#[derive(Debug)]
pub struct LocalLayerFile {
    file: File,
    /// Bytes on the disk.
    stored: u64,
    /// What decrypts it, if it is encrypted.
    key: Option<FileKey>,
}

impl LocalLayerFile {
    /// Opens a file that is not encrypted, as it is; its content is checked by who reads it. Fails with
    /// [`BlobError::File`], and with [`BlobError::Encryption`] if it is encrypted.
    pub fn open(path: &Path) -> Result<LocalLayerFile, BlobError> {
        LocalLayerFile::open_with(path, |begin, _| match is_encrypted(begin) {
            true => Err(EncryptionError::NoKey),
            false => Ok(None),
        })
    }

    /// Opens a file; `key_of` says how the file is read that begins so and has so many bytes. It is given the whole
    /// header of an encrypted file.
    pub(crate) fn open_with(
        path: &Path,
        key_of: impl FnOnce(&[u8], u64) -> Result<Option<FileKey>, EncryptionError>,
    ) -> Result<LocalLayerFile, BlobError> {
        let failed = |source| BlobError::File {
            path: PathBuf::from(path),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let stored = file.metadata().map_err(failed)?.len();
        let begin_of = |most: u64| {
            let mut begin = vec![0; stored.min(most) as usize];
            stalls::read_exact_at(&file, &mut begin, 0).map(|()| begin)
        };
        let mut begin = begin_of(MARK_BYTES).map_err(failed)?;
        if is_encrypted(&begin) {
            begin = begin_of(HEADER_BYTES as u64).map_err(failed)?;
        }
        let key = key_of(&begin, stored).map_err(|source| BlobError::Encryption {
            path: path.display().to_string(),
            source,
        })?;
        Ok(LocalLayerFile { file, stored, key })
    }

    /// Whether it is encrypted on the disk.
    pub fn is_encrypted(&self) -> bool {
        self.key.is_some()
    }

    fn read_stored(&self, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        // A damaged length must not become an allocation.
        if offset
            .checked_add(len as u64)
            .is_none_or(|end| end > self.stored)
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut buffer = vec![0; len];
        stalls::read_exact_at(&self.file, &mut buffer, offset)?;
        Ok(buffer)
    }
}

impl BlockSource for LocalLayerFile {
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let Some(key) = &self.key else {
            return self.read_stored(offset, len).map(Bytes::from);
        };
        let range = key.stored_range(offset, len);
        let range = range.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut stored = self.read_stored(range.start, (range.end - range.start) as usize)?;
        let part = key.decrypt_part(offset, len, &mut stored);
        // Whoever reads a layer takes that for a damaged one.
        part.map(Bytes::from)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    fn size(&self) -> u64 {
        self.key.as_ref().map_or(self.stored, FileKey::length)
    }
}
