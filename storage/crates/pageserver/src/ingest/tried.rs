//! Which safekeepers were tried in vain at the place where ingest stands.
//!
//! A record whose bytes are damaged on one disk is whole on the others, and what one disk cannot read, another can. So
//! whoever failed at a place is asked again there only when nobody else has WAL for it, and a timeline is stopped
//! by damaged bytes only when every safekeeper has sent some, or keeps another history. One that can't be reached at
//! present, or has not got so far, may still have the record: then ingest waits for it.

use pg_types::Lsn;

use crate::wal_source::WalSource;

#[derive(Default)]
pub(super) struct Tried {
    /// The place all this is about.
    at: Lsn,
    /// Who is being read; empty for a source of one place that has no name.
    pub reading: String,
    /// Whose stream ended here.
    ended: Vec<String>,
    /// Whose bytes were no WAL here, and why not.
    bad: Vec<(String, String)>,
    /// Who kept the WAL of another history when all were asked last, and how it differed.
    others: Vec<(String, String)>,
}

impl Tried {
    /// Whom to ask last for what follows `at`.
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

    /// What followed `at` there was no WAL. Gives why the timeline has to stop, when nobody is left who could have it.
    pub fn was_bad(&mut self, at: Lsn, why: &str, source: &dyn WalSource) -> Option<String> {
        self.ended(at);
        self.bad.retain(|(name, _)| *name != self.reading);
        self.bad.push((self.reading.clone(), why.to_owned()));
        self.nobody_is_left(source)
    }

    /// Who keeps another history, of all that were asked at `at`. Gives why the timeline has to stop, as above.
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
