//! The oracle's report: what a replay found, by record kind.

use std::collections::BTreeMap;
use std::fmt;

use pg_types::page::{item_count, item_id};
use pg_types::{Key, Lsn, PgMajor};
use wal_decode::{DecodedRecord, InterpretError};

use super::names::{Kind, Proof, kinds, op_bits, op_name};
use super::page_store::SmallFile;
use crate::Page;

/// Mismatches kept with their details, for each kind of record and comparison.
const KEPT: u64 = 3;

/// Which comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// After a record, by Postgres's rules.
    Record,
    /// After a record, by the tight rules.
    Tight,
    /// With the files of the stopped cluster.
    Files,
}

/// One record kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpReport {
    /// Records met.
    pub records: u64,
    /// Pages changed by redo.
    pub redone: u64,
    /// Pages replaced by an image the record carried.
    pub images: u64,
    /// Pages not redone because what they were before is not known.
    pub unknown_base: u64,
    /// Pages redo refused.
    pub failed: u64,
    /// Records of which nothing was followed: no redo is known, or they are malformed.
    pub refused: u64,
    /// Pages compared with a consistency image, and how many differed.
    pub checked: u64,
    /// Of the pages checked, those that differed by Postgres's rules.
    pub mismatched: u64,
    /// The same comparisons by the tight rules.
    pub tight_mismatched: u64,
}

/// A page that is not what Postgres has.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The comparison that found the page.
    pub stage: Stage,
    /// The version that wrote the records.
    pub major: PgMajor,
    /// Resource manager and operation of the record, as [`Kind`] has them; two zeroes for a comparison with files.
    pub op: (u8, u8),
    /// End of the record, or of the WAL for a comparison with files.
    pub lsn: Lsn,
    /// The page.
    pub key: Key,
    /// First byte that differs after masking.
    pub offset: usize,
    ours: [u8; 8],
    theirs: [u8; 8],
    /// Line pointers of ours and theirs, and the one whose tuple the byte lies in.
    items: (u16, u16, Option<u16>),
}

impl Mismatch {
    pub(super) fn new(
        (stage, major): (Stage, PgMajor),
        op: (u8, u8),
        lsn: Lsn,
        key: Key,
        difference: Option<usize>,
        ours: &Page,
        theirs: &Page,
    ) -> Option<Mismatch> {
        let offset = difference?;
        let excerpt = |page: &Page| {
            let mut bytes = [0; 8];
            for (to, from) in bytes.iter_mut().zip(&page[offset..]) {
                *to = *from;
            }
            bytes
        };
        let holder = (1..=item_count(theirs)).find(|number| {
            item_id(theirs, *number).is_some_and(|id| {
                let start = usize::from(id.offset);
                (start..start + usize::from(id.length)).contains(&offset)
            })
        });
        Some(Mismatch {
            stage,
            major,
            op,
            lsn,
            key,
            offset,
            ours: excerpt(ours),
            theirs: excerpt(theirs),
            items: (item_count(ours), item_count(theirs), holder),
        })
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stage {
            Stage::Record => write!(f, "{}", op_name(self.major, self.op.0, self.op.1))?,
            Stage::Tight => write!(
                f,
                "{} (tight rules)",
                op_name(self.major, self.op.0, self.op.1)
            )?,
            Stage::Files => write!(f, "files")?,
        }
        write!(
            f,
            " at {}: {} differs from byte {} on: {:02x?}, Postgres has {:02x?}; {} line pointers, Postgres {}",
            self.lsn, self.key, self.offset, self.ours, self.theirs, self.items.0, self.items.1
        )?;
        match self.items.2 {
            Some(number) => write!(f, "; in the tuple of line pointer {number}"),
            None => Ok(()),
        }
    }
}

/// Everything found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The version that wrote the records.
    pub major: PgMajor,
    ops: BTreeMap<(u8, u8), OpReport>,
    /// End of the last record replayed.
    pub last_lsn: Lsn,
    /// The first few mismatches of each kind.
    pub mismatches: Vec<Mismatch>,
    /// Errors of redo, and records without a known redo, with how often they came.
    pub errors: BTreeMap<String, u64>,
    /// Records without a known redo, as kind and reason, with how often they came.
    pub unknown: BTreeMap<String, u64>,
    /// Pages compared with files, and how many differed.
    pub files_checked: u64,
    /// Of the pages compared with files, those that differed.
    pub files_mismatched: u64,
    /// Pages of files that the server never logs, and loses itself when it recovers; compared with nothing.
    pub not_logged: Vec<Key>,
    /// Relation maps and states of prepared transactions compared with their files.
    pub small_files_checked: u64,
}

impl Report {
    pub(super) fn new(major: PgMajor) -> Report {
        Report {
            major,
            ..Report::default()
        }
    }

    pub(super) fn op(&mut self, rec: &DecodedRecord<'_>) -> &mut OpReport {
        self.ops.entry((rec.rmid, op_bits(rec))).or_default()
    }

