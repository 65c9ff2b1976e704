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
    Corrupt {
        /// The layer's name, or `in memory` for one that has no file.
        layer: String,
        /// What is wrong, and where.
        reason: String,
    },
    /// The file cannot be read, whatever it holds. Repeat the read, or fetch the layer again from object storage.
    #[error("layer {layer} cannot be read: {source}")]
    Io {
        /// The layer's name.
        layer: String,
        /// What the file system says.
        source: io::Error,
    },
    /// The sink refused bytes, compression failed, or a memory layer got no memory. What a writer has put out by then
    /// is no layer; write it anew.
    #[error("layer cannot be written: {0}")]
    Write(#[source] io::Error),
    /// The layer is not in local storage: make it resident, then repeat the read.
    #[error("layer {0} is not resident")]
    NotResident(LayerName),
    /// Values must be pushed in `(key, lsn, seq)` order, each once.
    #[error("version of {key} at {lsn} (seq {seq}) is out of order in a layer writer")]
    OutOfOrder {
        /// The key, as people read it.
        key: String,
        /// LSN of the version that was pushed.
        lsn: Lsn,
        /// Position of the version at that LSN.
        seq: u16,
    },
    /// A value is longer than the format allows. Nothing was written of it.
    #[error("value of {key} at {lsn} has {len} bytes; a layer takes at most {max}")]
    TooLarge {
        /// The key, as people read it.
        key: String,
        /// LSN of the value.
        lsn: Lsn,
        /// Size of the value, bytes.
        len: usize,
        /// Largest size that a layer takes, bytes.
        max: usize,
    },
    /// A writer was finished before any version was pushed. There is nothing to store.
    #[error("a layer needs at least one version")]
    Empty,
    /// A put came after the layer was frozen; put into the layer that is open now.
    #[error("memory layer is frozen")]
    Frozen,
    /// A text is not the name of a layer, or not spelled as [`LayerDesc::name`](crate::LayerDesc::name) does.
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
