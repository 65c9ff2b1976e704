//! Compaction: which layers are merged when, and the merge itself.
//!
//! Level-0 layers, each spanning all keys, become level-1 layers that each span few keys; this merge keeps reads
//! fast, so it comes before all others ([`plan_l0`]). Once everything in a level-1 layer lies before the history
//! horizon, the layer is merged with the level-2 layers of the same keys into new ones that hold only versions that
//! are still needed ([`plan_settling`]); this merge gives space back.
//!
//! Invariant: a merge adds no version, and leaves out only what no readable LSN needs ([`Retention`]) and what says
//! nothing ([`Facts::is_needless`]), so a read before and after the merge gives the same answer. What one record wrote to one key stays in one output, because
//! chain lengths are added up from whole layers ([`ChainCounts::load`](crate::ChainCounts::load)), in no order within
//! an LSN. The caller puts the outputs into the layer map and takes the inputs out in one step. Plans and merges keep
//! no state; what a crash leaves is the caller's matter.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use bytes::Bytes;
use pg_types::{Key, Lsn};

use crate::desc::LayerDesc;
use crate::error::LayerError;
use crate::format::MANY_KEYS;
use crate::map::LayerMap;
use crate::retain::{Facts, Filter, Retention};
use crate::value::Version;
use crate::versions::PersistentLayer;
use crate::writer::{LayerWriter, WriterOptions};

/// Layers below the horizon are merged again once there are this many times fewer bytes in level 2: each byte is
/// then rewritten about this often, and at most this part of what is stored may be garbage.
const SETTLED_PER_FRESH: u64 = 4;

/// Layers to merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// Level-0 layers oldest first, others by first key.
    pub inputs: Vec<LayerDesc>,
    /// Size of all inputs together, bytes.
    pub bytes: u64,
    /// Level of the layers to write.
    pub level: u8,
}

impl CompactionPlan {
    fn new(level: u8) -> CompactionPlan {
        CompactionPlan {
            inputs: Vec::new(),
            bytes: 0,
            level,
        }
    }

    fn add(&mut self, desc: &LayerDesc) {
        self.bytes += desc.size;
        self.inputs.push(desc.clone());
    }
}

/// Once there are `threshold` level-0 layers: the oldest of them, at most `max_bytes` together but at
/// least two.
pub fn plan_l0<L: PersistentLayer>(
    map: &LayerMap<L>,
    threshold: usize,
    max_bytes: u64,
) -> Option<CompactionPlan> {
    let l0 = map.l0();
    if l0.len() < threshold.max(2) {
        return None;
    }
    let mut plan = CompactionPlan::new(1);
    for layer in l0 {
        let desc = layer.desc();
        if plan.inputs.len() >= 2 && plan.bytes + desc.size > max_bytes {
            break;
        }
        plan.add(desc);
    }
    Some(plan)
}

/// Plans a merge to level 2, once the level-1 layers that lie before `horizon` hold enough (at least `least_bytes`,
/// and a quarter of level 2): some of these layers with the level-2 layers of the same keys, at most `max_bytes`
/// together but at least one layer of level 1.
pub fn plan_settling<L: PersistentLayer>(
    map: &LayerMap<L>,
    horizon: Lsn,
    least_bytes: u64,
    max_bytes: u64,
) -> Option<CompactionPlan> {
    let is_fresh = |desc: &LayerDesc| desc.level == 1 && desc.lsns.last <= horizon;
    let bytes_of = |wanted: &dyn Fn(&LayerDesc) -> bool| -> u64 {
        let descs = map.iter().map(|layer| layer.desc());
        descs
            .filter(|desc| wanted(desc))
            .map(|desc| desc.size)
            .sum()
    };
    let fresh = bytes_of(&is_fresh);
    let settled = bytes_of(&|desc: &LayerDesc| desc.level > 1);
    if fresh == 0 || fresh < least_bytes.max(settled / SETTLED_PER_FRESH) {
        return None;
    }
    let mut found: Vec<&LayerDesc> = map
        .iter()
        .map(|layer| layer.desc())
        .filter(|desc| is_fresh(desc) || desc.level > 1)
        .collect();
    found.sort_by_key(|desc| (desc.keys.first, desc.lsns.first));
    let first = found.iter().position(|desc| is_fresh(desc))?;
    let start = found[first].keys.first;
    let mut plan = CompactionPlan::new(2);
    plan.add(found[first]);
    for (at, desc) in found.into_iter().enumerate() {
        let reaches = at != first && desc.keys.last >= start;
        if reaches && plan.bytes + desc.size > max_bytes {
            break;
        }
        if reaches {
            plan.add(desc);
        }
    }
    Some(plan)
}

