//! Steps of pages as layers keep them: a record [packed](wal_decode::packed), anything else the `postcard` form of
//! its [`PageDelta`].
//!
//! Ingest makes a delta for nearly every record, so records to redo are written straight from the WAL, one behind the
//! other into one buffer, from which they are copied into the memory layer. The buffer is cleared when the memory
//! layer has all of them; a [`EncodedValue::Packed`] points into the buffer and is valid until then.

use anyhow::Context;
use layers::{Put, Value};
use pg_types::Key;
use wal_decode::packed::PACKED_HEAD;
use wal_decode::{InterpretError, PageChange, PageDelta, PageStep, pack};

use crate::error::Error;

/// A longer delta has memory of its own, which the memory layer takes over.
const LONGEST_SHARED: usize = 4 << 10;
/// What the buffer keeps of its memory when it is cleared.
const BUFFER_BYTES: usize = 1 << 20;

/// Encodes the steps of pages as layers keep them, into one buffer.
#[derive(Default)]
pub struct DeltaWriter {
    buffer: Vec<u8>,
    stripped: Vec<u8>,
}

/// A value on its way into the memory layer.
pub enum EncodedValue {
    /// A delta, with its place in the writer's buffer.
    Packed {
        /// Where the delta begins in the buffer, bytes.
        at: u32,
        /// Bytes of the delta.
        length: u32,
        /// Whether the record initialises the page, so that no older version matters.
        starts_chain: bool,
    },
    /// A value with memory of its own: a page, metadata, a long delta, or a delta that cannot be packed.
    Whole(Box<Value>),
}

impl From<Value> for EncodedValue {
    fn from(value: Value) -> EncodedValue {
        EncodedValue::Whole(Box::new(value))
    }
}

impl EncodedValue {
    /// Bytes of the value.
    pub fn bytes(&self) -> usize {
        match self {
            EncodedValue::Packed { length, .. } => *length as usize,
            EncodedValue::Whole(value) => value.payload().len(),
        }
    }
}

/// Why a step cannot be encoded.
pub enum EncodeError {
    Interpret(InterpretError),
    Encode(Error),
}

impl From<InterpretError> for EncodeError {
    fn from(error: InterpretError) -> EncodeError {
        EncodeError::Interpret(error)
    }
}

impl DeltaWriter {
    /// A step of the page under `key` as layers keep it. Fails when the step's page image can't be restored or the
    /// step can't be encoded.
    pub fn encode(
        &mut self,
        key: &Key,
        step: &PageStep<'_, '_>,
    ) -> Result<EncodedValue, EncodeError> {
        if let PageStep::Redo { record, block } = step {
            let mut scratch = std::mem::take(&mut self.stripped);
            let record = wal_decode::stripped(record, block.id, &mut scratch);
            let encoded = self.redo(key, block.will_init, record);
            self.stripped = scratch;
            if let Some(encoded) = encoded {
                return Ok(encoded);
            }
        }
        Ok(EncodedValue::from(other(step)?))
    }

    /// What was encoded, to be put into the memory layer.
    #[inline]
    pub fn lend<'a>(&'a self, encoded: &'a EncodedValue) -> Put<'a> {
        match *encoded {
            EncodedValue::Packed {
                at,
                length,
                starts_chain,
            } => Put::Delta {
                bytes: &self.buffer[at as usize..(at + length) as usize],
                starts_chain,
            },
            EncodedValue::Whole(ref value) => Put::Value(value),
        }
    }

    /// What was encoded, with bytes of its own.
    pub fn own(&self, encoded: EncodedValue) -> Value {
        match encoded {
            EncodedValue::Whole(value) => *value,
            EncodedValue::Packed { .. } => self.lend(&encoded).to_value(),
        }
    }

    /// Forgets all that was encoded here.
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES);
    }

    /// `None` for a record that cannot be packed.
    fn redo(&mut self, key: &Key, will_init: bool, record: &[u8]) -> Option<EncodedValue> {
        let most = PACKED_HEAD + record.len();
        if most > LONGEST_SHARED {
            let mut own = Vec::with_capacity(most);
            return pack(&mut own, key, will_init, record).then(|| {
                EncodedValue::from(Value::Delta {
                    bytes: own.into(),
                    starts_chain: will_init,
                })
            });
        }
        // Far from it, but what cannot be numbered must not be taken for something else.
        u32::try_from(self.buffer.len() + most).ok()?;
        let at = self.buffer.len() as u32;
        pack(&mut self.buffer, key, will_init, record).then(|| EncodedValue::Packed {
            at,
            length: self.buffer.len() as u32 - at,
            starts_chain: will_init,
        })
    }
}

/// A step that is no record to redo, or one that cannot be packed.
fn other(step: &PageStep<'_, '_>) -> Result<Value, EncodeError> {
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
                bytes: bytes
                    .map_err(|error| EncodeError::Encode(error.into()))?
                    .into(),
                starts_chain,
            }
        }
    })
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
            kept.push((value, will_init, record));
        }
        for (value, will_init, mut record) in kept {
            let (lent, bytes) = (writer.lend(&value).to_value(), value.bytes());
            let value = writer.own(value);
            unlink(&mut record);
            assert_eq!(lent, value);
            assert_eq!(value.starts_chain(), will_init);
            assert_eq!(value.payload().len(), bytes);
            let mut found = Vec::new();
            assert_eq!(unpack(&key, value.payload(), &mut found), Ok(true));
            assert_eq!(found, record);
        }
    }
}
