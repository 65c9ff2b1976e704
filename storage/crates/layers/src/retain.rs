//! Which versions history still needs.
//!
//! A version may go when a newer one that starts a chain hides it from every LSN that must stay readable: when the
//! start is at or before the horizon and no readable point lies between the two. The rule compares two versions only,
//! so it holds for any choice of layers: whatever a read finds in other layers, the version that starts the chain is
//! still there, or was itself dropped in favour of a newer start that hides all that the dropped one hid. Versions
//! that a truncation hides are dropped by the same rule, with the truncation in the place of the start.
//!
//! What hides others goes as well, once there is nothing left for it to hide: a tombstone that is the oldest version of
//! its key says what no version says. Here it is known only that the merge leaves nothing older of the key; whether
//! anything else holds an older version the caller says ([`Facts::is_needless`]), who sees all layers. Whatever such a
//! version hid must be gone for good before it goes, else a crash could bring the hidden version back alone.
//!
//! Reads below the horizon that are not at a point may be answered wrongly afterwards: the caller refuses them before
//! the first version is dropped.

use pg_types::{Key, Lsn};

use crate::value::Version;

/// What must stay readable of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    horizon: Lsn,
    /// In order, all below the horizon.
    points: Vec<Lsn>,
}

impl Retention {
    /// Everything stays.
    pub fn everything() -> Retention {
        Retention::default()
    }

    /// Every LSN from `horizon` on stays readable, and `points` below it: branch points and leases.
    pub fn new(horizon: Lsn, points: impl IntoIterator<Item = Lsn>) -> Retention {
        let mut points: Vec<Lsn> = points.into_iter().filter(|it| *it < horizon).collect();
        points.sort_unstable();
        points.dedup();
        Retention { horizon, points }
    }

    /// The LSN from which on everything stays readable; 0 when nothing may go.
    pub fn horizon(&self) -> Lsn {
        self.horizon
    }

    /// Whether a start (or truncation) at `by` hides what was put at `lsn` from every readable LSN.
    fn hides(&self, lsn: Lsn, by: Lsn) -> bool {
        let first = self.points.partition_point(|point| *point < lsn);
        by <= self.horizon && self.points.get(first).is_none_or(|point| *point >= by)
    }
}

/// What a merge asks about what lies outside of its inputs. A closure that knows floors is one; it lets no metadata go.
pub trait Facts<E> {
    /// Up to where a page's versions are hidden by truncation as of the horizon ([`Lsn::INVALID`]: none is).
    fn floor(&mut self, page: &Key) -> Result<Lsn, E>;

    /// Whether a version at or before the horizon of a key that is no page says nothing: whether every read, and every
    /// later merge, finds without the version what it finds with it. Of versions with the key, the merge leaves nothing
    /// older. All pages come before the first of these keys.
    fn is_needless(&mut self, key: &Key, version: &Version) -> Result<bool, E> {
        let _ = (key, version);
        Ok(false)
    }

    /// The merge leaves a version of a page at or below the page's floor: a point reads it.
    fn leaves_hidden(&mut self, page: &Key) {
        let _ = page;
    }
}

impl<E, F: FnMut(&Key) -> Result<Lsn, E>> Facts<E> for F {
    fn floor(&mut self, page: &Key) -> Result<Lsn, E> {
        self(page)
    }
}

/// Passes on the needed versions of a stream in `(key, lsn, seq)` order.
pub(crate) struct Filter<'a> {
    retention: &'a Retention,
    key: Option<Key>,
    /// What is hidden by truncation as of the horizon: versions of `key` up to here.
    floor: Lsn,
    /// Versions at or before the horizon since the last start.
    held: Vec<Version>,
    /// Whether a version of `key` was passed on.
    has_passed: bool,
}

