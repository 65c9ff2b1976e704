//! Warm starts: pages that were in shared buffers at a suspend are loaded again behind the next start (docs/adr/0076).
//!
//! Postgres's library `pg_prewarm` writes the list and loads it. The agent carries the list from one to the other within
//! bounds ([`crate::prewarm`]), puts the reads of the loading behind those of sessions ([`crate::volume::Behind`]), and
//! ends the loading where a session waits for it or memory is short. The list is a hint: one that cannot be used is
//! logged and left out, and a start that fails is followed by starts without the library.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use super::Agent;
use super::live::Live;
use super::withheld::Withheld;
use crate::bundle::Bundle;
use crate::postgres::{Admin, AdminError, DataDirectory};
use crate::prewarm::{AUXILIARY, BadList, FILE, List, MAX_DUMP_BYTES};
use crate::spec::Spec;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A list is withheld until no session has waited for storage for so long, since who comes first has come for the start;
/// but for no less than the second time, and for no longer than the third.
const QUIET: Duration = Duration::from_millis(100);
const LEAST_WITHHELD: Duration = Duration::from_millis(200);
const MOST_WITHHELD: Duration = Duration::from_secs(2);
const QUIET_LOOK_EVERY: Duration = Duration::from_millis(20);
/// So many looks in a row without a process that loads end the loading, whatever the log says: between two databases
/// there is none for a moment.
const LOOKS_WITHOUT: u32 = 20;
/// Less than this part of the machine's memory is too little to fill buffers ahead of need.
const SCARCE_PART: u64 = 16;
/// What Postgres logs once it has loaded its list, before the number of pages.
const LOADED: &[u8] = b"LOG:  autoprewarm successfully prewarmed ";

/// The processes that load pages, and whether a session waits for one: for a lock, or, making or dropping a database,
/// until nobody else is in it.
const WORKERS: &str = "SELECT w.pid, w.datname,
        EXISTS (SELECT FROM pg_locks l WHERE NOT l.granted AND w.pid = ANY (pg_blocking_pids(l.pid)))
        OR EXISTS (SELECT FROM pg_locks l WHERE l.granted AND l.locktype = 'object'
                     AND l.classid = 'pg_database'::regclass AND l.objid = w.datid
                     AND l.mode IN ('ShareLock', 'AccessExclusiveLock') AND l.pid IS DISTINCT FROM w.pid)
    FROM pg_stat_activity w WHERE w.backend_type = 'autoprewarm worker'";

/// How far loading pages ahead of need is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PrewarmState {
    /// Nothing is loaded and no list is made; the reason says why where the spec wants it otherwise.
    Off,
    /// There is no list: of a first start, of one after a crash, or of one after a suspend without the library.
    NoList,
    /// There is a list that cannot be used, as the reason says.
    Ignored,
    /// Pages are being loaded.
    Loading,
    /// Postgres has loaded what is still there of the list and fits into its free buffers.
    Loaded,
    /// Loading was ended before that, as the reason says.
    Stopped,
}

/// Loading pages ahead of need, of the run that started last.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prewarm {
    /// How far it is.
    pub state: PrewarmState,
    /// Pages of the list that Postgres was given.
    pub pages_listed: u64,
    /// Pages that it loaded; null until it is done, or where Postgres did not say it.
    pub pages_loaded: Option<u64>,
    /// From the start of Postgres until it was done; null until then.
    pub seconds: Option<f64>,
    /// Why the state is what it is, where nobody has chosen it.
    pub reason: Option<String>,
}

impl Prewarm {
    fn without_pages(state: PrewarmState, reason: Option<String>) -> Prewarm {
        Prewarm {
            state,
            pages_listed: 0,
            pages_loaded: None,
            seconds: None,
            reason,
        }
    }
}

/// What the agent keeps over runs of it.
#[derive(Default)]
pub(super) struct Warm {
    /// A start has failed: those that follow are without the library.
    without: AtomicBool,
    /// From a start that loads a list until the loading is done.
    loading: Mutex<Option<Loading>>,
    /// The list, until a start without one.
    withheld: Mutex<Option<Withheld>>,
}

