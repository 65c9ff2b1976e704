//! Sets of IP addresses as people write them: `192.0.2.1`, `192.0.2.0/24`, `192.0.2.1-192.0.2.99`, and the same of IPv6.
//!
//! An IPv4 address is the same whether it comes as one or as IPv6 has it (`::ffff:192.0.2.1`), in a set and in a question.
//! A range of IPv6 that holds more than such addresses holds none of IPv4: `::/0` is all of IPv6, and nothing else.

use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;

/// Why a text is no range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AddressError {
    /// A text of none of the three forms, or one that mixes IPv4 and IPv6.
    #[error("{0:?} is no address, and no range as ADDRESS/BITS or FIRST-LAST")]
    Form(String),
    /// The first address of a range comes after its last.
    #[error("{0:?} ends before it begins")]
    Order(String),
}

/// A set of addresses. The default is the empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// First and last of each range. Ranges are sorted, and between two of them are addresses of neither.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

enum Range {
    V4(u32, u32),
    V6(u128, u128),
}

impl Range {
    fn of(first: IpAddr, last: IpAddr) -> Option<Range> {
        match (first, last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => Some(Range::V4(first.into(), last.into())),
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                match (first.to_ipv4_mapped(), last.to_ipv4_mapped()) {
                    (Some(first), Some(last)) => Some(Range::V4(first.into(), last.into())),
                    _ => Some(Range::V6(first.into(), last.into())),
                }
            }
            _ => None,
        }
    }

    fn parse(text: &str) -> Option<Range> {
        if let Some((first, last)) = text.split_once('-') {
            return Range::of(first.trim().parse().ok()?, last.trim().parse().ok()?);
        }
        let Some((address, bits)) = text.split_once('/') else {
            let address = text.parse().ok()?;
            return Range::of(address, address);
        };
        // Digits alone: a number as the library reads it may have a sign.
        let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u32 = bits.parse().ok().filter(|_| digits)?;
        match address.parse().ok()? {
            IpAddr::V4(address) => {
                let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
                let address = u32::from(address);
                (bits <= u32::BITS).then_some(Range::V4(address & !rest, address | rest))
            }
            IpAddr::V6(address) => {
                let rest = u128::MAX.checked_shr(bits).unwrap_or(0);
                let address = u128::from(address);
                let [first, last] = [address & !rest, address | rest].map(Ipv6Addr::from);
                Range::of(first.into(), last.into()).filter(|_| bits <= u128::BITS)
            }
        }
    }
}

/// Sorted, and those joined that overlap.
fn joined<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    let mut all: Vec<(T, T)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match all.last_mut() {
            Some(before) if first <= before.1 => before.1 = before.1.max(last),
            _ => all.push((first, last)),
        }
    }
    all
}

fn holds<T: Ord>(ranges: &[(T, T)], address: &T) -> bool {
    let after = ranges.partition_point(|(first, _)| first <= address);
    ranges[..after]
        .last()
        .is_some_and(|(_, last)| address <= last)
}

