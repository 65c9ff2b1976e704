//! How much a branch may hold.
//!
//! The size counted is that of all main forks, as storage counts it. The compute is the only one that writes its
//! branch, and each of its files grows and shrinks here: storage says where it began, and again whenever nothing has
//! changed for a while. Until storage has said it once nothing is refused.
//!
//! Only growth of relations that users made is refused, beyond their first blocks. Reads, changes in place and deletions
//! go on, and so does what a `TRUNCATE` or `DROP` needs: room in the catalogs, and new files of empty indexes.
//!
//! Growth can be refused only before Postgres is told that it succeeded, so a volume that is written back must be
//! replaced by one that is written through while there is room left for what the kernel has not handed over yet:
//! [`Quota::near`] says when.

use parking_lot::Mutex;
use pg_types::{ForkNumber, RelTag};

/// First relation file number that is not a system catalog's (as Postgres hands them out: `FirstNormalObjectId`).
const FIRST_OF_USERS: u32 = 16_384;

/// Bytes that any relation may have: what empty ones of all kinds take.
const SMALL: u64 = 4 * pg_types::BLCKSZ as u64;

/// There is no room left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "disk full: the branch holds {size} bytes and its storage quota is {quota} bytes; delete data or raise the quota"
)]
pub struct Full {
    /// What the branch holds, bytes.
    pub size: u64,
    /// What the branch may hold, bytes.
    pub quota: u64,
}

/// The room below the quota within which growth may have to be refused soon, bytes; a tenth of the quota where that is
/// more. It is more than the kernel keeps of one volume's written pages ([`super::dirty_limit`]; without that limit, on
/// hosts with less than 100 GiB of memory), with what is written until somebody looks.
const MARGIN: u64 = 256 << 20;

/// The branch's size is close to the quota, or not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Near {
    /// Bytes; `None` until storage has said it.
    pub size: Option<u64>,
    /// What the branch may hold, bytes.
    pub quota: u64,
}

impl std::fmt::Display for Near {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let quota = self.quota;
        match self.size {
            Some(size) => write!(
                f,
                "the branch holds {size} of the {quota} bytes of its quota"
            ),
            None => write!(
                f,
                "storage has not said yet how much of its quota of {quota} bytes the branch holds"
            ),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    quota: Option<u64>,
    /// Bytes of all main forks; `None` until storage has said it.
    size: Option<u64>,
    /// Changes since the volume was made, and how many there were when storage was heard last.
    changes: u64,
    heard_at: Option<u64>,
}

/// The bytes that a branch may hold, and those that it holds. Shared by all files of the volume.
#[derive(Debug, Default)]
pub struct Quota(Mutex<State>);

/// Whether a fork counts.
pub fn counts(rel: RelTag) -> bool {
    rel.fork == ForkNumber::Main
}

impl Quota {
    /// From now on; `None` is no limit.
    pub fn set(&self, quota: Option<u64>) {
        let mut state = self.0.lock();
        if state.quota != quota {
            tracing::info!(?quota, size = ?state.size, "storage quota");
        }
        state.quota = quota;
    }

    /// Bytes held and the limit, for metrics.
    pub fn figures(&self) -> (Option<u64>, Option<u64>) {
        let state = self.0.lock();
        (state.size, state.quota)
    }

    /// What storage counts once it has everything that was committed. Taken only when nothing has changed here since
    /// it was heard last, because what has is on its way there.
    pub fn heard(&self, size: u64) {
        let mut state = self.0.lock();
        if state.heard_at == Some(state.changes) || state.size.is_none() {
            state.size = Some(size);
        }
        state.heard_at = Some(state.changes);
    }

    /// A counted fork is about to grow by so many bytes, to `end` bytes in all. Takes them, or refuses and takes none.
    pub fn grow(&self, rel: RelTag, end: u64, bytes: u64) -> Result<(), Full> {
        let mut state = self.0.lock();
        let size = state.size.unwrap_or(0).saturating_add(bytes);
        if let (Some(quota), Some(before)) = (state.quota, state.size)
            && size > quota
            && rel.rel >= FIRST_OF_USERS
            && end > SMALL
        {
            return Err(Full {
                size: before,
                quota,
            });
        }
        state.changes += 1;
        if state.size.is_some() {
            state.size = Some(size);
        }
        Ok(())
    }