struct Loading {
    /// When Postgres was about to be started.
    began: Instant,
    /// The list as it is kept: what a suspend in the middle of the loading hands on.
    kept: Vec<u8>,
}

impl Warm {
    /// The list that is still being loaded. What Postgres has in its buffers then is only a part of it.
    pub fn unfinished(&self) -> Option<Vec<u8>> {
        let loading = self.loading.lock();
        loading.as_ref().map(|loading| loading.kept.clone())
    }

    /// Lets Postgres have the list that it waits for, if it waits for one.
    pub fn hand_over(&self) {
        if let Some(withheld) = &*self.withheld.lock() {
            withheld.hand_over();
        }
    }

    /// A start came to nothing, whatever the reason was.
    pub fn start_failed(&self) {
        self.without.store(true, Ordering::Relaxed);
    }
}

impl Agent {
    /// Leaves out of a start's spec what would keep it back.
    pub(super) fn choose_prewarm(&self, spec: &mut Spec) {
        *self.warm.loading.lock() = None;
        *self.warm.withheld.lock() = None;
        let why = if !spec.prewarm {
            None
        } else if self.warm.without.load(Ordering::Relaxed) {
            Some("a start of this process with it has failed")
        } else if !has_library(&spec.pg_bin_dir) {
            Some("this server has no library pg_prewarm")
        } else {
            return;
        };
        if let Some(why) = why {
            tracing::warn!("no pages are loaded ahead of need: {why}");
        }
        spec.prewarm = false;
        self.prewarm_is(Prewarm::without_pages(
            PrewarmState::Off,
            why.map(str::to_owned),
        ));
    }

    /// What Postgres is given to load, from what came with the bundle.
    pub(super) fn prewarm_list(&self, spec: &Spec, bundle: &Bundle) -> Option<Vec<u8>> {
        if !spec.prewarm {
            return None;
        }
        let mut found = bundle.auxiliary.iter();
        let Some((_, kept)) = found.find(|(path, _)| path == AUXILIARY) else {
            self.prewarm_is(Prewarm::without_pages(PrewarmState::NoList, None));
            return None;
        };
        let mut list = match List::from_kept(kept) {
            Ok(list) => list,
            Err(error) => {
                tracing::warn!("the list of pages to load ahead of need is ignored: {error}");
                self.metrics.prewarm_ignored.inc();
                let reason = Some(error.to_string());
                self.prewarm_is(Prewarm::without_pages(PrewarmState::Ignored, reason));
                return None;
            }
        };
        let pages = list.keep_databases(&databases(bundle));
        if pages > 0 {
            tracing::warn!(
                pages,
                "left pages of databases that are not there out of those to load ahead of need"
            );
        }
        if list.pages() == 0 {
            self.prewarm_is(Prewarm::without_pages(PrewarmState::NoList, None));
            return None;
        }
        *self.warm.loading.lock() = Some(Loading {
            began: Instant::now(),
            kept: list.to_kept(),
        });
        self.prewarm_is(Prewarm {
            pages_listed: list.pages(),
            ..Prewarm::without_pages(PrewarmState::Loading, None)
        });
        Some(list.to_dump())
    }

    /// Keeps the list from Postgres for a while, which waits for it at `pipe`.
    pub(super) fn withhold(&self, pipe: File, list: Vec<u8>, data: &DataDirectory) {
        match Withheld::new(pipe, list, data.clone()) {
            Ok(withheld) => *self.warm.withheld.lock() = Some(withheld),
            Err(error) => {
                // The pipe was closed, and at its name Postgres would wait for ever.
                tracing::warn!(%error, "no pages are loaded ahead of need");
                if let Err(error) = data.remove(FILE) {
                    tracing::error!(%error, "cannot remove the pipe at which Postgres waits for pages to load");
                }
            }
        }
    }