    /// Record kinds met, in order.
    pub fn ops(&self) -> impl Iterator<Item = (String, OpReport)> + '_ {
        self.ops
            .iter()
            .map(|((rmid, op), report)| (op_name(self.major, *rmid, *op), *report))
    }

    /// The figures of one record kind.
    pub fn of(&self, rmid: u8, op: u8) -> OpReport {
        self.ops.get(&(rmid, op)).copied().unwrap_or_default()
    }

    /// Every kind that stock Postgres can write, met or not.
    pub fn kinds(&self) -> impl Iterator<Item = (Kind, OpReport)> + '_ {
        kinds(self.major).map(|kind| (kind, self.of(kind.rmid, kind.op)))
    }

    /// The kinds this replay proves nothing about: never met or, where images are logged, never compared.
    pub fn uncovered(&self) -> impl Iterator<Item = Kind> + '_ {
        self.kinds()
            .filter(|(kind, op)| match kind.proof {
                Proof::Image => op.checked == 0,
                Proof::Files | Proof::NoPage | Proof::Restored => op.records == 0,
            })
            .map(|(kind, _)| kind)
    }

    /// Pages compared, and how many differed, failed or could not be redone; whatever the comparison.
    pub fn totals(&self) -> (u64, u64) {
        let (mut checked, mut wrong) = (self.files_checked, self.files_mismatched);
        for op in self.ops.values() {
            checked += op.checked;
            wrong += op.tight_mismatched.max(op.mismatched) + op.failed + op.refused;
        }
        (checked, wrong)
    }

    /// Everything was understood and every comparison agreed.
    pub fn is_clean(&self) -> bool {
        self.mismatches.is_empty() && self.errors.is_empty() && self.unknown.is_empty()
    }

    pub(super) fn fail(&mut self, rec: &DecodedRecord<'_>, key: Key, why: &str) {
        self.op(rec).failed += 1;
        // Many pages failing alike are one finding; the first one's page and LSN are named.
        let known = self.errors.len() as u64 > 10 * KEPT;
        let text = if known {
            "further errors".to_owned()
        } else {
            format!("at {} on {key}: {why}", rec.start_lsn)
        };
        *self.errors.entry(text).or_default() += 1;
    }

    /// Nothing is known to do with a record, or it is not what its kind should be.
    pub(super) fn note_refused(&mut self, rec: &DecodedRecord<'_>, error: &InterpretError) {
        self.op(rec).refused += 1;
        let op = op_name(self.major, rec.rmid, op_bits(rec));
        let (list, text) = match error {
            InterpretError::Unknown(unknown) => {
                (&mut self.unknown, format!("{op}: {}", unknown.why))
            }
            // The first one's LSN is enough to look into it.
            other if self.errors.len() < 10 * KEPT as usize => {
                (&mut self.errors, format!("{op}: {other}"))
            }
            _ => (&mut self.errors, "further errors".to_owned()),
        };
        *list.entry(text).or_default() += 1;
    }

    pub(super) fn count_small_file(&mut self, file: SmallFile, same: bool) {
        self.small_files_checked += 1;
        if !same {
            let text = format!("{file:?} differs from the cluster's file at the end");
            *self.errors.entry(text).or_default() += 1;
        }
    }

    pub(super) fn count(&mut self, stage: Stage, op: (u8, u8), mismatch: Option<Mismatch>) {
        let differs = u64::from(mismatch.is_some());
        let so_far = match stage {
            Stage::Record => {
                let report = self.ops.entry(op).or_default();
                report.checked += 1;
                report.mismatched += differs;
                report.mismatched
            }
            Stage::Tight => {
                let report = self.ops.entry(op).or_default();
                report.tight_mismatched += differs;
                report.tight_mismatched
            }
            Stage::Files => {
                self.files_checked += 1;
                self.files_mismatched += differs;
                self.files_mismatched
            }
        };
        if so_far <= KEPT {
            self.mismatches.extend(mismatch);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<28} {:>9} {:>9} {:>8} {:>9} {:>10} {:>7} {:>8} {:>7}",
            "record",
            "records",
            "redone",
            "images",
            "checked",
            "mismatched",
            "tight",
            "no base",
            "failed"
        )?;
        for (name, op) in self.ops() {
            if op.redone + op.images + op.checked + op.unknown_base + op.failed == 0 {
                continue;
            }
            writeln!(
                f,
                "{name:<28} {:>9} {:>9} {:>8} {:>9} {:>10} {:>7} {:>8} {:>7}",
                op.records,
                op.redone,
                op.images,
                op.checked,
                op.mismatched,
                op.tight_mismatched,
                op.unknown_base,
                op.failed
            )?;
        }
        writeln!(
            f,
            "files: {} pages compared, {} differ; replayed to {}",
            self.files_checked, self.files_mismatched, self.last_lsn
        )?;
        for key in &self.not_logged {
            writeln!(f, "{key} is in no WAL: the server does not log it")?;
        }
        for (text, count) in self.errors.iter().chain(&self.unknown) {
            writeln!(f, "{count} times: {text}")?;
        }
        self.mismatches
            .iter()
            .try_for_each(|mismatch| writeln!(f, "{mismatch}"))
    }
}
