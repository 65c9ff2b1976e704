//! What a run comes to.

/// What a run did, to see that it did something.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    /// Elections won.
    pub elections: u32,
    /// Times that a commit LSN moved.
    pub commits: u32,
    /// Crashes of acceptors.
    pub crashes: u32,
    /// Changes of the configuration.
    pub changes: u32,
    /// Disks replaced by empty ones; those that were lost all at once are not counted.
    pub lost_disks: u32,
    /// Disks replaced by their backups.
    pub restored_disks: u32,
    /// Logs put into the store of finished WAL, and filled from it.
    pub offloads: u32,
    /// Logs filled from the store of finished WAL.
    pub fills: u32,
    /// 1 if all disks were lost at once.
    pub lost_wholly: u32,
    /// 1 if the newest configuration had lost a majority of its disks at the end.
    pub unavailable: u32,
    /// WAL committed at the end, bytes.
    pub committed_bytes: u64,
}
