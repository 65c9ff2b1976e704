//! The ancestors of a branch.
//!
//! A branch reads through its ancestors what it has not written itself, each up to the LSN at which the branch leaves
//! it. Invariant: the ancestor of a branch changes once, when the branch is detached and has none any more.
//!
//! Nothing is stored here: the manifest and the index say what the ancestor is.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use pg_types::Lsn;

use super::Timeline;
use crate::error::Result;

/// A timeline, and the LSN up to which the branch reads of it.
pub(super) type Ancestor = (Arc<Timeline>, Lsn);

/// What a timeline is a branch of. This part knows the timelines above its own.
pub(super) struct Lineage {
    parent: RwLock<Option<Ancestor>>,
}

impl Lineage {
    pub fn new(parent: Option<Ancestor>) -> Lineage {
        Lineage {
            parent: RwLock::new(parent),
        }
    }

    /// What it is a branch of, and from where on it is its own; none once it was detached.
    pub fn parent(&self) -> Option<Ancestor> {
        self.with_parent(|parent| parent.cloned())
    }

    /// Asks something of the parent without counting a reference to it: each read of a branch does so. The parent cannot
    /// be left meanwhile.
    pub fn with_parent<T>(&self, ask: impl FnOnce(Option<&Ancestor>) -> T) -> T {
        ask(self.parent.read().as_ref())
    }

    /// All ancestors, the nearest first, each with the LSN up to which the branch reads of it.
    pub fn all(&self) -> Vec<Ancestor> {
        let (mut found, mut upto) = (Vec::new(), Lsn::MAX);
        let mut next = self.parent();
        while let Some((ancestor, branch_lsn)) = next {
            upto = upto.min(branch_lsn);
            next = ancestor.ancestor();
            found.push((ancestor, upto));
        }
        found
    }

    /// Waits until every ancestor has ingested what the branch reads of it: after a restart an ancestor may have to
    /// ingest again what lay in memory. Fails when one has not within `timeout`.
    pub async fn wait_for_all(&self, timeout: Duration) -> Result<()> {
        let mut next = self.parent();
        while let Some((ancestor, branch_lsn)) = next {
            if ancestor.last_record_lsn() < branch_lsn {
                ancestor.wait_lsn(branch_lsn, timeout).await?;
            }
            next = ancestor.ancestor();
        }
        Ok(())
    }

    /// Whether every ancestor has ingested what the branch reads of it.
    pub fn has_all(&self) -> bool {
        let is_back = |(ancestor, lsn): &Ancestor| {
            ancestor.last_record_lsn() >= *lsn && ancestor.lineage.has_all()
        };
        self.with_parent(|parent| parent.is_none_or(is_back))
    }

    /// The branch has everything itself from now on.
    pub fn leave(&self) {
        *self.parent.write() = None;
    }
}
