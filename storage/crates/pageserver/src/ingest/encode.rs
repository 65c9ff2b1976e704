//! Steps of pages as layers keep them: the `postcard` form of [`PageDelta`].
//!
//! Ingest makes one for nearly every record, so records to redo are written straight from the WAL they lie in, and
//! many deltas share one buffer, which lives as long as the memory layer that holds them. Nothing that outlives its
//! layer may be put there.

use anyhow::Context;
use bytes::BytesMut;
use layers::Value;
use pg_types::Lsn;
use wal_decode::{InterpretError, PageChange, PageDelta, PageStep};

use crate::error::Error;
use crate::redo::{RECORD_OVERHEAD, put_record};

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
    /// A step as layers keep it.
    pub fn value(&mut self, step: &PageStep<'_, '_>) -> Result<Value, Unkept> {
        if let PageStep::Redo { record, block } = step {
            let mut scratch = std::mem::take(&mut self.stripped);
            let kept = wal_decode::stripped(record, block.id, &mut scratch);
            let value = self.redo(record.end_lsn, block.will_init, kept);
            self.stripped = scratch;
            return Ok(value);
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

    fn redo(&mut self, end_lsn: Lsn, will_init: bool, record: &[u8]) -> Value {
        let most = RECORD_OVERHEAD + record.len();
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
        put_record(out, end_lsn, will_init, record);
        Value::Delta {
            bytes: out.split().freeze(),
            starts_chain: will_init,
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::redo::get_record;

    /// Promise: what ingest writes by hand is what readers of every version decode, the record without its link.
    #[test]
    fn a_redo_delta_is_the_postcard_form_of_its_record() {
        let mut writer = DeltaWriter::default();
        let mut kept = Vec::new();
        for length in [0, 1, 127, 128, 4_000, 5_000, 16_383, 16_384, 70_000] {
            for (end_lsn, will_init) in [(Lsn(0), true), (Lsn(0x7f), false), (Lsn::MAX, true)] {
                let record: Vec<u8> = (0..length).map(|at| at as u8).collect();
                let written = writer.redo(end_lsn, will_init, &record);
                let mut record = record;
                wal_decode::unlink(&mut record);
                let delta = PageDelta::Record {
                    end_lsn,
                    will_init,
                    record: Bytes::from(record),
                };
                let bytes = postcard::to_stdvec(&delta).expect("encode").into();
                let starts_chain = will_init;
                kept.push((
                    written,
                    Value::Delta {
                        bytes,
                        starts_chain,
                    },
                ));
            }
        }
        for (written, expected) in kept {
            assert_eq!(written, expected);
            let read = get_record(written.payload()).map(|(lsn, it)| (lsn, it.to_vec()));
            let PageDelta::Record {
                end_lsn, record, ..
            } = postcard::from_bytes(expected.payload()).expect("decode")
            else {
                panic!("another kind of delta")
            };
            // The longest numbers are left to postcard.
            let expected = (end_lsn != Lsn::MAX).then(|| (end_lsn, record.to_vec()));
            assert_eq!(read, expected);
        }
        let other = PageDelta::VisibilityMapTruncate { heap_blocks: 1 };
        let other = postcard::to_stdvec(&other).expect("encode");
        assert_eq!(get_record(&other), None);
    }
}
