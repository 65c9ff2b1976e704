//! A stock Postgres started at a timeline's LSN without recovery, as a compute starts it, but with its data
//! directory complete on local disk.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pg_types::v15::ControlFile;
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES};
use wal_decode::{TimelineState, synth};

use super::server::{bin_dir, pg_user};

pub struct Postgres {
    pub pgdata: PathBuf,
    sockets: PathBuf,
    child: Option<Child>,
}

/// The parts of a bundle a test needs.
pub struct Bundle {
    pub files: Vec<(String, Vec<u8>)>,
    pub lsn: Lsn,
    pub system_identifier: u64,
    pub state: TimelineState,
}

impl Bundle {
    pub fn parse(tar: &[u8]) -> Bundle {
        let mut archive = tar::Archive::new(tar);
        let mut files = Vec::new();
        for entry in archive.entries().expect("tar") {
            let mut entry = entry.expect("entry");
            let path = entry.path().expect("path").to_string_lossy().into_owned();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).expect("content");
            files.push((path, content));
        }
        let start: serde_json::Value =
            serde_json::from_slice(find(&files, "weir/start.json")).expect("start.json");
        Bundle {
            lsn: super::server::lsn(&start["lsn"]),
            system_identifier: start["system_identifier"]
                .as_str()
                .expect("text")
                .parse()
                .expect("decimal"),
            state: serde_json::from_value(start["timeline_state"].clone()).expect("state"),
            files,
        }
    }

    pub fn file(&self, path: &str) -> &[u8] {
        find(&self.files, path)
    }

    pub fn has(&self, path: &str) -> bool {
        self.files.iter().any(|(name, _)| name == path)
    }
}

fn find<'a>(files: &'a [(String, Vec<u8>)], path: &str) -> &'a [u8] {
    &files
        .iter()
        .find(|(name, _)| name == path)
        .unwrap_or_else(|| panic!("bundle lacks {path}"))
        .1
}

fn user() -> Option<nix::unistd::User> {
    nix::unistd::geteuid().is_root().then(|| {
        nix::unistd::User::from_name(&pg_user())
            .expect("user")
            .expect("the user exists")
    })
}

pub fn give_to_postgres(path: &Path) {
    let Some(user) = user() else { return };
    nix::unistd::chown(path, Some(user.uid), Some(user.gid)).expect("chown");
    if path.is_dir() {
        for entry in std::fs::read_dir(path).expect("list") {
            give_to_postgres(&entry.expect("entry").path());
        }
    }
}

impl Postgres {
    /// Makes `pgdata`, which holds the relation files already, start at the bundle's LSN.
    pub fn prepare(pgdata: &Path, bundle: &Bundle, full_page_writes: bool) {
        let prev = bundle.state.prev_record_lsn;
        let record_start = pg_types::wal::next_record_start(bundle.lsn);
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .expect("time")
            .as_secs() as i64;
        let mut checkpoint = bundle.state.checkpoint_at(record_start, now);
        checkpoint.full_page_writes = full_page_writes;
        let record = synth::shutdown_checkpoint(&checkpoint, prev);
        let (start, _, segments) = synth::start_segments(
            &record,
            bundle.lsn,
            PgMajor::V15,
            1,
            bundle.system_identifier,
        );
        assert_eq!(start, record_start);
        let pg_wal = pgdata.join("pg_wal");
        let _ = std::fs::remove_dir_all(&pg_wal);
        std::fs::create_dir_all(pg_wal.join("archive_status")).expect("pg_wal");
        for segment in segments {
            let mut bytes = segment.head;
            bytes.resize(WAL_SEGMENT_BYTES as usize, 0);
            std::fs::write(
                pg_wal.join(segment.start.segment_file_name(WAL_SEGMENT_BYTES)),
                bytes,
            )
            .expect("segment");
        }
        let mut control = ControlFile::parse(bundle.file("weir/pg_control")).expect("pg_control");
        assert_eq!(control.system_identifier(), bundle.system_identifier);
        control.stop_at(&checkpoint, &bundle.state.parameters);
        std::fs::write(pgdata.join("global/pg_control"), control.to_bytes()).expect("pg_control");
        for (path, content) in bundle
            .files
            .iter()
            .filter(|(path, _)| !path.starts_with("weir/"))
        {
            let path = pgdata.join(path);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            std::fs::write(path, content).expect("bundle file");
        }
    }

