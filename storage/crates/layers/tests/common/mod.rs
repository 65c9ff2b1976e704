//! A timeline made of real layers beside a model that is one sorted map, driven by the same operations.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use layers::{
    Base, Chain, ChainCounts, ChainDelta, LayerDesc, LayerError, LayerMap, LayerReader,
    MemoryLayer, MergeOptions, PersistentLayer, Value, Version, VersionSource, View, Window,
    WriterOptions, merge_layers, plan_l0,
};
use pg_types::{Key, KeyKind, KeyRange, Lsn, RelTag};
use proptest::prelude::*;

pub struct File {
    pub desc: LayerDesc,
    pub reader: Arc<LayerReader<Bytes>>,
}

impl File {
    pub fn new((desc, bytes): (LayerDesc, Bytes)) -> Arc<File> {
        let reader =
            LayerReader::open(desc.name().0, bytes).expect("what was written can be opened");
        assert_eq!(
            reader.desc(),
            desc,
            "a file describes itself as its writer did"
        );
        reader.verify().expect("the checksum holds");
        Arc::new(File {
            desc,
            reader: Arc::new(reader),
        })
    }
}

impl PersistentLayer for File {
    fn desc(&self) -> &LayerDesc {
        &self.desc
    }

    fn open(&self) -> Result<Arc<dyn VersionSource + Send + Sync>, LayerError> {
        Ok(self.reader.clone())
    }
}

pub const KEYS: u32 = 6;

/// A few keys that are neighbours, of two kinds, so that ranges and blocks mix them.
pub fn key(number: u32) -> Key {
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16384,
        fork: pg_types::ForkNumber::Main,
    };
    if number < KEYS - 2 {
        Key::rel_block(rel, number)
    } else {
        Key::aux(number)
    }
}

pub fn all_keys() -> KeyRange {
    KeyRange {
        first: Key::min_of(KeyKind::RelBlock),
        last: Key::max_of(KeyKind::Aux),
    }
}

#[derive(Clone, Debug)]
pub enum Operation {
    /// One WAL record: `(key, kind of value)`, several values on one key allowed.
    Record(Vec<(u32, u8)>),
    /// The storage makes an image of a page as of this many records ago.
    Image { key: u32, records_ago: usize },
    /// The open layer is frozen and stays in memory.
    Freeze,
    /// Every frozen layer becomes a level-0 file.
    Flush,
    /// Merges the level-0 files. With `keep_inputs` both remain, as if a crash had lost the removal.
    Compact {
        target_bytes: u64,
        keep_inputs: bool,
    },
}

pub fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        8 => prop::collection::vec((0..KEYS, 0..16_u8), 1..4).prop_map(Operation::Record),
        2 => (0..KEYS - 2, 0..3_usize).prop_map(|(key, records_ago)| Operation::Image { key, records_ago }),
        1 => Just(Operation::Freeze),
        1 => Just(Operation::Flush),
        1 => (1..2000_u64, any::<bool>()).prop_map(|(target_bytes, keep_inputs)| Operation::Compact { target_bytes, keep_inputs }),
    ]
}

/// Small blocks, so that a handful of versions spans several.
pub fn options() -> WriterOptions {
    WriterOptions {
        block_bytes: 64,
        compression: 1,
    }
}

pub struct Timeline {
    pub open: Arc<MemoryLayer>,
    pub memory: Vec<Arc<MemoryLayer>>,
    pub map: LayerMap<File>,
    pub counts: ChainCounts,
    pub model: BTreeMap<(Key, Lsn, u16), Value>,
    /// LSN of every record, and where the timeline starts.
    pub records: Vec<Lsn>,
}

impl Timeline {
    pub fn new(start: Lsn) -> Timeline {
        let open = Arc::new(MemoryLayer::new());
        Timeline {
            memory: vec![open.clone()],
            open,
            map: LayerMap::default(),
            counts: ChainCounts::new(3),
            model: BTreeMap::new(),
            records: vec![start],
        }
    }

