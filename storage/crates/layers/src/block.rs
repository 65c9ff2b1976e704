//! A decompressed block, and the places in it where a search can begin.
//!
//! Entries have no fixed size, so that a reader without further knowledge has to walk from the first entry on. A
//! block that was searched once remembers an entry's position about every kilobyte, and the next search begins at the
//! nearest one.

use std::ops::ControlFlow;
use std::sync::OnceLock;

use bytes::Bytes;
use pg_types::{Key, Lsn};
use smallvec::SmallVec;

use crate::format::{BlockEntries, RawEntry};
use crate::value::{Version, Window};

/// Between two marks are at least so many bytes: some ten deltas of the usual length.
const MARK_BYTES: usize = 1 << 10;

/// An entry to begin from, which may leave out its key.
#[derive(Clone, Copy)]
struct Mark {
    key: Key,
    lsn: Lsn,
    at: u32,
    /// LSN of the entry before it.
    before: Lsn,
}

/// Entries of a layer in `(key, lsn, seq)` order, at least one.
pub(crate) struct Block {
    bytes: Bytes,
    /// In order; made by the first look, which finds out whether the bytes make sense.
    marks: OnceLock<Result<Box<[Mark]>, &'static str>>,
}

impl Block {
    pub fn new(bytes: Bytes) -> Block {
        Block {
            bytes,
            marks: OnceLock::new(),
        }
    }

    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Bytes of memory it takes, once it was looked into.
    pub fn memory_bytes(&self) -> usize {
        let marks = 1 + self.bytes.len() / MARK_BYTES;
        size_of::<Block>() + self.bytes.len() + marks * size_of::<Mark>()
    }

