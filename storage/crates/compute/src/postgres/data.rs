//! The local data directory: small, written anew at each start, with the served directories linked in.

use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown, fchown, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pg_types::WAL_SEGMENT_BYTES;
use wal_decode::synth::SegmentFile;

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

/// The user and group that own the files of Postgres.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsUser {
    /// The user's name.
    pub name: String,
    /// The user's number.
    pub uid: u32,
    /// The number of the user's first group.
    pub gid: u32,
}

impl OsUser {
    /// `name` when the agent is root, the agent's own user otherwise.
    pub fn for_postgres(name: &str) -> anyhow::Result<OsUser> {
        if !nix::unistd::geteuid().is_root() {
            return OsUser::current();
        }
        let user = nix::unistd::User::from_name(name)
            .with_context(|| format!("look up the user {name}"))?
            .with_context(|| format!("the user {name} does not exist; Postgres must run unprivileged, so create it or name another in pg_user"))?;
        anyhow::ensure!(
            !user.uid.is_root(),
            "pg_user is {name}, which is root; Postgres must run unprivileged"
        );
        Ok(OsUser {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })
    }

    /// The agent's own user.
    pub fn current() -> anyhow::Result<OsUser> {
        let uid = nix::unistd::geteuid();
        let user = nix::unistd::User::from_uid(uid)?
            .with_context(|| format!("the user with number {uid} has no name"))?;
        Ok(OsUser {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })
    }
}

/// A data directory under construction and in use.
#[derive(Clone, Debug)]
pub struct DataDirectory {
    /// The directory's path (`PGDATA`).
    pub path: PathBuf,
    user: OsUser,
}

impl DataDirectory {
    /// An empty one at `path`, in place of whatever was there, with the served directories pointing to `volume`.
    pub fn create(path: &Path, volume: &Path, user: &OsUser) -> io::Result<DataDirectory> {
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let data = DataDirectory {
            path: path.to_owned(),
            user: user.clone(),
        };
        make_directory(path, user)?;
        for name in LOCAL {
            make_directory(&path.join(name), user)?;
        }
        for name in SERVED {
            symlink(volume.join(name), path.join(name))?;
        }
        data.put("PG_VERSION", b"15\n")?;
        Ok(data)
    }

    /// A file below the directory, which must not be in a served one.
    pub fn put(&self, name: &str, content: &[u8]) -> io::Result<()> {
        debug_assert!(
            !SERVED
                .iter()
                .any(|served| name.starts_with(&format!("{served}/")))
        );
        let path = self.path.join(name);
        std::fs::write(&path, content)?;
        chown(&path, Some(self.user.uid), Some(self.user.gid))?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))
    }

    /// A file directly below the directory, whole or not at all, in place of whatever has its name: a link there is
    /// replaced and not followed.
    pub fn replace(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let beside = self.path.join(format!("{name}.next"));
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(content)?;
        fchown(&file, Some(self.user.uid), Some(self.user.gid))?;
        std::fs::rename(&beside, self.path.join(name))
    }

    /// The WAL to start from.
    pub fn put_wal(&self, segments: &[SegmentFile]) -> io::Result<()> {
        for segment in segments {
            let name = format!(
                "pg_wal/{}",
                segment.start.segment_file_name(WAL_SEGMENT_BYTES)
            );
            self.put(&name, &segment.head)?;
            // Sparse behind the record: Postgres insists on the size.
            std::fs::OpenOptions::new()
                .write(true)
                .open(self.path.join(name))?
                .set_len(WAL_SEGMENT_BYTES)?;
        }
        Ok(())
    }
}

/// A directory of Postgres's, mode 0700.
pub fn make_directory(path: &Path, user: &OsUser) -> io::Result<()> {
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    chown(path, Some(user.uid), Some(user.gid))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}
