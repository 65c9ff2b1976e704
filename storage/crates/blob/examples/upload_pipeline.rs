//! What it gains to upload layers side by side, and while the next one is written, over one step after the other, on
//! a store where every call takes a while: `cargo run --release -p blob --example upload_pipeline`.
//!
//! Both arms write the same layers from memory, upload them through the same queue and end when the index that names
//! the last one is durable. *Sequential* waits for each layer's index before it writes the next layer; *pipelined*
//! does as the pageserver's flush does. Arms alternate. Prints one line of JSON.

use std::sync::Arc;
use std::time::{Duration, Instant};

use blob::{IndexChange, IndexPart, PutPayload, QueueOptions, Store, UploadQueue};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use layers::{LayerDesc, MemoryLayer, Value, WriterOptions};
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use pg_types::{ForkNumber, Key, Lsn, RelTag, TenantId, TimelineId};
use serde_json::json;

const LATENCY: Duration = Duration::from_millis(20);
const ROUNDS: usize = 7;
/// Bytes of values in memory a layer is written from, and how many layers a round writes.
const SIZES: [(usize, usize); 4] = [(256 << 10, 24), (1 << 20, 24), (4 << 20, 16), (16 << 20, 8)];
/// As in the pageserver.
const MAX_FROZEN: usize = 4;
const VALUE_BYTES: usize = 256;

fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// A frozen layer of deltas that hardly compress: every second byte is random, so that none repeat in a row.
fn memory_layer(number: usize, bytes: usize) -> Arc<MemoryLayer> {
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16384,
        fork: ForkNumber::Main,
    };
    let layer = MemoryLayer::new();
    let count = (bytes / VALUE_BYTES) as u64;
    for n in 0..count {
        let seed = mix(number as u64 * count + n);
        let value: Vec<u8> = (0..VALUE_BYTES as u64)
            .map(|i| {
                if i % 2 == 0 {
                    mix(seed + i) as u8
                } else {
                    i as u8
                }
            })
            .collect();
        let delta = Value::Delta {
            bytes: value.into(),
            starts_chain: false,
        };
        let lsn = Lsn(8 + number as u64 * count + n);
        let key = Key::rel_block(rel, (seed % 20_000) as u32);
        layer.put(key, lsn, delta).expect("put");
    }
    layer.freeze();
    Arc::new(layer)
}

async fn written(layer: Arc<MemoryLayer>) -> (LayerDesc, PutPayload) {
    let write = move || layer.write_delta_layer(&WriterOptions::level_0());
    let written = tokio::task::spawn_blocking(write).await.expect("write");
    let (desc, pieces) = written.expect("layer");
    (desc, pieces.iter().collect())
}

async fn queue() -> UploadQueue {
    let slow = ThrottleConfig {
        wait_put_per_call: LATENCY,
        wait_get_per_call: LATENCY,
        wait_delete_per_call: LATENCY,
        wait_list_per_call: LATENCY,
        wait_list_with_delimiter_per_call: LATENCY,
        ..ThrottleConfig::default()
    };
    let (tenant, timeline) = (TenantId([1; 16]), TimelineId([2; 16]));
    let store = Store::new(Arc::new(ThrottledStore::new(InMemory::new(), slow)));
    let store = store.timeline(tenant, timeline);
    let generation = store.claim_generation().await.expect("claim");
    let index = IndexPart::empty(tenant, timeline, None);
    UploadQueue::start(store, index, generation, QueueOptions::default())
}

fn upto(desc: &LayerDesc) -> IndexChange {
    IndexChange {
        disk_consistent_lsn: Some(desc.lsns.last),
        ..IndexChange::default()
    }
}

async fn sequential(queue: &UploadQueue, layers: &[Arc<MemoryLayer>]) {
    for layer in layers {
        let (desc, bytes) = written(layer.clone()).await;
        let change = upto(&desc);
        queue.upload(desc, bytes).await.expect("upload");
        queue.commit(change).expect("commit");
        queue.flush().await.expect("flush");
    }
}

async fn pipelined(queue: &UploadQueue, layers: &[Arc<MemoryLayer>]) {
    let mut uploads = FuturesOrdered::new();
    let mut layers = layers.iter();
    let mut writing = None;
    loop {
        if writing.is_none() && uploads.len() < MAX_FROZEN {
            writing = layers.next().map(|layer| Box::pin(written(layer.clone())));
        }
        tokio::select! {
            (desc, bytes) = async { writing.as_mut().expect("checked").await }, if writing.is_some() => {
                writing = None;
                let change = upto(&desc);
                queue.upload(desc, bytes).await.expect("upload");
                queue.commit(change).expect("commit");
                uploads.push_back(queue.flush());
            }
            Some(uploaded) = uploads.next() => {
                uploaded.expect("flush");
            }
            else => return,
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[tokio::main]
async fn main() {
    let mut series = Vec::new();
    for (bytes, count) in SIZES {
        let layers: Vec<_> = (0..count)
            .map(|number| memory_layer(number, bytes))
            .collect();
        let mut seconds = [Vec::new(), Vec::new()];
        let mut stored = 0;
        for round in 0..ROUNDS {
            for arm in [round % 2, (round + 1) % 2] {
                let queue = queue().await;
                let started = Instant::now();
                match arm {
                    0 => sequential(&queue, &layers).await,
                    _ => pipelined(&queue, &layers).await,
                }
                seconds[arm].push(started.elapsed().as_secs_f64());
                let status = queue.status().borrow().clone();
                assert_eq!(status.uploaded_layers, count as u64);
                stored = status.uploaded_bytes / count as u64;
            }
        }
        let ratios: Vec<f64> = seconds[0]
            .iter()
            .zip(&seconds[1])
            .map(|(a, b)| a / b)
            .collect();
        let spread = |values: &[f64]| {
            json!({
                "median": rounded(median(values)),
                "min": rounded(values.iter().copied().fold(f64::INFINITY, f64::min)),
                "max": rounded(values.iter().copied().fold(0.0, f64::max)),
            })
        };
        series.push(json!({
            "memory_layer_bytes": bytes, "layer_bytes": stored, "layers": count,
            "sequential_s": spread(&seconds[0]), "pipelined_s": spread(&seconds[1]), "speedup": spread(&ratios),
        }));
    }
    let result = json!({
        "latency_ms": LATENCY.as_millis() as u64, "rounds": ROUNDS, "layers_in_flight": MAX_FROZEN, "by_size": series,
    });
    println!("{result}");
}
