//! The read lease: until when a compute may answer queries without having heard more from its safekeepers.
//!
//! A safekeeper that renews says: at a moment no earlier than this I was promised to your term. A newer compute needs the
//! promises of a majority, and every two majorities share a safekeeper. So while a majority has vouched for moments of at
//! most [`ProposerConfig::quorum_timeout`](crate::ProposerConfig) ago, no newer compute began earlier than that, and
//! what this compute shows lacks at most the commits of that time (docs/adr/0059-the-read-lease.md).
//!
//! Invariants:
//! - a moment counts from when the question was sent, never from when its answer came: an answer that was long under way
//!   says nothing about the present;
//! - a safekeeper's moment only grows, and never lies in the future of this machine's clock.
//!
//! Nothing here is durable: a crash ends the compute, and with it what it shows.

use std::time::Duration;

use crate::moment::Moment;

/// Renewals are sent this often at least, and four times within the lease.
const LONGEST_PERIOD: Duration = Duration::from_secs(1);

/// The moment that a safekeeper's answer vouches for: it had a renewal of `sent_us` for `held_us` when it looked. One
/// hundredth of what it held is left out, which is how much faster its clock may run than this machine's.
pub fn vouched(sent_us: u64, held_us: u64) -> Moment {
    Moment::from_micros(sent_us.saturating_add(held_us - held_us / 100))
}

/// How often a safekeeper is asked to renew a lease of `timeout`.
pub fn period(timeout: Duration) -> Duration {
    LONGEST_PERIOD.min(timeout / 4)
}

/// What the safekeepers have vouched for, by their number.
#[derive(Debug)]
pub struct Lease {
    timeout: Duration,
    /// Counts for a safekeeper that has vouched for nothing yet.
    begun: Moment,
    proven: Vec<Option<Moment>>,
}

impl Lease {
    pub fn new(timeout: Duration, begun: Moment) -> Lease {
        Lease {
            timeout,
            begun,
            proven: Vec::new(),
        }
    }

    /// A term was won whose votes were asked for at `moment`.
    pub fn begin(&mut self, moment: Moment) {
        self.begun = moment;
    }

    /// The safekeeper was promised to this term at `moment` or later.
    pub fn prove(&mut self, safekeeper: usize, moment: Moment, now: Moment) {
        assert!(
            moment <= now,
            "a safekeeper vouches for a moment to come: {moment:?}, it is {now:?}"
        );
        if self.proven.len() <= safekeeper {
            self.proven.resize(safekeeper + 1, None);
        }
        self.proven[safekeeper] = self.proven[safekeeper].max(Some(moment));
    }

    /// The latest moment that a majority of `voters` has vouched for; `None` stands for a voter that is none of the
    /// safekeepers known here.
    pub fn proven(&self, voters: &[Option<usize>]) -> Moment {
        let of = |voter: &Option<usize>| {
            let moment = voter.and_then(|it| self.proven.get(it).copied().flatten());
            moment.unwrap_or(self.begun)
        };
        let mut moments: Vec<Moment> = voters.iter().map(of).collect();
        if moments.is_empty() {
            return self.begun;
        }
        moments.sort_unstable_by(|a, b| b.cmp(a));
        moments[consensus::majority(moments.len()) - 1]
    }

    /// When the compute must have stopped, unless a majority vouches for more.
    pub fn end(&self, voters: &[Option<usize>]) -> Moment {
        self.proven(voters).after(self.timeout)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(10);

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    #[test]
    fn the_lease_is_what_the_slowest_of_the_best_majority_vouches_for() {
        let voters = [Some(0), Some(1), Some(2)];
        let mut lease = Lease::new(TIMEOUT, at(5));
        assert_eq!(lease.end(&voters), at(15));
        lease.prove(2, at(50), at(50));
        assert_eq!(lease.end(&voters), at(15), "one of three is no majority");
        lease.prove(0, at(40), at(50));
        assert_eq!(lease.end(&voters), at(50));
        lease.prove(0, at(30), at(60));
        assert_eq!(
            lease.end(&voters),
            at(50),
            "an older answer takes nothing back"
        );
        assert_eq!(
            lease.end(&[None, Some(2), None]),
            at(15),
            "strangers vouch for nothing"
        );
        assert_eq!(lease.end(&[Some(2)]), at(60));
    }

    #[test]
    #[should_panic(expected = "a moment to come")]
    fn nothing_vouches_for_the_future() {
        Lease::new(TIMEOUT, at(0)).prove(0, at(2), at(1));
    }

    #[test]
    fn what_was_held_counts_but_for_the_difference_of_two_clocks() {
        assert_eq!(vouched(7_000, 0), at(7));
        assert_eq!(vouched(7_000, 100_000), at(7 + 99));
        assert_eq!(vouched(u64::MAX, u64::MAX), Moment::from_micros(u64::MAX));
    }

    #[test]
    fn renewals_come_four_times_within_a_short_lease() {
        assert_eq!(period(Duration::from_secs(10)), Duration::from_secs(1));
        assert_eq!(period(Duration::from_secs(2)), Duration::from_millis(500));
    }

    proptest! {
        /// Promise: a newer compute that won the votes of any majority, each given after its safekeeper vouched last,
        /// began no earlier than the timeout before the lease's end.
        #[test]
        fn no_newer_compute_began_before_what_the_lease_allows(
            proofs in proptest::collection::vec((0_usize..5, 0_u64..1000), 0..40),
            majority in proptest::sample::subsequence(vec![0_usize, 1, 2, 3, 4], 3),
        ) {
            let voters = [Some(0), Some(1), Some(2), Some(3), Some(4)];
            let mut lease = Lease::new(TIMEOUT, at(0));
            for (safekeeper, millis) in &proofs {
                lease.prove(*safekeeper, at(*millis), at(1000));
            }
            let last = |safekeeper: &usize| {
                let own = proofs.iter().filter(|(of, _)| of == safekeeper);
                own.map(|(_, millis)| *millis).max().unwrap_or(0)
            };
            // The newer compute has all its votes only when the last of its majority was free to give its own.
            let newer_began = majority.iter().map(last).max().unwrap_or(0);
            prop_assert!(at(newer_began).after(TIMEOUT) >= lease.end(&voters));
        }
    }
}
