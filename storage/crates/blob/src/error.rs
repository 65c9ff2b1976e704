//! Errors of object storage and of the local files beside it.

use std::path::PathBuf;

use encryption::EncryptionError;
use layers::LayerError;
use pg_types::{TenantId, TimelineId};

use crate::generation::Generation;

/// An error of object storage; [`BlobError::is_transient`] says whether a repeated attempt can succeed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The store cannot be reached, refuses, or lacks the object. Trying again can help.
    #[error("object store: {}", explain(.0))]
    Store(#[from] object_store::Error),
    /// An object could not be written; whether it was is not known. Trying again can help.
    #[error("object store: put {path}: {}", explain(.source))]
    Put {
        /// Where the object should be, below the store's prefix.
        path: String,
        /// What the store says.
        source: object_store::Error,
    },
    /// The store is unfit: choose another. [`Store::check`](crate::Store::check) finds it.
    #[error(
        "{0} lets an object be created twice: it ignores `If-None-Match: *`, so nothing would keep two pageservers \
         apart; use a store with conditional puts"
    )]
    CreatesTwice(String),
    /// A local file or directory cannot be opened, read or written. Trying again can help.
    #[error("{}: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// An object does not hold what its writer put there, or is another timeline's. A person has to look at it;
    /// trying again is no use.
    #[error("object {path} is damaged: {reason}")]
    Corrupt {
        /// Where the object is, below the store's prefix.
        path: String,
        /// What is wrong with its content.
        reason: String,
    },
    /// A newer version of Weir wrote the object. A program of that version can read it.
    #[error(
        "object {path} has format version {found}; this program reads up to {known}: use a newer one"
    )]
    TooNew {
        /// Where the object is, below the store's prefix.
        path: String,
        /// Version that the object says.
        found: u32,
        /// Newest version that this program reads.
        known: u32,
    },
    /// Another pageserver has claimed the timeline: stop serving it here.
    #[error("generation {ours} of this pageserver is superseded by generation {newest}")]
    Fenced {
        /// The generation under which something was to be written.
        ours: Generation,
        /// The highest generation that anyone has claimed.
        newest: Generation,
    },
    /// The timeline has the mark of a deletion, or nothing of it is left. Give it up here.
    #[error("timeline {0} is deleted or being deleted: nothing may be written to it")]
    Deleted(TimelineId),
    /// A layer's content cannot be read or written.
    #[error(transparent)]
    Layer(#[from] LayerError),
    /// An object is encrypted and cannot be decrypted, or should be encrypted and is not. Trying again can help where
    /// [another key file would](EncryptionError::may_be_mended).
    #[error("object {path}: {source}")]
    Encryption {
        /// Where the object is, below the store's prefix.
        path: String,
        /// What is wrong.
        source: EncryptionError,
    },
    /// The key-encryption keys cannot be had. Put the right key file in place.
    #[error(transparent)]
    Keys(EncryptionError),
    /// A tenant whose files are encrypted has lost the object with its data key, or has not got it yet. Nothing of it
    /// is written in clear meanwhile. Trying again can help.
    #[error(
        "{0}/keys.json is not in the object store: without this object, which holds the tenant's data key, nothing of \
         the tenant can be encrypted or decrypted; put it back if it was there"
    )]
    NoDataKey(TenantId),
    /// An address cannot be opened as it stands; it, or a variable of the environment, has to be changed.
    #[error("object store address {address:?} is not supported: {reason}")]
    Address {
        /// The address; without its rest where that may hold a password.
        address: String,
        /// What is not supported, and what is.
        reason: String,
    },
    /// The queue gave up for good; the reason is the error it met.
    #[error("uploads have stopped: {0}")]
    Stopped(String),
}

impl BlobError {
    /// Whether trying again can help.
    pub fn is_transient(&self) -> bool {
        match self {
            BlobError::Store(_)
            | BlobError::Put { .. }
            | BlobError::File { .. }
            | BlobError::NoDataKey(_) => true,
            BlobError::Encryption { source, .. } => source.may_be_mended(),
            _ => false,
        }
    }

    /// Whether an object is not what its writer put there.
    pub fn is_damage(&self) -> bool {
        match self {
            BlobError::Corrupt { .. } => true,
            BlobError::Encryption { source, .. } => !source.may_be_mended(),
            _ => false,
        }
    }
}

/// What a store said, in a line: S3 answers with a page of XML, of which code and message are worth reading.
fn explain(error: &object_store::Error) -> String {
    let told = error.to_string();
    let element = |name: &str| {
        let (_, rest) = told.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
    };
    let text = match (element("Code"), element("Message"), told.split_once('<')) {
        (Some(code), message, Some((head, _))) => {
            format!("{head}{code} {}", message.unwrap_or_default())
        }
        _ => told.clone(),
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = without_repeats(&text);
    match error {
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => format!(
            "{text}; are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN) those of a user who may \
             read, write, list and delete there, and AWS_REGION the bucket's?"
        ),
        _ => text,
    }
}

/// An error that shows its source in its own text, and that one in its, says the same several times.
fn without_repeats(text: &str) -> String {
    let mut said: Vec<&str> = Vec::new();
    for part in text.split(": ") {
        if !said.contains(&part) {
            said.push(part);
        }
    }
    said.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once() {
        let once = "Generic error: Unable to copy: No space left (os error 28)";
        let often = format!(
            "{once}: Unable to copy: No space left (os error 28): No space left (os error 28)"
        );
        assert_eq!(without_repeats(&often), once);
        assert_eq!(without_repeats(once), once);
    }
}
