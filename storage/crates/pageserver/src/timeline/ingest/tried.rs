//! Which safekeepers were tried in vain at the position where ingest stands.
//!
//! A record whose bytes are damaged on one disk is whole on the others, and bytes that one disk cannot read, another
//! can. So a safekeeper that failed at a position is asked again at that position only when no other safekeeper has
//! WAL for it. Damaged bytes stop a timeline only when every safekeeper has sent damaged bytes or keeps the WAL of
//! another history. A safekeeper that cannot be reached, or whose log does not reach the position yet, may still have
//! the record: then ingest waits for it. Nothing here is stored.

use pg_types::Lsn;

use crate::wal_source::WalSource;

#[derive(Default)]
pub(super) struct Tried {
    /// The position that the fields below are about.
    at: Lsn,
    /// The safekeeper that is being read; empty for a source without a name.
    pub reading: String,
    /// Safekeepers whose stream ended at this position.
    ended: Vec<String>,
    /// Safekeepers whose bytes at this position were not WAL, with the reason.
    bad: Vec<(String, String)>,
    /// Safekeepers that kept the WAL of another history when all were last asked, and how it differed.
    others: Vec<(String, String)>,
}

impl Tried {
    /// The safekeepers to ask last for the WAL that follows `at`.
    pub fn in_vain(&mut self, at: Lsn) -> &[String] {
        self.move_to(at);
        &self.ended
    }

    fn move_to(&mut self, at: Lsn) {
        if self.at != at {
            *self = Tried {
                at,
                reading: std::mem::take(&mut self.reading),
                ..Tried::default()
            };
        }
    }

    /// The stream that was read ended behind the record that ends at `at`.
    pub fn ended(&mut self, at: Lsn) {
        self.move_to(at);
        if !self.reading.is_empty() && !self.ended.contains(&self.reading) {
            self.ended.push(self.reading.clone());
        }
    }

    /// The bytes that followed `at` on the safekeeper being read were not WAL. Returns why the timeline has to stop,
    /// when no safekeeper is left that could have the WAL.
    pub fn was_bad(&mut self, at: Lsn, why: &str, source: &dyn WalSource) -> Option<String> {
        self.ended(at);
        self.bad.retain(|(name, _)| *name != self.reading);
        self.bad.push((self.reading.clone(), why.to_owned()));
        self.nobody_is_left(source)
    }

    /// Notes the safekeepers that keep another history, of all that were asked at `at`. Returns why the timeline has
    /// to stop, when no safekeeper is left that could have the WAL.
    pub fn are_others(
        &mut self,
        at: Lsn,
        others: Vec<(String, String)>,
        source: &dyn WalSource,
    ) -> Option<String> {
        self.move_to(at);
        self.others = others;
        self.nobody_is_left(source)
    }

    fn nobody_is_left(&self, source: &dyn WalSource) -> Option<String> {
        let refused = || self.bad.iter().chain(&self.others);
        let is_refused = |name: &String| refused().any(|(refused, _)| refused == name);
        (refused().next().is_some() && source.places().iter().all(is_refused)).then(|| {
            let said = refused().map(|(name, why)| match name.as_str() {
                "" => why.clone(),
                name => format!("{name}: {why}"),
            });
            let said: Vec<String> = said.collect();
            format!("the WAL cannot be read: {}", said.join("; "))
        })
    }
}
