//! Many keys read in one pass over the layers.
//!
//! Invariant: what is found for a key is what a [`ChainCollector`] of its own would have found. A layer that is not
//! on local disk stops only the keys that need it, and only until the layer is there: all missing layers are named at
//! once, so that the caller can fetch them side by side.

use pg_types::{Key, KeyRange, Lsn};
use smallvec::SmallVec;

use crate::error::LayerError;
use crate::name::LayerName;
use crate::read::{Chain, ChainCollector, View};
use crate::value::Window;
use crate::versions::{PersistentLayer, VersionSource};

/// One key's read.
struct Read {
    collector: ChainCollector,
    /// Places among the keys as they were given.
    places: SmallVec<[usize; 1]>,
    /// Nothing more is to be gathered: all is known, or a layer has to be fetched first.
    is_over: bool,
}

/// A read of many keys that can go on through ancestors, as [`ChainCollector`] does for one.
pub struct ChainsCollector {
    /// By key.
    reads: Vec<Read>,
    count: usize,
    missing: Vec<LayerName>,
}

impl ChainsCollector {
    /// Keys as of `upto`; versions at or below a key's floor are not visible. In any order; a key that comes twice
    /// has the same floor both times.
    pub fn new(keys: &[(Key, Lsn)], upto: Lsn) -> ChainsCollector {
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|place| keys[*place].0);
        let mut reads: Vec<Read> = Vec::with_capacity(keys.len());
        for place in order {
            let (key, floor) = keys[place];
            match reads.last_mut() {
                Some(same) if same.collector.key() == key => same.places.push(place),
                _ => reads.push(Read {
                    collector: ChainCollector::new(key, Window { floor, upto }),
                    places: SmallVec::from([place]),
                    is_over: false,
                }),
            }
        }
        ChainsCollector {
            count: keys.len(),
            reads,
            missing: Vec::new(),
        }
    }

    /// Gathers from one timeline. After an error, start anew.
    pub fn visit<L: PersistentLayer>(&mut self, view: &View<'_, L>) -> Result<(), LayerError> {
        for layer in view.memory {
            if let Some(lsns) = layer.lsns() {
                let wanting = self.wanting(0..self.reads.len(), |read| read.wants(&lsns));
                self.visit_source(&**layer, &wanting)?;
            }
        }
        let (Some(first), Some(last)) = (self.reads.first(), self.reads.last()) else {
            return Ok(());
        };
        let range = KeyRange {
            first: first.collector.key(),
            last: last.collector.key(),
        };
        let newest = Window::upto(first.collector.wanted().upto);
        for layer in view.map.overlapping(&range, newest) {
            let desc = layer.desc();
            let from = self
                .reads
                .partition_point(|read| read.collector.key() < desc.keys.first);
            let to = self
                .reads
                .partition_point(|read| read.collector.key() <= desc.keys.last);
            let wanting = self.wanting(from..to, |read| read.wants(&desc.lsns));
            if wanting.is_empty() {
                continue;
            }
            match layer.open() {
                Ok(source) => self.visit_source(&*source, &wanting)?,
                Err(LayerError::NotResident(name)) => {
                    for at in wanting {
                        self.reads[at].is_over = true;
                    }
                    self.missing.push(name);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wanting(
        &self,
        among: std::ops::Range<usize>,
        wants: impl Fn(&ChainCollector) -> bool,
    ) -> Vec<usize> {
        let is_wanting = |at: &usize| !self.reads[*at].is_over && wants(&self.reads[*at].collector);
        among.filter(is_wanting).collect()
    }

    fn visit_source(
        &mut self,
        source: &dyn VersionSource,
        wanting: &[usize],
    ) -> Result<(), LayerError> {
        let keys: Vec<(Key, Window)> = wanting
            .iter()
            .map(|at| {
                let read = &self.reads[*at].collector;
                (read.key(), read.wanted())
            })
            .collect();
        let reads = &mut self.reads;
        source.newest_first_of(&keys, &mut |at, version| {
            reads[wanting[at]].collector.take(version)
        })
    }

    /// Goes on in an ancestor, below its branch LSN; false when no key needs that.
    pub fn descend(&mut self, branch_lsn: Lsn) -> bool {
        for read in self.reads.iter_mut().filter(|read| !read.is_over) {
            read.is_over = !read.collector.descend(branch_lsn);
        }
        self.reads.iter().any(|read| !read.is_over)
    }

    /// The chains in the order the keys were given, or the layers to be fetched before the read is repeated.
    pub fn finish(self) -> Result<Vec<Chain>, Vec<LayerName>> {
        if !self.missing.is_empty() {
            return Err(self.missing);
        }
        let mut chains = vec![Chain::default(); self.count];
        for read in self.reads {
            let chain = read.collector.finish();
            if let Some((last, others)) = read.places.split_last() {
                for place in others {
                    chains[*place] = chain.clone();
                }
                chains[*last] = chain;
            }
        }
        Ok(chains)
    }
}

/// Reads many keys from one timeline: [`ChainsCollector`] without ancestors. Every layer must be here.
pub fn collect_all<L: PersistentLayer>(
    view: &View<'_, L>,
    keys: &[(Key, Lsn)],
    upto: Lsn,
) -> Result<Vec<Chain>, LayerError> {
    let mut read = ChainsCollector::new(keys, upto);
    read.visit(view)?;
    read.finish()
        .map_err(|missing| LayerError::NotResident(missing[0].clone()))
}
