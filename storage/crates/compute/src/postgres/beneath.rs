//! Files in a directory that belongs to somebody else, who may put links there.
//!
//! The agent may be root, and whoever gains Postgres's rights can replace what lies in the data directory at any moment.
//! So each name is resolved by the kernel below an open directory, without following any link on the way
//! (`openat2`, `RESOLVE_NO_SYMLINKS`), and what was opened is looked at before anything is done to it.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, fchown};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, mkfifoat, symlinkat, unlinkat};

use super::user::OsUser;

/// An open directory; names are relative to it.
#[derive(Debug)]
pub struct Beneath(OwnedFd);

impl Beneath {
    /// Opens the directory at `path`, which lies in one of the agent's own. A link at its end is an error.
    pub fn open(path: &Path) -> io::Result<Beneath> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
        let how = OpenHow::new().flags(flags);
        Ok(Beneath(openat2(AT_FDCWD, path, how)?))
    }

    fn resolve(&self, name: &str, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW)
            .mode(Mode::from_bits_truncate(mode))
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS);
        openat2(&self.0, name, how).map_err(|error| explained(error, name))
    }

    /// The directory that holds `name`, and the last part of the name.
    fn parent<'a>(&self, name: &'a str) -> io::Result<(Beneath, &'a str)> {
        let (directory, last) = name.rsplit_once('/').unwrap_or((".", name));
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY;
        Ok((Beneath(self.resolve(directory, flags, 0)?), last))
    }

    /// Opens a regular file for reading. Anything else of that name is an error: opening a pipe would wait for a writer.
    pub fn file(&self, name: &str) -> io::Result<File> {
        let file = File::from(self.resolve(name, OFlag::O_RDONLY | OFlag::O_NONBLOCK, 0)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other(format!("{name} is no regular file")));
        }
        Ok(file)
    }

    /// Writes a file of mode 0600 that belongs to `owner`, in place of what a regular file of that name held.
    pub fn put(&self, name: &str, content: &[u8], owner: &OsUser) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NONBLOCK;
        let mut file = File::from(self.resolve(name, flags, 0o600)?);
        let about = file.metadata()?;
        // A second name may be that of a file elsewhere.
        if !about.is_file() || about.nlink() != 1 {
            return Err(io::Error::other(format!(
                "{name} is no regular file with one name, and is left alone"
            )));
        }
        file.set_len(0)?;
        file.write_all(content)?;
        given(&file, owner, 0o600)?;
        Ok(file)
    }

    /// As [`Beneath::put`], whole or not at all: what has the name, a link too, is replaced and not followed.
    pub fn replace(&self, name: &str, content: &[u8], owner: &OsUser) -> io::Result<()> {
        let (directory, last) = self.parent(name)?;
        let beside = format!("{last}.next");
        match unlinkat(&directory.0, beside.as_str(), UnlinkatFlags::NoRemoveDir) {
            Err(error) if error != Errno::ENOENT => return Err(explained(error, &beside)),
            _ => {}
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let mut file = File::from(directory.resolve(&beside, flags, 0o600)?);
        file.write_all(content)?;
        given(&file, owner, 0o600)?;
        Ok(renameat(&directory.0, beside.as_str(), &directory.0, last)?)
    }

    /// A new pipe of mode 0600 that belongs to `owner`, open at both ends, so that whoever opens it to read waits for what
    /// is written and not for a writer. `AlreadyExists` where something has the name.
    pub fn pipe(&self, name: &str, owner: &OsUser) -> io::Result<File> {
        let (directory, last) = self.parent(name)?;
        mkfifoat(&directory.0, last, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(|error| explained(error, name))?;
        let file = File::from(directory.resolve(last, OFlag::O_RDWR | OFlag::O_NONBLOCK, 0)?);
        let about = file.metadata()?;
        if !about.file_type().is_fifo() || about.nlink() != 1 {
            return Err(io::Error::other(format!(
                "{name} is no pipe with one name, and is left alone"
            )));
        }
        given(&file, owner, 0o600)?;
        Ok(file)
    }

    /// Takes a name away, whatever has it but a directory. A link goes, and not what it leads to.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let (directory, last) = self.parent(name)?;
        unlinkat(&directory.0, last, UnlinkatFlags::NoRemoveDir)
            .map_err(|error| explained(error, name))
    }

    /// A directory of mode 0700 that belongs to `owner`; one that is there already is given to the owner.
    pub fn make_directory(&self, name: &str, owner: &OsUser) -> io::Result<()> {
        let (directory, last) = self.parent(name)?;
        match mkdirat(&directory.0, last, Mode::S_IRWXU) {
            Err(error) if error != Errno::EEXIST => return Err(explained(error, name)),
            _ => {}
        }
        let made = directory.resolve(last, OFlag::O_DIRECTORY | OFlag::O_RDONLY, 0)?;
        given(&File::from(made), owner, 0o700)
    }

    /// A link at `name` to `target`, which is not looked at.
    pub fn link(&self, name: &str, target: &Path) -> io::Result<()> {
        symlinkat(target, self.0.as_fd(), name).map_err(|error| explained(error, name))
    }
}

fn given(file: &File, owner: &OsUser, mode: u32) -> io::Result<()> {
    fchown(file, Some(owner.uid), Some(owner.gid))?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))
}

/// The number survives: callers ask whether a file is missing.
fn explained(error: Errno, name: &str) -> io::Error {
    if matches!(error, Errno::ELOOP | Errno::EXDEV) {
        tracing::error!(
            name,
            "a link was found where Postgres has none, and was not followed"
        );
    }
    error.into()
}
