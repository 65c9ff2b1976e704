//! A layer file on local disk, read by position.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use layers::BlockSource;

use crate::error::BlobError;

/// An open file; reads need no lock. It stays readable after the file has been unlinked.
#[derive(Debug)]
pub struct LocalLayerFile {
    file: File,
    size: u64,
}

impl LocalLayerFile {
    /// Opens a file as it is; its content is checked by who reads it. Fails with [`BlobError::File`].
    pub fn open(path: &Path) -> Result<LocalLayerFile, BlobError> {
        let failed = |source| BlobError::File {
            path: PathBuf::from(path),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        Ok(LocalLayerFile { file, size })
    }
}

impl BlockSource for LocalLayerFile {
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        // A damaged length must not become an allocation.
        if offset
            .checked_add(len as u64)
            .is_none_or(|end| end > self.size)
        {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut buffer = vec![0; len];
        stalls::read_exact_at(&self.file, &mut buffer, offset)?;
        Ok(Bytes::from(buffer))
    }

    fn size(&self) -> u64 {
        self.size
    }
}
