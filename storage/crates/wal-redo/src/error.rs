//! The errors of redo: why a page could not be made.

use pg_types::wal::rmgr;
use pg_types::{Key, Lsn};
use wal_decode::{DecodedRecord, WalError};

/// A delta could not be applied. The page is lost at this version; an operator needs to know which.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedoError {
    /// A record cannot be redone on this page: the record or the page is not what the record's kind has, or no redo
    /// is known for it. Reading the page at an earlier LSN may still work.
    #[error(
        "cannot redo the {} record (op {op:#04x}) that ends at {end_lsn} on {key}: {why}",
        rmgr::name(*rmid)
    )]
    Record {
        /// End of the record, the version that the page would have.
        end_lsn: Lsn,
        /// Resource manager id, `xl_rmid`.
        rmid: u8,
        /// `xl_info & 0xF0`.
        op: u8,
        /// The page that could not be made.
        key: Key,
        /// What does not fit, in words.
        why: String,
    },
    /// The bytes kept of a record are no record any more, so the page cannot be made at this version or a later one.
    #[error("cannot read the record kept for {key}: {source}")]
    Undecodable {
        /// The page that could not be made.
        key: Key,
        /// What is wrong with the bytes.
        source: WalError,
    },
    /// A delta belongs to a page of another kind, or its entries lie on another page.
    #[error("cannot apply a {what} delta to {key}: {why}")]
    Delta {
        /// The page that could not be made.
        key: Key,
        /// The kind of delta, such as "transaction status".
        what: &'static str,
        /// What does not fit, in words.
        why: String,
    },
}

impl RedoError {
    /// The page that could not be made.
    pub fn key(&self) -> Key {
        match self {
            RedoError::Record { key, .. }
            | RedoError::Undecodable { key, .. }
            | RedoError::Delta { key, .. } => *key,
        }
    }

    #[cold]
    pub(crate) fn record(key: Key, record: &DecodedRecord<'_>, why: Why) -> RedoError {
        RedoError::Record {
            end_lsn: record.end_lsn,
            rmid: record.rmid,
            op: record.op(),
            key,
            why: why.into_text(),
        }
    }

    #[cold]
    pub(crate) fn delta(key: Key, what: &'static str, why: Why) -> RedoError {
        RedoError::Delta {
            key,
            what,
            why: why.into_text(),
        }
    }
}

/// A reason inside the crate, before record and page are put to it. Text is only made when it is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Why {
    Is(&'static str),
    Text(String),
}

impl Why {
    pub(crate) fn into_text(self) -> String {
        match self {
            Why::Is(text) => text.to_owned(),
            Why::Text(text) => text,
        }
    }
}

pub(crate) type Step<T = ()> = Result<T, Why>;

/// The record ends before what its kind says it holds.
pub(crate) const CUT_SHORT: Why = Why::Is("its data is cut short");

/// Nothing in the record says what the page becomes, but for an image that is not there.
pub(crate) const NO_IMAGE: Why = Why::Is("it lacks the page image that its kind always has");
