//! Which pages were in shared buffers when a compute was suspended: a hint for its next start. Pure.
//!
//! Postgres's library `pg_prewarm` writes the list as it shuts down and loads it as it starts: a text with a line for
//! each page ([`FILE`]). What is kept in between is a [`List`] of ranges of pages, bounded in its size and in the work
//! that it can cause. Neither text is trusted: the first lies where Postgres's rights reach, the second comes from
//! storage. A text that is not whole is refused as a whole, since nothing but time is lost without it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use pg_types::{ForkNumber, RelTag};

/// Name of Postgres's own list, below its data directory.
pub const FILE: &str = "autoprewarm.blocks";
/// Name of the kept list among the auxiliary files of a suspend.
pub const AUXILIARY: &str = "weir.prewarm";
/// Name, there, of the list of pages of catalogs that the run read first, in the same form.
pub const FIRST_READS: &str = "weir.start";
/// Pages of a list: 1 GiB of buffers, the most that a compute of one unit can have.
pub const MAX_PAGES: u64 = 131_072;
/// Ranges of a list. For each, Postgres may look for a relation that is not there.
pub const MAX_RANGES: usize = 32_768;
/// Databases of a list. For each, Postgres starts a process.
pub const MAX_DATABASES: usize = 64;
/// Bytes of Postgres's list that are looked at: four times what [`MAX_PAGES`] take at most.
pub const MAX_DUMP_BYTES: u64 = 24 << 20;
/// Bytes of a kept list: what [`MAX_RANGES`] take at most.
pub const MAX_KEPT_BYTES: usize = 2 << 20;

const KEPT_NAME: &str = "weir-prewarm";
const KEPT_VERSION: &str = "1";
/// The database that nobody can enter, a process for its pages neither; `CREATE DATABASE` reads them.
const TEMPLATE0: u32 = 4;
/// Forks of a relation: main, free space, visibility, init.
const FORKS: u32 = 4;

/// Neighbouring pages of one fork, in the order in which Postgres loads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    /// 0 for what all databases share.
    database: u32,
    tablespace: u32,
    relation: u32,
    fork: u32,
    first: u32,
    pages: u32,
}

impl Range {
    fn fork(&self) -> (u32, u32, u32, u32) {
        (self.database, self.tablespace, self.relation, self.fork)
    }

    /// The number behind the last page's.
    fn end(&self) -> u64 {
        u64::from(self.first) + u64::from(self.pages)
    }

    /// Whether the numbers can be those of pages in a relation of a compute.
    fn is_possible(&self) -> bool {
        let placed = match self.database {
            0 => self.tablespace == GLOBAL_TABLESPACE,
            _ => self.tablespace == DEFAULT_TABLESPACE,
        };
        placed
            && self.relation > 0
            && self.fork < FORKS
            && self.pages > 0
            && self.end() <= u64::from(u32::MAX)
    }
}

/// A list cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadList {
    /// Bytes, ranges, pages or databases are more than is taken; the field says which, and how many.
    #[error("it is too long: {0}")]
    TooLong(String),
    /// The first line is not one that such a text begins with.
    #[error("its first line is not that of such a list")]
    Header,
    /// The last line breaks off, or there are not as many lines or pages as the first line says.
    #[error("it is torn: not everything is there that its first line says")]
    Torn,
    /// The line of this number, which counts from 1, is none of a list, or out of order.
    #[error("line {0} is not one of such a list")]
    Line(usize),
}

/// Pages that were in shared buffers, in order, no page twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List(Vec<Range>);

