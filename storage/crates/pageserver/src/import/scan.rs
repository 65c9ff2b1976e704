//! Reading a cleanly shut down Postgres data directory into storage keys.

use std::fs::DirEntry;
use std::path::Path;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use pg_types::{BLCKSZ, ForkNumber, Key, RELSEG_BLOCKS, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};

/// Everything of a data directory that storage keeps, in key order.
#[derive(Debug, Default)]
pub struct Scan {
    /// Pages, sizes, relation maps and `PG_VERSION` files. Pages that are all zeroes are left out: a page without a
    /// version is read as zeroes.
    pub values: Vec<(Key, Bytes)>,
    /// `global/pg_control` as it is; stored only once the timeline has its own system identifier.
    pub control_file: Bytes,
}

/// Reads the whole directory; blocking. Fails when a file can't be read, a relation or SLRU is not a whole number of
/// pages, and when the cluster has tablespaces.
pub fn scan(pgdata: &Path) -> Result<Scan> {
    let mut scan = Scan {
        control_file: read(&pgdata.join("global/pg_control"))?,
        ..Scan::default()
    };
    scan.directory(&pgdata.join("global"), GLOBAL_TABLESPACE, 0)?;
    for entry in entries(&pgdata.join("base"))? {
        let name = entry.file_name();
        let Some(db) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let version = read(&entry.path().join("PG_VERSION"))?;
        scan.values
            .push((Key::database(DEFAULT_TABLESPACE, db), version));
        scan.directory(&entry.path(), DEFAULT_TABLESPACE, db)?;
    }
    if !entries(&pgdata.join("pg_tblspc"))?.is_empty() {
        bail!(
            "{} has tablespaces, which an import does not support",
            pgdata.display()
        );
    }
    for kind in SlruKind::ALL {
        scan.slru(&pgdata.join(kind.directory()), kind)?;
    }
    scan.values.sort_by_key(|(key, _)| *key);
    Ok(scan)
}

impl Scan {
    fn directory(&mut self, directory: &Path, spc: u32, db: u32) -> Result<()> {
        // Size in blocks per fork; segments of one fork come in any order.
        let mut sizes = std::collections::BTreeMap::<RelTag, u32>::new();
        for entry in entries(directory)? {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name == "pg_filenode.map" {
                self.values
                    .push((Key::relmap(spc, db), read(&entry.path())?));
                continue;
            }
            let Some((rel, fork, segment)) = parse_relation_file(name) else {
                continue;
            };
            let tag = RelTag { spc, db, rel, fork };
            let content = read(&entry.path())?;
            let first = segment
                .checked_mul(RELSEG_BLOCKS)
                .context("segment number out of range")?;
            let blocks =
                self.pages(&content, &entry, |block| Key::rel_block(tag, first + block))?;
            let size = sizes.entry(tag).or_default();
            *size = (*size).max(first + blocks);
        }
        self.values.extend(
            sizes
                .into_iter()
                .map(|(rel, blocks)| (Key::rel_size(rel), encode_u32(blocks))),
        );
        Ok(())
    }

    fn slru(&mut self, directory: &Path, kind: SlruKind) -> Result<()> {
        for entry in entries(directory)? {
            let name = entry.file_name();
            let Some(segno) = name
                .to_str()
                .and_then(|name| u32::from_str_radix(name, 16).ok())
            else {
                continue;
            };
            let content = read(&entry.path())?;
            let first = segno
                .checked_mul(SLRU_PAGES_PER_SEGMENT)
                .context("segment number out of range")?;
            let pages = self.pages(&content, &entry, |page| Key::slru_block(kind, first + page))?;
            self.values
                .push((Key::slru_segment(kind, segno), encode_u32(pages)));
        }
        Ok(())
    }

    /// Adds the pages of one file, leaving out those that are all zeroes (a page without a version is),
    /// and returns how many the file has.
    fn pages(&mut self, content: &Bytes, file: &DirEntry, key: impl Fn(u32) -> Key) -> Result<u32> {
        if !content.len().is_multiple_of(BLCKSZ) {
            bail!(
                "{} is not a whole number of pages: {} bytes",
                file.path().display(),
                content.len()
            );
        }
        let pages = (content.len() / BLCKSZ) as u32;
        for page in 0..pages {
            let bytes = content.slice(page as usize * BLCKSZ..(page as usize + 1) * BLCKSZ);
            if bytes.iter().any(|byte| *byte != 0) {
                self.values.push((key(page), bytes));
            }
        }
        Ok(pages)
    }
}

/// How the number of a `RelSize` (blocks) or `SlruSegment` (pages) value is stored: 4 bytes, little-endian.
pub fn encode_u32(value: u32) -> Bytes {
    Bytes::copy_from_slice(&value.to_le_bytes())
}

/// Splits `16384_vm.2` into relfilenode, fork and segment; `None` for files that are not relations.
pub fn parse_relation_file(name: &str) -> Option<(u32, ForkNumber, u32)> {
    let (stem, segment) = match name.split_once('.') {
        Some((stem, segment)) => (stem, segment.parse().ok()?),
        None => (name, 0),
    };
    let (rel, fork) = match stem.split_once('_') {
        Some((rel, suffix)) => (
            rel,
            ForkNumber::ALL
                .into_iter()
                .find(|fork| !suffix.is_empty() && fork.file_suffix() == suffix)?,
        ),
        None => (stem, ForkNumber::Main),
    };
    // Postgres never writes a sign or leading zeroes.
    (rel.bytes().all(|byte| byte.is_ascii_digit()) && !rel.starts_with('0')).then_some(())?;
    Some((rel.parse().ok()?, fork, segment))
}

fn entries(directory: &Path) -> Result<Vec<DirEntry>> {
    let listing =
        std::fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    listing
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(|| format!("list {}", directory.display()))
}

fn read(path: &Path) -> Result<Bytes> {
    Ok(std::fs::read(path)
        .with_context(|| format!("read {}", path.display()))?
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relation_file_names() {
        assert_eq!(
            parse_relation_file("16384"),
            Some((16384, ForkNumber::Main, 0))
        );
        assert_eq!(
            parse_relation_file("16384.3"),
            Some((16384, ForkNumber::Main, 3))
        );
        assert_eq!(
            parse_relation_file("2619_vm.1"),
            Some((2619, ForkNumber::VisibilityMap, 1))
        );
        assert_eq!(
            parse_relation_file("2619_fsm"),
            Some((2619, ForkNumber::Fsm, 0))
        );
        for other in [
            "PG_VERSION",
            "pg_filenode.map",
            "pg_internal.init",
            "t3_16384",
            "1_",
            "",
            "12_x",
            "+5",
            "0",
        ] {
            assert_eq!(parse_relation_file(other), None, "{other:?}");
        }
    }
}
