//! A real Postgres cluster in a temporary directory, stopped and removed when dropped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pg_types::PgMajor;
use pg_types::v15::ControlFile;
use tempfile::TempDir;

use super::servers::{Server, bin_dir, system};

pub struct Cluster {
    major: PgMajor,
    /// The server's programs.
    server: PathBuf,
    dir: TempDir,
    running: bool,
}

fn user() -> String {
    std::env::var("WEIR_PG_USER").unwrap_or_else(|_| "postgres".into())
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().expect("run id");
    output.stdout == b"0\n"
}

/// Where the server's unprivileged user can run these programs: a copy of theirs, when root keeps them to itself.
fn readable(bin: &Path, below: &Path) -> PathBuf {
    if bin == bin_dir() || !is_root() {
        return bin.to_owned();
    }
    let copy = below.join("server");
    let from = bin.parent().expect("programs lie in a directory");
    let output = Command::new("cp").arg("-r").arg(from).arg(&copy).output();
    check("cp", output.expect("run cp"));
    let output = Command::new("chmod")
        .arg("-R")
        .arg("a+rX")
        .arg(&copy)
        .output();
    check("chmod", output.expect("run chmod"));
    copy.join("bin")
}

/// A program below `bin`, run as an unprivileged user when the test is root.
fn command(bin: &Path, program: &str) -> Command {
    let path = bin.join(program);
    if !is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user(), "--regid", &user(), "--init-groups"])
        .arg(path);
    command
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
    /// A fresh, stopped cluster of the system's server.
    pub fn init(settings: &str) -> Cluster {
        Cluster::init_of(&system(), settings)
    }

    /// A fresh, stopped cluster of this server.
    pub fn init_of(server: &Server, settings: &str) -> Cluster {
        let major = server.major;
        let dir = tempfile::Builder::new()
            .prefix("weir-redo-")
            .tempdir()
            .expect("create a directory");
        if is_root() {
            let mut chown = Command::new("chown");
            let output = chown.arg(user()).arg(dir.path()).output();
            check("chown", output.expect("run chown"));
        }
        let server = readable(&server.bin, dir.path());
        let cluster = Cluster {
            major,
            server,
            dir,
            running: false,
        };
        // 18 turns checksums on unless told otherwise; Weir's clusters have none.
        let no_checksums = (major >= PgMajor::V18).then_some("--no-data-checksums");
        let initdb = command(&cluster.server, "initdb")
            .args(no_checksums)
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
        let path = cluster.data().join("postgresql.conf");
        let mut text = fs::read_to_string(&path).expect("read postgresql.conf");
        text.push_str(settings);
        fs::write(&path, text).expect("write postgresql.conf");
        cluster
    }

    pub fn major(&self) -> PgMajor {
        self.major
    }

    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn pg_ctl(&self, args: &[&str]) -> Output {
        command(&self.server, "pg_ctl")
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
        self.start_server();
        self.running = true;
    }

    fn start_server(&self) {
        let options = format!(
            "-c listen_addresses= -c unix_socket_directories={}",
            self.dir.path().display()
        );
        let output = self.pg_ctl(&["start", "-o", &options]);
        if !output.status.success() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
            panic!("Postgres did not start:\n{log}");
        }
    }

    /// A clean stop, with a shutdown checkpoint.
    pub fn stop(&mut self) {
        check("pg_ctl stop", self.pg_ctl(&["stop", "-m", "fast"]));
        self.running = false;
    }

    /// A clean stop and a start, for settings that need one.
    pub fn restart(&self) {
        check("pg_ctl stop", self.pg_ctl(&["stop", "-m", "fast"]));
        self.start_server();
    }

    /// All server processes end at once, as in a crash; the next start recovers.
    pub fn crash_and_restart(&self) {
        check("pg_ctl stop", self.pg_ctl(&["stop", "-m", "immediate"]));
        self.start_server();
    }

    /// A client program, told where the server is.
    pub fn client(&self, program: &str) -> Command {
        let mut command = command(&bin_dir(), program);
        command
            .env("PGHOST", self.dir.path())
            .env("PGUSER", "postgres")
            .env("PGDATABASE", "postgres")
            .current_dir(self.dir.path());
        command
    }

    /// Runs a client program to its end.
    pub fn run(&self, program: &str, args: &[&str]) -> String {
        let output = self.client(program).args(args).output();
        check(program, output.expect("run a client program"))
    }

    /// `psql` with a script; each statement is its own transaction.
    pub fn psql(&self, script: &Path) -> Command {
        let mut psql = self.client("psql");
        psql.args(["-X", "-q", "-o", "/dev/null", "-v", "ON_ERROR_STOP=1", "-f"])
            .arg(script);
        psql
    }

    /// Runs a script in one session.
    pub fn sql(&self, script: &str) -> String {
        let path = self.write("script.sql", script);
        check("psql", self.psql(&path).output().expect("run psql"))
    }

    /// Writes a file that Postgres programs may read.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, text).expect("write a script");
        path
    }

    pub fn control(&self) -> ControlFile {
        let bytes = fs::read(self.data().join("global/pg_control")).expect("read pg_control");
        ControlFile::parse_of(self.major, &bytes).expect("parse pg_control")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.running {
            let _ = self.pg_ctl(&["stop", "-m", "immediate"]);
        }
    }
}
