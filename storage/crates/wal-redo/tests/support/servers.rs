//! Which servers there are to test with: of each major the oldest supported minor and the newest known one.

use std::path::{Path, PathBuf};
use std::process::Command;

use pg_types::PgMajor;

/// The programs of one minor.
#[derive(Clone, Debug)]
pub struct Server {
    pub major: PgMajor,
    /// As in 15.20.
    pub minor: u32,
    pub bin: PathBuf,
    /// The distribution's, which is built with every method of compression; others have pglz alone.
    pub packaged: bool,
}

impl Server {
    /// The server in `bin`, if there is one.
    fn found(major: PgMajor, bin: PathBuf) -> Option<Server> {
        let output = Command::new(bin.join("postgres")).arg("--version").output();
        let text = String::from_utf8(output.ok()?.stdout).ok()?;
        let version = text.split_whitespace().nth(2)?;
        let (number, minor) = version.split_once('.')?;
        assert_eq!(
            number,
            major.facts().number.to_string(),
            "{} holds {text}",
            bin.display()
        );
        Some(Server {
            major,
            minor: minor.parse().ok()?,
            bin,
            packaged: text.contains("Debian"),
        })
    }

    pub fn name(&self) -> String {
        format!("{}.{}", self.major.facts().number, self.minor)
    }

    /// A method of compressing images that this server has.
    pub fn compression(&self, wanted: &'static str) -> &'static str {
        if self.packaged { wanted } else { "pglz" }
    }
}

/// Clients, and the server of 15: the system's.
pub fn bin_dir() -> PathBuf {
    std::env::var_os("WEIR_PG_BIN_DIR")
        .map_or_else(|| "/usr/lib/postgresql/15/bin".into(), PathBuf::from)
}

/// The system's server, of 15.
pub fn system() -> Server {
    let bin = bin_dir();
    Server::found(PgMajor::V15, bin.clone())
        .unwrap_or_else(|| panic!("there is no server in {}", bin.display()))
}

/// The other servers of 15, see [`servers`].
pub fn others_of_15() -> Vec<Server> {
    let system = system();
    let mut all = servers(PgMajor::V15);
    all.retain(|server| server.minor != system.minor);
    all
}

/// The oldest supported minor of the major and the newest there is. A missing one is named, and nothing is tested on
/// it.
pub fn servers(major: PgMajor) -> Vec<Server> {
    let facts = major.facts();
    let (oldest, newest) = (
        facts.min_server_version % 10_000,
        facts.newest_server_version % 10_000,
    );
    let mut found = Vec::new();
    if major == PgMajor::V15 {
        found.push(system());
    }
    for minor in [oldest, newest] {
        let here =
            |server: &Server| server.minor == minor || (minor == newest && server.minor > newest);
        if found.iter().any(here) {
            continue;
        }
        let bin = kept_bin_dir(major, minor, minor == newest);
        match Server::found(major, bin.clone()) {
            Some(server) => found.push(server),
            None => eprintln!(
                "NOT TESTED: there is no server of Postgres {}.{minor} in {}; scripts/setup installs it",
                facts.number,
                bin.display()
            ),
        }
    }
    found
}

/// Those of [`servers`] that a reduced run replays everything on: with `make test-long` all, otherwise the newest.
pub fn replayed(major: PgMajor) -> Vec<Server> {
    let mut all = servers(major);
    if std::env::var_os("WEIR_TEST_LONG").is_none() {
        all.drain(..all.len().saturating_sub(1));
    }
    all
}

/// Where set-up keeps a server below the cache. The newest of 17 and of 18 is named by the major alone.
fn kept_bin_dir(major: PgMajor, minor: u32, newest: bool) -> PathBuf {
    let number = major.facts().number;
    if newest && let Some(dir) = std::env::var_os(format!("WEIR_PG{number}_BIN_DIR")) {
        return dir.into();
    }
    let home = std::env::var_os("HOME").unwrap_or_default();
    let cache = std::env::var_os("WEIR_CACHE")
        .map_or_else(|| Path::new(&home).join(".cache/weir"), PathBuf::from);
    if newest && major != PgMajor::V15 {
        return cache.join(format!("postgres-{number}/bin"));
    }
    cache.join(format!("postgres-{number}.{minor}/bin"))
}
