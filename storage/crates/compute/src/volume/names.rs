//! Names of files below a database directory and of SLRU segments.

use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use pg_types::{ForkNumber, RELSEG_BLOCKS, RelTag, SlruKind};

/// What the name of a relation file says: `16384`, `16384_fsm`, `16384_vm.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RelFile {
    /// The relfilenode; never 0.
    pub rel: u32,
    /// The fork, main when the name has no suffix.
    pub fork: ForkNumber,
    /// Number of the file in its fork, each of 1 GiB; 0 for the first, whose name has no number.
    pub segment: u32,
}

impl RelFile {
    /// `None` for names that are not a relation's: temporary relations, maps, caches, directories.
    pub fn parse(name: &str) -> Option<RelFile> {
        let (stem, segment) = match name.split_once('.') {
            Some((stem, segment)) => (stem, canonical_number(segment)?),
            None => (name, 0),
        };
        if segment == 0 && name.contains('.') {
            return None;
        }
        let (rel, fork) = match stem.split_once('_') {
            Some((rel, suffix)) => (
                rel,
                ForkNumber::ALL
                    .into_iter()
                    .find(|fork| *fork != ForkNumber::Main && fork.file_suffix() == suffix)?,
            ),
            None => (stem, ForkNumber::Main),
        };
        let rel = canonical_number(rel)?;
        (rel != 0).then_some(RelFile { rel, fork, segment })
    }

    /// The file's name, as Postgres writes it.
    pub fn name(&self) -> String {
        let mut name = self.rel.to_string();
        if self.fork != ForkNumber::Main {
            name.push('_');
            name.push_str(self.fork.file_suffix());
        }
        if self.segment > 0 {
            name.push('.');
            name.push_str(&self.segment.to_string());
        }
        name
    }

    /// The fork that the file is a part of, in a database directory of this tablespace and database.
    pub fn tag(&self, spc: u32, db: u32) -> RelTag {
        RelTag {
            spc,
            db,
            rel: self.rel,
            fork: self.fork,
        }
    }

    /// First block of the relation in this file.
    pub fn first_block(&self) -> u32 {
        self.segment.saturating_mul(RELSEG_BLOCKS)
    }
}

/// The directory of a database below the volume's root; `None` for tablespaces the volume does not serve.
pub fn database_path(spc: u32, db: u32) -> Option<String> {
    match (spc, db) {
        (DEFAULT_TABLESPACE, db) => Some(format!("base/{db}")),
        (GLOBAL_TABLESPACE, 0) => Some("global".to_owned()),
        _ => None,
    }
}

/// A number as Postgres prints it: decimal digits, no sign, no leading zero.
pub fn canonical_number(text: &str) -> Option<u32> {
    let plain = !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

/// The segment a file in an SLRU directory holds, from its upper-case hexadecimal name.
pub fn parse_slru_segment(name: &str) -> Option<u32> {
    let segment = u32::from_str_radix(name, 16).ok()?;
    (slru_segment_name(segment) == name).then_some(segment)
}

/// The name of a segment's file in an SLRU directory: at least four upper-case hexadecimal digits.
pub fn slru_segment_name(segment: u32) -> String {
    format!("{segment:04X}")
}

/// The SLRU whose directory this is.
pub fn slru_of_path(path: &str) -> Option<SlruKind> {
    SlruKind::ALL
        .into_iter()
        .find(|kind| kind.directory() == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relation_names_round_trip_and_others_are_none() {
        for name in [
            "1259",
            "16384_fsm",
            "16384_vm",
            "16384_init",
            "16384.3",
            "16384_vm.1",
        ] {
            assert_eq!(RelFile::parse(name).unwrap().name(), name);
        }
        for name in [
            "",
            "0",
            "01",
            "t3_16384",
            "pg_filenode.map",
            "PG_VERSION",
            "pgsql_tmp",
            "16384.0",
            "16384.01",
            "16384_",
            "16384_main",
            "16384_x",
            "16384.",
            "-1",
            "99999999999",
            "16384_fsm.",
            "pg_internal.init.123",
        ] {
            assert_eq!(RelFile::parse(name), None, "{name:?}");
        }
        assert_eq!(RelFile::parse("5.2").unwrap().first_block(), 262_144);
    }

    #[test]
    fn slru_segment_names() {
        assert_eq!(parse_slru_segment("000A"), Some(10));
        assert_eq!(parse_slru_segment("14078"), Some(0x14078));
        for bad in ["", "A", "000a", "00000", "+001", "000A.tmp"] {
            assert_eq!(parse_slru_segment(bad), None, "{bad:?}");
        }
    }
}
