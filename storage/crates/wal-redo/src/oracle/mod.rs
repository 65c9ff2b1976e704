//! Replays WAL that carries consistency images and compares every page redo makes with them.
//!
//! Runs the storage's own path: `wal_decode::interpret`, then [`crate::apply`] on each page delta, on records
//! from which the consistency images were taken out first, so that redo cannot see the answer. The pages
//! are kept in memory. Three levels of comparison, each counted apart:
//! - after each record, under Postgres's own masking rules;
//! - after each record, under the tight rules, which also see what a query's result depends on
//!   ([`masking::Rules::Tight`]);
//! - at the end, against the files of the stopped cluster ([`Oracle::compare_file_page`]), LSN included.
//!
//! After a mismatch the page continues from Postgres's image, so that one bug is reported where it is
//! and not wherever the page is touched again.

mod bare;
mod compare;
mod names;
mod page_store;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use pg_types::page as header;
use pg_types::wal::{info, rmgr};
use pg_types::{BLCKSZ, ForkNumber, Key, KeyKind, Lsn};
use wal_decode::{
    BlockRef, DecodedRecord, InterpretError, PageChange, PageDelta, RawRecord, TimelineState,
    WalError, decode, interpret, is_only_named, restore_image,
};

use compare::{
    bits_too_many, difference, file_difference, is_never_logged, map_difference, may_stamp, page_of,
};
pub use names::{Kind, Proof, kinds, op_name};
use page_store::PageStore;
pub use page_store::SmallFile;
pub use report::{Mismatch, OpReport, Report, Stage};

use crate::error::RedoError;
use crate::masking::{self, PageClass, Rules};
use crate::{ClusterSettings, Page, apply_with};

/// How a delta is applied; replaced by tests that plant a bug.
pub type Redo = Box<dyn FnMut(&PageDelta, Key, &mut Page) -> Result<(), RedoError>>;

/// The WAL could not be followed any further.
#[derive(Debug, thiserror::Error)]
pub enum OracleError {
    /// A record's headers make no sense.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// A record's body is not what its kind has, so that the timeline's state cannot follow it.
    #[error(transparent)]
    Interpret(#[from] InterpretError),
}

/// Pages as they are at one point of the WAL, and what was found on the way there.
pub struct Oracle {
    state: TimelineState,
    redo: Redo,
    store: PageStore,
    report: Report,
    /// The pages loaded at the start are all there were: an absent page is one of zeroes.
    complete: bool,
    /// Visibility map pages that came with an image from which the content was left out.
    hollow_maps: BTreeSet<Key>,
    /// Pages that only a hint-bit record without an image touched since: its end, which the server that wrote it
    /// made the page's LSN. Redo leaves such a page alone, as Postgres's recovery does.
    hinted: BTreeMap<Key, Lsn>,
    /// Pages that got nothing but their LSN from a record or some in a row: their LSN before and after. Which of
    /// those a page's file has depends on what else the server did with the page at that moment (`compare::may_stamp`).
    stamped: BTreeMap<Key, RangeInclusive<Lsn>>,
    /// Pages given up at a record without a known redo; their files have nothing to be compared with.
    given_up: BTreeSet<Key>,
}

impl Oracle {
    /// Begins where the cluster with this state stopped. Load its pages with [`Oracle::load`] and then say
    /// [`Oracle::loaded_all`]; without, a page is known from its first image on.
    pub fn new(state: TimelineState, settings: ClusterSettings) -> Oracle {
        let settings = ClusterSettings {
            major: state.major,
            ..settings
        };
        Oracle {
            state,
            redo: Box::new(move |delta, key, page| apply_with(settings, delta, key, page)),
            store: PageStore::default(),
            report: Report::new(state.major),
            complete: false,
            hollow_maps: BTreeSet::new(),
            hinted: BTreeMap::new(),
            stamped: BTreeMap::new(),
            given_up: BTreeSet::new(),
        }
    }

    /// Replaces redo, to see whether the oracle notices.
    pub fn with_redo(mut self, redo: Redo) -> Oracle {
        self.redo = redo;
        self
    }

    /// A page of the cluster at the start.
    pub fn load(&mut self, key: Key, page: &Page) {
        self.store.put(key, *page);
    }

