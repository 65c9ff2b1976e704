//! Writes seeds for fuzzing redo from real WAL: for each kind of record some files with the page as it was
//! and the record as storage keeps it; for decoding, whole records.
//!
//! `seeds <pg_wal> --version <15|17|18> --before <data directory> <directory>`

// Shared with the tests; not every program uses all of it.
#[allow(dead_code)]
#[path = "../tests/support/files.rs"]
mod files;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use pg_types::v15::ControlFile;
use pg_types::wal::{RecordHeader, rmgr};
use pg_types::{BLCKSZ, PgMajor};
use wal_decode::{PageDelta, TimelineState};
use wal_redo::oracle::Oracle;
use wal_redo::{ClusterSettings, apply_with};

/// Files of each kind of record and target.
const PER_KIND: u32 = 4;

#[derive(Default)]
struct Seeds {
    directory: PathBuf,
    written: BTreeMap<(String, u8), u32>,
}

impl Seeds {
    fn write(&mut self, target: &str, info: u8, parts: &[&[u8]]) -> Result<()> {
        let count = self.written.entry((target.to_owned(), info)).or_default();
        if *count == PER_KIND {
            return Ok(());
        }
        *count += 1;
        let directory = self.directory.join(target);
        std::fs::create_dir_all(&directory)?;
        let path = directory.join(format!("{info:02x}-{count}"));
        std::fs::write(&path, parts.concat()).with_context(|| format!("write {}", path.display()))
    }

    /// The first byte says where on its page the record lies; here, where a record may start.
    fn record(&mut self, info: u8, rmid: u8, bytes: &[u8]) -> Result<()> {
        self.write("decode", info ^ rmid.rotate_left(4), &[&[5], bytes])
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [pg_wal, first, version, second, before, directory] = args.as_slice() else {
        bail!("usage: seeds <pg_wal> --version N --before <data directory> <directory>");
    };
    if (first.as_str(), second.as_str()) != ("--version", "--before") {
        bail!("unknown option {first} or {second}");
    }
    let major = PgMajor::from_number(version.parse()?)?;
    let before = Path::new(before);
    let control = std::fs::read(before.join("global/pg_control"))?;
    let state = TimelineState::from_control_file(&ControlFile::parse_of(major, &control)?, major);
    let seeds = Rc::new(RefCell::new(Seeds {
        directory: PathBuf::from(directory),
        ..Seeds::default()
    }));
    let sink = Rc::clone(&seeds);
    let settings = ClusterSettings {
        major,
        ..ClusterSettings::default()
    };
    let mut oracle = Oracle::new(state, settings).with_redo(Box::new(move |delta, key, page| {
        if let PageDelta::Record { record, .. } = delta
            && let Some(header) = RecordHeader::parse(record)
        {
            let target = format!("redo_{}", rmgr::name(header.rmid).to_lowercase());
            // A seed that could not be written shows as an empty directory.
            let _ = sink
                .borrow_mut()
                .write(&target, header.info & 0xF0, &[&page[..], record]);
        } else {
            // A side effect: the page, a byte of flags, and words that are block numbers or transaction ids.
            let words: Vec<u8> = (0..4u32).flat_map(|i| (key.e + i).to_le_bytes()).collect();
            let _ = sink
                .borrow_mut()
                .write("deltas", key.a as u8, &[&page[..], &[3], &words]);
        }
        apply_with(settings, delta, key, page)
    }));
    files::for_each_page(before, |key, page| oracle.load(key, page))?;
    oracle.loaded_all();
    let from = pg_types::wal::next_record_start(state.last_record_lsn);
    files::for_each_record(Path::new(pg_wal), major, Some(from), |raw| {
        if let Some(header) = raw.header() {
            let mut seeds = seeds.borrow_mut();
            let info = header.info & 0xF0;
            seeds.record(info, header.rmid, raw.bytes)?;
            if header.rmid == rmgr::XLOG {
                // Its pages come whole, never as deltas.
                seeds.write("redo_xlog", info, &[&[0; BLCKSZ], raw.bytes])?;
            }
        }
        Ok(oracle.replay(&raw)?)
    })?;
    for ((target, info), count) in &seeds.borrow().written {
        println!("{target} {info:#04x}: {count}");
    }
    Ok(())
}
