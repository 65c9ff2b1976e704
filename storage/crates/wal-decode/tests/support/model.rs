//! The durable state that changes make, kept as plain pages: an oracle for what Postgres leaves on disk.

use std::collections::BTreeMap;

use bytes::Bytes;
use pg_types::slru::multixact_member_position;
use pg_types::{BLCKSZ, Key, KeyKind, SLRU_PAGES_PER_SEGMENT, SlruKind};
use wal_decode::{MetaChange, PageChange, PageDelta};

use super::Cluster;

/// The durable state that SLRU, relation map and two-phase changes make, kept as plain pages.
#[derive(Default)]
pub struct Model {
    pub slru: BTreeMap<(SlruKind, u32), Vec<u8>>,
    pub relmaps: BTreeMap<(u32, u32), Vec<u8>>,
    pub two_phase: BTreeMap<u32, Vec<u8>>,
    /// Pages of relations whose last change is an image.
    pub images: BTreeMap<Key, Bytes>,
    pub metas: BTreeMap<&'static str, usize>,
}

impl Model {
    pub fn import(cluster: &Cluster) -> Model {
        let mut model = Model::default();
        for kind in SlruKind::ALL {
            for (page, bytes) in slru_pages(cluster, kind) {
                model.slru.insert((kind, page), bytes);
            }
        }
        model
    }

    pub fn apply_page(&mut self, key: Key, change: &PageChange) {
        if key.kind != KeyKind::SlruBlock {
            match change {
                PageChange::Image(page) => self.images.insert(key, page.clone()),
                _ => self.images.remove(&key),
            };
            return;
        }
        let slot = (key.slru().expect("an SLRU key"), key.e);
        let page = self.slru.entry(slot).or_insert_with(|| vec![0; BLCKSZ]);
        match change {
            PageChange::Zero => page.fill(0),
            PageChange::Image(_) => panic!("{key}: SLRU pages are never logged as images"),
            PageChange::Delta(delta) => apply_delta(page, delta),
        }
    }

    pub fn apply_meta(&mut self, change: &MetaChange) {
        let name = match change {
            MetaChange::RelMap { spc, db, content } => {
                self.relmaps.insert((*spc, *db), content.to_vec());
                "relmap"
            }
            MetaChange::TwoPhaseCreate { xid, content } => {
                self.two_phase.insert(*xid, content.to_vec());
                "prepare"
            }
            MetaChange::TwoPhaseRemove { xid } => {
                self.two_phase
                    .remove(xid)
                    .expect("a prepared transaction ends once");
                "prepared end"
            }
            MetaChange::CreateRel(_) => "create rel",
            MetaChange::TruncateRel { .. } => "truncate rel",
            MetaChange::DropRels(_) => "drop rels",
            MetaChange::CopyDatabase { .. } => "copy database",
            MetaChange::CreateDatabase { .. } => "create database",
            MetaChange::DropDatabase { .. } => "drop database",
            MetaChange::CreateTablespace { .. } => "create tablespace",
            MetaChange::DropTablespace { .. } => "drop tablespace",
            MetaChange::SlruExtend { .. } => "slru extend",
            MetaChange::SlruTruncate { .. } | MetaChange::SlruDropSegments { .. } => "slru cut",
        };
        *self.metas.entry(name).or_default() += 1;
    }
}

fn apply_delta(page: &mut [u8], delta: &PageDelta) {
    match delta {
        PageDelta::ClogSetStatus { xids, status } => {
            for xid in xids {
                let (at, shift) = ((xid % 32768 / 4) as usize, xid % 4 * 2);
                page[at] = page[at] & !(3 << shift) | status << shift;
            }
        }
        PageDelta::MultixactOffset { entries } => {
            for (multi, offset) in entries {
                let at = (multi % 2048 * 4) as usize;
                page[at..at + 4].copy_from_slice(&offset.to_le_bytes());
            }
        }
        PageDelta::MultixactMembers { first, members } => {
            for (i, (xid, status)) in members.iter().enumerate() {
                let (flag, at) = multixact_member_position(first + i as u32);
                page[flag] = *status;
                page[at..at + 4].copy_from_slice(&xid.to_le_bytes());
            }
        }
        PageDelta::CommitTimestamp {
            xids,
            timestamp,
            origin,
        } => {
            for xid in xids {
                let at = (xid % 819 * 10) as usize;
                page[at..at + 8].copy_from_slice(&timestamp.to_le_bytes());
                page[at + 8..at + 10].copy_from_slice(&origin.to_le_bytes());
            }
        }
        other => panic!("{other:?} is not for SLRU pages"),
    }
}

/// The pages in an SLRU's files.
pub fn slru_pages(cluster: &Cluster, kind: SlruKind) -> Vec<(u32, Vec<u8>)> {
    let mut pages = Vec::new();
    for name in cluster.list(kind.directory()) {
        let segment = u32::from_str_radix(&name, 16).expect("a segment name");
        let bytes = cluster.read(format!("{}/{name}", kind.directory()));
        for (i, page) in bytes.chunks(BLCKSZ).enumerate() {
            pages.push((segment * SLRU_PAGES_PER_SEGMENT + i as u32, page.to_vec()));
        }
    }
    pages
}
