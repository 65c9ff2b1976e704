//! What redo of one record costs, by kind of record and length of the chain it stands in.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use pg_types::wal::rmgr;
use pg_types::{Key, KeyKind, PgMajor};
use serde_json::{Map, Value, json};
use wal_decode::{PageChange, PageDelta, decode, interpret};
use wal_redo::oracle::op_name;
use wal_redo::{Page, apply};

use crate::Start;
use crate::pages::Pages;
use crate::wal::Stretch;

const LENGTHS: [usize; 3] = [3, 100, 1000];
/// Chains measured of each kind and length, and how often each.
const CHAINS: usize = 200;
const ROUNDS: usize = 9;

/// A page as it was and the deltas that followed.
struct Chain {
    rmid: u8,
    base: Box<Page>,
    deltas: Vec<PageDelta>,
}

/// Chains of exactly `length` deltas, all from records of one resource manager family, as they came.
fn collect(pg_wal: &Path, start: &Start, length: usize) -> Result<Vec<(Key, Chain)>> {
    let mut pages = Pages::load(start)?;
    let mut open: BTreeMap<Key, Chain> = BTreeMap::new();
    let mut done: Vec<(Key, Chain)> = Vec::new();
    let mut state = start.state;
    Stretch::read(pg_wal, start.from)?.for_each(|raw| {
        let rec = decode(raw.start_lsn, raw.end_lsn, raw.bytes)?;
        let changes = interpret(&rec, &state)?;
        state.observe(&rec)?;
        for change in &changes.meta {
            pages.apply(change);
        }
        for (key, change) in changes.pages {
            let delta = match change {
                PageChange::Image(image) => {
                    pages.put(key, &image);
                    open.remove(&key);
                    continue;
                }
                PageChange::Zero => {
                    pages.put(key, &[0; pg_types::BLCKSZ]);
                    open.remove(&key);
                    continue;
                }
                PageChange::Delta(delta) => delta,
            };
            let page = pages.get(key);
            if key.kind == KeyKind::RelBlock && matches!(delta, PageDelta::Record { .. }) {
                let rmid = match rec.rmid {
                    rmgr::HEAP2 => rmgr::HEAP,
                    other => other,
                };
                let chain = open.entry(key).or_insert_with(|| Chain {
                    rmid,
                    base: Box::new(*page),
                    deltas: Vec::new(),
                });
                chain.deltas.push(delta.clone());
                if chain.deltas.len() == length
                    && let Some(chain) = open.remove(&key)
                {
                    done.push((key, chain));
                }
            }
            apply(&delta, key, page)?;
        }
        Ok(())
    })?;
    Ok(done)
}

/// Nanoseconds a record of these chains takes, over all of them; the copy of the first page included, as a
/// read has it. The lower quartile of some rounds.
fn cost(chains: &[&(Key, Chain)]) -> Result<f64> {
    let records: usize = chains.iter().map(|(_, chain)| chain.deltas.len()).sum();
    let mut rounds = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for (key, chain) in chains {
            let mut page = *chain.base;
            for delta in &chain.deltas {
                apply(delta, *key, &mut page)?;
            }
            std::hint::black_box(&page);
        }
        rounds.push(begun.elapsed().as_nanos() as f64 / records as f64);
    }
    // A low quartile says what the work costs; the median would say what else the machine did.
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[ROUNDS / 4])
}

/// Cost of each kind of record in chains of one length: every record applied and timed alone.
fn by_kind(chains: &[&(Key, Chain)]) -> Result<BTreeMap<String, (u64, f64)>> {
    let mut spent: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (key, chain) in chains {
        let mut page = *chain.base;
        for delta in &chain.deltas {
            let PageDelta::Record {
                end_lsn, record, ..
            } = delta
            else {
                continue;
            };
            let rec = decode(*end_lsn, *end_lsn, record)?;
            let mask = if chain.rmid == rmgr::HEAP { 0x70 } else { 0xF0 };
            let name = op_name(PgMajor::V15, rec.rmid, rec.info & mask);
            let mut best = f64::MAX;
            let mut after = page;
            for _ in 0..5 {
                after = page;
                let begun = Instant::now();
                apply(delta, *key, &mut after)?;
                best = best.min(begun.elapsed().as_nanos() as f64);
            }
            page = after;
            spent.entry(name).or_default().push(best);
        }
    }
    Ok(spent
        .into_iter()
        .map(|(name, mut times)| {
            times.sort_by(f64::total_cmp);
            (name, (times.len() as u64, times[times.len() / 2]))
        })
        .collect())
}

/// What reading the clock twice adds to each single measurement.
fn clock_ns() -> f64 {
    let mut times: Vec<f64> = (0..1000)
        .map(|_| {
            let begun = Instant::now();
            begun.elapsed().as_nanos() as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[500]
}

pub fn measure(pg_wal: &Path, start: &Start) -> Result<Value> {
    let mut result = Map::new();
    for (name, rmid) in [("heap", rmgr::HEAP), ("btree", rmgr::BTREE)] {
        let mut lengths = Map::new();
        for length in LENGTHS {
            let all = collect(pg_wal, start, length)?;
            let mine: Vec<&(Key, Chain)> = all
                .iter()
                .filter(|(_, chain)| chain.rmid == rmid)
                .take(CHAINS)
                .collect();
            if mine.is_empty() {
                lengths.insert(length.to_string(), Value::Null);
                continue;
            }
            let kinds: Map<String, Value> = by_kind(&mine)?
                .into_iter()
                .map(|(kind, (records, ns))| (kind, json!({"records": records, "ns": ns})))
                .collect();
            let entry =
                json!({"chains": mine.len(), "ns_per_record": cost(&mine)?, "kinds": kinds});
            lengths.insert(length.to_string(), entry);
        }
        result.insert(name.to_owned(), Value::Object(lengths));
    }
    result.insert("clock_ns".into(), json!(clock_ns()));
    Ok(Value::Object(result))
}
