//! Real safekeeper processes, a real Postgres, and a place for them that goes away with the test.

#![allow(dead_code, unused_imports)]

pub mod delayed;
mod frozen;
pub mod reader;
pub mod store;
mod wal;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pg_types::v15::ControlFile;
use pg_types::{Lsn, TenantId, TimelineId, wal::record_end};
use proposer::{PgConn, ProposerConfig, ProposerHandle, elect};
use test_ports::free_port;

pub use frozen::Frozen;
pub use wal::{committed_xids, read_wal};

const PG_BIN: &str = "/usr/lib/postgresql/15/bin";
/// Header, 0xFF and length byte, CheckPoint struct.
const CHECKPOINT_RECORD_BYTES: u64 = 24 + 2 + 88;
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `ready` gives something.
pub async fn eventually<T>(what: &str, mut ready: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = ready().await {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub struct SafekeeperProcess {
    pub id: u64,
    pub dir: PathBuf,
    pub wal: String,
    pub http: String,
    /// Beside what each one is given.
    arguments: Vec<String>,
    child: Option<Child>,
}

impl SafekeeperProcess {
    pub async fn start(id: u64, dir: &Path) -> SafekeeperProcess {
        SafekeeperProcess::start_with(id, dir, &[]).await
    }

    pub async fn start_with(id: u64, dir: &Path, arguments: &[String]) -> SafekeeperProcess {
        let mut process = SafekeeperProcess {
            id,
            dir: dir.join(format!("safekeeper-{id}")),
            wal: format!("127.0.0.1:{}", free_port()),
            http: format!("127.0.0.1:{}", free_port()),
            arguments: arguments.to_vec(),
            child: None,
        };
        process.restart().await;
        process
    }

    pub async fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let child = Command::new(env!("CARGO_BIN_EXE_weir-safekeeper"))
            .args([
                "--id",
                &self.id.to_string(),
                "--listen-wal",
                &self.wal,
                "--listen-http",
                &self.http,
            ])
            .arg("--data-dir")
            .arg(&self.dir)
            .args(&self.arguments)
            .spawn()
            .expect("start weir-safekeeper");
        self.child = Some(child);
        let url = format!("http://{}/healthz", self.http);
        eventually("the safekeeper to serve", async || {
            reqwest::get(&url)
                .await
                .ok()
                .filter(|reply| reply.status().is_success())
        })
        .await;
    }

    /// kill -9.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("kill a child of ours");
            child.wait().expect("reap it");
        }
    }

    pub fn url(&self, tenant: TenantId, timeline: TimelineId) -> String {
        format!(
            "http://{}/v1/tenant/{tenant}/timeline/{timeline}",
            self.http
        )
    }

    pub fn timeline_dir(&self, tenant: TenantId, timeline: TimelineId) -> PathBuf {
        self.dir.join(tenant.to_string()).join(timeline.to_string())
    }
}

impl Drop for SafekeeperProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Some safekeepers with one timeline.
pub struct Quorum {
    pub safekeepers: Vec<SafekeeperProcess>,
    pub tenant: TenantId,
    pub timeline: TimelineId,
    pub start_lsn: Lsn,
    pub system_identifier: u64,
}

impl Quorum {
    pub async fn start(dir: &Path, count: u64, postgres: &Postgres) -> Quorum {
        Quorum::start_with(dir, count, postgres, &[]).await
    }

    pub async fn start_with(
        dir: &Path,
        count: u64,
        postgres: &Postgres,
        arguments: &[String],
    ) -> Quorum {
        let mut safekeepers = Vec::new();
        for id in 1..=count {
            safekeepers.push(SafekeeperProcess::start_with(id, dir, arguments).await);
        }
        let quorum = Quorum {
            safekeepers,
            tenant: TenantId([0xaa; 16]),
            timeline: TimelineId([0xbb; 16]),
            start_lsn: postgres.start_lsn,
            system_identifier: postgres.system_identifier,
        };
        for safekeeper in &quorum.safekeepers {
            let reply = create(
                &safekeeper.url(quorum.tenant, quorum.timeline),
                quorum.start_lsn,
                quorum.system_identifier,
            )
            .await;
            assert_eq!(reply.status(), 201);
        }
        quorum
    }

