//! The keys of a layer in memory, and the versions of each.
//!
//! Invariants: a key's versions are linked from the newest to the oldest by `(lsn, seq)`, no two of them equal; every
//! version is counted at its key's place, and every place belongs to one key. Values that are added together are all
//! there or none is: when memory runs out half-way, what was added before is taken back, so that the caller can add all of
//! them again.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;
use pg_types::{Key, KeyRange, Lsn};
use smallvec::SmallVec;

use super::arena::{self, Arena, Entry, NONE, number};
use crate::error::LayerError;
use crate::value::{LsnRange, Put, Version, VersionRef, Window};

/// Bytes of memory that a key costs: its place in `heads`, and its share of the hash table.
const KEY_COST: u64 = 64;
/// What a version costs beside its entry: its place in the log.
const VERSION_COST: u64 = 8;

/// Versions looked for before the first of them is worked on.
const AT_ONCE: usize = 32;

/// The versions of a key.
#[derive(Clone, Copy)]
struct Head {
    newest: u32,
    count: u32,
    /// LSN of the newest version.
    lsn: Lsn,
}

/// What everything was like before values were added.
struct Mark {
    entries: arena::Mark,
    log: usize,
    heads: usize,
    out_of_order: bool,
    lsns: Option<LsnRange>,
    bytes: u64,
}

#[derive(Default)]
pub(super) struct Versions {
    /// Each key's place in `heads`.
    pages: HashMap<Key, u32, RandomState>,
    metadata: BTreeMap<Key, u32>,
    heads: Vec<Head>,
    entries: Arena,
    /// The place of each entry's key and where the entry begins, in the order in which they came.
    log: Vec<(u32, u32)>,
    /// Some version came after a newer one of its key.
    out_of_order: bool,
    pub(super) lsns: Option<LsnRange>,
    /// Bytes of memory the versions take, roughly.
    pub(super) bytes: u64,
    pub(super) frozen: bool,
}

impl Versions {
    pub(super) fn keys(&self) -> usize {
        self.heads.len()
    }

    pub(super) fn count(&self) -> u64 {
        self.entries.entries()
    }

    /// The largest LSN at or before `upto` at which anything changed.
    pub(super) fn newest_lsn(&self, upto: Lsn) -> Option<Lsn> {
        match self.lsns {
            Some(lsns) if lsns.last <= upto => Some(lsns.last),
            Some(lsns) if lsns.first <= upto => {
                let all = self.entries.iter().map(|(_, entry)| entry.lsn());
                all.filter(|lsn| *lsn <= upto).max()
            }
            _ => None,
        }
    }

    /// Adds values from the WAL, a few at a time; the bytes by which all of it grew.
    pub(super) fn put_all<'a>(
        &mut self,
        values: impl IntoIterator<Item = (Key, Lsn, Put<'a>)>,
    ) -> Result<u64, LayerError> {
        self.all_or_none(|versions| versions.insert_all(values.into_iter()))
    }

