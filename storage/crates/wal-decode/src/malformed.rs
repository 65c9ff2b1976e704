//! The error of a record whose body is not what its kind has.

use crate::error::InterpretError;
use crate::record::DecodedRecord;

pub(crate) fn malformed(record: &DecodedRecord<'_>, why: impl Into<String>) -> InterpretError {
    InterpretError::Malformed {
        lsn: record.start_lsn,
        rmid: record.rmid,
        op: record.op(),
        why: why.into(),
    }
}