    /// A counted fork has grown by so many bytes, which nobody could refuse any more.
    pub fn grown(&self, bytes: u64) {
        let mut state = self.0.lock();
        state.changes += 1;
        state.size = state.size.map(|size| size.saturating_add(bytes));
    }

    /// How close the branch is to its quota; `None` while there is no quota or more room than the margin.
    pub fn near(&self) -> Option<Near> {
        let state = self.0.lock();
        let quota = state.quota?;
        let margin = MARGIN.max(quota / 10);
        let far = state
            .size
            .is_some_and(|size| size.saturating_add(margin) <= quota);
        (!far).then_some(Near {
            size: state.size,
            quota,
        })
    }

    /// A counted fork has become smaller, or its growth has failed.
    pub fn shrink(&self, bytes: u64) {
        let mut state = self.0.lock();
        state.changes += 1;
        state.size = state.size.map(|size| size.saturating_sub(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rel(number: u32) -> RelTag {
        RelTag {
            spc: 1663,
            db: 5,
            rel: number,
            fork: ForkNumber::Main,
        }
    }

    #[test]
    fn growth_beyond_the_quota_is_refused_until_there_is_room_or_a_larger_quota() {
        let quota = Quota::default();
        quota.set(Some(1000));
        // Nobody knows yet what the branch holds.
        assert_eq!(quota.grow(rel(20_000), 1 << 20, 5000), Ok(()));
        quota.heard(900);
        assert_eq!(quota.grow(rel(20_000), 1 << 20, 100), Ok(()));
        let full = Full {
            size: 1000,
            quota: 1000,
        };
        assert_eq!(quota.grow(rel(20_000), 1 << 20, 1), Err(full));
        assert!(full.to_string().contains("1000 bytes"));
        // A catalog may grow all the same, and counts.
        assert_eq!(quota.grow(rel(1259), 1 << 20, 50), Ok(()));
        // And so may what an empty index needs.
        assert_eq!(quota.grow(rel(20_001), SMALL, SMALL), Ok(()));
        quota.shrink(51 + SMALL);
        assert_eq!(quota.grow(rel(20_000), 1 << 20, 1), Ok(()));
        quota.set(Some(2000));
        assert_eq!(quota.grow(rel(20_000), 1 << 20, 1000), Ok(()));
        quota.set(None);
        assert_eq!(quota.grow(rel(20_000), 1 << 20, 1 << 40), Ok(()));
    }

    #[test]
    fn what_storage_says_counts_only_when_nothing_is_on_its_way_there() {
        let quota = Quota::default();
        quota.set(Some(1000));
        quota.heard(100);
        quota.grow(rel(20_000), 1 << 20, 700).unwrap();
        quota.heard(100);
        assert_eq!(quota.figures().0, Some(800));
        quota.heard(790);
        assert_eq!(quota.figures().0, Some(790));
    }

    #[test]
    fn a_branch_is_near_its_quota_within_the_margin_and_until_storage_has_said_its_size() {
        let gib = 1 << 30;
        let quota = Quota::default();
        assert_eq!(quota.near(), None);
        quota.set(Some(gib));
        let unknown = quota.near().unwrap();
        assert_eq!((unknown.size, unknown.quota), (None, gib));
        quota.heard(gib - MARGIN);
        assert_eq!(quota.near(), None);
        quota.grown(1);
        assert_eq!(quota.near().unwrap().size, Some(gib - MARGIN + 1));
        quota.shrink(1);
        assert_eq!(quota.near(), None);
        // A tenth of a large quota is more.
        quota.set(Some(100 * gib));
        quota.grown(89 * gib);
        assert_eq!(quota.near(), None);
        quota.grown(gib);
        assert!(quota.near().is_some());
        quota.set(None);
        assert_eq!(quota.near(), None);
    }
}
