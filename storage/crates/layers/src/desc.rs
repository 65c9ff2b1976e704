//! The description of a layer file, and the layer's name, which holds all of the description but the size.

use std::str::FromStr;

use pg_types::key::KEY_BYTES;
use pg_types::{Key, KeyRange, Lsn};
use serde::{Deserialize, Serialize};

use crate::error::LayerError;
use crate::name::LayerName;
use crate::value::LsnRange;

/// What a layer file holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    /// Any values of many keys over a range of LSNs. Level 0 comes straight from memory and spans whatever
    /// keys were written; levels 1 and 2 are merged and partitioned by key.
    Delta,
    /// One value a key, all at one LSN; a key that is absent is simply not known from this layer.
    Image,
}

/// A layer file without its bytes. Equal descriptions mean equal contents: the checksum is part of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct LayerDesc {
    /// Whether the layer has a range of LSNs or one.
    pub kind: LayerKind,
    /// How often what the layer holds was merged: 0 as flushed from memory, 1 compacted, 2 compacted before the
    /// history horizon. Image layers have 1.
    pub level: u8,
    /// First and last key with a version in the layer.
    pub keys: KeyRange,
    /// LSNs of the oldest and the newest version in the layer; one LSN for an image layer.
    pub lsns: LsnRange,
    /// CRC32C of the file up to its last 12 bytes, as the file itself states it.
    pub checksum: u32,
    /// Size of the file in bytes.
    pub size: u64,
}

impl LayerDesc {
    /// The name, which says all but the size.
    pub fn name(&self) -> LayerName {
        let mut name = String::with_capacity(128);
        push_hex(&mut name, &self.keys.first.to_bytes());
        name.push('-');
        push_hex(&mut name, &self.keys.last.to_bytes());
        name.push_str("__");
        push_hex(&mut name, &self.lsns.first.0.to_be_bytes());
        name.push('-');
        push_hex(&mut name, &self.lsns.last.0.to_be_bytes());
        name.push_str(match self.kind {
            LayerKind::Delta => "__d",
            LayerKind::Image => "__i",
        });
        name.push_str(&self.level.to_string());
        name.push('-');
        push_hex(&mut name, &self.checksum.to_be_bytes());
        LayerName(name)
    }

    /// Whether both have the same name, which says all but the size.
    pub fn is_named_as(&self, other: &LayerDesc) -> bool {
        let said = |it: &LayerDesc| (it.checksum, it.kind, it.level, it.keys, it.lsns);
        said(self) == said(other)
    }

    /// Whether this is a delta layer as flushed from memory, not yet compacted.
    pub fn is_l0(&self) -> bool {
        self.kind == LayerKind::Delta && self.level == 0
    }

    fn parse(name: &str, size: u64) -> Option<LayerDesc> {
        let mut parts = name.split("__");
        let (keys, lsns, rest) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        let (first_key, last_key) = keys.split_once('-')?;
        let (first_lsn, last_lsn) = lsns.split_once('-')?;
        let (kind, checksum) = rest.split_once('-')?;
        let (kind, level) = kind.split_at_checked(1)?;
        let desc = LayerDesc {
            kind: match kind {
                "d" => LayerKind::Delta,
                "i" => LayerKind::Image,
                _ => return None,
            },
            level: level.parse().ok()?,
            keys: KeyRange {
                first: parse_key(first_key)?,
                last: parse_key(last_key)?,
            },
            lsns: LsnRange {
                first: parse_lsn(first_lsn)?,
                last: parse_lsn(last_lsn)?,
            },
            checksum: u32::from_str_radix(checksum, 16).ok()?,
            size,
        };
        // Only the one canonical spelling is a name: a file is found by name.
        let valid = desc.keys.first <= desc.keys.last && desc.lsns.first <= desc.lsns.last;
        (valid && desc.name().0 == name).then_some(desc)
    }
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: [u8; 16] = *b"0123456789abcdef";
    for byte in bytes {
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
}

fn parse_key(hex: &str) -> Option<Key> {
    let mut bytes = [0; KEY_BYTES];
    if hex.len() != 2 * KEY_BYTES || !hex.is_ascii() {
        return None;
    }
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
    }
    Key::from_bytes(&bytes)
}

fn parse_lsn(hex: &str) -> Option<Lsn> {
    (hex.len() == 16)
        .then(|| u64::from_str_radix(hex, 16).ok().map(Lsn))
        .flatten()
}

impl LayerName {
    /// What the name says, together with the file's size.
    pub fn parse(&self, size: u64) -> Result<LayerDesc, LayerError> {
        LayerDesc::parse(&self.0, size).ok_or_else(|| LayerError::BadName(self.0.clone()))
    }
}

impl FromStr for LayerName {
    type Err = LayerError;

    fn from_str(text: &str) -> Result<LayerName, LayerError> {
        let name = LayerName(text.to_owned());
        name.parse(0)?;
        Ok(name)
    }
}

/// A description in JSON: `{"name": "...", "size": n}`.
#[derive(Serialize, Deserialize)]
struct Stored {
    name: LayerName,
    size: u64,
}

impl From<LayerDesc> for Stored {
    fn from(desc: LayerDesc) -> Stored {
        Stored {
            name: desc.name(),
            size: desc.size,
        }
    }
}

impl TryFrom<Stored> for LayerDesc {
    type Error = LayerError;

    fn try_from(stored: Stored) -> Result<LayerDesc, LayerError> {
        stored.name.parse(stored.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc() -> LayerDesc {
        LayerDesc {
            kind: LayerKind::Delta,
            level: 1,
            keys: KeyRange {
                first: Key::timeline_state(),
                last: Key::aux(7),
            },
            lsns: LsnRange {
                first: Lsn(0x16B_3748),
                last: Lsn(0x1_0000_0000),
            },
            checksum: 0xDEAD_BEEF,
            size: 12345,
        }
    }

    #[test]
    fn a_name_says_everything_but_the_size() {
        let desc = desc();
        assert_eq!(
            desc.name().as_str(),
            "200000000000000000000000000000000000-220000000000000000000000000000000007__\
             00000000016b3748-0000000100000000__d1-deadbeef"
        );
        assert_eq!(desc.name().parse(12345).unwrap(), desc);
        let json = serde_json::to_string(&desc).unwrap();
        assert_eq!(serde_json::from_str::<LayerDesc>(&json).unwrap(), desc);
    }

    #[test]
    fn other_spellings_are_not_names() {
        let good = desc().name().0;
        for bad in [
            "",
            "a-b__c-d__d1-00",
            &good[1..],
            &good.to_uppercase(),
            &format!("{good}0"),
            &format!("{good}__"),
        ] {
            assert!(bad.parse::<LayerName>().is_err(), "{bad:?}");
        }
    }
}