    fn prewarm_is(&self, prewarm: Prewarm) {
        self.set(|status| status.prewarm = Some(prewarm));
    }

    fn is_prewarming(&self) -> bool {
        self.warm.loading.lock().is_some()
    }

    /// Loading is done; `pages` as Postgres said it.
    pub(super) fn prewarmed(&self, pages: Option<u64>) {
        let Some(loading) = self.warm.loading.lock().take() else {
            return;
        };
        let seconds = loading.began.elapsed().as_secs_f64();
        self.metrics.prewarmed_pages.inc_by(pages.unwrap_or(0));
        self.metrics.prewarm_seconds.set(seconds);
        let mut listed = 0;
        self.set(|status| {
            let Some(prewarm) = &mut status.prewarm else {
                return;
            };
            listed = prewarm.pages_listed;
            (prewarm.pages_loaded, prewarm.seconds) = (pages, Some(seconds));
            if prewarm.state == PrewarmState::Loading {
                prewarm.state = PrewarmState::Loaded;
            }
        });
        tracing::info!(
            pages,
            listed,
            seconds,
            "loaded pages of the last suspend into buffers"
        );
    }

    fn prewarm_stopped(&self, reason: String) {
        tracing::info!("stopped loading pages ahead of need: {reason}");
        self.set(|status| {
            if let Some(prewarm) = &mut status.prewarm {
                prewarm.state = PrewarmState::Stopped;
                prewarm.reason = Some(reason);
            }
        });
    }
}

/// Watches over the loading until it is done; does not end.
pub(super) async fn watch(agent: &Agent, live: &Live) {
    let mut session = None;
    let mut without = 0;
    if agent.is_prewarming() {
        let began = Instant::now();
        wait_for_clients(live).await;
        agent.warm.hand_over();
        let withheld = began.elapsed().as_secs_f64();
        agent.metrics.prewarm_withheld_seconds.set(withheld);
    }
    while agent.is_prewarming() {
        tokio::time::sleep(LOOK_EVERY).await;
        match check_workers(agent, live, &mut session).await {
            Ok(0) => without += 1,
            Ok(_) => without = 0,
            Err(error) => {
                tracing::debug!(%error, "cannot watch over loading pages ahead of need");
                session = None;
            }
        }
        if without >= LOOKS_WITHOUT {
            agent.prewarmed(None);
        }
    }
    live.volume.behind().expect(false);
    std::future::pending().await
}

/// Waits until those who came first have what they came for, as far as storage can tell; for a bounded time.
async fn wait_for_clients(live: &Live) {
    let began = Instant::now();
    tokio::time::sleep(LEAST_WITHHELD).await;
    while began.elapsed() < MOST_WITHHELD && !live.volume.behind().is_quiet(QUIET) {
        tokio::time::sleep(QUIET_LOOK_EVERY).await;
    }
}

/// Ends the processes that must not go on; returns how many loaded pages at the moment of the look.
async fn check_workers(
    agent: &Agent,
    live: &Live,
    session: &mut Option<Admin>,
) -> Result<usize, AdminError> {
    let admin = match session {
        Some(admin) => admin,
        None => session.insert(live.admin().await?),
    };
    let doing = "look for processes that load pages";
    let workers = admin.rows(doing, WORKERS).await?;
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let scarce = scarce_memory(&memory);
    for worker in &workers {
        let [Some(pid), database, Some(awaited)] = worker.as_slice() else {
            continue;
        };
        let database = database.as_deref().unwrap_or_default();
        let reason = match (&scarce, awaited == "t") {
            (Some(scarce), _) => scarce.clone(),
            (None, true) => format!("a session in database {database} waited for it"),
            (None, false) => continue,
        };
        let statement = format!("SELECT pg_terminate_backend({pid})");
        admin.run("stop loading pages", &statement).await?;
        agent.prewarm_stopped(reason);
    }
    Ok(workers.len())
}

