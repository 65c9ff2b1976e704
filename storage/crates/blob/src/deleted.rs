//! Tombstones: that a timeline was deleted is known in the store for a while after everything of it has gone.
//!
//! Safekeepers put WAL into the store by themselves, and some may have a timeline's log longer than the store has the
//! timeline: the control plane deletes logs last, and a safekeeper that is down has its log until it is back. Without a
//! tombstone, a timeline that was deleted looks like one whose index was lost, and WAL of that one may be the last copy
//! of somebody's rows. So WAL goes only by proof that the timeline was deleted on purpose.
//!
//! Cases, by what is in the store:
//!
//! | index | mark or tombstone | the timeline | WAL |
//! |---|---|---|---|
//! | yes | no | lives | stays |
//! | no | the mark | is being deleted | goes: the deletion lists it last, and who put it looks again |
//! | no | the tombstone | was deleted | goes: who put it looks again, and the end of the tombstone lists it |
//! | no | neither | was never stored, lost its index, or was deleted longer ago than tombstones are kept | stays |
//! | yes | the tombstone | was made again with the same id, by a program that knew no tombstones | stays |
//!
//! Invariants: from the first step of a deletion until the tombstone is taken away, the mark or the tombstone is there.
//! A tombstone goes only after the WAL that was listed behind it. Whoever puts WAL and finds an index gone looks for the mark first,
//! for the tombstone then: in that order a deletion cannot slip between.

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, PutMode};
use pg_types::{TenantId, TimelineId};

use crate::error::BlobError;
use crate::store::Store;
use crate::timeline::{MARK, TimelineStore, WAL_FOLDER};

/// The folder of tombstones, beside those of tenants.
const FOLDER: &str = "deleted";

/// That a timeline was deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tombstone {
    /// The tenant that the timeline belonged to.
    pub tenant: TenantId,
    /// The timeline.
    pub timeline: TimelineId,
    /// When its deletion came to its end, by the clock of the store: microseconds since 1970.
    pub since: i64,
}

impl Tombstone {
    fn of(object: &ObjectMeta) -> Option<Tombstone> {
        let (tenant, timeline) = object.location.filename()?.split_once('-')?;
        Some(Tombstone {
            tenant: tenant.parse().ok()?,
            timeline: timeline.parse().ok()?,
            since: object.last_modified.timestamp_micros(),
        })
    }
}

impl Store {
    /// All tombstones. What else is in their folder is left alone.
    pub async fn tombstones(&self) -> Result<Vec<Tombstone>, BlobError> {
        let folder = ObjectPath::from(FOLDER);
        let listed = self.objects.list(Some(&folder));
        match listed.try_collect::<Vec<ObjectMeta>>().await {
            Ok(found) => Ok(found.iter().filter_map(Tombstone::of).collect()),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}

impl TimelineStore {
    fn tombstone_path(&self) -> ObjectPath {
        ObjectPath::from(format!("{FOLDER}/{}-{}", self.tenant(), self.timeline()))
    }

    /// The last step of a deletion but to take away its mark.
    pub(crate) async fn put_tombstone(&self) -> Result<(), BlobError> {
        let path = self.tombstone_path();
        self.store
            .put(&path, Bytes::new(), PutMode::Overwrite)
            .await
    }

    /// Whether it is proven that the timeline was deleted on purpose, or is being deleted. A timeline that
    /// [has an index](TimelineStore::has_index) lives, whatever this says.
    pub async fn is_deleted(&self) -> Result<bool, BlobError> {
        Ok(self.store.exists(&self.path(MARK)).await?
            || self.store.exists(&self.tombstone_path()).await?)
    }

    /// Removes the WAL that was put here after the timeline was deleted, then its tombstone; how many pieces there were.
    /// Without a tombstone nothing is removed, and of a timeline that has an index again the tombstone alone. After an
    /// error, and after a crash, it can be repeated.
    pub async fn remove_tombstone(&self) -> Result<usize, BlobError> {
        let tombstone = self.tombstone_path();
        if !self.store.exists(&tombstone).await? {
            return Ok(0);
        }
        // Listed before the index is looked for: WAL of a timeline that is made again meanwhile is not among it.
        let mut names = self.list_wal().await?;
        if self.has_index().await? {
            names.clear();
        } else {
            // What a safekeeper was writing when it died.
            let folder = self.path(WAL_FOLDER);
            self.store.remove_staged(&folder, |_| true).await?;
        }
        for name in &names {
            self.delete_wal(*name).await?;
        }
        self.store.delete(&tombstone).await?;
        Ok(names.len())
    }
}
