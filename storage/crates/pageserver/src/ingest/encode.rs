//! Steps of pages as layers keep them: a record [packed](wal_decode::packed), anything else the `postcard` form of its
//! [`PageDelta`].
//!
//! Ingest makes one for nearly every record, so records to redo are written straight from the WAL they lie in, and
//! many deltas share one buffer, which lives until the last of them is in the memory layer. Nothing that is kept longer
//! may be put there.

use anyhow::Context;
use bytes::BytesMut;
use layers::Value;
use pg_types::Key;
use wal_decode::packed::PACKED_HEAD;
use wal_decode::{InterpretError, PageChange, PageDelta, PageStep, pack};

use crate::error::Error;

/// Size of a shared buffer.
const BUFFER_BYTES: usize = 64 << 10;
/// Longest delta that goes into one: what is left of a buffer at its end is lost.
const LONGEST_SHARED: usize = 4 << 10;

/// See the module head.
#[derive(Default)]
pub struct DeltaWriter {
    buffer: BytesMut,
    stripped: Vec<u8>,
}

/// Why a step cannot be kept.
pub enum Unkept {
    Interpret(InterpretError),
    Encode(Error),
}

impl From<InterpretError> for Unkept {
    fn from(error: InterpretError) -> Unkept {
        Unkept::Interpret(error)
    }
}

impl DeltaWriter {
    /// A step of the page under `key` as layers keep it.
    pub fn value(&mut self, key: &Key, step: &PageStep<'_, '_>) -> Result<Value, Unkept> {
        if let PageStep::Redo { record, block } = step {
            let mut scratch = std::mem::take(&mut self.stripped);
            let kept = wal_decode::stripped(record, block.id, &mut scratch);
            let value = self.redo(key, block.will_init, kept);
            self.stripped = scratch;
            if let Some(value) = value {
                return Ok(value);
            }
        }
        Ok(match step.to_change()? {
            PageChange::Image(page) => Value::Image(page),
            PageChange::Zero => Value::Zero,
            PageChange::Delta(delta) => {
                let bytes = postcard::to_stdvec(&delta).context("encode a page delta");
                let starts_chain = matches!(
                    delta,
                    PageDelta::Record {
                        will_init: true,
                        ..
                    }
                );
                Value::Delta {
                    bytes: bytes.map_err(|error| Unkept::Encode(error.into()))?.into(),
                    starts_chain,
                }
            }
        })
    }

    /// `None` for a record that cannot be packed.
    fn redo(&mut self, key: &Key, will_init: bool, record: &[u8]) -> Option<Value> {
        let most = PACKED_HEAD + record.len();
        let mut own = BytesMut::new();
        let out = if most > LONGEST_SHARED {
            own.reserve(most);
            &mut own
        } else {
            if self.buffer.capacity() < most {
                self.buffer = BytesMut::with_capacity(BUFFER_BYTES);
            }
            &mut self.buffer
        };
        pack(out, key, will_init, record).then(|| Value::Delta {
            bytes: out.split().freeze(),
            starts_chain: will_init,
        })
    }
}

#[cfg(test)]
mod tests {
    use pg_types::{ForkNumber, RelTag};
    use wal_decode::{unlink, unpack};

    use super::*;

    /// Promise: a record of any length is kept whole, whatever is written behind it.
    #[test]
    fn records_in_shared_buffers_and_in_their_own_are_kept_whole() {
        let rel = RelTag {
            spc: 1663,
            db: 5,
            rel: 16_384,
            fork: ForkNumber::Main,
        };
        let key = Key::rel_block(rel, 77);
        let mut writer = DeltaWriter::default();
        let mut kept = Vec::new();
        for length in (24..100_usize)
            .chain([4_000, 5_000, 16_384, 70_000])
            .cycle()
            .take(3_000)
        {
            let mut record: Vec<u8> = (0..length).map(|at| (at + kept.len()) as u8).collect();
            record[..4].copy_from_slice(&(length as u32).to_le_bytes());
            record[18..20].fill(0);
            let will_init = length % 2 == 0;
            let value = writer
                .redo(&key, will_init, &record)
                .expect("a whole record");
            assert_eq!(value.starts_chain(), will_init);
            kept.push((value, record));
        }
        for (value, mut record) in kept {
            let mut found = Vec::new();
            assert_eq!(unpack(&key, value.payload(), &mut found), Ok(true));
            unlink(&mut record);
            assert_eq!(found, record);
        }
    }
}