/// Whether the machine has little memory left, in words; nothing where `/proc/meminfo`, the text, does not say it.
fn scarce_memory(meminfo: &str) -> Option<String> {
    let kilobytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    let (total, available) = (kilobytes("MemTotal:")?, kilobytes("MemAvailable:")?);
    (available < total / SCARCE_PART).then(|| {
        format!(
            "the machine has {} of {} MB of memory left",
            available >> 10,
            total >> 10
        )
    })
}

/// The list for the next start: the one whose loading did not end, or what Postgres left as it shut down. Nothing where
/// there is none, or where it cannot be used, which is logged.
pub(super) fn collect(
    data: &DataDirectory,
    unfinished: Option<Vec<u8>>,
) -> Option<(String, Vec<u8>)> {
    if let Some(kept) = unfinished {
        return Some((AUXILIARY.to_owned(), kept));
    }
    let mut dump = Vec::new();
    let read = data
        .file(FILE)
        .and_then(|file| file.take(MAX_DUMP_BYTES + 1).read_to_end(&mut dump));
    let list = match read {
        Ok(_) => List::from_dump(&dump),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(%error, "cannot read which pages Postgres had in its buffers");
            return None;
        }
    };
    let list = list
        .inspect_err(|error: &BadList| {
            tracing::warn!("what Postgres says of the pages in its buffers is ignored: {error}");
        })
        .ok()?;
    (list.pages() > 0).then(|| (AUXILIARY.to_owned(), list.to_kept()))
}

/// Pages that a line of Postgres's log says were loaded.
pub(super) fn loaded_by(line: &[u8]) -> Option<u64> {
    let at = line.windows(LOADED.len()).position(|part| part == LOADED)?;
    let rest = std::str::from_utf8(&line[at + LOADED.len()..]).ok()?;
    rest.split(' ').next()?.parse().ok()
}

/// The databases that are there, by the files that each has.
fn databases(bundle: &Bundle) -> BTreeSet<u32> {
    let paths = bundle.files.iter().map(|(path, _)| path);
    paths
        .filter_map(|path| path.strip_prefix("base/")?.split('/').next()?.parse().ok())
        .collect()
}

/// Whether Postgres finds the library where it keeps its own: beside its programs, or one level deeper.
fn has_library(programs: &Path) -> bool {
    [
        "../lib",
        "../lib/postgresql",
        "../lib64",
        "../lib64/postgresql",
    ]
    .into_iter()
    .any(|place| programs.join(place).join("pg_prewarm.so").is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_scarce_below_a_sixteenth_and_unknown_is_not_scarce() {
        let of = |available: u64| format!("MemTotal: 16384000 kB\nMemAvailable: {available} kB\n");
        assert_eq!(scarce_memory(&of(1_024_000)), None);
        let scarce = scarce_memory(&of(1_023_999)).unwrap();
        assert_eq!(scarce, "the machine has 999 of 16000 MB of memory left");
        for unknown in [
            "",
            "MemTotal: 1 kB\n",
            "MemTotal: x kB\nMemAvailable: y kB\n",
        ] {
            assert_eq!(scarce_memory(unknown), None);
        }
    }

    #[test]
    fn postgres_says_how_many_pages_it_loaded() {
        let line = b"2026-01-01 00:00:00.000 UTC [7] LOG:  autoprewarm successfully prewarmed 12 of 34 previously-loaded blocks\n";
        assert_eq!(loaded_by(line), Some(12));
        assert_eq!(
            loaded_by(b"LOG:  autoprewarm successfully prewarmed x of"),
            None
        );
        assert_eq!(loaded_by(b"LOG:  checkpoint starting"), None);
    }

    #[test]
    fn a_server_without_the_library_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let programs = directory.path().join("bin");
        std::fs::create_dir_all(&programs).unwrap();
        assert!(!has_library(&programs));
        let library = directory.path().join("lib/pg_prewarm.so");
        std::fs::create_dir_all(library.parent().unwrap()).unwrap();
        std::fs::write(library, "").unwrap();
        assert!(has_library(&programs));
    }
}
