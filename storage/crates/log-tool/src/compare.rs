//! Whether logs have the same bytes where they must.

use std::io;

use pg_types::{Lsn, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
use serde::Serialize;

use crate::scan::CHUNK_BYTES;
use crate::scan::Wal;

/// Differences that are listed; further ones are counted.
const LISTED: usize = 64;

/// A member's log, and the range over which others must have the same bytes.
pub struct Side<'a> {
    /// The member's name, as groups of a [`Difference`] have it.
    pub name: &'a str,
    /// The member's log.
    pub wal: &'a mut dyn Wal,
    /// First byte that others must have as well.
    pub from: Lsn,
    /// Behind the last such byte; a side for which this is not above `from` is left out.
    pub to: Lsn,
}

/// Bytes that some members have otherwise than others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Difference {
    /// The first byte that is not the same everywhere.
    pub from: Lsn,
    /// Behind the last page that differs in the same way.
    pub to: Lsn,
    /// Members whose bytes are equal there stand together.
    pub groups: Vec<Vec<String>>,
}

/// What a comparison of the members' bytes found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Comparison {
    /// Over which at least two members were compared.
    pub from: Lsn,
    /// Behind the last byte over which at least two members were compared.
    pub to: Lsn,
    /// Names of the members that were compared, sorted.
    pub members: Vec<String>,
    /// By position, 64 at most.
    pub differences: Vec<Difference>,
    /// Differences that are not listed.
    pub more: u64,
}

impl Comparison {
    /// Whether all bytes that could be read are the same.
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty()
    }
}

/// Compares all bytes that two or more sides have to share. What a side can't read is left out there: reading its log
/// has told why. `progress` is told how many bytes were read.
pub fn compare(sides: &mut [Side<'_>], progress: &mut dyn FnMut(u64)) -> Comparison {
    let mut edges: Vec<Lsn> = sides
        .iter()
        .filter(|side| side.from < side.to)
        .flat_map(|side| [side.from, side.to])
        .collect();
    edges.sort();
    edges.dedup();
    let mut comparison = Comparison::default();
    let mut buffers = vec![vec![0; CHUNK_BYTES]; sides.len()];
    // Between two edges it is always the same members that are compared.
    for edge in edges.windows(2) {
        let (from, to) = (edge[0], edge[1]);
        let active: Vec<usize> = (0..sides.len())
            .filter(|side| sides[*side].from <= from && sides[*side].to >= to)
            .collect();
        if active.len() < 2 {
            continue;
        }
        if comparison.members.is_empty() {
            comparison.from = from;
        }
        comparison.to = to;
        for side in &active {
            let name = sides[*side].name;
            if !comparison.members.iter().any(|member| member == name) {
                comparison.members.push(name.to_owned());
            }
        }
        let mut at = from;
        while at < to {
            let in_segment = WAL_SEGMENT_BYTES - at.0 % WAL_SEGMENT_BYTES;
            let length = (to.0 - at.0).min(in_segment).min(CHUNK_BYTES as u64) as usize;
            compare_chunk(sides, &active, &mut buffers, at, length, &mut comparison);
            progress((length * active.len()) as u64);
            at = at + length as u64;
        }
    }
    comparison.members.sort();
    comparison
}

fn compare_chunk(
    sides: &mut [Side<'_>],
    active: &[usize],
    buffers: &mut [Vec<u8>],
    at: Lsn,
    length: usize,
    comparison: &mut Comparison,
) {
    let whole: Vec<bool> = active
        .iter()
        .map(|side| fill(sides[*side].wal, at, &mut buffers[*side][..length]).is_ok())
        .collect();
    let first = &buffers[active[0]][..length];
    let is_same = |side: &usize| buffers[*side][..length] == *first;
    if whole.iter().all(|whole| *whole) && active[1..].iter().all(is_same) {
        return;
    }
    let mut from = at;
    let end = at + length as u64;
    while from < end {
        let to = end.min(Lsn((from.0 / XLOG_BLCKSZ + 1) * XLOG_BLCKSZ));
        let range = (from.0 - at.0) as usize..(to.0 - at.0) as usize;
        // In a chunk that can't be read as a whole, pages may be.
        let readable: Vec<usize> = active
            .iter()
            .zip(&whole)
            .filter(|(side, whole)| {
                let buffer = &mut buffers[**side][range.clone()];
                **whole || fill(sides[**side].wal, from, buffer).is_ok()
            })
            .map(|(side, _)| *side)
            .collect();
        if let Some((first, groups)) = group(&readable, buffers, range) {
            let groups = groups
                .into_iter()
                .map(|group| {
                    group
                        .iter()
                        .map(|side| sides[*side].name.to_owned())
                        .collect()
                })
                .collect();
            comparison.note(at + first as u64, to, groups);
        }
        from = to;
    }
}

fn fill(wal: &mut dyn Wal, at: Lsn, buffer: &mut [u8]) -> io::Result<()> {
    match wal.read(at, buffer)? {
        length if length == buffer.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Those with equal bytes together, and the first place where some differ; `None` when all are equal.
fn group(
    sides: &[usize],
    buffers: &[Vec<u8>],
    range: std::ops::Range<usize>,
) -> Option<(usize, Vec<Vec<usize>>)> {
    let bytes = |side: usize| &buffers[side][range.clone()];
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for side in sides {
        match groups
            .iter_mut()
            .find(|group| bytes(group[0]) == bytes(*side))
        {
            Some(group) => group.push(*side),
            None => groups.push(vec![*side]),
        }
    }
    let (first, others) = groups.split_first()?;
    let differs = |place: &usize| {
        let byte = |group: &Vec<usize>| buffers[group[0]][*place];
        others.iter().any(|other| byte(other) != byte(first))
    };
    let place = range.clone().find(differs)?;
    Some((place, groups))
}

impl Comparison {
    fn note(&mut self, from: Lsn, to: Lsn, groups: Vec<Vec<String>>) {
        let page = Lsn(from.0 / XLOG_BLCKSZ * XLOG_BLCKSZ);
        let is_full = self.differences.len() == LISTED;
        match self.differences.last_mut() {
            Some(last) if self.more == 0 && last.to == page && last.groups == groups => {
                last.to = to;
            }
            _ if !is_full => self.differences.push(Difference { from, to, groups }),
            _ => self.more += 1,
        }
    }
}