    pub fn config(&self) -> ProposerConfig {
        let addresses = self
            .safekeepers
            .iter()
            .map(|safekeeper| safekeeper.wal.clone())
            .collect();
        ProposerConfig::new(self.tenant, self.timeline, addresses, "ep-test")
    }

    pub async fn status(&self, index: usize) -> serde_json::Value {
        let url = self.safekeepers[index].url(self.tenant, self.timeline);
        reqwest::get(url)
            .await
            .expect("status")
            .json()
            .await
            .expect("JSON")
    }

    pub async fn lsn(&self, index: usize, field: &str) -> Lsn {
        let status = self.status(index).await;
        status[field]
            .as_str()
            .unwrap_or_else(|| panic!("no {field} in {status}"))
            .parse()
            .expect("an LSN")
    }

    /// Waits until every safekeeper has committed up to `lsn`.
    pub async fn all_committed(&self, lsn: Lsn) {
        for index in 0..self.safekeepers.len() {
            eventually("every safekeeper to have everything", async || {
                (self.lsn(index, "commit_lsn").await >= lsn).then_some(())
            })
            .await;
        }
    }

    /// WAL of one safekeeper as its files hold it.
    pub fn wal(&self, index: usize, from: Lsn, to: Lsn) -> Vec<u8> {
        read_wal(
            &self.safekeepers[index].timeline_dir(self.tenant, self.timeline),
            from,
            to,
        )
    }
}

/// A compute: a proposer that has won a term, its Postgres, and a client of that.
pub async fn compute(
    config: ProposerConfig,
    postgres: &mut Postgres,
) -> (ProposerHandle, tokio_postgres::Client) {
    let elected = elect(config).await.expect("elected");
    postgres.start();
    let handle = elected.stream(postgres.conn(), postgres.quitter());
    (handle, postgres.connect().await)
}

pub async fn create(url: &str, start_lsn: Lsn, system_identifier: u64) -> reqwest::Response {
    create_as(url, start_lsn, system_identifier, false).await
}

/// `learner`: as a log that waits to be made one, in place of a founder.
pub async fn create_as(
    url: &str,
    start_lsn: Lsn,
    system_identifier: u64,
    learner: bool,
) -> reqwest::Response {
    let body = serde_json::json!({
        "start_lsn": start_lsn, "system_identifier": system_identifier.to_string(), "pg_version": 15,
        "learner": learner
    });
    reqwest::Client::new()
        .post(url)
        .json(&body)
        .send()
        .await
        .expect("create")
}

/// A stock Postgres whose only synchronous standby is the proposer.
pub struct Postgres {
    pub dir: PathBuf,
    pub port: u16,
    pub start_lsn: Lsn,
    pub system_identifier: u64,
    child: Option<Child>,
    /// One was, whatever was started since.
    was_killed: bool,
}

/// Postgres refuses to run as root.
fn unprivileged(program: &str) -> Command {
    let path = format!("{PG_BIN}/{program}");
    if nix::unistd::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
            &path,
        ]);
        command
    } else {
        Command::new(path)
    }
}

impl Postgres {
    /// A fresh cluster below `dir`, not running yet.
    pub fn init(dir: &Path) -> Postgres {
        let home = dir.join("postgres");
        std::fs::create_dir(&home).expect("directory");
        open_to_postgres(dir, &home);
        let data = home.join("data");
        let done = unprivileged("initdb")
            .args(["-A", "trust", "-U", "weir", "--no-sync", "-D"])
            .arg(&data)
            .stdout(Stdio::null())
            .status()
            .expect("initdb");
        assert!(done.success(), "initdb failed");
        let settings = "wal_level = replica\nfsync = off\nlisten_addresses = ''\nsynchronous_standby_names = 'weir_proposer'\n\
                        restart_after_crash = off\nshared_buffers = 32MB\nmax_wal_size = 64MB\nwal_keep_size = 1GB\n";
        let config = data.join("postgresql.auto.conf");
        std::fs::write(&config, settings).expect("settings");
        let control = std::fs::read(data.join("global/pg_control")).expect("pg_control");
        let control = ControlFile::parse(&control).expect("pg_control");
        Postgres {
            start_lsn: record_end(control.checkpoint(), CHECKPOINT_RECORD_BYTES),
            system_identifier: control.system_identifier(),
            port: free_port(),
            dir: home,
            child: None,
            was_killed: false,
        }
    }