impl Addresses {
    /// The set of all that the texts name. Bits of an address behind those that `/BITS` counts are not looked at.
    ///
    /// # Errors
    /// For the first text that is no range.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Addresses, AddressError> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for text in texts {
            let order = || AddressError::Order(text.to_owned());
            match Range::parse(text).ok_or_else(|| AddressError::Form(text.to_owned()))? {
                Range::V4(first, last) if first > last => return Err(order()),
                Range::V6(first, last) if first > last => return Err(order()),
                Range::V4(first, last) => v4.push((first, last)),
                Range::V6(first, last) => v6.push((first, last)),
            }
        }
        Ok(Addresses {
            v4: joined(v4),
            v6: joined(v6),
        })
    }

    /// Whether the address is one of the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        match address.to_canonical() {
            IpAddr::V4(address) => holds(&self.v4, &address.into()),
            IpAddr::V6(address) => holds(&self.v6, &address.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn set(texts: &[&str]) -> Addresses {
        Addresses::parse(texts.iter().copied()).expect("well formed")
    }

    fn holds(texts: &[&str], address: &str) -> bool {
        set(texts).contains(address.parse().expect("an address"))
    }

    #[test]
    fn each_form_holds_its_ends_and_not_their_neighbours() {
        for (text, within, without) in [
            (
                "192.0.2.7",
                ["192.0.2.7", "192.0.2.7"],
                ["192.0.2.6", "192.0.2.8"],
            ),
            (
                "192.0.2.0/24",
                ["192.0.2.0", "192.0.2.255"],
                ["192.0.1.255", "192.0.3.0"],
            ),
            (
                "192.0.2.9/24",
                ["192.0.2.0", "192.0.2.255"],
                ["192.0.1.255", "192.0.3.0"],
            ),
            (
                "192.0.2.7/32",
                ["192.0.2.7", "192.0.2.7"],
                ["192.0.2.6", "192.0.2.8"],
            ),
            (
                "192.0.2.5-192.0.2.9",
                ["192.0.2.5", "192.0.2.9"],
                ["192.0.2.4", "192.0.2.10"],
            ),
            (
                "192.0.2.5 - 192.0.3.9",
                ["192.0.2.5", "192.0.3.9"],
                ["192.0.2.4", "192.0.3.10"],
            ),
            (
                "2001:db8::/32",
                ["2001:db8::", "2001:db8:ffff::1"],
                ["2001:db7::", "2001:db9::"],
            ),
            (
                "2001:db8::1",
                ["2001:db8::1", "2001:db8::1"],
                ["2001:db8::", "2001:db8::2"],
            ),
            (
                "fd00::1-fd00::ff",
                ["fd00::1", "fd00::ff"],
                ["fd00::", "fd00::100"],
            ),
        ] {
            assert!(within.iter().all(|one| holds(&[text], one)), "{text}");
            assert!(!without.iter().any(|one| holds(&[text], one)), "{text}");
        }
    }

    #[test]
    fn an_ipv4_address_is_the_same_as_ipv6_has_it_and_all_of_ipv6_holds_none() {
        assert!(holds(&["192.0.2.0/24"], "::ffff:192.0.2.9"));
        assert!(holds(&["::ffff:192.0.2.0/120"], "192.0.2.9"));
        assert!(holds(&["::ffff:192.0.2.1-::ffff:192.0.2.9"], "192.0.2.9"));
        assert!(!holds(&["::/0"], "192.0.2.9"));
        assert!(!holds(&["::/0"], "::ffff:192.0.2.9"));
        assert!(holds(&["::/0"], "::192.0.2.9"));
        assert!(!holds(&["0.0.0.0/0"], "::1"));
        assert!(holds(&["0.0.0.0/0"], "255.255.255.255"));
        assert!(!holds(&["::ffff:0.0.0.0/95"], "192.0.2.9"));
    }

    #[test]
    fn what_is_no_range_is_refused_and_named() {
        for text in [
            "",
            " ",
            "192.0.2",
            "192.0.2.1/33",
            "192.0.2.1/",
            "192.0.2.1/+8",
            "192.0.2.1/-1",
            "192.0.2.1/255.0.0.0",
            "192.0.2.01",
            "192.0.2.1/8/9",
            "fe80::1%eth0",
            "::1/129",
            "a-b",
            "192.0.2.1-",
            "-192.0.2.1",
            "192.0.2.1-::1",
            "192.0.2.1-192.0.2.2-192.0.2.3",
            "192.0.2.0/24-192.0.3.0/24",
            "localhost",
        ] {
            assert_eq!(
                Addresses::parse([text]),
                Err(AddressError::Form(text.to_owned()))
            );
        }
        for text in ["192.0.2.2-192.0.2.1", "::2-::1"] {
            assert_eq!(
                Addresses::parse(["::1", text]),
                Err(AddressError::Order(text.to_owned()))
            );
        }
        assert!(!Addresses::default().contains(Ipv4Addr::LOCALHOST.into()));
    }

    proptest! {
        /// Against asking each range by itself.
        #[test]
        fn a_set_holds_what_one_of_its_ranges_holds(
            ranges in proptest::collection::vec((0_u32..300, 0_u32..20, 20_u32..=32, any::<bool>()), 0..12),
            asked in 0_u32..400,
        ) {
            let (mut texts, mut expected) = (Vec::new(), false);
            for (first, length, bits, by_bits) in ranges {
                let address = Ipv4Addr::from(first);
                if by_bits {
                    texts.push(format!("{address}/{bits}"));
                    expected |= first >> (32 - bits) == asked >> (32 - bits);
                } else {
                    texts.push(format!("{address}-{}", Ipv4Addr::from(first + length)));
                    expected |= (first..=first + length).contains(&asked);
                }
            }
            let set = Addresses::parse(texts.iter().map(String::as_str)).expect("well formed");
            prop_assert_eq!(set.contains(Ipv4Addr::from(asked).into()), expected);
            prop_assert_eq!(set.contains(Ipv4Addr::from(asked).to_ipv6_mapped().into()), expected);
        }

        #[test]
        fn no_text_is_too_much(text in "\\PC{0,40}|[0-9a-f:./-]{0,40}") {
            if let Ok(set) = Addresses::parse([text.as_str()]) {
                prop_assert!(set != Addresses::default());
            }
        }
    }
}
