//! Comparing a stopped Postgres's files with what the pageserver answers, and writing the files anew from
//! its answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pageserver::import::scan::parse_relation_file;
use pageserver::timeline::Timeline;
use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use pg_types::{BLCKSZ, ForkNumber, Lsn, RELSEG_BLOCKS, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};
use wal_redo::masking::{self, PageClass, Rules};

use super::postgres::Bundle;

const BATCH: usize = 128;

fn directory(pgdata: &Path, spc: u32, db: u32) -> PathBuf {
    if spc == GLOBAL_TABLESPACE {
        pgdata.join("global")
    } else {
        pgdata.join("base").join(db.to_string())
    }
}

fn read_fork(directory: &Path, rel: u32, fork: ForkNumber) -> Vec<u8> {
    let mut content = Vec::new();
    for segment in 0.. {
        let suffix = if fork == ForkNumber::Main {
            String::new()
        } else {
            format!("_{}", fork.file_suffix())
        };
        let number = if segment == 0 {
            String::new()
        } else {
            format!(".{segment}")
        };
        match std::fs::read(directory.join(format!("{rel}{suffix}{number}"))) {
            Ok(bytes) => content.extend(bytes),
            Err(_) => break,
        }
    }
    content
}

/// Relation forks in a directory that WAL describes: no free space maps, nothing of unlogged or temporary
/// relations.
fn forks(directory: &Path) -> Vec<(u32, ForkNumber)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("list") {
        let name = entry.expect("entry").file_name();
        if let Some((rel, fork, 0)) = parse_relation_file(&name.to_string_lossy()) {
            found.push((rel, fork));
        }
    }
    let unlogged: Vec<u32> = found
        .iter()
        .filter(|(_, fork)| *fork == ForkNumber::Init)
        .map(|(rel, _)| *rel)
        .collect();
    found.retain(|(rel, fork)| {
        *fork == ForkNumber::Init || (*fork != ForkNumber::Fsm && !unlogged.contains(rel))
    });
    found
}

/// What a comparison looked at.
#[derive(Debug, Default)]
pub struct Compared {
    pub forks: usize,
    pub pages: usize,
    pub longest_chain: u32,
}

/// Compares every relation page and every SLRU page on disk with the pageserver's at `at`.
pub async fn compare(pgdata: &Path, timeline: &Arc<Timeline>, at: Lsn) -> Compared {
    let mut compared = Compared::default();
    let mut differences = Vec::new();
    let mut on_disk = vec![(GLOBAL_TABLESPACE, 0)];
    for entry in std::fs::read_dir(pgdata.join("base")).expect("list") {
        if let Ok(db) = entry.expect("entry").file_name().to_string_lossy().parse() {
            on_disk.push((DEFAULT_TABLESPACE, db));
        }
    }
    for (spc, db) in on_disk {
        let directory = directory(pgdata, spc, db);
        let listed = timeline
            .reads()
            .list_rels(spc, db, at)
            .await
            .expect("list relations");
        let mut sizes: BTreeMap<RelTag, u32> = listed.into_iter().collect();
        for (rel, fork) in forks(&directory) {
            let tag = RelTag { spc, db, rel, fork };
            let content = read_fork(&directory, rel, fork);
            let blocks = (content.len() / BLCKSZ) as u32;
            match sizes.remove(&tag) {
                Some(size) if size == blocks => {}
                // `vm_extend` makes the first map page without WAL; until a bit is set nobody misses it.
                None if fork == ForkNumber::VisibilityMap
                    && blocks == 1
                    && content[24..].iter().all(|byte| *byte == 0) =>
                {
                    continue;
                }
                // An empty file left behind until the next checkpoint by a drop, which the storage forgets.
                None if blocks == 0 => continue,
                other => {
                    differences.push(format!(
                        "{tag}: {blocks} blocks on disk, storage has {other:?}"
                    ));
                    continue;
                }
            }
            compared.forks += 1;
            compare_fork(timeline, tag, &content, at, &mut compared, &mut differences).await;
        }
        sizes.retain(|tag, _| tag.fork != ForkNumber::Fsm);
        differences.extend(
            sizes
                .into_iter()
                .map(|(tag, size)| format!("{tag}: only in storage, {size} blocks")),
        );
    }
    for kind in SlruKind::ALL {
        compare_slru(pgdata, timeline, kind, at, &mut compared, &mut differences).await;
    }
    let shown = differences
        .iter()
        .take(40)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        differences.is_empty(),
        "{} differences at {at} ({compared:?}):\n{shown}",
        differences.len()
    );
    compared
}

