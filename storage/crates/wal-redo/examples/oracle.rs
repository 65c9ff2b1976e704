//! Replays a `pg_wal` directory and compares every page redo makes with the images logged for the purpose
//! (`wal_consistency_checking = all`). With the data directory as it was before and after, every page of
//! the cluster is known from the start, and is compared with the files at the end.
//!
//! `oracle <pg_wal> [--version 15|17|18] [--before <data directory>] [--after <data directory>] [--hints-logged]
//! [--json <file>]`
//!
//! Both data directories must be of a stopped cluster. Keeps going past whatever differs and lists it. Exits
//! with 1 when anything does, with 2 when the WAL cannot be read on.

// Shared with the tests; not every program uses all of it.
#[allow(dead_code)]
#[path = "../tests/support/files.rs"]
mod files;

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use pg_types::PgMajor;
use pg_types::v15::ControlFile;
use serde_json::json;
use wal_decode::TimelineState;
use wal_redo::oracle::{Oracle, Report, op_name};
use wal_redo::{ClusterSettings, apply_with};

struct Args {
    pg_wal: PathBuf,
    before: Option<PathBuf>,
    after: Option<PathBuf>,
    settings: ClusterSettings,
    json: Option<PathBuf>,
}

fn parse_args() -> Result<Args> {
    let mut args = std::env::args().skip(1);
    let (mut pg_wal, mut before, mut after, mut json) = (None, None, None, None);
    let mut settings = ClusterSettings::default();
    while let Some(arg) = args.next() {
        let mut path = || {
            args.next()
                .map(PathBuf::from)
                .with_context(|| format!("{arg} needs a path"))
        };
        match arg.as_str() {
            "--before" => before = Some(path()?),
            "--after" => after = Some(path()?),
            "--json" => json = Some(path()?),
            "--version" => {
                let number = args.next().context("--version needs a number")?;
                settings.major = PgMajor::from_number(number.parse()?)?;
            }
            "--hints-logged" => settings.hint_bits_logged = true,
            _ if arg.starts_with('-') => bail!("unknown option {arg}"),
            _ => pg_wal = Some(PathBuf::from(arg)),
        }
    }
    Ok(Args {
        pg_wal: pg_wal.context(
            "usage: oracle <pg_wal> [--version N] [--before DIR] [--after DIR] [--hints-logged] [--json FILE]",
        )?,
        before,
        after,
        settings,
        json,
    })
}

/// The report for `bench/oracle.py`: one entry for every kind stock Postgres can write.
fn to_json(report: &Report) -> serde_json::Value {
    let (checked, mismatched) = report.totals();
    let ops: serde_json::Map<String, serde_json::Value> = report
        .kinds()
        .map(|(kind, op)| {
            let entry = json!({
                "proof": kind.proof.name(),
                "records": op.records,
                "redone": op.redone,
                "images": op.images,
                "checked": op.checked,
                "mismatched": op.mismatched,
                "tight_mismatched": op.tight_mismatched,
                "failed": op.failed,
                "refused": op.refused,
                "unknown_base": op.unknown_base,
            });
            (op_name(report.major, kind.rmid, kind.op), entry)
        })
        .collect();
    let uncovered: Vec<String> = report
        .uncovered()
        .map(|kind| op_name(report.major, kind.rmid, kind.op))
        .collect();
    let mismatches: Vec<String> = report.mismatches.iter().map(ToString::to_string).collect();
    json!({
        "checked": checked,
        "mismatched": mismatched,
        "uncovered": uncovered,
        "ops": ops,
        "files_checked": report.files_checked,
        "files_mismatched": report.files_mismatched,
        "small_files_checked": report.small_files_checked,
        "not_logged": report.not_logged.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "mismatches": mismatches,
        "errors": report.errors,
        "unknown": report.unknown,
        "last_lsn": report.last_lsn.to_string(),
    })
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("oracle: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing differed.
fn run() -> Result<bool> {
    let args = parse_args()?;
    let major = args.settings.major;
    let (mut state, mut from) = (TimelineState::start_of_nothing(major), None);
    if let Some(before) = &args.before {
        let control = std::fs::read(before.join("global/pg_control"))?;
        state = TimelineState::from_control_file(&ControlFile::parse_of(major, &control)?, major);
        from = Some(pg_types::wal::next_record_start(state.last_record_lsn));
    }
    // Time spent in redo alone, without decoding for the comparison and without comparing.
    let spent = Rc::new(Cell::new((0u64, Duration::ZERO)));
    let (in_redo, settings) = (Rc::clone(&spent), args.settings);
    let mut oracle =
        Oracle::new(state, args.settings).with_redo(Box::new(move |delta, key, page| {
            let begun = Instant::now();
            let result = apply_with(settings, delta, key, page);
            let (count, time) = in_redo.get();
            in_redo.set((count + 1, time + begun.elapsed()));
            result
        }));
    if let Some(before) = &args.before {
        files::for_each_page(before, |key, page| oracle.load(key, page))?;
        oracle.loaded_all();
    }
    let followed = files::for_each_record(&args.pg_wal, major, from, |record| {
        Ok(oracle.replay(&record)?)
    });
    if let Some(after) = args.after.as_ref().filter(|_| followed.is_ok()) {
        let control =
            ControlFile::parse_of(major, &std::fs::read(after.join("global/pg_control"))?)?;
        let end = TimelineState::from_control_file(&control, major).last_record_lsn;
        ensure!(
            oracle.position() == end,
            "the replay ended at {}, the cluster at {end}",
            oracle.position()
        );
        files::for_each_page(after, |key, page| oracle.compare_file_page(key, page))?;
        files::for_each_small_file(after, |file, content| {
            oracle.compare_small_file(file, content);
        })?;
    }
    let report = oracle.report();
    print!("{report}");
    let (count, time) = spent.get();
    println!(
        "{count} deltas redone in {:.1} ms, {:.2} us each",
        time.as_secs_f64() * 1e3,
        time.as_secs_f64() * 1e6 / count.max(1) as f64
    );
    if let Some(path) = &args.json {
        std::fs::write(path, serde_json::to_vec_pretty(&to_json(report))?)
            .with_context(|| format!("write {}", path.display()))?;
    }
    // What was found on the way is said even when the WAL cannot be followed to its end.
    followed?;
    Ok(report.is_clean())
}