    pub fn start(&mut self) {
        let child = unprivileged("postgres")
            .arg("-D")
            .arg(self.dir.join("data"))
            .arg("-k")
            .arg(&self.dir)
            .args(["-p", &self.port.to_string()])
            .stderr(std::fs::File::create(self.dir.join("log")).expect("log"))
            .spawn()
            .expect("start postgres");
        self.child = Some(child);
    }

    /// kill -9 of the postmaster; its children notice and go.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("kill a child of ours");
            child.wait().expect("reap it");
            self.was_killed = true;
        }
    }

    /// Whether the one that runs has said so where Postgres does.
    fn is_ready(&self) -> bool {
        let said = std::fs::read_to_string(self.dir.join("data/postmaster.pid"));
        let said = said.unwrap_or_default();
        let mut lines = said.lines();
        let own = self.child.as_ref().map(|child| child.id().to_string());
        own.is_some() && lines.next() == own.as_deref() && lines.any(|line| line.trim() == "ready")
    }

    pub fn conn(&self) -> PgConn {
        PgConn {
            socket_dir: self.dir.clone(),
            port: self.port,
            user: "weir".into(),
            slot: "weir".into(),
        }
    }

    /// Stops the one that runs now at once, as its compute does when the read lease has run out.
    pub fn quitter(&self) -> impl FnOnce() + Send + 'static {
        let child = self.child.as_ref().expect("it runs");
        let pid = nix::unistd::Pid::from_raw(child.id() as i32);
        move || {
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGQUIT);
        }
    }

    pub async fn connect(&self) -> tokio_postgres::Client {
        let mut config = tokio_postgres::Config::new();
        config
            .host_path(&self.dir)
            .port(self.port)
            .user("weir")
            .dbname("postgres");
        eventually("Postgres to take connections", async || {
            let (client, connection) = config.connect(tokio_postgres::NoTls).await.ok()?;
            tokio::spawn(connection);
            Some(client)
        })
        .await
    }

    pub fn pgbench(&self, arguments: &[&str]) -> Child {
        unprivileged("pgbench")
            .args(["-U", "weir", "-p", &self.port.to_string(), "-h"])
            .arg(&self.dir)
            .args(arguments)
            .arg("postgres")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start pgbench")
    }

    pub fn wal(&self, from: Lsn, to: Lsn) -> Vec<u8> {
        read_wal(&self.dir.join("data/pg_wal"), from, to)
    }
}

impl Drop for Postgres {
    /// An immediate shutdown takes its shared memory along. What a killed one left, its successor takes away.
    fn drop(&mut self) {
        for _ in 0..100 {
            if !self.was_killed || self.is_ready() {
                break;
            }
            if self.child.as_mut().is_none_or(has_exited) {
                self.start();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        if let Some(mut child) = self.child.take() {
            let pid = nix::unistd::Pid::from_raw(child.id() as i32);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGQUIT);
            let _ = child.wait();
        }
    }
}

/// A Postgres refuses to start while processes of one before it are left.
fn has_exited(child: &mut Child) -> bool {
    !matches!(child.try_wait(), Ok(None))
}

/// Lets the unprivileged Postgres into its own directory within the test's private one.
fn open_to_postgres(dir: &Path, home: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if nix::unistd::geteuid().is_root() {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711)).expect("permissions");
        let user = nix::unistd::User::from_name("postgres")
            .expect("passwd")
            .expect("user postgres");
        nix::unistd::chown(home, Some(user.uid), Some(user.gid)).expect("chown");
    }
}

pub async fn finish(child: Child) -> String {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output())
        .await
        .expect("join")
        .expect("wait");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

pub async fn current_lsn(client: &tokio_postgres::Client) -> Lsn {
    let row = client
        .query_one("SELECT pg_current_wal_insert_lsn()::text", &[])
        .await
        .expect("query");
    row.get::<_, String>(0).parse().expect("an LSN")
}
