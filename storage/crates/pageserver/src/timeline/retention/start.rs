//! The start of a compute that runs stays readable, whatever the history window.
//!
//! A compute reads names and sizes of files as they were where it started, each when somebody first looks, which can be days
//! later. So it holds that LSN and renews its hold; the start itself is stored with the compute's term.
//!
//! Invariants:
//! - one LSN of a timeline is held at most, that of the newest term, and no longer than [`START_HOLD_SECONDS`] behind the last
//!   renewal, or behind the start of the pageserver: nobody can hold more, or for ever after they are gone or fenced;
//! - a start that has lapsed and lies behind the horizon is forgotten in the index before what it kept may be dropped,
//!   so that no restart takes it for held again;
//! - a hold is extended in place while it lasts; once it has lapsed it is only taken anew under the tenant's lock,
//!   while nothing is trimmed, and where the LSN is readable.
//!
//! A renewal writes nothing. A crash forgets until when the start is held, and it is held for [`START_HOLD_SECONDS`] again.

use std::sync::atomic::Ordering;

use pg_types::{Lsn, Term};

use super::Retention;
use crate::error::{Error, Result};
use crate::timeline::Timeline;
use crate::timeline_index::StartPoint;

/// How long a start is held behind the last renewal: longer than a compute takes between its bundle and its first renewal.
pub const START_HOLD_SECONDS: u64 = 120;

impl Retention {
    /// Begins a hold on the start that is stored, or is about to be.
    pub fn hold_start(&self) {
        let until = self.clock.seconds() + START_HOLD_SECONDS;
        self.start_held_until.fetch_max(until, Ordering::AcqRel);
    }

    fn is_held(&self) -> bool {
        self.clock.seconds() < self.start_held_until.load(Ordering::Acquire)
    }

    /// The start that is held.
    pub(super) fn start_held(&self) -> Option<StartPoint> {
        self.index.start_point().filter(|_| self.is_held())
    }

    /// The start that is stored and that nobody holds any more.
    pub(super) fn start_lapsed(&self) -> Option<StartPoint> {
        self.index.start_point().filter(|_| !self.is_held())
    }
}

impl Timeline {
    /// Extends the hold of a compute on its start while that lasts. False when it has to be taken anew
    /// ([`Timeline::take_start`]), and an error for a compute that has been replaced or names another LSN.
    pub(crate) fn renew_start(&self, start: StartPoint) -> Result<bool> {
        self.check_newest(start.term)?;
        match self.retention.start_held() {
            Some(held) if held == start => {
                self.retention.hold_start();
                Ok(true)
            }
            Some(held) if held.term == start.term => Err(Error::Conflict(format!(
                "term {} of timeline {} begins at {}, not at {}",
                held.term,
                self.id(),
                held.lsn,
                start.lsn
            ))),
            _ => Ok(false),
        }
    }

    /// Holds a start that is not held, if it is readable still. The caller holds the tenant's lock.
    pub(crate) async fn take_start(&self, start: StartPoint) -> Result<()> {
        if self.renew_start(start)? {
            return Ok(());
        }
        if start.lsn > self.last_record_lsn() {
            return Err(Error::BadRequest(format!(
                "LSN {} is not ingested yet, so that no compute has started there",
                start.lsn
            )));
        }
        self.check_readable(start.lsn).map_err(|error| {
            Error::PreconditionFailed(format!(
                "the compute was not heard of for more than {START_HOLD_SECONDS} s, and what it started from is gone: {error}. \
                 Start it anew"
            ))
        })?;
        self.index.store_start(start).await?;
        self.retention.hold_start();
        Ok(())
    }

    fn check_newest(&self, term: Term) -> Result<()> {
        self.check_term(term)?;
        let newest = self.max_term();
        if term != newest || term == Term(0) {
            return Err(Error::BadRequest(format!(
                "no compute has started timeline {} with term {term}; the newest term is {newest}",
                self.id()
            )));
        }
        Ok(())
    }

    /// Where the newest compute started, while that is held for it.
    pub(crate) fn held_start(&self) -> Option<Lsn> {
        self.retention.start_held().map(|start| start.lsn)
    }
}
