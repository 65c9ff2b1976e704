//! Promise: an agent that is killed while it reads through its own mount ends, and its mount with it.
//!
//! Needs /dev/fuse and the right to mount, as a compute does. A process of this test's own is killed: this same program,
//! started as a child.

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use compute::source::{PageSource, SourceError};
use compute::volume::mount::Mounted;
use compute::volume::{Volume, through_mount};
use nix::mount::{MntFlags, umount2};
use pg_types::{ForkNumber, RelTag, SlruKind};
use support::Dir;

const CHILD: &str = "KILLED_WHILE_IT_READS";
const PATIENCE: Duration = Duration::from_secs(20);
const RELATION: RelTag = RelTag {
    spc: 1663,
    db: 5,
    rel: 100,
    fork: ForkNumber::Main,
};

/// Storage that lists one relation of one block, says when it is asked for it, and never answers.
struct Silent;

impl PageSource for Silent {
    fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(vec![(RELATION.spc, RELATION.db)])
    }

    fn relations(&self, _spc: u32, _db: u32) -> Result<Vec<(RelTag, u32)>, SourceError> {
        Ok(vec![(RELATION, 1)])
    }

    fn slru_segments(&self, _kind: SlruKind) -> Result<Vec<(u32, u32)>, SourceError> {
        Ok(Vec::new())
    }

    fn pages(&self, _rel: RelTag, _blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        println!("\nasked");
        loop {
            std::thread::park();
        }
    }

    fn slru_pages(&self, _kind: SlruKind, _pages: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        Err(SourceError::Failed("not asked for here".into()))
    }
}

/// Does nothing unless the other test starts it.
#[test]
fn a_child_of_the_other() {
    let Some(directory) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    let volume = Volume::new(Arc::new(Silent), directory.join("cache"), 64).unwrap();
    let mount = directory.join("volume");
    let _mounted = Mounted::new(Arc::new(volume), &mount, 0, 0).unwrap();
    let file = mount.join(format!("base/{}/{}", RELATION.db, RELATION.rel));
    let read = through_mount::alone(move || std::fs::read(file));
    panic!("storage has answered: {read:?}");
}

fn ends(child: &mut Child) -> bool {
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Ends what waits for the mount, whoever serves it, and takes it away.
fn give_up(mount: &Path) {
    umount2(mount, MntFlags::MNT_FORCE | MntFlags::MNT_DETACH).ok();
}

#[test]
fn an_agent_killed_within_a_read_of_its_own_volume_ends() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root takes the mount of a killed process away");
        return;
    }
    let directory = Dir::new("weir-killed-");
    let mount = directory.make("volume");
    directory.make("cache");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "a_child_of_the_other"])
        .env(CHILD, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let asked = said.any(|line| line.unwrap() == "asked");
    // The kernel looks at a request as handed over once it was read; storage was asked after that.
    child.kill().unwrap();
    let ended = ends(&mut child);
    give_up(&mount);
    assert!(
        ended || ends(&mut child),
        "it waits even for a mount that was given up"
    );
    assert!(asked, "the volume was not read");
    assert!(ended, "the killed process waits for itself");
}
