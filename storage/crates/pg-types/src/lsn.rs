//! WAL positions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A byte position in a timeline's WAL. Displayed as Postgres does, `X/Y` in upper-case hex.
///
/// Page versions in storage carry the *end* LSN of the record that made them, as `pd_lsn` does: a page
/// "at LSN x" includes every record that ends at or before x.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// No position (`xlogdefs.h: InvalidXLogRecPtr`); as a lower bound, before all WAL.
    pub const INVALID: Lsn = Lsn(0);
    /// Behind every position that WAL can reach; as an upper bound, none.
    pub const MAX: Lsn = Lsn(u64::MAX);

    /// Whether this is a position, so not [`Lsn::INVALID`].
    #[inline]
    pub fn is_valid(self) -> bool {
        self.0 != 0
    }

    /// Rounds up to the 8-byte boundary on which WAL records start (`MAXALIGN`).
    #[inline]
    pub fn align(self) -> Lsn {
        Lsn((self.0 + 7) & !7)
    }

    /// Bytes from `earlier` to `self`; `None` when `earlier` is later.
    #[inline]
    pub fn checked_sub(self, earlier: Lsn) -> Option<u64> {
        self.0.checked_sub(earlier.0)
    }

    /// Number of the segment that holds the byte at this position; position 0 is in segment 0.
    pub fn segment_number(self, segment_bytes: u64) -> u64 {
        self.0 / segment_bytes
    }

    /// Bytes from the start of the segment that holds this position.
    pub fn segment_offset(self, segment_bytes: u64) -> u64 {
        self.0 % segment_bytes
    }

    /// File name of the segment holding this position on Postgres timeline 1 (Weir computes never switch
    /// the Postgres timeline).
    pub fn segment_file_name(self, segment_bytes: u64) -> String {
        let segments_per_xlog_id = 0x1_0000_0000 / segment_bytes;
        let number = self.segment_number(segment_bytes);
        format!(
            "{:08X}{:08X}{:08X}",
            1,
            number / segments_per_xlog_id,
            number % segments_per_xlog_id
        )
    }
}

impl std::ops::Add<u64> for Lsn {
    type Output = Lsn;
    #[inline]
    fn add(self, bytes: u64) -> Lsn {
        Lsn(self.0 + bytes)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not two hex halves of at most 32 bits with a slash between them.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "invalid LSN {0:?}: expected two hexadecimal numbers with a slash between, such as 0/16B3748"
)]
pub struct ParseLsnError(String);

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Lsn, ParseLsnError> {
        let half = |part: &str| {
            (!part.is_empty() && part.len() <= 8 && part.bytes().all(|b| b.is_ascii_hexdigit()))
                .then(|| u64::from_str_radix(part, 16).ok())
                .flatten()
        };
        text.split_once('/')
            .and_then(|(high, low)| Some(Lsn(half(high)? << 32 | half(low)?)))
            .ok_or_else(|| ParseLsnError(text.to_owned()))
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Lsn, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?
                .parse()
                .map_err(serde::de::Error::custom)
        } else {
            u64::deserialize(deserializer).map(Lsn)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips_and_bad_text_is_refused() {
        let lsn: Lsn = "1/16B3748".parse().unwrap();
        assert_eq!(lsn, Lsn(0x1_016B_3748));
        assert_eq!(lsn.to_string(), "1/16B3748");
        for bad in [
            "",
            "/",
            "1",
            "1/",
            "/1",
            "1/123456789",
            "x/1",
            "1/2/3",
            "+1/2",
            " 1/2",
        ] {
            assert!(bad.parse::<Lsn>().is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn segment_names_follow_postgres() {
        assert_eq!(
            Lsn(0x1_FF00_0000).segment_file_name(16 << 20),
            "0000000100000001000000FF"
        );
    }
}
