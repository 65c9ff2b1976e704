//! Slows those down who try passwords.
//!
//! Failures are counted for an address and an endpoint together, and for an address alone, which meets those who try
//! endpoints. Past a few, attempts get their turn one after the other, each after a pause that doubles with each failure
//! up to [`LONGEST_PAUSE`], whether or not their password is right: the pause tells nothing. Successes take nothing back,
//! so nobody buys guesses with an account of their own; time does, one failure each [`FORGIVEN_AFTER`]. An endpoint is
//! never slowed for all addresses, since that would let a stranger lock its owner out.
//!
//! Attempts that came together before the first failure are all let through: a thousand clients that a restart sent
//! here at once are no attack.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pg_protocol::endpoint::EndpointName;

/// The pause after the first failure that counts.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// No two attempts of an address are kept further apart.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A failure weighs half as much...
pub const FORGIVEN_AFTER: Duration = Duration::from_secs(30);
/// An attempt that would have to wait longer than this is refused.
pub const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Failures without consequence: of an address at one endpoint, and of an address at all.
const FREE_AT_ENDPOINT: u32 = 5;
const FREE_AT_ALL: u32 = 50;
/// From so many failures past the free ones the pause is the longest.
const STEPS: u32 = 7;
/// Entries kept, about 150 bytes each.
const MOST_ENTRIES: usize = 50_000;

/// What an attempt to log in has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Go on after so long.
    After(Duration),
    /// Come back after so long.
    Refused(Duration),
}

/// The origin of failures: one IPv4 address, or an IPv6 network of 64 bits, since a provider gives one customer as many.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Origin(IpAddr);

impl Origin {
    fn of(address: IpAddr) -> Origin {
        match address.to_canonical() {
            IpAddr::V6(address) => Origin(IpAddr::V6((u128::from(address) >> 64 << 64).into())),
            address => Origin(address),
        }
    }
}

type EntryKey = (Origin, Option<EndpointName>);

#[derive(Clone, Copy)]
struct Entry {
    failures: u32,
    /// Up to when failures are forgiven.
    counted: Instant,
    /// When the next attempt may go on.
    next: Instant,
}

impl Entry {
    fn forgive(&mut self, now: Instant) {
        let periods =
            now.saturating_duration_since(self.counted).as_secs() / FORGIVEN_AFTER.as_secs();
        self.failures = self
            .failures
            .saturating_sub(periods.try_into().unwrap_or(u32::MAX));
        self.counted += FORGIVEN_AFTER * periods.try_into().unwrap_or(0);
    }

    fn pause(&self, free: u32) -> Option<Duration> {
        let steps = self.failures.checked_sub(free)?.min(STEPS);
        Some((FIRST_PAUSE * 2_u32.pow(steps)).min(LONGEST_PAUSE))
    }
}

/// Failures by origin. The clock is the caller's.
#[derive(Default)]
pub struct Throttle {
    entries: Mutex<HashMap<EntryKey, Entry>>,
}

impl Throttle {
    /// An attempt begins. It takes its turn, whatever becomes of it.
    pub fn admit(&self, address: IpAddr, endpoint: &EndpointName, now: Instant) -> Admission {
        let mut entries = self.entries.lock();
        let mut wait = Duration::ZERO;
        let keys = keys(address, endpoint);
        for (key, free) in &keys {
            if let Some(entry) = entries.get_mut(key) {
                entry.forgive(now);
                if entry.pause(*free).is_some() {
                    wait = wait.max(entry.next.saturating_duration_since(now));
                }
            }
        }
        if wait > LONGEST_WAIT {
            return Admission::Refused(wait);
        }
        for (key, free) in &keys {
            if let Some(entry) = entries.get_mut(key)
                && let Some(pause) = entry.pause(*free)
            {
                entry.next = now + wait + pause;
            }
        }
        Admission::After(wait)
    }

    /// An attempt has failed, by a wrong endpoint, user or password.
    pub fn failed(&self, address: IpAddr, endpoint: &EndpointName, now: Instant) {
        let mut entries = self.entries.lock();
        for (key, free) in keys(address, endpoint) {
            if entries.len() >= MOST_ENTRIES && !entries.contains_key(&key) {
                make_room(&mut entries, now);
            }
            let entry = entries.entry(key).or_insert(Entry {
                failures: 0,
                counted: now,
                next: now,
            });
            entry.forgive(now);
            if entry.failures == 0 {
                entry.counted = now;
            }
            entry.failures = (entry.failures + 1).min(free + STEPS);
            if let Some(pause) = entry.pause(free) {
                entry.next = entry.next.max(now + pause);
            }
        }
    }
}

