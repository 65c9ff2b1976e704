//! What of a log cannot be read, or is not what was written.
//!
//! Pure: who looks, and when, is `verify` and `care`.
//!
//! Invariants: ranges are in order and do not overlap; a range ends where a whole record begins, or where the part of the
//! log ends that was looked at.

use std::time::SystemTime;

use pg_types::{Lsn, WAL_SEGMENT_BYTES};

use crate::scan::Fault;
use crate::segments;

/// A range of the log in which nothing is proven.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The record boundary before it.
    pub from: Lsn,
    /// End of the range, exclusive: where a whole record begins, or the look at this part of the log ended.
    pub to: Lsn,
    /// For people: what was found at `from`.
    pub why: String,
    /// When this process found it.
    pub since: SystemTime,
    /// Why it was not repaired when that was last tried.
    pub unrepaired: Option<String>,
}

impl Damage {
    /// Name of the file in which it begins.
    pub fn segment(&self) -> String {
        segments::name_of(self.from.0 / WAL_SEGMENT_BYTES)
    }
}

/// All damage that is known of one log.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Damages(Vec<Damage>);

impl Damages {
    /// The ranges, in order of their positions.
    pub fn all(&self) -> &[Damage] {
        &self.0
    }

    /// Whether no damage is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|it| it.to.0 - it.from.0).sum()
    }

    /// What a look at `[from, to)`, both record boundaries, has found there takes the place of what was known of it.
    /// Gives what was not known before.
    pub fn looked_at(
        &mut self,
        from: Lsn,
        to: Lsn,
        faults: &[Fault],
        now: SystemTime,
    ) -> Vec<Damage> {
        let mut kept = Vec::new();
        for known in &self.0 {
            let before = (known.from, known.to.min(from));
            let behind = (known.from.max(to), known.to);
            for (from, to) in [before, behind].into_iter().filter(|(from, to)| from < to) {
                kept.push(Damage {
                    from,
                    to,
                    ..known.clone()
                });
            }
        }
        let mut fresh = Vec::new();
        for fault in faults {
            let (from, to) = (fault.from.max(from), fault.to.min(to));
            if from >= to {
                continue;
            }
            let known = self.0.iter().find(|it| it.from < to && it.to > from);
            let damage = Damage {
                from,
                to,
                why: fault.why.clone(),
                since: known.map_or(now, |known| known.since),
                unrepaired: known.and_then(|known| known.unrepaired.clone()),
            };
            if known.is_none() {
                fresh.push(damage.clone());
            }
            kept.push(damage);
        }
        kept.sort_by_key(|it| it.from);
        self.0 = kept;
        self.assert_order();
        fresh
    }

    /// Nothing before `lsn` is part of the log any more.
    pub fn forget_below(&mut self, lsn: Lsn) {
        self.0.retain(|it| it.to > lsn);
        for damage in &mut self.0 {
            damage.from = damage.from.max(lsn);
        }
    }

    /// How much of `[at, to)` may be served from `at` on, or what stands in the way of the first byte.
    pub fn readable(&self, at: Lsn, to: Lsn) -> Result<Lsn, &Damage> {
        match self.0.iter().find(|it| it.from < to && it.to > at) {
            Some(damage) if damage.from <= at => Err(damage),
            Some(damage) => Ok(damage.from),
            None => Ok(to),
        }
    }

    /// Notes why what overlaps with `[from, to)` is still as it is.
    pub fn not_repaired(&mut self, from: Lsn, to: Lsn, why: &str) {
        let concerned = self.0.iter_mut().filter(|it| it.from < to && it.to > from);
        concerned.for_each(|it| it.unrepaired = Some(why.to_owned()));
    }

    fn assert_order(&self) {
        let is_ordered = self.0.windows(2).all(|pair| pair[0].to <= pair[1].from);
        assert!(is_ordered, "ranges of damage overlap: {:?}", self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn fault(from: u64, to: u64) -> Fault {
        let (from, to, why) = (Lsn(from), Lsn(to), format!("{from}"));
        Fault { from, to, why }
    }

    fn ranges(damages: &Damages) -> Vec<(u64, u64)> {
        let range = |it: &Damage| (it.from.0, it.to.0);
        damages.all().iter().map(range).collect()
    }

    #[test]
    fn a_look_replaces_what_was_known_of_its_range_only() {
        let mut damages = Damages::default();
        let (first, later) = (
            SystemTime::UNIX_EPOCH,
            SystemTime::UNIX_EPOCH + Duration::from_secs(9),
        );
        let fresh = damages.looked_at(Lsn(0), Lsn(100), &[fault(10, 40), fault(70, 80)], first);
        assert_eq!(fresh.len(), 2);
        let fresh = damages.looked_at(Lsn(20), Lsn(75), &[fault(30, 34)], later);
        assert_eq!(ranges(&damages), [(10, 20), (30, 34), (75, 80)]);
        assert!(fresh.is_empty(), "it was known before: {fresh:?}");
        assert!(damages.all().iter().all(|it| it.since == first));
        damages.looked_at(Lsn(0), Lsn(100), &[], later);
        assert!(damages.is_empty());
    }

    #[test]
    fn what_is_before_damage_is_served_and_nothing_of_it() {
        let mut damages = Damages::default();
        damages.looked_at(Lsn(0), Lsn(100), &[fault(10, 40)], SystemTime::UNIX_EPOCH);
        assert_eq!(damages.readable(Lsn(0), Lsn(10)), Ok(Lsn(10)));
        assert_eq!(damages.readable(Lsn(0), Lsn(60)), Ok(Lsn(10)));
        assert!(damages.readable(Lsn(10), Lsn(60)).is_err());
        assert!(damages.readable(Lsn(39), Lsn(60)).is_err());
        assert_eq!(damages.readable(Lsn(40), Lsn(60)), Ok(Lsn(60)));
        damages.forget_below(Lsn(30));
        assert_eq!(ranges(&damages), [(30, 40)]);
        damages.forget_below(Lsn(40));
        assert!(damages.is_empty());
    }

    proptest! {
        /// Promise: after any looks, a byte counts as damaged exactly when the last look at it said so, and no byte that
        /// counts so is ever served.
        #[test]
        fn the_last_look_at_a_byte_counts(
            looks in prop::collection::vec((0_u64..64, 1_u64..64, prop::collection::vec((0_u64..16, 1_u64..16), 0..4)), 1..12),
            at in 0_u64..128,
            length in 1_u64..64,
        ) {
            let mut damages = Damages::default();
            let mut bytes = [false; 200];
            for (from, length, faults) in looks {
                let to = from + length;
                let mut found: Vec<Fault> = Vec::new();
                let mut next = from;
                for (gap, length) in faults {
                    let begin = next + gap;
                    let end = (begin + length).min(to);
                    if begin < end {
                        found.push(fault(begin, end));
                    }
                    next = begin + length;
                }
                damages.looked_at(Lsn(from), Lsn(to), &found, SystemTime::UNIX_EPOCH);
                bytes[from as usize..to as usize].fill(false);
                for fault in &found {
                    bytes[fault.from.0 as usize..fault.to.0 as usize].fill(true);
                }
            }
            let known: Vec<bool> = (0..200)
                .map(|at| damages.all().iter().any(|it| it.from.0 <= at && at < it.to.0))
                .collect();
            prop_assert_eq!(&known[..], &bytes[..]);
            match damages.readable(Lsn(at), Lsn(at + length)) {
                Ok(to) => {
                    prop_assert!(to.0 > at);
                    prop_assert!(!bytes[at as usize..to.0 as usize].contains(&true));
                }
                Err(_) => prop_assert!(bytes[at as usize]),
            }
        }
    }
}