    pub fn start(pgdata: &Path, settings: &[&str]) -> Postgres {
        let sockets = pgdata.with_extension("sock");
        std::fs::create_dir_all(&sockets).expect("socket directory");
        give_to_postgres(&sockets);
        give_to_postgres(pgdata);
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(pgdata.with_extension("log"))
            .expect("log");
        let mut command = Command::new(bin_dir().join("postgres"));
        command.arg("-D").arg(pgdata).arg("-k").arg(&sockets);
        let fixed = [
            "listen_addresses=",
            "port=5432",
            "wal_level=replica",
            "fsync=off",
            "max_wal_size=1GB",
        ];
        for setting in fixed.iter().chain(settings) {
            command.arg("-c").arg(setting);
        }
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("log"))
            .stderr(log)
            .current_dir("/");
        if let Some(user) = user() {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        let child = command.spawn().expect("start postgres");
        let mut postgres = Postgres {
            pgdata: pgdata.to_owned(),
            sockets,
            child: Some(child),
        };
        postgres.wait_until_ready();
        postgres
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let ready = Command::new(bin_dir().join("pg_isready"))
                .arg("-q")
                .args(["-p", "5432", "-h"])
                .arg(&self.sockets)
                .status()
                .expect("pg_isready");
            if ready.success() {
                return;
            }
            let exited = self
                .child
                .as_mut()
                .expect("running")
                .try_wait()
                .expect("wait");
            if exited.is_some() || Instant::now() > deadline {
                let log =
                    std::fs::read_to_string(self.pgdata.with_extension("log")).unwrap_or_default();
                panic!("postgres did not start ({exited:?}):\n{log}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn client(&self, program: &str, database: &str) -> Command {
        let mut command = Command::new(bin_dir().join(program));
        command.env("PGOPTIONS", "-c statement_timeout=60s -c lock_timeout=30s");
        command
            .args(["-p", "5432", "-U", pageserver::import::SUPERUSER, "-h"])
            .arg(&self.sockets);
        if program == "psql" {
            command.args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-d",
                database,
            ]);
        }
        command
    }

    /// Runs SQL and returns what it prints.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = self
            .client("psql", database)
            .arg("-c")
            .arg(sql)
            .output()
            .expect("psql");
        assert!(
            output.status.success(),
            "{sql}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout)
            .expect("text")
            .trim()
            .to_owned()
    }

    /// Runs a script as `psql -f` does, each statement in its own transaction.
    pub fn script(&self, database: &str, sql: &str) {
        let path = self.sockets.join("script.sql");
        std::fs::write(&path, sql).expect("script");
        let output = self
            .client("psql", database)
            .arg("-f")
            .arg(&path)
            .output()
            .expect("psql");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    pub fn pgbench(&self, arguments: &[&str]) {
        let output = self
            .client("pgbench", "")
            .args(arguments)
            .output()
            .expect("pgbench");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// The end of the last record, all of it flushed. What is flushed may end within a record, at a page's end, where
    /// the WAL writer went that far; no pageserver can ingest up to there.
    pub fn flush_lsn(&self) -> Lsn {
        // Where the next record begins is past the header of its page, where it begins one.
        const AT_RECORD_END: &str = "SELECT coalesce((SELECT pg_current_wal_flush_lsn()
            WHERE pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn() IN (0, 24, 40))::text, '')";
        for _ in 0..100 {
            let found = self.sql("postgres", AT_RECORD_END);
            if !found.is_empty() {
                return found.parse().expect("an LSN");
            }
            // Its commit flushes whatever came before.
            self.sql("postgres", "SELECT txid_current()");
        }
        panic!("Postgres goes on writing WAL that it does not flush");
    }

    fn signal(&mut self, signal: nix::sys::signal::Signal) {
        if let Some(mut child) = self.child.take() {
            let pid = nix::unistd::Pid::from_raw(child.id() as i32);
            let _ = nix::sys::signal::kill(pid, signal);
            let _ = child.wait();
        }
    }

    /// Stops cleanly and returns the end of the WAL.
    pub fn stop(&mut self) -> Lsn {
        self.signal(nix::sys::signal::Signal::SIGINT);
        let control = std::fs::read(self.pgdata.join("global/pg_control")).expect("pg_control");
        let control = ControlFile::parse(&control).expect("pg_control");
        assert_eq!(
            control.state(),
            Some(pg_types::v15::DbState::ShutDown),
            "postgres did not stop cleanly"
        );
        TimelineState::from_control_file(&control, PgMajor::V15).last_record_lsn
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGQUIT);
    }
}

pub fn copy_tree(source: &Path, target: &Path) {
    std::fs::create_dir_all(target).expect("directory");
    for entry in std::fs::read_dir(source).expect("list") {
        let entry = entry.expect("entry");
        let to = target.join(entry.file_name());
        if entry.file_type().expect("type").is_dir() {
            copy_tree(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), &to).expect("copy");
        }
    }
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(target, std::fs::Permissions::from_mode(0o700)).expect("mode");
}