impl List {
    /// What Postgres wrote. Pages that no start of a compute can load are left out. Where there are more than a list
    /// takes, the longest ranges stay: they cost the least for each page.
    pub fn from_dump(dump: &[u8]) -> Result<List, BadList> {
        if dump.len() as u64 > MAX_DUMP_BYTES {
            return Err(BadList::TooLong(format!("{} bytes", dump.len())));
        }
        let (header, rest) = whole(dump)?;
        let said = header
            .strip_prefix("<<")
            .and_then(|rest| rest.strip_suffix(">>"))
            .and_then(|number| number.parse::<usize>().ok())
            .ok_or(BadList::Header)?;
        let mut pages = Vec::new();
        let mut found = 0;
        for line in rest.lines() {
            found += 1;
            let [database, tablespace, relation, fork, first] =
                numbers(line, ',').ok_or(BadList::Line(found + 1))?;
            let page = Range {
                database,
                tablespace,
                relation,
                fork,
                first,
                pages: 1,
            };
            if page.is_possible() && database != TEMPLATE0 {
                pages.push(page);
            }
        }
        if found != said {
            return Err(BadList::Torn);
        }
        Ok(bounded(joined(pages)))
    }

    /// A list as [`List::to_kept`] wrote it.
    pub fn from_kept(kept: &[u8]) -> Result<List, BadList> {
        if kept.len() > MAX_KEPT_BYTES {
            return Err(BadList::TooLong(format!("{} bytes", kept.len())));
        }
        let (header, rest) = whole(kept)?;
        let words: Vec<&str> = header.split(' ').collect();
        let [KEPT_NAME, KEPT_VERSION, ranges, pages] = words[..] else {
            return Err(BadList::Header);
        };
        let said = (ranges.parse::<usize>(), pages.parse::<u64>());
        let (Ok(said_ranges), Ok(said_pages)) = said else {
            return Err(BadList::Header);
        };
        let mut list = Vec::new();
        for (number, line) in rest.lines().enumerate() {
            let bad = BadList::Line(number + 2);
            let [database, tablespace, relation, fork, first, pages] =
                numbers(line, ' ').ok_or_else(|| bad.clone())?;
            let range = Range {
                database,
                tablespace,
                relation,
                fork,
                first,
                pages,
            };
            let in_order = list.last().is_none_or(|last: &Range| {
                last.fork() < range.fork()
                    || last.fork() == range.fork() && last.end() <= u64::from(first)
            });
            if !range.is_possible() || !in_order {
                return Err(bad);
            }
            list.push(range);
        }
        let list = List(list);
        if (list.0.len(), list.pages()) != (said_ranges, said_pages) {
            return Err(BadList::Torn);
        }
        list.check_bounds()?;
        Ok(list)
    }

    /// A list of these pages.
    pub fn of_pages(pages: impl IntoIterator<Item = (RelTag, u32)>) -> List {
        let pages = pages.into_iter().map(|(rel, first)| Range {
            database: rel.db,
            tablespace: rel.spc,
            relation: rel.rel,
            fork: u32::from(rel.fork as u8),
            first,
            pages: 1,
        });
        bounded(joined(pages.filter(Range::is_possible).collect()))
    }

    /// The pages that the list names, in order.
    pub fn each_page(&self) -> impl Iterator<Item = (RelTag, u32)> + '_ {
        self.0.iter().flat_map(|range| {
            let fork = u8::try_from(range.fork).ok();
            let rel = fork.and_then(ForkNumber::from_u8).map(|fork| RelTag {
                spc: range.tablespace,
                db: range.database,
                rel: range.relation,
                fork,
            });
            let blocks = range.first..range.first.saturating_add(range.pages);
            rel.into_iter()
                .flat_map(move |rel| blocks.clone().map(move |block| (rel, block)))
        })
    }

    fn check_bounds(&self) -> Result<(), BadList> {
        let counts = [
            ("ranges", self.0.len() as u64, MAX_RANGES as u64),
            ("pages", self.pages(), MAX_PAGES),
            (
                "databases",
                self.databases().len() as u64,
                MAX_DATABASES as u64,
            ),
        ];
        match counts.into_iter().find(|(_, has, most)| has > most) {
            Some((what, has, _)) => Err(BadList::TooLong(format!("{has} {what}"))),
            None => Ok(()),
        }
    }

    /// The text that is kept.
    pub fn to_kept(&self) -> Vec<u8> {
        let mut text = format!(
            "{KEPT_NAME} {KEPT_VERSION} {} {}\n",
            self.0.len(),
            self.pages()
        );
        for range in &self.0 {
            let (database, tablespace, relation, fork) = range.fork();
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "{database} {tablespace} {relation} {fork} {} {}",
                range.first, range.pages
            );
        }
        text.into_bytes()
    }

    /// The text that Postgres loads.
    pub fn to_dump(&self) -> Vec<u8> {
        let mut text = format!("<<{}>>\n", self.pages());
        for range in &self.0 {
            let (database, tablespace, relation, fork) = range.fork();
            for page in u64::from(range.first)..range.end() {
                let _ = writeln!(text, "{database},{tablespace},{relation},{fork},{page}");
            }
        }
        text.into_bytes()
    }

    /// Leaves out pages of databases that are not there any more; returns how many pages went.
    pub fn keep_databases(&mut self, there: &BTreeSet<u32>) -> u64 {
        let before = self.pages();
        self.0
            .retain(|range| range.database == 0 || there.contains(&range.database));
        before - self.pages()
    }

    /// How many pages the list names.
    pub fn pages(&self) -> u64 {
        self.0.iter().map(|range| u64::from(range.pages)).sum()
    }

    fn databases(&self) -> BTreeSet<u32> {
        let databases = self.0.iter().map(|range| range.database);
        databases.filter(|database| *database != 0).collect()
    }
}

