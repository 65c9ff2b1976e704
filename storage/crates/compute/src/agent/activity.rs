//! When clients last did something, which is what suspending an idle compute goes by.
//!
//! A session that waits for its client is idle, however long it stays connected; one in a statement or a transaction is
//! not, and neither is a replication client, a subscription's worker, or a vacuum that runs. What the agent does itself,
//! as the superuser, is nobody's activity. Sessions that came and went between two looks are seen by their count.
//!
//! A look that failed says nothing: from then on until the next one the compute does not count as idle.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Agent;
use super::live::Live;
use crate::postgres::Look;

/// Unlogged relations are counted once clients have done nothing for so long.
const SETTLED: Duration = Duration::from_secs(1);

/// When clients last did something.
#[derive(Debug)]
pub struct Activity {
    last: Instant,
    sessions: Option<i64>,
    known: bool,
}

impl Activity {
    /// A start is activity: somebody wanted it.
    pub fn new(now: Instant) -> Activity {
        Activity {
            last: now,
            sessions: None,
            known: false,
        }
    }

    /// Takes a look at Postgres into account.
    pub fn looked(&mut self, look: Look, now: Instant) {
        let came = self.sessions.is_some_and(|before| before != look.sessions);
        if look.busy > 0 || came {
            self.last = now;
        } else if let Some(then) = look.quiet.and_then(|quiet| now.checked_sub(quiet)) {
            self.last = self.last.max(then);
        }
        (self.sessions, self.known) = (Some(look.sessions), true);
    }

    /// A look has failed.
    pub fn blind(&mut self, now: Instant) {
        (self.last, self.known) = (now, false);
    }

    /// How long clients have done nothing; `None` while nobody can tell.
    pub fn idle(&self, now: Instant) -> Option<Duration> {
        self.known.then(|| now.saturating_duration_since(self.last))
    }
}

impl Agent {
    /// Takes what a look showed into account, and says it in the status; `None` for one that failed.
    pub(super) fn see_idle(&self, activity: &mut Activity, look: Option<Look>) {
        let now = Instant::now();
        match look {
            Some(look) => activity.looked(look, now),
            None => activity.blind(now),
        }
        let idle = activity.idle(now).map(|idle| idle.as_secs_f64());
        self.set(|status| status.idle_seconds = idle);
    }

    /// Counts what a suspend would empty, once for each time that clients have nothing to do for a moment.
    pub(super) async fn see_unlogged(
        &self,
        live: &Arc<Live>,
        activity: &Activity,
        counted: &mut Option<Instant>,
    ) {
        if counted.is_some_and(|counted| counted > activity.last) {
            return;
        }
        let now = Instant::now();
        let settled = activity.idle(now).is_some_and(|idle| idle >= SETTLED);
        let bytes = if settled {
            self.unlogged_bytes(live).await
        } else {
            None
        };
        *counted = bytes.map(|_| now);
        self.set(|status| status.unlogged_bytes = bytes);
    }

    /// No Postgres runs any more.
    pub(super) fn forget_idle(&self) {
        self.set(|status| (status.idle_seconds, status.unlogged_bytes) = (None, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seen(busy: u64, quiet: Option<u32>, sessions: i64) -> Look {
        let quiet = quiet.map(|seconds| SECOND * seconds);
        Look {
            busy,
            quiet,
            sessions,
        }
    }

    /// What is idle after each look, one a second, in seconds.
    fn idle_after(looks: &[Look]) -> Vec<u64> {
        let begun = Instant::now();
        let mut activity = Activity::new(begun);
        let mut at = begun;
        let mut idle = Vec::new();
        for look in looks {
            at += SECOND;
            activity.looked(*look, at);
            idle.push(activity.idle(at).expect("it is known").as_secs());
        }
        idle
    }

    #[test]
    fn a_session_that_waits_for_its_client_is_idle() {
        let looks = [
            seen(0, Some(0), 1),
            seen(0, Some(1), 1),
            seen(0, Some(2), 1),
        ];
        assert_eq!(idle_after(&looks), [0, 1, 2]);
    }

    #[test]
    fn a_statement_that_runs_is_activity_however_long_it_runs() {
        assert_eq!(idle_after(&[seen(1, None, 1); 4]), [0; 4]);
    }

    #[test]
    fn a_session_that_came_and_went_between_two_looks_is_activity() {
        let looks = [
            seen(0, None, 4),
            seen(0, None, 4),
            seen(0, None, 5),
            seen(0, None, 5),
        ];
        assert_eq!(idle_after(&looks), [1, 2, 0, 1]);
    }

    #[test]
    fn a_start_is_activity_and_a_look_that_fails_says_nothing() {
        let begun = Instant::now();
        let mut activity = Activity::new(begun);
        assert_eq!(activity.idle(begun + SECOND), None);
        activity.looked(seen(0, Some(3600), 1), begun + SECOND);
        assert_eq!(
            activity.idle(begun + SECOND),
            Some(SECOND),
            "idle for no longer than it runs"
        );
        activity.blind(begun + 2 * SECOND);
        assert_eq!(activity.idle(begun + 9 * SECOND), None);
        activity.looked(seen(0, None, 1), begun + 10 * SECOND);
        assert_eq!(activity.idle(begun + 10 * SECOND), Some(8 * SECOND));
    }
}