    pub fn view(&self) -> View<'_, File> {
        View {
            memory: &self.memory,
            map: &self.map,
        }
    }

    pub fn last(&self) -> Lsn {
        self.records[self.records.len() - 1]
    }

    pub fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Record(values) => self.record(values),
            Operation::Image {
                key: number,
                records_ago,
            } => {
                let lsn = self.records[self.records.len().saturating_sub(1 + records_ago)];
                let page = Bytes::from(format!("generated {number} at {lsn}"));
                let covered = expected_chain(&self.model, key(*number), Window::upto(lsn))
                    .deltas
                    .len();
                self.open
                    .put_image(key(*number), lsn, page.clone())
                    .unwrap();
                self.counts.image_made(&key(*number), lsn, covered as u32);
                self.model
                    .insert((key(*number), lsn, Version::GENERATED), Value::Image(page));
            }
            Operation::Freeze => self.freeze(),
            Operation::Flush => {
                self.freeze();
                let frozen: Vec<_> = self.memory.drain(..self.memory.len() - 1).collect();
                let filled = frozen.iter().filter(|layer| !layer.is_empty());
                let files = filled
                    .map(|layer| {
                        let (desc, pieces) = layer.write_delta_layer(&options()).unwrap();
                        File::new((desc, pieces.to_bytes()))
                    })
                    .collect();
                self.map = self.map.with(files, &[]);
            }
            Operation::Compact {
                target_bytes,
                keep_inputs,
            } => self.compact(*target_bytes, *keep_inputs),
        }
    }

    fn record(&mut self, values: &[(u32, u8)]) {
        let lsn = self.last() + 8;
        self.records.push(lsn);
        for (number, kind) in values {
            let seq = self
                .model
                .range((key(*number), lsn, 0)..=(key(*number), lsn, u16::MAX))
                .count() as u16;
            let bytes = Bytes::from(format!("{kind} of {number} at {lsn} {seq}"));
            let value = match kind {
                0 => Value::Image(bytes),
                1 => Value::Zero,
                2 => Value::Meta(bytes),
                3 => Value::Tombstone,
                4 => Value::Delta {
                    bytes,
                    starts_chain: true,
                },
                _ => Value::Delta {
                    bytes,
                    starts_chain: false,
                },
            };
            self.open.put(key(*number), lsn, value.clone()).unwrap();
            self.counts.ingested(&key(*number), lsn, &value);
            self.model.insert((key(*number), lsn, seq), value);
        }
    }

    fn freeze(&mut self) {
        self.open.freeze();
        self.open = Arc::new(MemoryLayer::new());
        self.memory.push(self.open.clone());
    }

    fn compact(&mut self, target_bytes: u64, keep_inputs: bool) {
        let Some(plan) = plan_l0(&self.map, 2, 1 << 20) else {
            return;
        };
        let inputs: Vec<_> = plan
            .inputs
            .iter()
            .map(|desc| self.map.get(&desc.name()).unwrap().clone())
            .collect();
        let mut outputs = Vec::new();
        let merge = MergeOptions {
            target_bytes,
            writer: options(),
            ..MergeOptions::default()
        };
        merge_layers(
            inputs.iter().map(|file| file.reader.iter()).collect(),
            &merge,
            &mut |_: &Key| Ok(Lsn::INVALID),
            |desc, bytes| {
                outputs.push(File::new((desc, bytes)));
                Ok::<(), LayerError>(())
            },
        )
        .unwrap();
        for pair in outputs.windows(2) {
            let last = pair[0].reader.iter().last().unwrap().unwrap();
            let next = pair[1].reader.iter().next().unwrap().unwrap();
            assert!(
                (last.0, last.1.lsn) < (next.0, next.1.lsn),
                "{} at {} is split over two outputs",
                last.0,
                last.1.lsn
            );
        }
        let names: Vec<_> = plan.inputs.iter().map(LayerDesc::name).collect();
        self.map = self
            .map
            .with(outputs, if keep_inputs { &[] } else { &names });
    }

    /// LSNs worth asking for: some records, and around them.
    pub fn interesting_lsns(&self) -> BTreeSet<Lsn> {
        let step = self.records.len().div_ceil(12);
        let some = self.records.iter().rev().step_by(step);
        some.flat_map(|lsn| [Lsn(lsn.0 - 1), *lsn, *lsn + 4])
            .collect()
    }
}

/// What a read must find, worked out from the map alone.
pub fn expected_chain(model: &BTreeMap<(Key, Lsn, u16), Value>, key: Key, window: Window) -> Chain {
    let mut chain = Chain::default();
    for ((_, lsn, _), value) in model.range((key, Lsn(0), 0)..=(key, Lsn::MAX, u16::MAX)) {
        if !window.contains(*lsn) {
            continue;
        }
        if value.starts_chain() {
            chain = Chain::default();
        }
        match value.clone() {
            Value::Delta {
                bytes,
                starts_chain,
            } => {
                chain.deltas.push(ChainDelta {
                    lsn: *lsn,
                    bytes,
                    starts_chain,
                });
            }
            Value::Image(bytes) => chain.base = Some((*lsn, Base::Image(bytes))),
            Value::Zero => chain.base = Some((*lsn, Base::Zero)),
            Value::Meta(bytes) => chain.base = Some((*lsn, Base::Meta(bytes))),
            Value::Tombstone => chain.base = Some((*lsn, Base::Tombstone)),
        }
    }
    chain
}

/// The newest existing value of each key, worked out from the map alone.
pub fn expected_scan(
    model: &BTreeMap<(Key, Lsn, u16), Value>,
    keys: &KeyRange,
    upto: Lsn,
) -> Vec<(Key, Lsn, Value)> {
    let mut newest = BTreeMap::new();
    for ((key, lsn, _), value) in model {
        if keys.contains(key) && *lsn <= upto {
            newest.insert(*key, (*key, *lsn, value.clone()));
        }
    }
    newest
        .into_values()
        .filter(|(_, _, value)| *value != Value::Tombstone)
        .collect()
}
