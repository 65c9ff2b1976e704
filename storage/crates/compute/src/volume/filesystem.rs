//! The volume as a FUSE file system.
//!
//! The loop threads answer at once whatever is local; what must wait for storage or for the throttle goes to
//! pools of its own, so that a slow page never delays one that is here. Attributes and names are cached by
//! the kernel for an hour, absent names too: nothing changes but through this mount.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use pg_types::BLCKSZ;

use super::front::{Front, attributes, blank, errno, permissions, utf8};
use super::{Volume, VolumeError, WriteMode};

const TTL: Duration = Duration::from_secs(3600);
/// Largest write the kernel sends at once.
const MAX_WRITE_BYTES: u32 = 1 << 20;
/// Reads the kernel keeps going in the background (read-ahead).
const MAX_BACKGROUND: u16 = 64;
/// What `d_ino` says for a file that has no inode yet; 0 would read as "deleted".
const UNKNOWN_INO: u64 = 0xffff_ffff;

impl Filesystem for Front {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Each is an optimisation: older kernels do without.
        for flag in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
        ] {
            if config.add_capabilities(flag).is_err() {
                tracing::info!("the kernel's FUSE does not offer {flag:?}");
            }
        }
        let back = self.volume.writes().mode() == WriteMode::Back;
        let offered = back
            && (config.add_capabilities(InitFlags::FUSE_WRITEBACK_CACHE))
                .inspect_err(|_| tracing::info!("the kernel's FUSE hands no writes over later"))
                .is_ok();
        self.volume.writes().connect(offered);
        let limit = |result: Result<u32, u32>| result.err();
        if let Some(nearest) = limit(config.set_max_write(MAX_WRITE_BYTES)) {
            config.set_max_write(nearest).ok();
        }
        config.set_max_background(MAX_BACKGROUND).ok();
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = match utf8(name) {
            Ok(name) => name.to_owned(),
            Err(_) => return reply.error(Errno::ENOENT),
        };
        let (uid, gid) = (self.uid, self.gid);
        self.here_or_fetching(self.volume.must_list(parent.0), move |volume| match volume
            .lookup(parent.0, &name)
        {
            Ok(node) => {
                volume.looked_up(node.ino);
                reply.entry(&TTL, &attributes(&node, uid, gid), Generation(0));
            }
            Err(VolumeError::NotFound) => {
                reply.entry(&TTL, &blank(), Generation(0));
            }
            Err(error) => reply.error(errno(volume, &error, "look up a name", parent.0)),
        });
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.volume.forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.volume.node(ino.0) {
            Ok(node) => reply.attr(&TTL, &self.attributes(&node)),
            Err(error) => reply.error(errno(&self.volume, &error, "get attributes", ino.0)),
        }
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = match self.volume.node(ino.0) {
            Ok(node) => node,
            Err(error) => return reply.error(errno(&self.volume, &error, "set attributes", ino.0)),
        };
        // Owner, mode and times are the volume's own: Postgres sets them to what they are.
        let wait = match (size, node.file()) {
            (Some(size), Ok(file)) => !file.is_truncate_local(size),
            _ => false,
        };
        let (uid, gid) = (self.uid, self.gid);
        self.here_or_fetching(wait, move |volume| {
            match size.map_or(Ok(()), |size| volume.truncate(&node, size)) {
                Ok(()) => reply.attr(&TTL, &attributes(&node, uid, gid)),
                Err(error) => reply.error(errno(volume, &error, "truncate", ino.0)),
            }
        });
    }

    fn mkdir(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let result =
            utf8(name).and_then(|name| self.volume.mkdir(parent.0, name, permissions(mode, umask)));
        match result {
            Ok(node) => {
                self.volume.looked_up(node.ino);
                reply.entry(&TTL, &self.attributes(&node), Generation(0));
            }
            Err(error) => reply.error(errno(&self.volume, &error, "make a directory", parent.0)),
        }
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match utf8(name).and_then(|name| self.volume.unlink(parent.0, name)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&self.volume, &error, "unlink", parent.0)),
        }
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = match utf8(name) {
            Ok(name) => name.to_owned(),
            Err(_) => return reply.error(Errno::ENOENT),
        };
        // The directory's listing may be missing, and `rmdir` is rare.
        self.here_or_fetching(true, move |volume| match volume.rmdir(parent.0, &name) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(volume, &error, "remove a directory", parent.0)),
        });
    }

    fn symlink(
        &self,
        _req: &Request,
        _parent: INodeNo,
        _link_name: &OsStr,
        _target: &Path,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        let (name, newname) = match (utf8(name), utf8(newname)) {
            (Ok(name), Ok(newname)) => (name.to_owned(), newname.to_owned()),
            _ => return reply.error(Errno::EINVAL),
        };
        let wait = self.volume.must_list(parent.0) || self.volume.must_list(newparent.0);
        self.here_or_fetching(wait, move |volume| {
            match volume.rename(parent.0, &name, newparent.0, &newname) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(volume, &error, "rename", parent.0)),
            }
        });
    }

    fn open(&self, _req: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Opening needs no round trip: the kernel asks once and then never again.
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let node = match self.volume.node(ino.0) {
            Ok(node) => node,
            Err(error) => return reply.error(errno(&self.volume, &error, "read", ino.0)),
        };
        let wait = node
            .file()
            .is_ok_and(|file| !file.is_local(offset, u64::from(size)));
        self.here_or_in_turn(req.pid(), wait, move |volume| {
            match volume.read(&node, offset, u64::from(size)) {
                Ok(data) => reply.data(&data),
                Err(error) => reply.error(errno(volume, &error, "read", ino.0)),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let node = match self.volume.node(ino.0) {
            Ok(node) => node,
            Err(error) => return reply.error(errno(&self.volume, &error, "write", ino.0)),
        };
        let length = data.len() as u32;
        let finish = move |volume: &Volume, data: &[u8]| match volume.write(&node, offset, data) {
            Ok(()) => reply.written(length),
            Err(error) => reply.error(errno(volume, &error, "write", ino.0)),
        };
        let delay = self.volume.throttle().delay();
        let local = self.volume.node(ino.0).is_ok_and(|node| {
            node.file()
                .is_ok_and(|f| f.is_write_local(offset, u64::from(length)))
        });
        if delay.is_zero() && local {
            return finish(&self.volume, data);
        }
        let (volume, data) = (self.volume.clone(), data.to_vec());
        let pool = if delay.is_zero() {
            &self.fetches
        } else {
            &self.throttled
        };
        pool.run(move || {
            volume.throttle().hold(length.div_ceil(BLCKSZ as u32));
            finish(&volume, &data);
        });
    }

    fn flush(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        // Durable is what the safekeepers have; the kernel takes this answer as "always succeeds".
        reply.error(Errno::ENOSYS);
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let open = self.open_directories.clone();
        self.here_or_fetching(self.volume.must_list(ino.0), move |volume| {
            match volume.entries(ino.0) {
                Ok(entries) => {
                    open.lock().insert(handle, Arc::new(entries));
                    reply.opened(FileHandle(handle), FopenFlags::empty());
                }
                Err(error) => reply.error(errno(volume, &error, "open a directory", ino.0)),
            }
        });
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(entries) = self.open_directories.lock().get(&fh.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        let dots = [(ino.0, ".", true), (ino.0, "..", true)];
        let all = dots.into_iter().chain(
            entries
                .iter()
                .map(|(ino, name, directory)| (*ino, name.as_str(), *directory)),
        );
        for (position, (ino, name, directory)) in all.enumerate().skip(offset as usize) {
            let kind = if directory {
                FileType::Directory
            } else {
                FileType::RegularFile
            };
            let ino = if ino == 0 { UNKNOWN_INO } else { ino };
            if reply.add(INodeNo(ino), position as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.open_directories.lock().remove(&fh.0);
        reply.ok();
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match nix::sys::statvfs::statvfs(self.volume.cache_directory()) {
            Ok(s) => reply.statfs(
                s.blocks(),
                s.blocks_free(),
                s.blocks_available(),
                s.files(),
                s.files_free(),
                s.block_size() as u32,
                255,
                s.fragment_size() as u32,
            ),
            Err(error) => reply.error(Errno::from_i32(error as i32)),
        }
    }

    fn getxattr(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size: u32,
        reply: ReplyXattr,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn create(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let name = match utf8(name) {
            Ok(name) => name.to_owned(),
            Err(_) => return reply.error(Errno::EINVAL),
        };
        let (uid, gid) = (self.uid, self.gid);
        self.here_or_fetching(
            self.volume.must_list(parent.0),
            move |volume| match volume.create(parent.0, &name, permissions(mode, umask)) {
                Ok(node) => {
                    volume.looked_up(node.ino);
                    reply.created(
                        &TTL,
                        &attributes(&node, uid, gid),
                        Generation(0),
                        FileHandle(0),
                        FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
                    );
                }
                Err(error) => reply.error(errno(volume, &error, "create a file", parent.0)),
            },
        );
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: u64,
        _length: u64,
        _mode: i32,
        reply: ReplyEmpty,
    ) {
        // Postgres falls back to writing zeroes.
        reply.error(Errno::EOPNOTSUPP);
    }

    fn lseek(
        &self,
        _req: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        // Only SEEK_DATA and SEEK_HOLE come here; the kernel then treats files as having no holes.
        reply.error(Errno::ENOSYS);
    }
}