async fn compare_fork(
    timeline: &Arc<Timeline>,
    tag: RelTag,
    content: &[u8],
    at: Lsn,
    compared: &mut Compared,
    differences: &mut Vec<String>,
) {
    let numbers: Vec<u32> = (0..(content.len() / BLCKSZ) as u32).collect();
    for chunk in numbers.chunks(BATCH) {
        let pages = match timeline.reads().rel_pages(tag, chunk, at).await {
            Ok(pages) => pages,
            Err(error) => {
                differences.push(format!("{tag} blocks {}..: {error}", chunk[0]));
                continue;
            }
        };
        for (block, page) in chunk.iter().zip(pages) {
            compared.pages += 1;
            compared.longest_chain = compared.longest_chain.max(page.chain_length);
            let mut disk = content[*block as usize * BLCKSZ..][..BLCKSZ].to_vec();
            let mut ours = if page.bytes.is_empty() {
                vec![0; BLCKSZ]
            } else {
                page.bytes.to_vec()
            };
            if is_same(tag, *block, &mut disk, &mut ours) {
                continue;
            }
            let first = disk
                .iter()
                .zip(&ours)
                .position(|(a, b)| a != b)
                .unwrap_or(0);
            differences.push(format!(
                    "{tag} block {block} differs from byte {first} on (chain {}): headers {:02x?} on disk, {:02x?} in storage",
                    page.chain_length,
                    &disk[..24],
                    &ours[..24]
                ));
        }
    }
}

async fn compare_slru(
    pgdata: &Path,
    timeline: &Arc<Timeline>,
    kind: SlruKind,
    at: Lsn,
    compared: &mut Compared,
    differences: &mut Vec<String>,
) {
    let segments = timeline
        .reads()
        .list_slru_segments(kind, at)
        .await
        .expect("segments");
    let mut on_disk = BTreeMap::new();
    for entry in std::fs::read_dir(pgdata.join(kind.directory())).expect("list") {
        let entry = entry.expect("entry");
        if let Ok(segno) = u32::from_str_radix(&entry.file_name().to_string_lossy(), 16) {
            on_disk.insert(segno, std::fs::read(entry.path()).expect("segment"));
        }
    }
    for (segno, pages) in &segments {
        let Some(content) = on_disk.remove(segno) else {
            differences.push(format!(
                "{} segment {segno:04X}: only in storage",
                kind.directory()
            ));
            continue;
        };
        if content.len() / BLCKSZ != *pages as usize {
            differences.push(format!(
                "{} segment {segno:04X}: {} pages on disk, storage has {pages}",
                kind.directory(),
                content.len() / BLCKSZ
            ));
        }
        for (number, disk) in content.chunks(BLCKSZ).enumerate().take(*pages as usize) {
            let pageno = segno * SLRU_PAGES_PER_SEGMENT + number as u32;
            let page = timeline
                .reads()
                .slru_page(kind, pageno, at)
                .await
                .expect("SLRU page");
            let ours = if page.bytes.is_empty() {
                vec![0; BLCKSZ]
            } else {
                page.bytes.to_vec()
            };
            compared.pages += 1;
            if let Some(first) = disk.iter().zip(&ours).position(|(a, b)| a != b) {
                differences.push(format!(
                    "{} page {pageno} differs from byte {first} on",
                    kind.directory()
                ));
            }
        }
    }
    differences.extend(
        on_disk
            .keys()
            .map(|segno| format!("{} segment {segno:04X}: only on disk", kind.directory())),
    );
}

