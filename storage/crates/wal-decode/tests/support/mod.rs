//! A real Postgres cluster in a temporary directory, stopped and removed when dropped.

// Each test program uses a part of what is here.
#![allow(dead_code)]

pub mod model;
pub mod wal;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pg_types::v15::ControlFile;
use tempfile::TempDir;

pub struct Cluster {
    dir: TempDir,
    running: bool,
}

fn bin_dir() -> PathBuf {
    std::env::var_os("WEIR_PG_BIN_DIR")
        .map_or_else(|| "/usr/lib/postgresql/15/bin".into(), PathBuf::from)
}

/// A Postgres program, run as an unprivileged user when the test is root.
fn command(program: &str) -> Command {
    let path = bin_dir().join(program);
    if !is_root() {
        return Command::new(path);
    }
    let user = pg_user();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user, "--regid", &user, "--init-groups"])
        .arg(path);
    command
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("run id");
    output.stdout == b"0\n"
}

fn pg_user() -> String {
    std::env::var("WEIR_PG_USER").unwrap_or_else(|_| "postgres".into())
}

fn check(what: &str, output: Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{what} failed: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

impl Cluster {
    /// A fresh, stopped cluster.
    pub fn init(settings: &str) -> Cluster {
        let dir = tempfile::Builder::new()
            .prefix("weir-decode-")
            .tempdir()
            .expect("create a directory");
        if is_root() {
            let user = std::env::var("WEIR_PG_USER").unwrap_or_else(|_| "postgres".into());
            check(
                "chown",
                Command::new("chown")
                    .arg(&user)
                    .arg(dir.path())
                    .output()
                    .expect("run chown"),
            );
        }
        let cluster = Cluster {
            dir,
            running: false,
        };
        let initdb = command("initdb")
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
                "--locale=C",
            ])
            .arg("-D")
            .arg(cluster.data())
            .output()
            .expect("run initdb");
        check("initdb", initdb);
        cluster.configure(settings);
        cluster
    }

    /// Appends to the configuration; takes effect at the next start.
    pub fn configure(&self, settings: &str) {
        let path = self.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path).expect("read postgresql.conf");
        text.push_str(settings);
        fs::write(&path, text).expect("write postgresql.conf");
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn pg_ctl(&self, args: &[&str]) -> Output {
        command("pg_ctl")
            .arg("-D")
            .arg(self.data())
            .arg("-l")
            .arg(self.dir.path().join("log"))
            .args(["-w", "-t", "120"])
            .args(args)
            .output()
            .expect("run pg_ctl")
    }

    pub fn start(&mut self) {
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={}",
            self.dir.path().display()
        );
        let output = self.pg_ctl(&["start", "-o", &options]);
        if !output.status.success() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            panic!("Postgres did not start:\n{log}");
        }
        self.running = true;
    }

    /// A clean stop, with a shutdown checkpoint.
    pub fn stop(&mut self) {
        check("pg_ctl stop", self.pg_ctl(&["stop", "-m", "fast"]));
        self.running = false;
    }

    /// Runs a script in one session, statement by statement; its output, unaligned.
    pub fn sql(&self, script: &str) -> String {
        let output = command("psql")
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-U",
                "postgres",
                "-d",
                "postgres",
                "-h",
            ])
            .arg(self.dir.path())
            .args(
                script
                    .split_inclusive(";;")
                    .flat_map(|statement| ["-c", statement.trim_end_matches(";;")]),
            )
            .output()
            .expect("run psql");
        check("psql", output).trim().to_owned()
    }

    /// Runs one of the stand-alone tools.
    pub fn tool(&self, program: &str, args: &[&str]) -> String {
        check(
            program,
            command(program).args(args).output().expect("run a tool"),
        )
    }

    pub fn control(&self) -> ControlFile {
        ControlFile::parse(&self.read("global/pg_control")).expect("parse pg_control")
    }

    pub fn read(&self, path: impl AsRef<Path>) -> Vec<u8> {
        let path = self.data().join(path);
        fs::read(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
    }

    /// Replaces a file, keeping it Postgres's.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.data().join(path);
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("write {}: {error}", path.display()));
        if is_root() {
            check(
                "chown",
                Command::new("chown")
                    .arg(pg_user())
                    .arg(&path)
                    .output()
                    .expect("run chown"),
            );
        }
    }

    /// Empties `pg_wal`.
    pub fn remove_wal(&self) {
        for name in self.list("pg_wal").iter().filter(|name| name.len() == 24) {
            fs::remove_file(self.data().join("pg_wal").join(name)).expect("remove a segment");
        }
    }

    /// Names in a directory, sorted.
    pub fn list(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.data().join(path))
            .expect("list a directory")
            .map(|entry| {
                entry
                    .expect("read an entry")
                    .file_name()
                    .to_string_lossy()
                    .into_owned()
            })
            .collect();
        names.sort();
        names
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.running {
            let _ = self.pg_ctl(&["stop", "-m", "immediate"]);
        }
    }
}
