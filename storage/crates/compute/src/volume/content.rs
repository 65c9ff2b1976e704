//! Reading, writing and cutting the files of a volume, with what is counted on the way: quota, written pages, figures.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use pg_types::{BLCKSZ, RelTag};

use super::stats::Fetched;
use super::tree::{Content, Node};
use super::write_back::{WriteMode, WriteThroughNeeded};
use super::{Volume, VolumeError, quota};

impl Volume {
    fn count(&self, fetched: Fetched) {
        if self.open_files.count() > self.max_open_files {
            // Not selective, but rare; whatever is in use is opened again.
            for node in self.tree.nodes() {
                if let Ok(file) = node.file() {
                    file.close_idle();
                }
            }
        }
        self.stats.fetched(fetched);
        self.keep_to_budget();
    }

    /// Up to `length` bytes at `offset`, fewer only at the file's end.
    pub fn read(&self, node: &Arc<Node>, offset: u64, length: u64) -> Result<Vec<u8>, VolumeError> {
        self.check_open()?;
        self.ahead.reading(node, offset, length);
        self.first_reads.note(node, offset, length);
        let (data, fetched) = node.file()?.read(&*self.source, offset, length)?;
        self.count(fetched);
        Ok(data)
    }

    /// Writes, extending the file if need be. A volume that is written through refuses growth beyond the quota; one
    /// that is written back takes it, and is closed by a write that fails.
    pub fn write(&self, node: &Node, offset: u64, data: &[u8]) -> Result<(), VolumeError> {
        self.check_open()?;
        let written = match self.writes.mode() {
            WriteMode::Through => self.write_through(node, offset, data),
            WriteMode::Back => self.write_back(node, offset, data),
        };
        written.inspect_err(|error| {
            if self.writes.failed(error) {
                self.close();
            }
        })?;
        self.stats.writes.fetch_add(1, Ordering::Relaxed);
        self.stats
            .bytes_written
            .fetch_add(data.len() as u64, Ordering::Relaxed);
        if let Content::File {
            relation: Some((rel, first_block)),
            ..
        } = &node.content
        {
            self.written.note(*rel, *first_block, offset, data.len());
        }
        Ok(())
    }

    fn write_through(&self, node: &Node, offset: u64, data: &[u8]) -> Result<(), VolumeError> {
        let end = offset.saturating_add(data.len() as u64);
        let mut growth = 0;
        // The kernel hands over one write of a file at a time, so that the size stays as it is meanwhile.
        if let Some(fork) = counted(node) {
            growth = end.saturating_sub(fork.size);
            if growth > 0 {
                self.quota.grow(fork.rel, fork.first + end, growth)?;
            }
        }
        let (fetched, _) = (node.file()?.write(&*self.source, offset, data))
            .inspect_err(|_| self.quota.shrink(growth))?;
        self.count(fetched);
        Ok(())
    }

    fn write_back(&self, node: &Node, offset: u64, data: &[u8]) -> Result<(), VolumeError> {
        let (fetched, growth) = node.file()?.write(&*self.source, offset, data)?;
        // Requests for one file come side by side here: only the file itself knows which one made it grow.
        if growth > 0 && counted(node).is_some() {
            self.quota.grown(growth);
        }
        self.count(fetched);
        Ok(())
    }

    /// Cuts or extends to `size` bytes.
    pub fn truncate(&self, node: &Node, size: u64) -> Result<(), VolumeError> {
        self.check_open()?;
        let before = held(node);
        let fetched = node.file()?.truncate(&*self.source, size)?;
        self.quota.shrink(before.saturating_sub(size));
        self.count(fetched);
        Ok(())
    }

    /// Why this volume must be replaced by one that is written through; `None` while it need not be, and always once
    /// it is written through.
    pub fn write_through_needed(&self) -> Option<WriteThroughNeeded> {
        if let Some(why) = self.writes.lost() {
            return Some(WriteThroughNeeded::Lost(why));
        }
        let near = self.quota.near()?;
        (self.writes.mode() == WriteMode::Back).then_some(WriteThroughNeeded::Quota(near))
    }
}

/// A file of a fork that counts for the quota.
struct Counted {
    rel: RelTag,
    /// Where in the fork the file begins, and what it holds, bytes.
    first: u64,
    size: u64,
}

fn counted(node: &Node) -> Option<Counted> {
    match &node.content {
        Content::File {
            file,
            relation: Some((rel, first_block)),
        } if quota::counts(*rel) => Some(Counted {
            rel: *rel,
            first: u64::from(*first_block) * BLCKSZ as u64,
            size: file.size(),
        }),
        _ => None,
    }
}

/// Bytes of the quota that a file takes.
pub(super) fn held(node: &Node) -> u64 {
    counted(node).map_or(0, |fork| fork.size)
}
