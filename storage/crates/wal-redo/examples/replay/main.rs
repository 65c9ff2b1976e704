//! What decoding and redo cost: `bench/redo.py` runs this beside Postgres's own programs.
//!
//! `replay wal <pg_wal> --before <data directory>` replays all WAL from where that stopped cluster ended, with its
//! pages in memory, and says what each step took. `replay chains <pg_wal> --before <data directory>` takes chains of
//! deltas from that WAL, page by page, and says what redo of a record costs by the length of its chain. `replay stats
//! <pg_wal> --from <lsn> [--threads N] [--mapped]` only reads, checks, decodes and counts, as `pg_waldump --stats`
//! does, on one thread unless told otherwise; with `--mapped` where the files lie, without a copy.
//!
//! All times are CPU time of the one thread that works, so that others on the machine do not count. Prints one line
//! of JSON.

// Shared with the tests; not every program uses all of it.
#[allow(dead_code)]
#[path = "../../tests/support/files.rs"]
mod files;

mod chains;
mod gather;
mod pages;
mod wal;

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::time::{ClockId, clock_gettime};
use pg_types::v15::ControlFile;
use pg_types::{Lsn, PgMajor};
use wal_decode::TimelineState;

/// A stopped cluster: where its WAL goes on and what is known there.
pub struct Start {
    pub data: PathBuf,
    pub state: TimelineState,
    pub from: Lsn,
}

impl Start {
    fn read(data: &Path) -> Result<Start> {
        let control = std::fs::read(data.join("global/pg_control"))?;
        let state = TimelineState::from_control_file(&ControlFile::parse(&control)?, PgMajor::V15);
        Ok(Start {
            data: data.to_owned(),
            state,
            from: pg_types::wal::next_record_start(state.last_record_lsn),
        })
    }
}

/// CPU time of this thread so far, in nanoseconds.
pub fn cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    now.map_or(0, |now| {
        now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
    })
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let option = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)
    };
    let usage = "usage: replay wal|chains|stats <pg_wal> --before DIR | --from LSN";
    let (what, pg_wal) = match args.as_slice() {
        [what, pg_wal, ..] => (what.as_str(), Path::new(pg_wal)),
        _ => bail!(usage),
    };
    let before = || Start::read(Path::new(option("--before").context(usage)?));
    let result = match what {
        "wal" => wal::replay(pg_wal, &before()?)?,
        "chains" => chains::measure(pg_wal, &before()?)?,
        "stats" => {
            let from = option("--from").context(usage)?.parse()?;
            let threads = option("--threads").map_or(Ok(NonZeroUsize::MIN), |many| many.parse())?;
            let reading = match args.iter().any(|arg| arg == "--mapped") {
                true => wal::Reading::Mapped,
                false => wal::Reading::Pieces,
            };
            wal::stats(pg_wal, from, threads, reading)?
        }
        _ => bail!(usage),
    };
    println!("{result}");
    Ok(())
}
