//! A timeline's layers and index in object storage, and the queue that brings them there.
//!
//! Objects of one timeline, below `{tenant}/{timeline}/`:
//!
//! ```text
//! generation/{generation}       claim of one pageserver to write; the highest one counts
//! layers/{layer}-{generation}   layer files, never overwritten with other bytes
//! index/{generation}.json       which layers make up the timeline; the highest generation counts
//! wal/{begin}-{end}-{term}-{crc} finished WAL, put there by safekeepers (see `wal`)
//! deleted                       the timeline is being deleted; everything else here is garbage
//! ```
//!
//! Beside a tenant's timelines, `{tenant}/keys.json` holds its data key, if its layers and WAL are encrypted (see
//! `keys`).
//! Beside the tenants, `deleted/{tenant}-{timeline}` says for a while that a timeline was deleted (see `deleted`).
//!
//! Invariants:
//!
//! 1. An index names only layers that are durable. A layer is deleted only after an index that does not
//!    name it counts.
//! 2. The name of every object that a pageserver writes carries the writer's generation, and generations are claimed
//!    by atomic creation: two pageservers never write the same name. A pageserver that takes over puts the index it
//!    loaded under its own generation before it removes anything; from then on no pageserver reads what an older
//!    owner still writes.
//! 3. An index counts only if its generation was the newest claim after the index was written. Only then is the index
//!    acknowledged, and are the layers that it dropped deleted: every later owner loads such an index.
//! 4. Every write is durable when it returns: remote stores promise it, the local directory syncs the file,
//!    renames it into place and syncs the directory.
//!
//! What a crash leaves, by the moment it comes:
//!
//! - while a layer is written: a staging file, which no listing shows, or a layer no index names: an orphan. Both are
//!   removed by [`TimelineStore::remove_orphans`];
//! - between a layer and the index that names it: the same;
//! - while the index is written: the old index or the new one, whole;
//! - between an index and the deletion of layers it dropped: orphans;
//! - after claiming a generation: a claim without an index; the previous generation's index is read;
//! - while deleting a timeline: the `deleted` mark, which goes last; deleting again finishes the work;
//! - between the tombstone of a deletion and the end of its mark: both.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod copy;
mod deleted;
mod direct;
mod encrypted;
mod error;
mod file;
mod generation;
mod http_client;
mod index;
mod keys;
mod known_keys;
mod queue;
mod resident;
mod s3;
mod staged;
mod store;
mod timeline;
mod wal;

pub use deleted::Tombstone;
pub use encryption::{
    EncryptionError, KeyFile, KeyProvider, Plain, TenantKey, Wrapped, stored_length,
};
pub use error::BlobError;
pub use file::LocalLayerFile;
pub use generation::Generation;
pub use index::{Ancestor, INDEX_FORMAT_VERSION, IndexPart, RemoteLayer, seal, unseal};
pub use object_store::PutPayload;
pub use queue::{IndexChange, QueueOptions, UploadQueue, UploadStatus};
pub use store::Store;
pub use timeline::{Loaded, TimelineStore};
pub use wal::{WAL_FORMAT_VERSION, WalHeader, WalName, WalPut};
