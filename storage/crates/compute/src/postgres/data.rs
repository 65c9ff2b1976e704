//! The local data directory: small, written anew at each start, with the served directories linked in.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_types::{BLCKSZ, WAL_SEGMENT_BYTES};
use wal_decode::synth::SegmentFile;

use super::beneath::Beneath;
use super::user::OsUser;
use crate::volume::through_mount;

/// Directories that the volume serves.
pub const SERVED: [&str; 5] = ["base", "global", "pg_xact", "pg_multixact", "pg_commit_ts"];

/// Directories Postgres expects; what is in them does not survive a start.
const LOCAL: [&str; 15] = [
    "pg_wal",
    "pg_wal/archive_status",
    "pg_dynshmem",
    "pg_logical",
    "pg_logical/mappings",
    "pg_logical/snapshots",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_tblspc",
    "pg_twophase",
];

/// A data directory under construction and in use. What is in it belongs to Postgres, so nothing in it is
/// reached by following a link.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    /// The directory's path (`PGDATA`).
    pub path: PathBuf,
    volume: PathBuf,
    open: Arc<Beneath>,
    user: OsUser,
}

impl DataDirectory {
    /// An empty one at `path`, in place of whatever was there, with the served directories pointing to `volume`. Both lie
    /// in a directory that only the agent writes to.
    pub fn create(path: &Path, volume: &Path, user: &OsUser) -> io::Result<DataDirectory> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        make_directory(path, user)?;
        let open = Arc::new(Beneath::open(path)?);
        for name in LOCAL {
            open.make_directory(name, user)?;
        }
        for name in SERVED {
            open.link(name, &volume.join(name))?;
        }
        let data = DataDirectory {
            path: path.to_owned(),
            volume: volume.to_owned(),
            open,
            user: user.clone(),
        };
        data.put("PG_VERSION", b"15\n")?;
        Ok(data)
    }

    /// A file below the directory, which must not be in a served one. A link there is refused.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        debug_assert!(!is_served(name));
        self.open.put(name, content, &self.user).map(drop)
    }

    /// A file directly below the directory, whole or not at all, in place of whatever has its name: a link there is
    /// replaced and not followed.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.open.replace(name, content, &self.user)
    }

    /// A new pipe below the directory, which must not be in a served one, open at both ends and never waited for.
    pub fn pipe(&self, name: &str) -> io::Result<File> {
        debug_assert!(!is_served(name));
        self.open.pipe(name, &self.user)
    }

    /// Takes the name of a local file or pipe away.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        debug_assert!(!is_served(name));
        self.open.remove(name)
    }

    /// Opens a file below the directory for reading, which must not be in a served one. `NotFound` when there is none; a
    /// link is an error.
    pub fn file(&self, name: &str) -> io::Result<File> {
        debug_assert!(!is_served(name));
        self.open.file(name)
    }

    /// All of a file; one of a served directory through the mount, where the kernel may have pages that the volume does
    /// not have yet. Errors as of [`DataDirectory::file`]; blocks, for as long as the volume takes.
    pub fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        if is_served(name) {
            self.read_served(name, whole)
        } else {
            whole(self.file(name)?)
        }
    }

    /// The block of a file of a served directory at `offset` bytes, as Postgres would read it: the kernel's page where it
    /// has one. `None` where there is no such file, or none that is as long.
    pub fn read_block(&self, name: &str, offset: u64) -> io::Result<Option<Box<[u8; BLCKSZ]>>> {
        let read = self.read_served(name, move |file| {
            let mut page = Box::new([0; BLCKSZ]);
            file.read_exact_at(&mut page[..], offset).map(|()| page)
        });
        match read {
            Ok(page) => Ok(Some(page)),
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof => Ok(None),
                _ => Err(error),
            },
        }
    }

    /// Opens a file through the mount and reads from it there where a kill ends it ([`through_mount`]).
    fn read_served<T: Send + 'static>(
        &self,
        name: &str,
        read: impl FnOnce(File) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        // Not by the link in the data directory, which belongs to Postgres; and opened for each file anew, because an
        // open directory would keep the volume mounted.
        let (volume, name) = (self.volume.clone(), name.to_owned());
        through_mount::alone(move || read(Beneath::open(&volume)?.file(&name)?))?
    }

    /// The WAL to start from.
    pub fn put_wal(&self, segments: &[SegmentFile]) -> io::Result<()> {
        for segment in segments {
            let name = format!(
                "pg_wal/{}",
                segment.start.segment_file_name(WAL_SEGMENT_BYTES)
            );
            let file = self.open.put(&name, &segment.head, &self.user)?;
            // Sparse behind the record: Postgres insists on the size.
            file.set_len(WAL_SEGMENT_BYTES)?;
        }
        Ok(())
    }
}

fn whole(mut file: File) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(content)
}

fn is_served(name: &str) -> bool {
    let top = name.split('/').next().unwrap_or(name);
    SERVED.contains(&top)
}

/// A directory of mode 0700 at `path` that belongs to `user`, in a directory that only the agent writes to.
pub fn make_directory(path: &Path, user: &OsUser) -> io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(parent), Some(name)) = (path.parent(), name) else {
        return Err(io::Error::other(format!(
            "{} is no path of a directory",
            path.display()
        )));
    };
    Beneath::open(parent)?.make_directory(name, user)
}
