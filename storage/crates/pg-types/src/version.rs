//! What differs between Postgres major versions, in one visible place.
//!
//! A new major starts with a row here and its own module beside [`crate::v15`], [`crate::v17`] and [`crate::v18`],
//! which hold the numbers and say what changed; code elsewhere asks [`PgMajor::facts`] instead of knowing them. The
//! control file of [`crate::v15`], whose layout later majors have kept, asks too, so that the two use each other.

use serde::{Deserialize, Serialize};

use crate::facts::VersionFacts;

/// A Postgres major version whose WAL and pages are understood.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub enum PgMajor {
    /// Postgres 15.
    #[default]
    V15,
    /// Postgres 17.
    V17,
    /// Postgres 18.
    V18,
}

/// A major version without a row here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Postgres {0} is not supported: the formats of 15, 17 and 18 are known")]
pub struct UnknownMajor(pub u32);

impl PgMajor {
    /// Every major, oldest first.
    pub const ALL: [PgMajor; 3] = [PgMajor::V15, PgMajor::V17, PgMajor::V18];

    /// The numbers and layouts of this major.
    pub const fn facts(self) -> &'static VersionFacts {
        match self {
            PgMajor::V15 => &crate::v15::FACTS,
            PgMajor::V17 => &crate::v17::FACTS,
            PgMajor::V18 => &crate::v18::FACTS,
        }
    }

    /// The major of this number, such as 15.
    pub fn from_number(number: u32) -> Result<PgMajor, UnknownMajor> {
        let known = PgMajor::ALL.into_iter();
        known
            .into_iter()
            .find(|major| major.facts().number == number)
            .ok_or(UnknownMajor(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn majors_are_told_apart_and_others_are_refused() {
        for major in PgMajor::ALL {
            assert_eq!(PgMajor::from_number(major.facts().number), Ok(major));
            let same_magic = PgMajor::ALL
                .into_iter()
                .filter(|other| other.facts().wal_page_magic == major.facts().wal_page_magic);
            assert_eq!(same_magic.count(), 1);
        }
        let error = PgMajor::from_number(16).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Postgres 16 is not supported: the formats of 15, 17 and 18 are known"
        );
    }
}
