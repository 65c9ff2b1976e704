//! WAL by relation, in memory that does not grow with the number of relations.
//!
//! A summary of the kind of Misra and Gries ("Finding repeated elements", 1982), weighted, and mergeable as Agarwal
//! et al. ("Mergeable summaries", 2012) show: up to [`CAPACITY`] relations have counts of their own. When one more
//! comes, as many bytes are taken from every relation as the ([`CAPACITY`] / 2)-th largest has, and those left
//! without any are forgotten. What is taken goes to `other`, so that the sum is always all of the WAL. Every taken
//! byte of one relation comes with as many of [`CAPACITY`] / 2 - 1 others: no relation is short by more than
//! `WAL / (CAPACITY / 2)`, and [`WalByRelation::undercount`] says by how much at most. With fewer relations than
//! [`CAPACITY`] every count is exact.
//!
//! Memory: a hash table of 2,048 buckets of 41 bytes, 84 KB, and 8 KB while it shrinks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use pg_types::RelTag;

use crate::record::DecodedRecord;

/// Relations with counts of their own.
pub const CAPACITY: usize = 1024;

/// A relation as WAL names it, all its forks together. A rewrite (`VACUUM FULL`, `REINDEX`, `TRUNCATE`) gives it
/// another `relfilenode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationId {
    /// The tablespace's oid.
    pub tablespace: u32,
    /// The database's oid, 0 for shared relations.
    pub database: u32,
    /// Name of the relation's first file in its directory, which is not the relation's oid.
    pub relfilenode: u32,
}

impl From<RelTag> for RelationId {
    fn from(tag: RelTag) -> RelationId {
        RelationId {
            tablespace: tag.spc,
            database: tag.db,
            relfilenode: tag.rel,
        }
    }
}

/// WAL bytes, split as [`crate::stats::RmgrStats`] splits them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelationBytes {
    /// Records whose first block is the relation's.
    pub records: u64,
    /// Bytes of the page images that recovery restores, as logged.
    pub image_bytes: u64,
    /// Bytes of the records without those images.
    pub rest_bytes: u64,
}

impl RelationBytes {
    /// Bytes of images and of the rest together.
    pub fn bytes(&self) -> u64 {
        self.image_bytes + self.rest_bytes
    }

    fn add(&mut self, more: RelationBytes) {
        self.records += more.records;
        self.image_bytes += more.image_bytes;
        self.rest_bytes += more.rest_bytes;
    }

    /// Removes and returns `bytes`, of images and of the rest in the proportion they have; all when there are no
    /// more than that.
    fn take(&mut self, bytes: u64) -> RelationBytes {
        let all = self.bytes();
        if bytes >= all {
            return std::mem::take(self);
        }
        let share = |part: u64| (u128::from(part) * u128::from(bytes) / u128::from(all)) as u64;
        let images = share(self.image_bytes);
        let taken = RelationBytes {
            records: share(self.records),
            image_bytes: images,
            rest_bytes: bytes - images,
        };
        self.records -= taken.records;
        self.image_bytes -= taken.image_bytes;
        self.rest_bytes -= taken.rest_bytes;
        taken
    }
}

/// Hashes with one multiplication for each number, because the table is searched for every record. Postgres gives the
/// numbers out one after the other, so that a client cannot choose them to collide.
#[derive(Clone, Debug, Default)]
pub struct RelationHasher(u64);

impl Hasher for RelationHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    /// The table takes its buckets from the low bits, a product has its mixing in the high ones.
    fn finish(&self) -> u64 {
        self.0.rotate_left(32)
    }
}

/// The relations that WAL was written for, each with its bytes.
#[derive(Clone, Debug, Default)]
pub struct WalByRelation {
    relations: HashMap<RelationId, RelationBytes, BuildHasherDefault<RelationHasher>>,
    /// Records that name no relation: commits, checkpoints, SLRUs.
    without_relation: RelationBytes,
    other: RelationBytes,
    undercount: u64,
}

impl WalByRelation {
    /// Images count for the relation of their block, the rest of a record and the record itself for the relation of
    /// its first block.
    pub fn add(&mut self, record: &DecodedRecord<'_>) {
        let size = u64::from(record.total_len());
        let Some(first) = record.blocks.first() else {
            self.without_relation.add(RelationBytes {
                records: 1,
                image_bytes: 0,
                rest_bytes: size,
            });
            return;
        };
        let first = RelationId::from(first.rel);
        let (mut own_images, mut all_images) = (0, 0);
        for block in &record.blocks {
            let Some(image) = block.image.as_ref().filter(|image| image.apply) else {
                continue;
            };
            let bytes = image.bytes.len() as u64;
            all_images += bytes;
            let relation = RelationId::from(block.rel);
            if relation == first {
                own_images += bytes;
            } else {
                self.count(
                    relation,
                    RelationBytes {
                        image_bytes: bytes,
                        ..RelationBytes::default()
                    },
                );
            }
        }
        self.count(
            first,
            RelationBytes {
                records: 1,
                image_bytes: own_images,
                rest_bytes: size - all_images,
            },
        );
    }

