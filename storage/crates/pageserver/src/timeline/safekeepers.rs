//! The safekeepers from which a timeline gets its WAL, how the list changes while the timeline is open, and which of
//! them were found sick.

use std::sync::Arc;

use pg_types::Lsn;
use tokio::sync::watch;

use super::identity::Identity;
use super::lock_order::{Ranked, SICK_SAFEKEEPERS};
use super::position::Position;
use crate::api::{SickKind, SickSafekeeper};
use crate::clock::Clock;
use crate::error::Result;
use crate::timeline_index::TimelineIndex;

/// The safekeepers of one timeline, and which of them are sick. The list is stored in the index; who is sick is not.
pub struct Safekeepers {
    identity: Arc<Identity>,
    position: Arc<Position>,
    index: Arc<TimelineIndex>,
    clock: Arc<Clock>,
    /// `host:port`.
    list: watch::Sender<Vec<String>>,
    sick: Ranked<SICK_SAFEKEEPERS, Sick>,
}

impl Safekeepers {
    pub(super) fn new(
        identity: Arc<Identity>,
        position: Arc<Position>,
        index: Arc<TimelineIndex>,
        clock: Arc<Clock>,
    ) -> Safekeepers {
        Safekeepers {
            list: watch::Sender::new(identity.manifest.safekeepers.clone()),
            sick: Ranked::default(),
            identity,
            position,
            index,
            clock,
        }
    }

    /// The safekeepers from which WAL comes, `host:port`. Each request to change the list wakes the receiver, also a
    /// request that repeats the list: repeating it asks for another attempt where ingest has stopped.
    pub fn list(&self) -> watch::Receiver<Vec<String>> {
        self.list.subscribe()
    }

    /// Takes WAL from these safekeepers, once the list is durable. The caller makes one change at a time. After an
    /// error either list may be stored until the request is repeated: a list that could not be stored now is stored
    /// with the next change of the index.
    pub(crate) async fn set(&self, safekeepers: Vec<String>) -> Result<()> {
        self.index.store_safekeepers(safekeepers.clone()).await?;
        self.sick.lock().retain(&safekeepers);
        let (tenant, timeline) = (self.identity.tenant, self.identity.id);
        tracing::info!(%tenant, %timeline, ?safekeepers, "the safekeepers are these from now on");
        self.list.send_replace(safekeepers);
        Ok(())
    }

    /// The safekeepers whose WAL could not be ingested when it was last read or asked for; empty for most timelines.
    pub fn sick(&self) -> Vec<SickSafekeeper> {
        self.sick.lock().0.clone()
    }

    /// What a safekeeper has behind `lsn` is not to be read; a source that has no name is not remembered.
    pub(crate) fn found_sick(&self, safekeeper: &str, kind: SickKind, lsn: Lsn, reason: &str) {
        let found = SickSafekeeper {
            safekeeper: safekeeper.to_owned(),
            kind,
            lsn,
            reason: reason.to_owned(),
            since: self.clock.shown_at(self.clock.seconds()).to_string(),
        };
        let (tenant, timeline) = (self.identity.tenant, self.identity.id);
        if self.sick.lock().found(found) {
            tracing::error!(
                %tenant, %timeline, safekeeper, %lsn,
                "what a safekeeper has is not the timeline's WAL: {reason}"
            );
        } else {
            tracing::debug!(
                %tenant, %timeline, safekeeper, %lsn,
                "the WAL is still not the timeline's: {reason}"
            );
        }
    }

    /// What a safekeeper sent from `start` on was ingested.
    pub(crate) fn read_well(&self, safekeeper: &str, start: Lsn) {
        let mut sick = self.sick.lock();
        if !sick.0.is_empty() && sick.read_well(safekeeper, start, self.position.last_record_lsn())
        {
            let (tenant, timeline) = (self.identity.tenant, self.identity.id);
            tracing::info!(%tenant, %timeline, safekeeper, "its WAL is read again");
        }
    }

    /// These safekeepers' logs are the one that was ingested.
    pub(crate) fn found_to_agree(&self, safekeepers: &[String]) {
        let (tenant, timeline) = (self.identity.tenant, self.identity.id);
        let mut sick = self.sick.lock();
        for known in sick.found_to_agree(safekeepers) {
            tracing::info!(
                %tenant, %timeline, safekeeper = known.safekeeper,
                "its log is the timeline's again"
            );
        }
    }
}