/// How a merge writes.
#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// An output is closed once it is about this large, or has [`MANY_KEYS`] keys, at the next key if the key is not larger itself, and never
    /// between two versions of a key at one LSN.
    pub target_bytes: u64,
    /// Level of the outputs: 1, or 2 for a merge that settles what lies before the horizon.
    pub level: u8,
    /// Decides which versions are left out.
    pub retention: Retention,
    /// Block size and compression of the outputs.
    pub writer: WriterOptions,
}

impl Default for MergeOptions {
    fn default() -> MergeOptions {
        MergeOptions {
            target_bytes: 64 << 20,
            level: 1,
            retention: Retention::everything(),
            writer: WriterOptions::default(),
        }
    }
}

/// Merges sorted inputs into delta layers, handing each to `output` when it is complete. A version that several
/// inputs hold is written once, one that no readable LSN needs not at all. `facts` says what the inputs alone do not:
/// a closure gives the floor of a page, as of the horizon.
pub fn merge_layers<I, E>(
    inputs: Vec<I>,
    options: &MergeOptions,
    facts: &mut impl Facts<E>,
    output: impl FnMut(LayerDesc, Bytes) -> Result<(), E>,
) -> Result<(), E>
where
    I: Iterator<Item = Result<(Key, Version), LayerError>>,
    E: From<LayerError>,
{
    let mut merge = Merge::new(inputs)?;
    let mut filter = Filter::new(&options.retention);
    let mut outputs = Outputs {
        options,
        open: None,
        output,
    };
    let mut previous: Option<(Key, Lsn, u16)> = None;
    while let Some((key, version)) = merge.next()? {
        let order = (key, version.lsn, version.seq);
        if previous == Some(order) {
            continue;
        }
        previous = Some(order);
        filter.push(key, version, facts, &mut |key, version| {
            outputs.push(key, version)
        })?;
    }
    filter.finish(facts, &mut |key, version| outputs.push(key, version))?;
    outputs.close()
}

/// The layers being written, one after the other.
struct Outputs<'a, F> {
    options: &'a MergeOptions,
    open: Option<LayerWriter<Vec<u8>>>,
    output: F,
}

impl<E, F> Outputs<'_, F>
where
    E: From<LayerError>,
    F: FnMut(LayerDesc, Bytes) -> Result<(), E>,
{
    fn push(&mut self, key: &Key, version: &Version) -> Result<(), E> {
        let target = self.options.target_bytes;
        if self.open.as_ref().is_some_and(|open| {
            let same_key = open.last_key() == Some(*key);
            let same_record = open.last_version() == Some((*key, version.lsn));
            let is_large = open.size() >= target.saturating_mul(if same_key { 2 } else { 1 });
            // Small values, such as those of dropped relations, fill the key table first.
            !same_record && (is_large || open.keys() >= MANY_KEYS)
        }) {
            self.close()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let writer = self.options.writer.clone();
                let new = LayerWriter::delta(Vec::new(), self.options.level, writer)?;
                self.open.insert(new)
            }
        };
        Ok(open.push(key, version)?)
    }

    fn close(&mut self) -> Result<(), E> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let (desc, file) = open.finish()?;
        (self.output)(desc, Bytes::from(file))
    }
}

/// The smallest version of all inputs, one after the other.
struct Merge<I> {
    inputs: Vec<I>,
    heads: Vec<Option<(Key, Version)>>,
    heap: BinaryHeap<Reverse<(Key, Lsn, u16, usize)>>,
}

impl<I: Iterator<Item = Result<(Key, Version), LayerError>>> Merge<I> {
    fn new(inputs: Vec<I>) -> Result<Merge<I>, LayerError> {
        let heads = inputs.iter().map(|_| None).collect();
        let mut merge = Merge {
            inputs,
            heads,
            heap: BinaryHeap::new(),
        };
        (0..merge.inputs.len()).try_for_each(|number| merge.advance(number))?;
        Ok(merge)
    }

    fn advance(&mut self, number: usize) -> Result<(), LayerError> {
        if let Some((key, version)) = self.inputs[number].next().transpose()? {
            self.heap
                .push(Reverse((key, version.lsn, version.seq, number)));
            self.heads[number] = Some((key, version));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Option<(Key, Version)>, LayerError> {
        let Some(Reverse((.., number))) = self.heap.pop() else {
            return Ok(None);
        };
        let head = self.heads[number].take();
        self.advance(number)?;
        Ok(head)
    }
}
