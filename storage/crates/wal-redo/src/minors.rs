//! What minors of one major redo otherwise, in one visible place. Majors differ in `pg_types::v15`, `v17`, `v18`.
//!
//! A cluster is updated to a new minor by a restart: its WAL and pages then come from both, and nothing in a WAL
//! page, a record or `pg_control` says which minor wrote them. So redo cannot depend on the minor; it must be right
//! for all supported minors. [`DIFFERENCES`] is what comparing the redo functions of the oldest and the newest minor
//! of each major found (docs/adr/0030-minors.md says how, and has what changed beside redo), and what is done about
//! each.

use pg_types::PgMajor;

use crate::gist::{change_flags, flags};
use crate::{Page, gist};

/// A change of redo, or of what redo gets to see, between two minors of one major.
#[derive(Debug)]
pub struct Difference {
    /// The record kinds, as `oracle::op_name` has them.
    pub records: &'static [&'static str],
    /// The first minor of each major with the new way. A major that is not named has the old way in all of its minors
    /// that were looked at.
    pub since: &'static [(PgMajor, u32)],
    /// The function of Postgres in which it is.
    pub place: &'static str,
    /// What older minors do.
    pub before: &'static str,
    /// What newer minors do.
    pub now: &'static str,
    /// Why either result will do.
    pub equivalent: &'static str,
    /// What this crate makes.
    pub ours: &'static str,
}

/// All of them.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        records: &["Gist/PAGE_UPDATE", "Gist/DELETE"],
        since: &[(PgMajor::V15, 20)],
        place: "access/gist: vacuum of a leaf, and redo of both records",
        before: "a leaf that loses tuples gets the flag 1 << 2, \"tuples deleted\": by vacuum, and by redo of both \
                 records",
        now: "nobody sets the flag; where an older minor set it, it stays until the page is split or made anew",
        equivalent: "no code of any minor decides anything by the flag: it is set, carried along, and shown by \
                     pageinspect",
        ours: "the flag is left as it is, and the oracle does not compare it (`mask_gist_flags`)",
    },
    Difference {
        records: &[
            "Heap/INSERT",
            "Heap/DELETE",
            "Heap/UPDATE",
            "Heap/HOT_UPDATE",
            "Heap/LOCK",
            "Heap2/MULTI_INSERT",
            "Heap2/LOCK_UPDATED",
        ],
        since: &[(PgMajor::V17, 11), (PgMajor::V18, 6)],
        place: "access/heap: the records' redo, and the code that writes them",
        before: "a flag of the record lets redo clear the heap block's bits on a map page that the record does not \
                 name; the map page keeps its LSN",
        now: "the record names the map pages and redo makes its end their LSN; a record of an older minor is redone \
              as before",
        equivalent: "the same bits are cleared. A page's LSN tells Postgres how much WAL to write before the page, and \
                     whether to log an image of it; storage does neither by it",
        ours: "the record says which it is, and both are done (`visibility`, `wal_decode::interpret`)",
    },
    Difference {
        records: &[
            "Hash/INIT_META_PAGE",
            "Hash/INIT_BITMAP_PAGE",
            "Sequence/LOG",
        ],
        since: &[(PgMajor::V15, 19), (PgMajor::V17, 11), (PgMajor::V18, 6)],
        place: "access/hash and commands/sequence.c: redo",
        before: "an init fork that redo of a sequence made could still be missing on disk at a promotion; that of a \
                 hash index was written at once",
        now: "both are written at once, by one function",
        equivalent: "the page is the same; only when Postgres writes it to its file differs",
        ours: "pages are made when they are read, whatever fork they are of",
    },
    Difference {
        records: &["MultiXact/CREATE_ID"],
        since: &[(PgMajor::V15, 19)],
        place: "access/transam/multixact.c: RecordNewMultiXact",
        before: "redo of WAL by minors before 15.16, which do not say in advance where the next multixact's members \
                 begin, could wait for a lock that it held itself",
        now: "the lock is taken later",
        equivalent: "the pages are the same; such WAL is older than what is supported",
        ours: "the offset of the next multixact is set with each new one, as every supported minor does",
    },
];

/// "Tuples deleted" on a GiST page.
const GIST_TUPLES_DELETED: u16 = 1 << 2;

/// Whether a GiST page bears the flag that minors differ in.
pub fn gist_tuples_deleted(page: &Page) -> bool {
    flags(page) & GIST_TUPLES_DELETED != 0
}

/// Takes out of a GiST page what minors differ in, for a comparison.
pub(crate) fn mask_gist_flags(page: &mut Page) {
    change_flags(page, 0, GIST_TUPLES_DELETED);
}

// The flags that do mean something are never masked here.
const _: () = assert!(
    GIST_TUPLES_DELETED & (gist::LEAF | gist::DELETED | gist::FOLLOW_RIGHT | gist::HAS_GARBAGE)
        == 0
);

#[cfg(test)]
mod tests {
    use pg_types::{BLCKSZ, ForkNumber, page};

    use super::*;
    use crate::masking::{PageClass, Rules, mask};
    use crate::oracle::op_name;

    fn leaf(flags: u16) -> Page {
        let mut page = [0; BLCKSZ];
        page::init(&mut page, gist::OPAQUE_BYTES);
        page[BLCKSZ - 2..].copy_from_slice(&gist::PAGE_ID.to_le_bytes());
        change_flags(&mut page, flags, 0);
        assert_eq!(PageClass::of_page(&page, ForkNumber::Main), PageClass::Gist);
        page
    }

    /// Promise: of the flags of a GiST page the oracle leaves out this one, and those that Postgres's own check does.
    #[test]
    fn only_the_flag_that_minors_differ_in_is_not_compared() {
        for (flag, left_out) in [
            (gist::LEAF, false),
            (gist::DELETED, false),
            (GIST_TUPLES_DELETED, true),
            (gist::FOLLOW_RIGHT, false),
            (gist::HAS_GARBAGE, true),
        ] {
            let (mut with, mut without) = (leaf(flag), leaf(0));
            for page in [&mut with, &mut without] {
                mask(page, 1, PageClass::Gist, Rules::Tight).unwrap();
            }
            assert_eq!(with == without, left_out, "flag {flag:#x}");
        }
    }

    #[test]
    fn the_records_are_named_as_the_oracle_names_them() {
        let names: Vec<String> = (0..=u8::MAX)
            .flat_map(|rmid| (0..16).map(move |op| op_name(PgMajor::V15, rmid, op << 4)))
            .collect();
        for difference in DIFFERENCES {
            for record in difference.records {
                assert!(names.iter().any(|name| name == record), "{record}");
            }
        }
    }
}