/// The first line of a text, and the rest, whose last line has its end.
fn whole(text: &[u8]) -> Result<(&str, &str), BadList> {
    let text = std::str::from_utf8(text).map_err(|_| BadList::Header)?;
    let (header, rest) = text.split_once('\n').ok_or(BadList::Header)?;
    match rest.is_empty() || rest.ends_with('\n') {
        true => Ok((header, rest)),
        false => Err(BadList::Torn),
    }
}

/// Exactly `N` numbers, in decimal digits alone.
fn numbers<const N: usize>(line: &str, between: char) -> Option<[u32; N]> {
    let mut found = [0; N];
    let mut words = line.split(between);
    for number in &mut found {
        let word = words.next()?;
        // `parse` takes a sign, too.
        if !word.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = word.parse().ok()?;
    }
    words.next().is_none().then_some(found)
}

/// Neighbours become one range, and a page that is named twice counts once.
fn joined(mut pages: Vec<Range>) -> Vec<Range> {
    pages.sort_unstable();
    let mut ranges: Vec<Range> = Vec::new();
    for page in pages {
        match ranges.last_mut() {
            Some(last) if last.fork() == page.fork() && u64::from(page.first) <= last.end() => {
                // The sum is that of two numbers of pages in one fork, which are below 2^32.
                let end = last.end().max(page.end());
                last.pages = u32::try_from(end - u64::from(last.first)).unwrap_or(u32::MAX);
            }
            _ => ranges.push(page),
        }
    }
    ranges
}

/// What a list takes of these ranges, which are in order.
fn bounded(mut ranges: Vec<Range>) -> List {
    let mut by_database: BTreeMap<u32, u64> = BTreeMap::new();
    for range in &ranges {
        *by_database.entry(range.database).or_default() += u64::from(range.pages);
    }
    by_database.remove(&0);
    let mut databases: Vec<(u64, u32)> = by_database.into_iter().map(|(db, n)| (n, db)).collect();
    databases.sort_unstable_by_key(|each| std::cmp::Reverse(*each));
    let kept: BTreeSet<u32> = databases
        .into_iter()
        .take(MAX_DATABASES)
        .map(|(_, database)| database)
        .collect();
    ranges.retain(|range| range.database == 0 || kept.contains(&range.database));
    ranges.sort_unstable_by_key(|range| (std::cmp::Reverse(range.pages), *range));
    ranges.truncate(MAX_RANGES);
    let mut left = MAX_PAGES;
    for range in &mut ranges {
        range.pages = u32::try_from(left.min(u64::from(range.pages))).unwrap_or(range.pages);
        left -= u64::from(range.pages);
    }
    ranges.retain(|range| range.pages > 0);
    ranges.sort_unstable();
    List(ranges)
}

#[cfg(test)]
mod tests;