    /// Adds what another summary counted.
    pub fn merge(&mut self, more: &WalByRelation) {
        for (relation, bytes) in &more.relations {
            self.count(*relation, *bytes);
        }
        self.without_relation.add(more.without_relation);
        self.other.add(more.other);
        self.undercount += more.undercount;
    }

    /// The `most` relations with the most bytes, largest first, and the sum of all others.
    pub fn largest(&self, most: usize) -> (Vec<(RelationId, RelationBytes)>, RelationBytes) {
        let mut relations: Vec<_> = self
            .relations
            .iter()
            .map(|(relation, bytes)| (*relation, *bytes))
            .collect();
        relations.sort_unstable_by_key(|(relation, bytes)| {
            (std::cmp::Reverse(bytes.bytes()), *relation)
        });
        let mut other = self.other;
        for (_, bytes) in relations.drain(most.min(relations.len())..) {
            other.add(bytes);
        }
        (relations, other)
    }

    /// Bytes of records that name no relation: commits, checkpoints, SLRUs.
    pub fn without_relation(&self) -> RelationBytes {
        self.without_relation
    }

    /// No relation has more bytes beyond those shown than this.
    pub fn undercount(&self) -> u64 {
        self.undercount
    }

    fn count(&mut self, relation: RelationId, bytes: RelationBytes) {
        if let Some(counted) = self.relations.get_mut(&relation) {
            counted.add(bytes);
            return;
        }
        if self.relations.len() >= CAPACITY {
            self.shrink();
        }
        self.relations.insert(relation, bytes);
    }

    fn shrink(&mut self) {
        let mut sizes: Vec<u64> = self.relations.values().map(RelationBytes::bytes).collect();
        let (_, least, _) = sizes.select_nth_unstable_by(CAPACITY / 2 - 1, |a, b| b.cmp(a));
        let least = *least;
        self.undercount += least;
        let other = &mut self.other;
        self.relations.retain(|_, bytes| {
            other.add(bytes.take(least));
            bytes.bytes() > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relation(number: u32) -> RelationId {
        RelationId {
            tablespace: 1663,
            database: 5,
            relfilenode: number,
        }
    }

    fn bytes(image_bytes: u64, rest_bytes: u64) -> RelationBytes {
        RelationBytes {
            records: 1,
            image_bytes,
            rest_bytes,
        }
    }

    fn total(summary: &WalByRelation) -> u64 {
        let (listed, other) = summary.largest(usize::MAX);
        let own: u64 = listed.iter().map(|(_, bytes)| bytes.bytes()).sum();
        own + other.bytes() + summary.without_relation().bytes()
    }

    #[test]
    fn counts_are_exact_while_there_are_no_more_relations_than_fit() {
        let mut summary = WalByRelation::default();
        for round in 0..3 {
            for number in 0..CAPACITY as u32 {
                summary.count(relation(number), bytes(u64::from(number), round));
            }
        }
        let (listed, other) = summary.largest(2);
        let last = CAPACITY as u64 - 1;
        assert_eq!(listed[0].0, relation(CAPACITY as u32 - 1));
        assert_eq!(
            (listed[0].1.image_bytes, listed[0].1.rest_bytes),
            (3 * last, 3)
        );
        assert_eq!(listed.len(), 2);
        assert_eq!(summary.undercount(), 0);
        assert_eq!(other.records, 3 * (CAPACITY as u64 - 2));
    }

    /// However many relations there are, memory is bounded, no byte is lost from the sum, and the relations that
    /// make the WAL are found, short by no more than is said.
    #[test]
    fn a_flood_of_small_relations_neither_grows_memory_nor_hides_the_large_ones() {
        let mut summary = WalByRelation::default();
        let (mut written, mut heavy) = (0, 0);
        for number in 0..200_000_u32 {
            summary.count(relation(1_000_000 + number), bytes(64, 8));
            written += 72;
            if number.is_multiple_of(3) {
                summary.count(relation(number % 7), bytes(700, 50));
                written += 750;
                heavy += 750;
            }
            assert!(summary.relations.len() <= CAPACITY);
        }
        assert_eq!(total(&summary), written);
        let (listed, _) = summary.largest(7);
        let mut found: Vec<u32> = listed.iter().map(|(id, _)| id.relfilenode).collect();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6]);
        let counted: u64 = listed.iter().map(|(_, bytes)| bytes.bytes()).sum();
        assert!(heavy - counted <= 7 * summary.undercount());
        assert!(summary.undercount() <= written / (CAPACITY as u64 / 2));
    }

    #[test]
    fn summaries_merge_as_if_one_had_counted_all() {
        let (mut first, mut second) = (WalByRelation::default(), WalByRelation::default());
        first.count(relation(1), bytes(100, 10));
        second.count(relation(1), bytes(0, 5));
        second.count(relation(2), bytes(0, 7));
        second.without_relation.add(bytes(0, 30));
        first.merge(&second);
        let (listed, _) = first.largest(10);
        assert_eq!(
            listed[0].1,
            RelationBytes {
                records: 2,
                image_bytes: 100,
                rest_bytes: 15
            }
        );
        assert_eq!(total(&first), 152);
    }
}