    /// Every page there was has been loaded.
    pub fn loaded_all(&mut self) {
        self.complete = true;
    }

    /// What was found so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// What was found; ends the replay.
    pub fn into_report(self) -> Report {
        self.report
    }

    /// A page as it is now.
    pub fn page(&self, key: Key) -> Option<&Page> {
        self.store.get(key)
    }

    /// Follows one record. Whatever is wrong with its redo goes into the report; an error means that the WAL
    /// itself cannot be read on.
    pub fn replay(&mut self, raw: &RawRecord<'_>) -> Result<(), OracleError> {
        let rec = decode(raw.start_lsn, raw.end_lsn, raw.bytes)?;
        self.report.op(&rec).records += 1;
        self.report.last_lsn = rec.end_lsn;
        self.note_stamped(&rec);
        match bare::without_check_images(&rec) {
            Some(bytes) => self.follow(&decode(raw.start_lsn, raw.end_lsn, &bytes)?),
            None => self.follow(&rec),
        }
        self.state.observe(&rec)?;
        for block in &rec.blocks {
            self.check_block(&rec, block);
            if rec.rmid == rmgr::XLOG
                && rec.op() == info::xlog::FPI_FOR_HINT
                && block.image.is_none()
            {
                let key = Key::rel_block(block.rel, block.blkno);
                self.hinted.insert(key, rec.end_lsn);
            }
        }
        Ok(())
    }

    fn note_stamped(&mut self, rec: &DecodedRecord<'_>) {
        for block in &rec.blocks {
            let key = Key::rel_block(block.rel, block.blkno);
            // Hardly any record does: the page is looked up last.
            if may_stamp(rec, block, self.state.major)
                && let Some(page) = self.store.get(key)
            {
                let before = header::lsn(page);
                let known = self.stamped.get(&key);
                let first = known.filter(|lsns| *lsns.end() == before);
                let first = first.map_or(before, |lsns| *lsns.start());
                self.stamped.insert(key, first..=rec.end_lsn);
            }
        }
    }

    fn follow(&mut self, rec: &DecodedRecord<'_>) {
        match interpret(rec, &self.state) {
            Ok(changes) => {
                for change in &changes.meta {
                    self.store.apply_meta(change);
                }
                for (key, change) in &changes.pages {
                    self.change_page(rec, *key, change);
                }
            }
            Err(error) => {
                self.report.note_refused(rec, &error);
                for block in &rec.blocks {
                    let key = Key::rel_block(block.rel, block.blkno);
                    self.store.remove(key);
                    self.given_up.insert(key);
                }
            }
        }
    }

    fn change_page(&mut self, rec: &DecodedRecord<'_>, key: Key, change: &PageChange) {
        match change {
            PageChange::Image(image) => match page_of(image) {
                Some(page) => {
                    self.report.op(rec).images += 1;
                    self.note_hollow_map(rec, key);
                    self.store.put(key, page);
                }
                None => self.report.fail(rec, key, "an image is not one page long"),
            },
            PageChange::Zero => self.store.put(key, [0; BLCKSZ]),
            PageChange::Delta(delta) => self.redo(rec, key, delta, change.starts_chain()),
        }
    }

    /// `CREATE DATABASE` copies pages as if all had a standard layout, which a map page has not: its content
    /// counts as free space and is not in the image. Postgres's recovery loses those bits too, which is safe.
    fn note_hollow_map(&mut self, rec: &DecodedRecord<'_>, key: Key) {
        let is_map = key
            .rel()
            .is_some_and(|rel| rel.fork == ForkNumber::VisibilityMap);
        if is_map && rec.rmid == rmgr::XLOG {
            self.hollow_maps.insert(key);
        }
    }

    fn redo(&mut self, rec: &DecodedRecord<'_>, key: Key, delta: &PageDelta, from_nothing: bool) {
        if self.store.get(key).is_none() {
            // A visibility map page may come into being by having bits cleared.
            if !(self.complete || from_nothing) {
                self.report.op(rec).unknown_base += 1;
                return;
            }
            self.store.put(key, [0; BLCKSZ]);
        }
        let Some(page) = self.store.get_mut(key) else {
            return;
        };
        self.report.op(rec).redone += 1;
        if let Err(error) = (self.redo)(delta, key, page) {
            self.report.fail(rec, key, &error.to_string());
            self.store.remove(key);
        }
    }