fn keys(address: IpAddr, endpoint: &EndpointName) -> [(EntryKey, u32); 2] {
    let origin = Origin::of(address);
    [
        ((origin, Some(endpoint.clone())), FREE_AT_ENDPOINT),
        ((origin, None), FREE_AT_ALL),
    ]
}

/// Forgets who is forgiven; where nobody is, a tenth of those with the fewest failures.
fn make_room(entries: &mut HashMap<EntryKey, Entry>, now: Instant) {
    entries.retain(|_, entry| {
        entry.forgive(now);
        entry.failures > 0
    });
    if entries.len() < MOST_ENTRIES {
        return;
    }
    let mut failures: Vec<u32> = entries.values().map(|entry| entry.failures).collect();
    failures.sort_unstable();
    let (limit, mut left) = (failures[MOST_ENTRIES / 10], MOST_ENTRIES / 10);
    entries.retain(|_, entry| {
        let goes = entry.failures <= limit && left > 0;
        left -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn endpoint(name: &str) -> EndpointName {
        EndpointName::new(name).expect("a name")
    }

    fn fail(throttle: &Throttle, times: u32, now: Instant) {
        for _ in 0..times {
            throttle.failed(address(1), &endpoint("a"), now);
        }
    }

    #[test]
    fn a_few_failures_cost_nothing_and_more_cost_ever_more() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        let mut last = Duration::ZERO;
        fail(&throttle, FREE_AT_ENDPOINT - 1, now);
        assert_eq!(
            throttle.admit(address(1), &endpoint("a"), now),
            Admission::After(Duration::ZERO)
        );
        for _ in 0..STEPS {
            fail(&throttle, 1, now);
            let Admission::After(wait) = throttle.admit(address(1), &endpoint("a"), now) else {
                break;
            };
            assert!(wait > last, "{wait:?} after {last:?}");
            last = wait;
        }
    }

    /// A hundred connections at once get no more guesses than one after the other.
    #[test]
    fn attempts_side_by_side_wait_for_one_another() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        fail(&throttle, 100, now);
        let admitted: Vec<_> = (0..100)
            .map(|_| throttle.admit(address(1), &endpoint("a"), now))
            .filter_map(|admission| match admission {
                Admission::After(wait) => Some(wait),
                Admission::Refused(_) => None,
            })
            .collect();
        assert_eq!(admitted, [10, 20, 30].map(Duration::from_secs));
    }

    #[test]
    fn the_owner_at_another_address_is_not_slowed() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        fail(&throttle, 1000, now);
        let free = Admission::After(Duration::ZERO);
        assert_eq!(throttle.admit(address(2), &endpoint("a"), now), free);
    }

    #[test]
    fn who_tries_endpoints_is_slowed_at_all_of_them() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        for number in 0..FREE_AT_ALL + STEPS {
            throttle.failed(address(1), &endpoint(&format!("ep-{number}")), now);
        }
        let unseen = throttle.admit(address(1), &endpoint("other"), now);
        assert_eq!(unseen, Admission::After(LONGEST_PAUSE));
    }

    #[test]
    fn time_forgives() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        fail(&throttle, 1000, now);
        let later = now + FORGIVEN_AFTER * (FREE_AT_ENDPOINT + STEPS + 1);
        assert_eq!(
            throttle.admit(address(1), &endpoint("a"), later),
            Admission::After(Duration::ZERO)
        );
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_and_mapped_ones_are_ipv4() {
        let of = |text: &str| Origin::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

    #[test]
    fn memory_is_bounded_and_the_worst_are_remembered() {
        let (throttle, now) = (Throttle::default(), Instant::now());
        fail(&throttle, 100, now);
        for number in 0..MOST_ENTRIES as u32 {
            let address = IpAddr::from((0x0B00_0000 + number).to_be_bytes());
            throttle.failed(address, &endpoint("a"), now);
        }
        assert!(throttle.entries.lock().len() <= MOST_ENTRIES);
        assert_ne!(
            throttle.admit(address(1), &endpoint("a"), now),
            Admission::After(Duration::ZERO)
        );
    }
}
