//! A pageserver that has taken in WAL for a while has memory at hand that its layers gave back. One that has just
//! begun has none, and on a virtual machine finding some may cost as much as what is measured.

use anyhow::Result;
use bytes::Bytes;
use layers::{MemoryLayer, Value};
use pg_types::{ForkNumber, Key, Lsn, RelTag};

/// Of a value: as long as those that layers copy.
const VALUE_BYTES: usize = 4000;
/// Of a layer, as long as those that ingest fills.
const LAYER_BYTES: u64 = 256 << 20;

/// Fills layers with so many bytes in all, and drops them.
pub fn warm_layers(mib: u64) -> Result<()> {
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16384,
        fork: ForkNumber::Main,
    };
    let mut layers = Vec::new();
    let mut left = mib << 20;
    let value = Value::Meta(Bytes::from(vec![1; VALUE_BYTES]));
    while left > 0 {
        let (layer, wanted) = (MemoryLayer::new(), left.min(LAYER_BYTES));
        let mut lsn = Lsn(8);
        while layer.bytes() < wanted {
            layer.put(Key::rel_block(rel, 0), lsn, value.clone())?;
            lsn = lsn + 8;
        }
        left -= wanted;
        layers.push(layer);
    }
    Ok(())
}