/// Whether two versions of a page are equal but for what Postgres changes without WAL.
fn is_same(tag: RelTag, block: u32, disk: &mut [u8], ours: &mut [u8]) -> bool {
    if tag.fork == ForkNumber::VisibilityMap {
        // `CREATE DATABASE ... STRATEGY wal_log` logs map pages without their content, which lies in what
        // Postgres takes for the hole of a page: a bit may then be missing here, never be set wrongly.
        return disk[24..]
            .iter()
            .zip(&ours[24..])
            .all(|(disk, ours)| ours & !disk == 0);
    }
    let page: &[u8; BLCKSZ] = (&*disk).try_into().expect("a page");
    if PageClass::of_page(page, tag.fork) == PageClass::Sequence {
        // WAL holds a sequence's value some steps ahead of the page.
        return true;
    }
    mask(tag.fork, block, disk);
    mask(tag.fork, block, ours);
    disk == ours
}

/// Takes out what Postgres changes without WAL.
fn mask(fork: ForkNumber, block: u32, page: &mut [u8]) {
    let page: &mut [u8; BLCKSZ] = page.try_into().expect("a page");
    let class = PageClass::of_page(page, fork);
    masking::mask(page, block, class, Rules::Tight).expect("a page that makes sense");
}

/// Writes a data directory with everything the pageserver has at the bundle's LSN.
pub async fn materialize(
    template: &Path,
    timeline: &Arc<Timeline>,
    bundle: &Bundle,
    pgdata: &Path,
) {
    super::postgres::copy_tree(template, pgdata);
    for directory in [
        "base",
        "global",
        "pg_xact",
        "pg_multixact",
        "pg_commit_ts",
        "pg_twophase",
    ] {
        std::fs::remove_dir_all(pgdata.join(directory)).expect("remove");
        std::fs::create_dir_all(pgdata.join(directory)).expect("create");
    }
    let at = bundle.lsn;
    let mut directories = timeline
        .reads()
        .list_databases(at)
        .await
        .expect("databases");
    directories.push((GLOBAL_TABLESPACE, 0));
    for (spc, db) in directories {
        let directory = directory(pgdata, spc, db);
        std::fs::create_dir_all(&directory).expect("directory");
        for (tag, blocks) in timeline
            .reads()
            .list_rels(spc, db, at)
            .await
            .expect("relations")
        {
            assert!(blocks < RELSEG_BLOCKS);
            let suffix = if tag.fork == ForkNumber::Main {
                String::new()
            } else {
                format!("_{}", tag.fork.file_suffix())
            };
            let mut content = Vec::new();
            let numbers: Vec<u32> = (0..blocks).collect();
            for chunk in numbers.chunks(BATCH) {
                for page in timeline
                    .reads()
                    .rel_pages(tag, chunk, at)
                    .await
                    .expect("pages")
                {
                    content.extend(if page.bytes.is_empty() {
                        vec![0; BLCKSZ]
                    } else {
                        page.bytes.to_vec()
                    });
                }
            }
            std::fs::write(directory.join(format!("{}{suffix}", tag.rel)), &content)
                .expect("relation");
            if tag.fork == ForkNumber::Init {
                std::fs::write(directory.join(tag.rel.to_string()), content)
                    .expect("unlogged relation");
            }
        }
    }
    for kind in SlruKind::ALL {
        let directory = pgdata.join(kind.directory());
        std::fs::create_dir_all(&directory).expect("directory");
        for (segno, pages) in timeline
            .reads()
            .list_slru_segments(kind, at)
            .await
            .expect("segments")
        {
            let mut content = Vec::new();
            for page in 0..pages {
                let found = timeline
                    .reads()
                    .slru_page(kind, segno * SLRU_PAGES_PER_SEGMENT + page, at)
                    .await
                    .expect("page");
                content.extend(if found.bytes.is_empty() {
                    vec![0; BLCKSZ]
                } else {
                    found.bytes.to_vec()
                });
            }
            std::fs::write(directory.join(format!("{segno:04X}")), content).expect("segment");
        }
    }
}
