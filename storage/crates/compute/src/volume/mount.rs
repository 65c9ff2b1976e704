//! Mounting a volume, and taking it away for good.

use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::Volume;
use super::dirty_limit::{self, MAX_DIRTY};
use super::front::Front;
use super::through_mount;

/// What the mount is called in the mount table.
const NAME: &str = "weir";
/// Threads that talk to the kernel; more than a few only contend.
const LOOP_THREADS: usize = 3;
/// How often a busy mount is tried again before it is detached.
const UNMOUNT_TRIES: u32 = 20;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(25);

/// The volume was not mounted, by the kernel or, without root, by the helper of FUSE.
#[derive(Debug, thiserror::Error)]
#[error("cannot mount the volume at {path}: {source}; FUSE needs /dev/fuse and the right to mount")]
pub struct MountError {
    path: PathBuf,
    source: std::io::Error,
}

/// Opens the FUSE device and mounts it at `path`; to be called as root.
fn mount_device(path: &Path) -> std::io::Result<OwnedFd> {
    // The standard library opens files close-on-exec: a descriptor that Postgres inherits would keep a dead
    // agent's mount alive.
    let device: OwnedFd = File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse")?
        .into();
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    );
    let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOATIME;
    mount(
        Some(NAME),
        path,
        Some("fuse"),
        flags,
        Some(options.as_str()),
    )?;
    Ok(device)
}

/// A mounted volume; dropping it closes the volume and unmounts.
pub struct Mounted {
    volume: Arc<Volume>,
    path: PathBuf,
    session: Option<BackgroundSession>,
}

impl Mounted {
    /// Mounts `volume` at the existing empty directory `path`, owned by `uid` and `gid`.
    pub fn new(
        volume: Arc<Volume>,
        path: &Path,
        uid: u32,
        gid: u32,
    ) -> Result<Mounted, MountError> {
        let fail = |source| MountError {
            path: path.to_owned(),
            source,
        };
        let mut config = Config::default();
        config.n_threads = Some(LOOP_THREADS);
        config.clone_fd = true;
        let front = Front::new(volume.clone(), uid, gid).map_err(fail)?;
        // Root mounts by itself, so that taking the mount away is in one hand; Postgres is another user then.
        // Without root the session asks a helper, and Postgres runs as the same user.
        let root = nix::unistd::geteuid().is_root();
        let session = if root {
            let device = mount_device(path).map_err(fail)?;
            Session::from_fd(front, device, SessionACL::All, config)
        } else {
            config.mount_options = vec![
                MountOption::FSName(NAME.to_owned()),
                MountOption::DefaultPermissions,
                MountOption::NoAtime,
            ];
            Session::new(front, path, &config)
        };
        let session = session.and_then(Session::spawn).map_err(fail)?;
        let mount = path.to_owned();
        let limited = through_mount::alone(move || dirty_limit::set(&mount, MAX_DIRTY));
        if let Err(error) = limited.and_then(|set| set) {
            tracing::info!(path = %path.display(), %error, "the kernel's own limit of written pages stays");
        }
        Ok(Mounted {
            volume,
            path: path.to_owned(),
            session: Some(session),
        })
    }

    /// The volume that is mounted.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    fn unmount(&mut self) {
        let Some(session) = self.session.take() else {
            return;
        };
        self.volume.close();
        let (mut detached, mut unmounted) = (false, false);
        for attempt in 0.. {
            // It writes back what the kernel has of the volume, and waits for that.
            let path = self.path.clone();
            let tried = through_mount::alone(move || umount2(&path, MntFlags::empty()));
            match tried.unwrap_or(Err(Errno::EBUSY)) {
                Ok(()) | Err(Errno::EINVAL) => {
                    unmounted = true;
                    break;
                }
                // Not root: the session asks the helper it was mounted with.
                Err(Errno::EPERM) => break,
                Err(Errno::EBUSY) if attempt < UNMOUNT_TRIES => std::thread::sleep(UNMOUNT_PAUSE),
                Err(error) => {
                    tracing::warn!(path = %self.path.display(), %error, "the volume is still in use: detaching it");
                    if let Err(error) = umount2(&self.path, MntFlags::MNT_DETACH)
                        && error != Errno::EINVAL
                    {
                        tracing::error!(path = %self.path.display(), %error, "cannot detach the volume");
                    }
                    detached = true;
                    break;
                }
            }
        }
        if detached {
            // The session ends when the last user lets go; until then it answers EIO.
            std::mem::forget(session);
            return;
        }
        let ended = if unmounted {
            session.join()
        } else {
            session.umount_and_join()
        };
        if let Err(error) = ended {
            tracing::warn!(path = %self.path.display(), %error, "the volume's session ended badly");
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.unmount();
    }
}
