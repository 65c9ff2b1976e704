//! What a run comes to.

/// What a run did, to see that it did something.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Report {
    pub elections: u32,
    pub commits: u32,
    pub crashes: u32,
    /// Changes of the configuration.
    pub changes: u32,
    pub lost_disks: u32,
    pub restored_disks: u32,
    /// Logs put into the store of finished WAL, and filled from it.
    pub offloads: u32,
    pub fills: u32,
    /// 1 if all disks were lost at once.
    pub lost_wholly: u32,
    /// 1 if the newest configuration had lost a majority of its disks at the end.
    pub unavailable: u32,
    pub committed_bytes: u64,
}