    /// Compares the block with the image that was logged only to be compared with.
    fn check_block(&mut self, rec: &DecodedRecord<'_>, block: &BlockRef<'_>) {
        let Some(image) = block.image.filter(|image| !image.apply) else {
            return;
        };
        if is_only_named(rec, block, self.state.major) {
            return;
        }
        let key = Key::rel_block(block.rel, block.blkno);
        let restored = restore_image(&image).ok().and_then(|bytes| page_of(&bytes));
        let Some(mut theirs) = restored else {
            self.report
                .fail(rec, key, "its consistency image cannot be restored");
            return;
        };
        // The image was taken before Postgres set the LSN.
        if !header::is_new(&theirs) {
            header::set_lsn(&mut theirs, rec.end_lsn);
        }
        if crate::gist::complete_image(rec, block, &mut theirs).is_err() {
            self.report
                .fail(rec, key, "its consistency image is not a page of its kind");
            return;
        }
        let Some(ours) = self.store.get(key) else {
            self.store.put(key, theirs);
            return;
        };
        let class = PageClass::of_record(rec.rmid, block.rel.fork);
        let op = (rec.rmid, names::op_bits(rec));
        let mut differs = false;
        for (rules, stage) in [
            (Rules::Postgres, Stage::Record),
            (Rules::Tight, Stage::Tight),
        ] {
            let difference = if class == PageClass::VisibilityMap && rules == Rules::Tight {
                map_difference(rec, ours, &theirs)
            } else {
                difference(ours, &theirs, block.blkno, class, rules)
            };
            let at = Mismatch::new(
                (stage, self.report.major),
                op,
                rec.end_lsn,
                key,
                difference,
                ours,
                &theirs,
            );
            differs |= at.is_some();
            self.report.count(stage, op, at);
        }
        if differs {
            self.store.put(key, theirs);
        }
    }

    /// Compares a small file (relation map, state of a prepared transaction) with what the WAL said last;
    /// one the WAL never wrote is as it was before.
    pub fn compare_small_file(&mut self, file: SmallFile, theirs: &[u8]) {
        if let Some(ours) = self.store.small_file(file) {
            self.report.count_small_file(file, ours == theirs);
        }
    }

    /// Compares a page with the same page in the files of the cluster, stopped after the last record replayed. A page
    /// without records counts as zeroes; one that Postgres never logs is only reported.
    pub fn compare_file_page(&mut self, key: Key, theirs: &Page) {
        if self.given_up.contains(&key) {
            return;
        }
        if self.store.get(key).is_none() && is_never_logged(key, theirs, self.state.major) {
            self.report.not_logged.push(key);
            return;
        }
        let zero = [0; BLCKSZ];
        let mut ours = *self.store.get(key).unwrap_or(&zero);
        let file_lsn = header::lsn(theirs);
        let is_hinted = self.hinted.get(&key) == Some(&file_lsn);
        let is_stamped = self
            .stamped
            .get(&key)
            .is_some_and(|lsns| *lsns.end() == header::lsn(&ours) && lsns.contains(&file_lsn));
        if is_hinted || is_stamped {
            header::set_lsn(&mut ours, file_lsn);
        }
        let ours = &ours;
        let difference = match key.rel().filter(|_| key.kind == KeyKind::RelBlock) {
            Some(rel) => {
                let class = PageClass::of_page(theirs, rel.fork);
                if self.hollow_maps.contains(&key) {
                    bits_too_many(ours, theirs)
                } else {
                    file_difference(ours, theirs, key.e, class, rel.fork)
                }
            }
            None => masking::first_difference(ours, theirs),
        };
        let lsn = self.report.last_lsn;
        let at = Mismatch::new(
            (Stage::Files, self.report.major),
            (0, 0),
            lsn,
            key,
            difference,
            ours,
            theirs,
        );
        self.report.count(Stage::Files, (0, 0), at);
    }

    /// Keys of all pages there are.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.store.keys()
    }

    /// End of the last record replayed.
    pub fn position(&self) -> Lsn {
        self.report.last_lsn
    }
}

/// Whether pages of this fork follow from the WAL. The free space map does not.
pub fn is_logged(fork: ForkNumber) -> bool {
    fork != ForkNumber::Fsm
}
