//! Real Postgres for the tests: a cluster from `initdb`, servers that end with the test, a page source that
//! reads a plain data directory.
#![allow(dead_code)]

use std::os::unix::fs::{FileExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use compute::source::{PageSource, SourceError};
use compute::volume::names::{self, RelFile};
use pg_types::{BLCKSZ, RELSEG_BLOCKS, RelTag, SlruKind};

pub const USER: &str = "weir_admin";

pub fn bin_dir() -> PathBuf {
    std::env::var_os("WEIR_PG_BIN_DIR")
        .map_or_else(|| "/usr/lib/postgresql/15/bin".into(), PathBuf::from)
}

/// The user that Postgres runs as: Postgres refuses root.
pub fn os_user() -> (u32, u32) {
    if nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_name("postgres")
            .unwrap()
            .expect("user postgres exists");
        (user.uid.as_raw(), user.gid.as_raw())
    } else {
        (
            nix::unistd::getuid().as_raw(),
            nix::unistd::getgid().as_raw(),
        )
    }
}

fn command(program: &str) -> Command {
    let mut command = Command::new(bin_dir().join(program));
    if nix::unistd::geteuid().is_root() {
        let (uid, gid) = os_user();
        command.uid(uid).gid(gid);
    }
    command.stdin(Stdio::null()).current_dir("/");
    command
}

/// A directory that both the test and Postgres can reach; removed at the end.
pub struct Dir(tempfile::TempDir);

impl Dir {
    pub fn new(prefix: &str) -> Dir {
        let dir = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in("/tmp")
            .unwrap();
        give(dir.path());
        Dir(dir)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A directory below that belongs to Postgres.
    pub fn make(&self, name: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        give(&path);
        path
    }
}

pub fn give(path: &Path) {
    let (uid, gid) = os_user();
    chown(path, Some(uid), Some(gid)).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
}

pub fn initdb(directory: &Path) {
    let output = command("initdb")
        .args([
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C",
            "--auth=trust",
            "--username",
            USER,
            "-D",
        ])
        .arg(directory)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "initdb: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A running server; killed with everything it started when dropped.
pub struct Server {
    child: Child,
    pub socket: PathBuf,
    log: PathBuf,
}

impl Server {
    /// Starts `postgres` on `data` and waits until it answers.
    pub fn start(data: &Path, socket: &Path, options: &[&str]) -> Result<Server, String> {
        let log = socket.join("log");
        let output = std::fs::File::create(&log).unwrap();
        let mut command = command("postgres");
        command.arg("-D").arg(data).arg("-k").arg(socket);
        command.args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "port=5432",
        ]);
        for option in options {
            command.args(["-c", option]);
        }
        let child = command
            .process_group(0)
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        let mut server = Server {
            child,
            socket: socket.to_owned(),
            log,
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = server.child.try_wait().unwrap() {
                return Err(format!("postgres ended with {status}: {}", server.log()));
            }
            if server.try_sql("postgres", "SELECT 1").is_ok() {
                return Ok(server);
            }
            if Instant::now() > deadline {
                return Err(format!("postgres does not answer: {}", server.log()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn try_sql(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = command("psql")
            .args([
                "-X",
                "-A",
                "-t",
                "-q",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                USER,
                "-d",
                database,
                "-h",
            ])
            .arg(&self.socket)
            .args(["-c", sql])
            .output()
            .unwrap();
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    pub fn sql(&self, sql: &str) -> String {
        self.sql_in("postgres", sql)
    }

    pub fn sql_in(&self, database: &str, sql: &str) -> String {
        self.try_sql(database, sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}\n--- log:\n{}", self.log()))
    }

    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = command(program)
            .args(["-U", USER, "-h"])
            .arg(&self.socket)
            .args(arguments)
            .output()
            .unwrap();
        let text = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {text}\n{}",
            self.log()
        );
        text
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, signal).ok();
    }

    /// A fast shutdown, waited for.
    pub fn stop(mut self) {
        self.signal(nix::sys::signal::Signal::SIGINT);
        let status = self.child.wait().unwrap();
        assert!(
            status.success(),
            "postgres ended with {status}: {}",
            self.log()
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(nix::sys::signal::Signal::SIGQUIT);
            self.child.wait().ok();
        }
    }
}

/// Serves the files of a stopped cluster as storage would.
pub struct PlainSource {
    pub data: PathBuf,
}

impl PlainSource {
    fn read(&self, path: &str, block: u32) -> Result<Bytes, SourceError> {
        let fail = |error: std::io::Error| SourceError::Failed(format!("{path}: {error}"));
        let file = std::fs::File::open(self.data.join(path)).map_err(fail)?;
        let mut page = vec![0; BLCKSZ];
        file.read_exact_at(&mut page, u64::from(block) * BLCKSZ as u64)
            .map_err(fail)?;
        let empty = page.iter().all(|byte| *byte == 0);
        Ok(if empty { Bytes::new() } else { page.into() })
    }

    fn list(&self, path: &str) -> Result<Vec<(String, u64)>, SourceError> {
        let fail = |error: std::io::Error| SourceError::Failed(format!("{path}: {error}"));
        std::fs::read_dir(self.data.join(path))
            .map_err(fail)?
            .map(|entry| {
                let entry = entry.map_err(fail)?;
                Ok((
                    entry.file_name().to_string_lossy().into_owned(),
                    entry.metadata().map_err(fail)?.len(),
                ))
            })
            .collect()
    }
}

impl PageSource for PlainSource {
    fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError> {
        let names = self.list("base")?;
        Ok(names
            .iter()
            .filter_map(|(name, _)| Some((1663, names::canonical_number(name)?)))
            .collect())
    }

    fn relations(&self, spc: u32, db: u32) -> Result<Vec<(RelTag, u32)>, SourceError> {
        let directory = names::database_path(spc, db).unwrap();
        let mut sizes = std::collections::HashMap::<RelTag, u32>::new();
        for (name, bytes) in self.list(&directory)? {
            let Some(file) = RelFile::parse(&name) else {
                continue;
            };
            *sizes.entry(file.tag(spc, db)).or_default() += (bytes / BLCKSZ as u64) as u32;
        }
        Ok(sizes.into_iter().collect())
    }

    fn slru_segments(&self, kind: SlruKind) -> Result<Vec<(u32, u32)>, SourceError> {
        let names = self.list(kind.directory())?;
        Ok(names
            .iter()
            .filter_map(|(name, bytes)| {
                Some((
                    names::parse_slru_segment(name)?,
                    (*bytes / BLCKSZ as u64) as u32,
                ))
            })
            .collect())
    }

    fn pages(&self, rel: RelTag, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        let directory = names::database_path(rel.spc, rel.db).unwrap();
        blocks
            .iter()
            .map(|block| {
                let file = RelFile {
                    rel: rel.rel,
                    fork: rel.fork,
                    segment: block / RELSEG_BLOCKS,
                };
                self.read(
                    &format!("{directory}/{}", file.name()),
                    block % RELSEG_BLOCKS,
                )
            })
            .collect()
    }

    fn slru_pages(&self, kind: SlruKind, pages: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        pages
            .iter()
            .map(|page| {
                let segment = names::slru_segment_name(page / 32);
                self.read(&format!("{}/{segment}", kind.directory()), page % 32)
            })
            .collect()
    }
}
