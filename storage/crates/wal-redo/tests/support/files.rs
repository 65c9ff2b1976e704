//! Reading WAL segments and the pages of a stopped cluster from disk.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use pg_types::wal::{WalPageHeader, page_header_bytes, record_end};
use pg_types::{
    BLCKSZ, ForkNumber, Key, Lsn, PgMajor, RELSEG_BLOCKS, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind,
    WAL_SEGMENT_BYTES,
};
use wal_decode::{RawRecord, WalError, WalStreamDecoder};
use wal_redo::Page;
use wal_redo::oracle::{SmallFile, is_logged};

/// Segments of a `pg_wal` directory in order, each with the LSN it starts at.
pub fn wal_segments(pg_wal: &Path) -> Result<Vec<(Lsn, PathBuf)>> {
    let entries = fs::read_dir(pg_wal).with_context(|| format!("list {}", pg_wal.display()))?;
    let mut segments = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.len() != 24 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        let (high, low) = (
            u64::from_str_radix(&name[8..16], 16)?,
            u64::from_str_radix(&name[16..], 16)?,
        );
        segments.push((Lsn((high << 32) + low * WAL_SEGMENT_BYTES), entry.path()));
    }
    segments.sort();
    Ok(segments)
}

/// Where the first record of a segment begins.
pub fn first_record(start: Lsn, segment: &[u8]) -> Result<Lsn> {
    let header = WalPageHeader::parse(segment).context("a segment without a page header")?;
    let behind_header = start + page_header_bytes(start) as u64;
    Ok(record_end(behind_header, u64::from(header.rem_len)))
}

/// Hands every record of WAL of this major from `from` on to `each`, up to the end of the WAL, which it returns.
/// Without `from`, starts at the first record of the oldest segment.
pub fn for_each_record(
    pg_wal: &Path,
    major: PgMajor,
    from: Option<Lsn>,
    mut each: impl FnMut(RawRecord<'_>) -> Result<()>,
) -> Result<Lsn> {
    let segments = wal_segments(pg_wal)?;
    let Some((oldest, path)) = segments.first() else {
        bail!("{} holds no WAL segment", pg_wal.display());
    };
    let from = match from {
        Some(from) => from,
        None => first_record(*oldest, &fs::read(path)?)?,
    };
    let mut decoder = WalStreamDecoder::new(from, major);
    let mut piece = vec![0; PIECE];
    for (start, path) in &segments {
        if *start + WAL_SEGMENT_BYTES <= from {
            continue;
        }
        let mut file = fs::File::open(path)?;
        file.seek(SeekFrom::Start(
            decoder.fed_to().checked_sub(*start).unwrap_or(0),
        ))?;
        loop {
            let length = file.read(&mut piece)?;
            if length == 0 {
                break;
            }
            let mut records = decoder.feed(decoder.fed_to(), &piece[..length])?;
            loop {
                match records.next_record() {
                    Ok(Some(record)) => each(record)?,
                    Ok(None) => break,
                    Err(error) if is_end(&error) => return Ok(records.boundary()),
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
    Ok(decoder.boundary())
}

/// Bytes of a segment read at once: few calls, and they are still in the processor's own cache when they are decoded.
const PIECE: usize = 256 << 10;

/// Whether WAL ends so: behind what was written come zeroes, or what a segment held before it was reused.
fn is_end(error: &WalError) -> bool {
    matches!(error, WalError::Zero { .. } | WalError::PageHeader { .. })
}

/// What a file below the data directory holds.
#[derive(Clone, Copy)]
struct RelFile {
    rel: RelTag,
    segment: u32,
}

fn rel_file(name: &str, spc: u32, db: u32) -> Option<RelFile> {
    let (name, segment) = match name.split_once('.') {
        Some((name, segment)) => (name, segment.parse().ok()?),
        None => (name, 0),
    };
    let (number, fork) = match name.split_once('_') {
        Some((number, suffix)) => (
            number,
            ForkNumber::ALL
                .into_iter()
                .find(|fork| fork.file_suffix() == suffix)?,
        ),
        None => (name, ForkNumber::Main),
    };
    let rel = number.parse().ok()?;
    Some(RelFile {
        rel: RelTag { spc, db, rel, fork },
        segment,
    })
}

fn list(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

/// Directories with relation files: shared relations, databases, databases in other tablespaces.
fn databases(data: &Path) -> Result<Vec<(PathBuf, u32, u32)>> {
    let mut found = vec![(data.join("global"), GLOBAL_TABLESPACE, 0)];
    let mut below = vec![(data.join("base"), DEFAULT_TABLESPACE)];
    let links = data.join("pg_tblspc");
    for name in list(&links)? {
        if let Ok(spc) = name.parse() {
            for version in list(&links.join(&name))? {
                if version.starts_with("PG_") {
                    below.push((links.join(&name).join(version), spc));
                }
            }
        }
    }
    for (dir, spc) in below {
        for name in list(&dir)? {
            if let Ok(db) = name.parse() {
                found.push((dir.join(name), spc, db));
            }
        }
    }
    Ok(found)
}

/// Hands out the small files of a stopped cluster that follow from the WAL: relation maps and the states
/// of prepared transactions.
pub fn for_each_small_file(data: &Path, mut each: impl FnMut(SmallFile, &[u8])) -> Result<()> {
    for (dir, spc, db) in databases(data)? {
        if let Ok(content) = fs::read(dir.join("pg_filenode.map")) {
            each(SmallFile::RelMap { spc, db }, &content);
        }
    }
    let prepared = data.join("pg_twophase");
    for name in list(&prepared)? {
        // As of 17 the name has the epoch in front.
        let xid = u64::from_str_radix(&name, 16)? as u32;
        each(SmallFile::TwoPhase { xid }, &fs::read(prepared.join(name))?);
    }
    Ok(())
}

/// Hands out every page of a stopped cluster whose content follows from the WAL: relations but for free
/// space maps and unlogged ones, and SLRUs.
pub fn for_each_page(data: &Path, mut each: impl FnMut(Key, &Page)) -> Result<()> {
    for (dir, spc, db) in databases(data)? {
        let files: Vec<(String, RelFile)> = list(&dir)?
            .into_iter()
            .filter_map(|name| rel_file(&name, spc, db).map(|file| (name, file)))
            .collect();
        let unlogged: BTreeSet<u32> = files
            .iter()
            .filter(|(_, file)| file.rel.fork == ForkNumber::Init)
            .map(|(_, file)| file.rel.rel)
            .collect();
        for (name, file) in &files {
            let rel = file.rel;
            let of_unlogged = rel.fork != ForkNumber::Init && unlogged.contains(&rel.rel);
            if is_logged(rel.fork) && !of_unlogged {
                let first = file.segment * RELSEG_BLOCKS;
                for_each_page_of(&dir.join(name), |i, page| {
                    each(Key::rel_block(rel, first + i), page);
                })?;
            }
        }
    }
    for kind in SlruKind::ALL {
        let dir = data.join(kind.directory());
        for name in list(&dir)? {
            let first = u32::from_str_radix(&name, 16)? * SLRU_PAGES_PER_SEGMENT;
            for_each_page_of(&dir.join(name), |i, page| {
                each(Key::slru_block(kind, first + i), page);
            })?;
        }
    }
    Ok(())
}

fn for_each_page_of(path: &Path, mut each: impl FnMut(u32, &Page)) -> Result<()> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    for (i, page) in bytes.chunks_exact(BLCKSZ).enumerate() {
        each(i as u32, page.try_into()?);
    }
    Ok(())
}