/// The safekeepers whose WAL could not be used when it was last read or asked for. The list is not stored; a crash
/// loses it.
#[derive(Default)]
pub(super) struct Sick(Vec<SickSafekeeper>);

impl Sick {
    /// Whether that is news. The first place, reason and time are kept; of another kind, the time alone.
    fn found(&mut self, found: SickSafekeeper) -> bool {
        let mut known = self.0.iter_mut();
        match known.find(|known| known.safekeeper == found.safekeeper) {
            Some(known) if known.kind == found.kind => false,
            Some(known) => {
                let since = std::mem::take(&mut known.since);
                *known = SickSafekeeper { since, ..found };
                true
            }
            None => {
                if !found.safekeeper.is_empty() {
                    self.0.push(found);
                }
                true
            }
        }
    }

    /// A stream from `start` has brought ingest to `end`. Whether the safekeeper was sick, and is no longer: it sent
    /// a record behind the one that could not be taken.
    fn read_well(&mut self, safekeeper: &str, start: Lsn, end: Lsn) -> bool {
        let before = self.0.len();
        let is_read =
            |known: &SickSafekeeper| known.safekeeper == safekeeper && end > start.max(known.lsn);
        self.0.retain(|known| !is_read(known));
        self.0.len() < before
    }

    /// Takes out the safekeepers that kept another history and whose logs now agree, and returns them.
    fn found_to_agree(&mut self, safekeepers: &[String]) -> Vec<SickSafekeeper> {
        let agrees = |known: &mut SickSafekeeper| {
            known.kind == SickKind::Diverged && safekeepers.contains(&known.safekeeper)
        };
        self.0.extract_if(.., agrees).collect()
    }

    fn retain(&mut self, safekeepers: &[String]) {
        self.0
            .retain(|known| safekeepers.contains(&known.safekeeper));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(safekeeper: &str, kind: SickKind, lsn: u64, since: &str) -> SickSafekeeper {
        SickSafekeeper {
            safekeeper: safekeeper.to_owned(),
            kind,
            lsn: Lsn(lsn),
            reason: format!("found at {since}"),
            since: since.to_owned(),
        }
    }

    /// Promise: what was found first is kept, and another kind does not make it younger.
    #[test]
    fn a_finding_keeps_its_time() {
        let mut sick = Sick::default();
        assert!(sick.found(found("a", SickKind::Damaged, 100, "1")));
        assert!(!sick.found(found("a", SickKind::Damaged, 200, "2")));
        assert_eq!(sick.0, [found("a", SickKind::Damaged, 100, "1")]);
        assert!(sick.found(found("a", SickKind::Diverged, 300, "3")));
        let known = &sick.0[0];
        assert_eq!(
            (known.kind, known.lsn, known.since.as_str()),
            (SickKind::Diverged, Lsn(300), "1")
        );
        assert!(sick.found(found("", SickKind::Damaged, 400, "4")));
        assert_eq!(sick.0.len(), 1);
    }

    /// Promise: a safekeeper is well once it has sent a record behind the place, and not because another one has.
    #[test]
    fn who_was_read_well_behind_the_place_is_well() {
        let mut sick = Sick::default();
        sick.found(found("a", SickKind::Damaged, 100, "1"));
        sick.found(found("b", SickKind::Diverged, 100, "1"));
        assert!(!sick.read_well("a", Lsn(100), Lsn(100)));
        assert!(!sick.read_well("c", Lsn(100), Lsn(200)));
        // It is opened where the other one has brought ingest to, and has sent no whole record yet.
        assert!(!sick.read_well("a", Lsn(200), Lsn(200)));
        assert!(sick.read_well("a", Lsn(200), Lsn(201)));
        assert!(sick.read_well("b", Lsn(50), Lsn(101)));
        assert!(sick.0.is_empty());
    }

    /// Promise: a log that agrees is no other history's, which says nothing of damage.
    #[test]
    fn a_log_that_agrees_is_not_another_one() {
        let mut sick = Sick::default();
        sick.found(found("a", SickKind::Damaged, 100, "1"));
        sick.found(found("b", SickKind::Diverged, 100, "1"));
        let both = ["a".to_owned(), "b".to_owned()];
        assert_eq!(
            sick.found_to_agree(&both),
            [found("b", SickKind::Diverged, 100, "1")]
        );
        assert_eq!(sick.0, [found("a", SickKind::Damaged, 100, "1")]);
        sick.retain(&both[1..]);
        assert!(sick.0.is_empty());
    }
}