    fn insert_all<'a>(
        &mut self,
        mut values: impl Iterator<Item = (Key, Lsn, Put<'a>)>,
    ) -> Result<u64, LayerError> {
        let mut some = SmallVec::<[(u32, Lsn, Put<'a>); AT_ONCE]>::new();
        let mut sum = 0;
        loop {
            for (key, lsn, value) in values.by_ref().take(AT_ONCE) {
                some.push((self.place(key)?, lsn, value));
            }
            if some.is_empty() {
                return Ok(sum);
            }
            let places = some.iter().map(|(place, ..)| *place as usize);
            std::hint::black_box(places.fold(0, |sum, place| sum ^ self.heads[place].newest));
            for (place, lsn, value) in some.drain(..) {
                sum += self.insert(place, lsn, value, None)?;
            }
        }
    }

    /// Adds a value, from the WAL unless it says its `seq`; the bytes by which all of it grew.
    pub(super) fn put(
        &mut self,
        key: Key,
        lsn: Lsn,
        value: Put<'_>,
        seq: Option<u16>,
    ) -> Result<u64, LayerError> {
        self.all_or_none(|versions| {
            let place = versions.place(key)?;
            versions.insert(place, lsn, value, seq)
        })
    }

    /// Adds values, or leaves everything as it was.
    fn all_or_none<T>(
        &mut self,
        add: impl FnOnce(&mut Versions) -> Result<T, LayerError>,
    ) -> Result<T, LayerError> {
        let mark = Mark {
            entries: self.entries.mark(),
            log: self.log.len(),
            heads: self.heads.len(),
            out_of_order: self.out_of_order,
            lsns: self.lsns,
            bytes: self.bytes,
        };
        let added = add(self);
        if added.is_err() {
            self.take_back(mark);
        }
        added
    }

    /// Removes every version and key that came after the mark.
    #[cold]
    fn take_back(&mut self, mark: Mark) {
        for (place, at) in self.log.drain(mark.log..).rev() {
            let older = self.entries.get(at).map_or(NONE, |entry| entry.older());
            let head = &mut self.heads[place as usize];
            head.count -= 1;
            if head.newest == at {
                head.newest = older;
                let lsn = self.entries.get(older).map(|entry| entry.lsn());
                head.lsn = lsn.unwrap_or(Lsn::INVALID);
                continue;
            }
            let mut newer = head.newest;
            while let Some(entry) = self.entries.get(newer)
                && entry.older() != at
            {
                newer = entry.older();
            }
            self.entries.link(newer, older);
        }
        let is_old = |place: &u32| (*place as usize) < mark.heads;
        self.pages.retain(|_, place| is_old(place));
        self.metadata.retain(|_, place| is_old(place));
        self.heads.truncate(mark.heads);
        self.entries.cut(mark.entries);
        self.out_of_order = mark.out_of_order;
        self.lsns = mark.lsns;
        self.bytes = mark.bytes;
    }

    /// Hands out all versions, key by key, of each key oldest first.
    pub(super) fn for_each_by_key(
        &self,
        mut visit: impl FnMut(&Key, VersionRef<'_>) -> Result<(), LayerError>,
    ) -> Result<(), LayerError> {
        let keys = self.in_order(&KeyRange::all());
        let order = self.entries_by_key(&keys);
        let mut key_of = keys.iter().flat_map(|key| {
            let (_, place) = key;
            std::iter::repeat_n(key, self.heads[*place as usize].count as usize)
        });
        for some in order.chunks(AT_ONCE) {
            self.entries.look_at(some);
            for (at, (key, place)) in some.iter().zip(key_of.by_ref()) {
                // Never left out: those behind it would go to another key.
                let entry = self.entries.get(*at);
                let entry = entry.filter(|entry| entry.place() == *place);
                let entry = entry.ok_or_else(|| broken(key))?;
                visit(key, entry.as_ref())?;
            }
        }
        Ok(())
    }

    #[inline]
    pub(super) fn found(&self, key: &Key) -> Option<u32> {
        match key.is_page() {
            true => self.pages.get(key).copied(),
            false => self.metadata.get(key).copied(),
        }
    }

    /// The key's place, made when there is none.
    #[inline]
    fn place(&mut self, key: Key) -> Result<u32, LayerError> {
        match self.found(&key) {
            Some(place) if !self.frozen => Ok(place),
            _ => self.make_place(key),
        }
    }

    fn make_place(&mut self, key: Key) -> Result<u32, LayerError> {
        if self.frozen {
            return Err(LayerError::Frozen);
        }
        let place = number(self.heads.len())?;
        match key.is_page() {
            true => self.pages.insert(key, place),
            false => self.metadata.insert(key, place),
        };
        self.heads.push(Head {
            newest: NONE,
            count: 0,
            lsn: Lsn::INVALID,
        });
        Ok(place)
    }

    /// The key's versions inside the window, newest first. An error, the last of them, when one cannot be found.
    pub(super) fn newest_first(
        &self,
        place: Option<u32>,
        window: Window,
    ) -> impl Iterator<Item = Result<Entry<'_>, LayerError>> {
        let mut next = place.map_or(NONE, |place| self.heads[place as usize].newest);
        std::iter::from_fn(move || {
            let at = std::mem::replace(&mut next, NONE);
            if at == NONE {
                return None;
            }
            let entry = self.entries.get(at);
            let Some(entry) = entry.filter(|entry| Some(entry.place()) == place) else {
                return Some(Err(lost()));
            };
            next = entry.older();
            Some(Ok(entry))
        })
        .skip_while(move |entry| is(entry, |entry| entry.lsn() > window.upto))
        .take_while(move |entry| !is(entry, |entry| entry.lsn() <= window.floor))
    }

    /// The keys of a range that have versions, with their places, in key order.
    pub(super) fn in_order(&self, range: &KeyRange) -> Vec<(Key, u32)> {
        let mut found = Vec::new();
        if range.first.is_page() {
            let pages = self.pages.iter().filter(|(key, _)| range.contains(key));
            found.extend(pages.map(|(key, place)| (*key, *place)));
            found.sort_unstable_by_key(|(key, _)| *key);
        }
        // Pages come before everything else.
        if range.first <= range.last {
            let metadata = self.metadata.range(range.first..=range.last);
            found.extend(metadata.map(|(key, place)| (*key, *place)));
        }
        found
    }

    /// Where all versions are, key by key, of each key oldest first.
    fn entries_by_key(&self, keys: &[(Key, u32)]) -> Vec<u32> {
        let mut next = vec![0; self.heads.len()];
        let mut begin = 0;
        for (_, place) in keys {
            next[*place as usize] = begin;
            begin += self.heads[*place as usize].count as usize;
        }
        let mut order = vec![NONE; begin];
        for (place, at) in &self.log {
            let next = &mut next[*place as usize];
            order[*next] = *at;
            *next += 1;
        }
        if self.out_of_order {
            for (_, place) in keys {
                let (end, count) = (next[*place as usize], self.heads[*place as usize].count);
                let of_key = &mut order[end - count as usize..end];
                of_key.sort_unstable_by_key(|at| self.entries.get(*at).map(|entry| entry.order()));
            }
        }
        order
    }

    fn insert(
        &mut self,
        place: u32,
        lsn: Lsn,
        value: Put<'_>,
        seq: Option<u16>,
    ) -> Result<u64, LayerError> {
        let head = self.heads[place as usize];
        // Nearly always it is the key's newest.
        let is_newest = head.newest == NONE || head.lsn < lsn;
        let seq = match seq {
            Some(seq) => seq,
            None if is_newest => 0,
            None => self.next_seq(head, lsn),
        };
        let (newer, older) = match is_newest {
            true => (NONE, head.newest),
            false => self.neighbours(head, (lsn, seq)),
        };
        // The newest is like no other, so that the one before needs not be fetched.
        if !is_newest
            && let Some(same) = self.entries.get(older)
            && same.order() == (lsn, seq)
        {
            // Only a generated image can come twice; both show the same page.
            return Ok(0);
        }
        let is_first = head.newest == NONE;
        let size = Arena::cost(value) + VERSION_COST + if is_first { KEY_COST } else { 0 };
        let at = self.entries.push(place, older, (lsn, seq), value)?;
        self.log.push((place, at));
        let head = &mut self.heads[place as usize];
        head.count += 1;
        if newer == NONE {
            (head.newest, head.lsn) = (at, lsn);
        } else {
            self.entries.link(newer, at);
            self.out_of_order = true;
        }
        self.bytes += size;
        self.lsns = Some(LsnRange::including(self.lsns, lsn));
        Ok(size)
    }

    /// Between which of a key's versions another one belongs: the next newer one, and the next older one or its
    /// equal.
    fn neighbours(&self, head: Head, order: (Lsn, u16)) -> (u32, u32) {
        let (mut newer, mut older) = (NONE, head.newest);
        while let Some(entry) = self.entries.get(older)
            && entry.order() > order
        {
            (newer, older) = (older, entry.older());
        }
        (newer, older)
    }

    /// One past the highest `seq` the WAL has put at this LSN.
    fn next_seq(&self, head: Head, lsn: Lsn) -> u16 {
        let (_, last) = self.neighbours(head, (lsn, Version::GENERATED - 1));
        match self.entries.get(last) {
            Some(last) if last.lsn() == lsn => last.seq() + 1,
            _ => 0,
        }
    }
}

fn is(entry: &Result<Entry<'_>, LayerError>, so: impl Fn(&Entry<'_>) -> bool) -> bool {
    entry.as_ref().is_ok_and(so)
}

/// For a read, which must not take another key's version for this one's, nor what is left for all there is.
#[cold]
fn lost() -> LayerError {
    LayerError::corrupt("in memory", "a version is not where it was put")
}

/// Nothing is flushed then, and the WAL is kept.
fn broken(key: &Key) -> LayerError {
    LayerError::Write(std::io::Error::other(format!(
        "a layer in memory cannot find a version of {key} that it holds"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Value;

    /// Promise: whatever went wrong before, no read takes another key's version for the key's own, nor does a flush.
    #[test]
    fn a_version_of_another_key_is_an_error() {
        let mut versions = Versions::default();
        let [ours, other] = [Key::aux(1), Key::aux(2)];
        for (key, lsn) in [(other, 8), (ours, 16), (ours, 24)] {
            let value = Value::Meta(vec![key.e as u8; 10].into());
            versions.put(key, Lsn(lsn), (&value).into(), None).unwrap();
        }
        let place = versions.found(&ours);
        let read = |versions: &Versions| {
            let found = versions.newest_first(place, Window::upto(Lsn::MAX));
            found
                .map(|entry| entry.map(|entry| entry.lsn()).ok())
                .collect::<Vec<_>>()
        };
        assert_eq!(read(&versions), [Some(Lsn(24)), Some(Lsn(16))]);
        let [newest, others] =
            [&ours, &other].map(|key| versions.heads[versions.found(key).unwrap() as usize].newest);
        versions.entries.link(newest, others);
        assert_eq!(read(&versions), [Some(Lsn(24)), None]);
        versions.entries.link(newest, NONE - 1);
        assert_eq!(read(&versions), [Some(Lsn(24)), None]);

        let mut written = 0;
        let mut flush = |versions: &Versions| {
            versions.for_each_by_key(|_, _| {
                written += 1;
                Ok(())
            })
        };
        flush(&versions).unwrap();
        let [first, second] = [0, 1].map(|at| versions.heads[at].count);
        (versions.heads[0].count, versions.heads[1].count) = (second, first);
        assert!(flush(&versions).is_err());
    }
}