impl<'a> Filter<'a> {
    pub fn new(retention: &'a Retention) -> Filter<'a> {
        Filter {
            retention,
            key: None,
            floor: Lsn::INVALID,
            held: Vec::new(),
            has_passed: false,
        }
    }

    /// Takes the next version; the floor is asked for once for each page that has versions before the horizon.
    pub fn push<E>(
        &mut self,
        key: Key,
        version: Version,
        facts: &mut impl Facts<E>,
        emit: &mut impl FnMut(&Key, &Version) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.key != Some(key) {
            self.release(None, facts, emit)?;
            self.key = Some(key);
            self.has_passed = false;
            self.floor = if version.lsn <= self.retention.horizon {
                facts.floor(&key)?
            } else {
                Lsn::INVALID
            };
        }
        // Nothing later in the key's history can hide a version any more.
        if version.lsn > self.retention.horizon {
            self.release(None, facts, emit)?;
            return emit(&key, &version);
        }
        if version.value.starts_chain() {
            self.release(Some(version.lsn), facts, emit)?;
        }
        self.held.push(version);
        Ok(())
    }

    pub fn finish<E>(
        &mut self,
        facts: &mut impl Facts<E>,
        emit: &mut impl FnMut(&Key, &Version) -> Result<(), E>,
    ) -> Result<(), E> {
        self.release(None, facts, emit)
    }

    /// Passes on what is held, save what a start at `by` or the floor hides, and what says nothing.
    fn release<E>(
        &mut self,
        by: Option<Lsn>,
        facts: &mut impl Facts<E>,
        emit: &mut impl FnMut(&Key, &Version) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(key) = self.key else { return Ok(()) };
        for version in self.held.drain(..) {
            let lsn = version.lsn;
            let superseded = by.is_some_and(|by| self.retention.hides(lsn, by));
            let truncated = lsn <= self.floor && self.retention.hides(lsn, self.floor);
            if superseded || truncated {
                continue;
            }
            assert!(
                lsn <= self.retention.horizon,
                "{key} at {lsn} is held, though the horizon is {}",
                self.retention.horizon
            );
            if key.is_page() {
                if lsn <= self.floor {
                    facts.leaves_hidden(&key);
                }
            } else if !self.has_passed && facts.is_needless(&key, &version)? {
                continue;
            }
            self.has_passed = true;
            emit(&key, &version)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::value::Value;

    fn kept(retention: &Retention, floor: u64, versions: &[(u64, bool)]) -> Vec<u64> {
        let mut filter = Filter::new(retention);
        let mut kept = Vec::new();
        let mut emit = |_: &Key, version: &Version| {
            kept.push(version.lsn.0);
            Ok::<(), ()>(())
        };
        for (lsn, starts_chain) in versions {
            let value = Value::Delta {
                bytes: Bytes::new(),
                starts_chain: *starts_chain,
            };
            let version = Version {
                lsn: Lsn(*lsn),
                seq: 0,
                value,
            };
            let mut floor_of = |_: &Key| Ok(Lsn(floor));
            filter
                .push(Key::aux(1), version, &mut floor_of, &mut emit)
                .unwrap();
        }
        let mut floor_of = |_: &Key| Ok(Lsn(floor));
        filter.finish(&mut floor_of, &mut emit).unwrap();
        kept
    }

    /// Lets every tombstone go that it is asked about, and notes which those are.
    #[derive(Default)]
    struct Asked(Vec<u64>);

    impl Facts<()> for Asked {
        fn floor(&mut self, _: &Key) -> Result<Lsn, ()> {
            Ok(Lsn::INVALID)
        }

        fn is_needless(&mut self, _: &Key, version: &Version) -> Result<bool, ()> {
            self.0.push(version.lsn.0);
            Ok(version.value == Value::Tombstone)
        }
    }

    /// Promise: only the oldest version that a merge leaves of a key may go, and only where it is history.
    #[test]
    fn a_tombstone_with_something_older_beside_it_is_not_asked_about() {
        let left = |horizon, points: &[u64], versions: &[(u64, Value)]| {
            let retention = Retention::new(Lsn(horizon), points.iter().map(|point| Lsn(*point)));
            let (mut filter, mut asked) = (Filter::new(&retention), Asked::default());
            let mut kept = Vec::new();
            let mut emit = |_: &Key, version: &Version| {
                kept.push(version.lsn.0);
                Ok::<(), ()>(())
            };
            for (lsn, value) in versions {
                let version = Version {
                    lsn: Lsn(*lsn),
                    seq: 0,
                    value: value.clone(),
                };
                filter
                    .push(Key::aux(1), version, &mut asked, &mut emit)
                    .unwrap();
            }
            filter.finish(&mut asked, &mut emit).unwrap();
            (kept, asked.0)
        };
        let size = || Value::Meta(Bytes::from_static(b"size"));
        let dropped = [(10, size()), (20, Value::Tombstone)];
        assert_eq!(left(99, &[], &dropped), (vec![], vec![20]));
        assert_eq!(left(20, &[], &dropped), (vec![], vec![20]));
        assert_eq!(left(19, &[], &dropped), (vec![10, 20], vec![10]));
        assert_eq!(left(99, &[15], &dropped), (vec![10, 20], vec![10]));
        assert_eq!(left(99, &[9], &dropped), (vec![], vec![20]));
        let used_again = [(20, Value::Tombstone), (30, size())];
        assert_eq!(left(99, &[25], &used_again), (vec![30], vec![20, 30]));
        assert_eq!(left(25, &[], &used_again), (vec![30], vec![20]));
    }

    const START: bool = true;

    #[test]
    fn the_newest_chain_at_the_horizon_and_everything_later_stays() {
        let versions = [
            (10, START),
            (20, false),
            (30, START),
            (40, false),
            (50, START),
        ];
        let keep = |horizon| kept(&Retention::new(Lsn(horizon), []), 0, &versions);
        assert_eq!(keep(0), [10, 20, 30, 40, 50]);
        assert_eq!(keep(29), [10, 20, 30, 40, 50]);
        assert_eq!(keep(30), [30, 40, 50]);
        assert_eq!(keep(49), [30, 40, 50]);
        assert_eq!(keep(99), [50]);
    }

    #[test]
    fn a_point_keeps_the_chain_it_reads_and_no_more() {
        let versions = [
            (10, START),
            (20, false),
            (25, false),
            (30, START),
            (40, START),
        ];
        let keep = |points: &[u64]| {
            let points = points.iter().map(|point| Lsn(*point));
            kept(&Retention::new(Lsn(99), points), 0, &versions)
        };
        assert_eq!(keep(&[22]), [10, 20, 40]);
        assert_eq!(keep(&[5]), [40]);
        assert_eq!(keep(&[39]), [30, 40]);
        assert_eq!(keep(&[10, 30]), [10, 30, 40]);
    }

    #[test]
    fn what_a_truncation_hides_goes_unless_a_point_sees_it() {
        let versions = [(10, START), (20, false), (60, START)];
        let truncated_at_50 = |horizon, points: &[u64]| {
            let points = points.iter().map(|point| Lsn(*point));
            kept(&Retention::new(Lsn(horizon), points), 50, &versions)
        };
        assert_eq!(truncated_at_50(55, &[]), [60]);
        assert_eq!(truncated_at_50(55, &[15]), [10, 60]);
        assert_eq!(truncated_at_50(45, &[]), [10, 20, 60]);
    }
}
