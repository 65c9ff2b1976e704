//! Prints what the parts cost on this machine: `cargo run --release -p layers --example layer_figures`.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use layers::{
    BlockCache, LayerDesc, LayerError, LayerMap, LayerReader, MemoryLayer, PersistentLayer, Value,
    VersionSource, View, Window, WriterOptions, collect,
};
use pg_types::{ForkNumber, Key, Lsn, RelTag};

const PAGES: u32 = 20_000;
const RECORDS: u64 = 400_000;
const DELTA_BYTES: usize = 120;
const FILES: u64 = 8;

struct File(LayerDesc, Arc<LayerReader<Bytes>>);

impl PersistentLayer for File {
    fn desc(&self) -> &LayerDesc {
        &self.0
    }
    fn open(&self) -> Result<Arc<dyn VersionSource + Send + Sync>, LayerError> {
        Ok(self.1.clone())
    }
}

/// A fixed sequence of numbers that looks random.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn key(n: u64) -> Key {
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16384,
        fork: ForkNumber::Main,
    };
    Key::rel_block(rel, (mix(n) % u64::from(PAGES)) as u32)
}

fn delta(n: u64) -> Value {
    let bytes: Vec<u8> = (0..DELTA_BYTES as u64)
        .map(|i| {
            if i % 3 == 0 {
                mix(n + i) as u8
            } else {
                i as u8
            }
        })
        .collect();
    Value::Delta {
        bytes: Bytes::from(bytes),
        starts_chain: false,
    }
}

fn report(what: &str, started: Instant, count: u64) {
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{what:<44} {:>9.2} us each, {:>10.0} a second",
        seconds / count as f64 * 1e6,
        count as f64 / seconds
    );
}

fn main() -> Result<(), LayerError> {
    let values: Vec<Value> = (0..1000).map(delta).collect();
    let mut files = Vec::new();
    let cache = Arc::new(BlockCache::new(256 << 20));
    for file in 0..FILES {
        let layer = MemoryLayer::new();
        let records = RECORDS / FILES;
        let started = Instant::now();
        for n in file * records..(file + 1) * records {
            layer.put(
                key(n),
                Lsn(1000 + n * 8),
                values[n as usize % values.len()].clone(),
            )?;
        }
        if file == 0 {
            report("put into the open layer", started, records);
        }
        layer.freeze();
        let started = Instant::now();
        let (desc, pieces) = layer.write_delta_layer(&WriterOptions::default())?;
        let bytes = pieces.to_bytes();
        if file == 0 {
            report("write to a layer file, a version", started, records);
            println!(
                "file of {} versions: {} bytes, {} in memory",
                records,
                bytes.len(),
                layer.bytes()
            );
        }
        let started = Instant::now();
        let reader = LayerReader::open(desc.name().0, bytes)?.with_cache(cache.clone());
        if file == 0 {
            report("open a layer file", started, 1);
            println!("open reader holds {} bytes", reader.memory_bytes());
        }
        files.push(Arc::new(File(desc, Arc::new(reader))));
    }
    let map = LayerMap::new(files);
    let view = View {
        memory: &[],
        map: &map,
    };
    for round in ["cold", "warm"] {
        let (reads, mut deltas) = (5_000, 0);
        let started = Instant::now();
        for n in 0..reads {
            deltas += collect(&view, key(n * 7), Window::upto(Lsn::MAX))?
                .deltas
                .len() as u64;
        }
        report(
            &format!(
                "{round} read over {FILES} files, {} deltas a chain",
                deltas / reads
            ),
            started,
            reads,
        );
    }
    Ok(())
}
