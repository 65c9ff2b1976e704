//! Errors of reading and writing layers.

use std::io;

use pg_types::Lsn;

use crate::name::LayerName;

/// An error of reading or writing a layer; it names the layer where it concerns one.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The bytes are not a layer this program can read. Fetch it again from object storage; if that copy is
    /// damaged too, the data is lost there.
    #[error("layer {layer} is damaged: {reason}")]
    Corrupt { layer: String, reason: String },
    #[error("layer {layer} cannot be read: {source}")]
    Io { layer: String, source: io::Error },
    #[error("layer cannot be written: {0}")]
    Write(#[source] io::Error),
    /// The layer is not in local storage: make it resident, then repeat the read.
    #[error("layer {0} is not resident")]
    NotResident(LayerName),
    /// Values must be pushed in `(key, lsn, seq)` order, each once.
    #[error("version of {key} at {lsn} (seq {seq}) is out of order in a layer writer")]
    OutOfOrder { key: String, lsn: Lsn, seq: u16 },
    #[error("value of {key} at {lsn} has {len} bytes; a layer takes at most {max}")]
    TooLarge {
        key: String,
        lsn: Lsn,
        len: usize,
        max: usize,
    },
    #[error("a layer needs at least one version")]
    Empty,
    /// A put came after the layer was frozen; put into the layer that is open now.
    #[error("memory layer is frozen")]
    Frozen,
    #[error("invalid layer name {0:?}")]
    BadName(String),
}

impl LayerError {
    pub(crate) fn corrupt(layer: &str, reason: impl Into<String>) -> LayerError {
        LayerError::Corrupt {
            layer: layer.to_owned(),
            reason: reason.into(),
        }
    }
}
