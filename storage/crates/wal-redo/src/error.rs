//! The errors of redo: why a page could not be made.

use pg_types::wal::rmgr;
use pg_types::{Key, Lsn};
use wal_decode::{DecodedRecord, WalError};

/// A delta could not be applied. The page is lost at this version; an operator needs to know which.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RedoError {
    #[error(
        "cannot redo the {} record (op {op:#04x}) that ends at {end_lsn} on {key}: {why}",
        rmgr::name(*rmid)
    )]
    Record {
        end_lsn: Lsn,
        rmid: u8,
        /// `xl_info & 0xF0`.
        op: u8,
        key: Key,
        why: String,
    },
    #[error("cannot read the record kept for {key}: {source}")]
    Undecodable { key: Key, source: WalError },
    #[error("cannot apply a {what} delta to {key}: {why}")]
    Delta {
        key: Key,
        what: &'static str,
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