    /// Every entry.
    pub fn entries(&self) -> BlockEntries<'_> {
        BlockEntries::new(&self.bytes)
    }

    /// The entries from some place on, before which all are at or before `(key, lsn)`.
    pub fn entries_behind(&self, key: &Key, lsn: Lsn) -> Result<BlockEntries<'_>, &'static str> {
        let marks = self.marks()?;
        let behind = marks.partition_point(|mark| (&mark.key, mark.lsn) <= (key, lsn));
        Ok(match behind.checked_sub(1) {
            Some(number) => self.entries_at(&marks[number]),
            None => self.entries(),
        })
    }

    /// The versions of a key inside the window, newest first, until `visit` breaks. Older ones are looked at in steps
    /// that double, so that what is not wanted costs little, and a long history little more than one walk.
    pub fn newest_first(
        &self,
        key: &Key,
        window: Window,
        visit: &mut dyn FnMut(Version) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, &'static str> {
        let marks = self.marks()?;
        let mut next = marks.partition_point(|mark| (&mark.key, mark.lsn) <= (key, window.upto));
        let mut end = marks
            .get(next)
            .map_or(self.bytes.len(), |mark| mark.at as usize);
        let mut found: SmallVec<[RawEntry; 16]> = SmallVec::new();
        let mut step = 1;
        while next > 0 {
            next = next.saturating_sub(step);
            step *= 2;
            let mark = &marks[next];
            let mut entries = self.entries_at(mark);
            while entries.position() < end
                && let Some(entry) = entries.next_entry()?
            {
                if (&entry.key, entry.lsn) > (key, window.upto) {
                    break;
                }
                if entry.key == *key && entry.lsn > window.floor {
                    found.push(entry);
                }
            }
            for entry in found.drain(..).rev() {
                if visit(entry.version(&self.bytes)?).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            // Older ones lie before the mark only if it is inside the key's versions.
            if mark.key != *key || mark.lsn <= window.floor {
                break;
            }
            end = mark.at as usize;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn entries_at(&self, mark: &Mark) -> BlockEntries<'_> {
        BlockEntries::starting(&self.bytes, mark.at as usize, mark.key, mark.before)
    }

    fn marks(&self) -> Result<&[Mark], &'static str> {
        let marks = self.marks.get_or_init(|| {
            let mut marks: Vec<Mark> = Vec::with_capacity(1 + self.bytes.len() / MARK_BYTES);
            let mut entries = self.entries();
            loop {
                let (at, before) = (entries.position(), entries.before());
                let Some(entry) = entries.next_entry()? else {
                    return Ok(marks.into());
                };
                let is_far = |last: &Mark| at >= last.at as usize + MARK_BYTES;
                if marks.last().is_none_or(is_far) {
                    let at = u32::try_from(at).map_err(|_| "block is too long")?;
                    let (key, lsn) = (entry.key, entry.lsn);
                    marks.push(Mark {
                        key,
                        lsn,
                        at,
                        before,
                    });
                }
            }
        });
        match marks {
            Ok(marks) => Ok(marks),
            Err(reason) => Err(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::encode_entry;
    use crate::value::Value;

    const KEYS: u32 = 3;

    /// Versions of a few keys, most of them of the same, with values long enough that marks lie between them.
    fn versions() -> impl Strategy<Value = Vec<(Key, Version)>> {
        let version = (0..KEYS, 1..60_u64, 0..3_u16, 0..700_usize);
        prop::collection::btree_map(
            version.prop_map(|(key, lsn, seq, _)| (key, lsn, seq)),
            0..700_usize,
            1..120,
        )
        .prop_map(|found| {
            let version = |((key, lsn, seq), length): ((u32, u64, u16), usize)| {
                let value = Value::Delta {
                    bytes: vec![seq as u8; length].into(),
                    starts_chain: length % 50 == 0,
                };
                (
                    Key::aux(key),
                    Version {
                        lsn: Lsn(lsn),
                        seq,
                        value,
                    },
                )
            };
            found.into_iter().map(version).collect()
        })
    }

    fn block(versions: &[(Key, Version)]) -> Block {
        let mut bytes = Vec::new();
        let mut before = None;
        for (key, version) in versions {
            let before_here = before.filter(|(of, _)| of == key).map(|(_, lsn)| lsn);
            encode_entry(&mut bytes, key, before_here, version.as_ref());
            before = Some((*key, version.lsn));
        }
        Block::new(bytes.into())
    }

    proptest! {
        /// Promise: where a look begins changes nothing about what it finds, nor in which order.
        #[test]
        fn a_look_finds_what_a_walk_over_everything_does(
            versions in versions(),
            key in 0..KEYS,
            floor in 0..60_u64,
            upto in 0..70_u64,
            wanted in 1..40_usize,
        ) {
            let block = block(&versions);
            let key = Key::aux(key);
            let window = Window { floor: Lsn(floor), upto: Lsn(upto) };
            let visible = versions.iter().rev().filter(|(of, version)| *of == key && window.contains(version.lsn));
            let expected: Vec<Version> = visible.map(|(_, version)| version.clone()).collect();
            let mut found = Vec::new();
            let flow = block.newest_first(&key, window, &mut |version| {
                found.push(version);
                if found.len() == wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            prop_assert_eq!(flow, Ok(if expected.len() >= wanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }));
            prop_assert_eq!(&found[..], &expected[..wanted.min(expected.len())]);

            let mut behind = block.entries_behind(&key, window.floor).unwrap();
            let mut rest = Vec::new();
            while let Some(entry) = behind.next_entry().unwrap() {
                rest.push((entry.key, entry.version(block.bytes()).unwrap()));
            }
            let skipped = versions.len() - rest.len();
            prop_assert_eq!(&versions[skipped..], &rest[..]);
            prop_assert!(versions[..skipped].iter().all(|(of, version)| (*of, version.lsn) <= (key, window.floor)));
        }

        #[test]
        fn bytes_that_make_no_sense_are_an_error(
            versions in versions(),
            cut in any::<prop::sample::Index>(),
            flip in any::<(prop::sample::Index, u8)>(),
        ) {
            let whole = block(&versions);
            let mut bytes = whole.bytes().to_vec();
            let at = flip.0.index(bytes.len());
            bytes[at] ^= flip.1;
            bytes.truncate(1 + cut.index(bytes.len()));
            let damaged = Block::new(bytes.into());
            let everything = Window::upto(Lsn::MAX);
            for key in 0..KEYS {
                let _ = damaged.newest_first(&Key::aux(key), everything, &mut |_| ControlFlow::Continue(()));
            }
        }
    }
}
