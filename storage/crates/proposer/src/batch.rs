//! When WAL is sent and when it waits for more, so that many commits share a message, an fsync and a reply.
//!
//! As Nagle's algorithm (RFC 896) for each safekeeper: WAL is sent at once to one that has fsynced all it was sent, and to
//! any when there is much of it. Else it waits for the fsync that is under way, which commits would wait for anyway.
//! Postgres itself makes no groups here: its `commit_delay` needs `fsync`, which a compute does not use.

use pg_types::Lsn;

/// So much WAL, bytes, is sent to a safekeeper as a message of its own, also while that one has an fsync under way.
const SEND_NOW_BYTES: u64 = 64 << 10;

/// What one connection to a safekeeper waits for.
#[derive(Debug)]
pub struct Batch {
    /// End of the last whole record that was sent: a safekeeper acknowledges whole records only.
    awaited: Lsn,
}

impl Batch {
    pub fn new() -> Batch {
        Batch {
            awaited: Lsn::INVALID,
        }
    }

    /// Whether WAL from `sent` up to `end` is sent now. `flushed`: up to where the safekeeper has fsynced whole records;
    /// `record_end`: end of the last whole record that is known of.
    pub fn is_due(&mut self, flushed: Lsn, sent: Lsn, end: Lsn, record_end: Lsn) -> bool {
        if record_end <= sent {
            self.awaited = self.awaited.max(record_end);
        }
        flushed >= self.awaited || end.0.saturating_sub(sent.0) >= SEND_NOW_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_comes_alone_is_sent_at_once() {
        let mut batch = Batch::new();
        assert!(batch.is_due(Lsn(100), Lsn(100), Lsn(180), Lsn(180)));
    }

    #[test]
    fn commits_wait_for_the_fsync_under_way_and_then_go_together() {
        let mut batch = Batch::new();
        assert!(batch.is_due(Lsn(100), Lsn(100), Lsn(180), Lsn(180)));
        assert!(!batch.is_due(Lsn(100), Lsn(180), Lsn(180), Lsn(180)));
        assert!(!batch.is_due(Lsn(100), Lsn(180), Lsn(260), Lsn(260)));
        assert!(batch.is_due(Lsn(180), Lsn(180), Lsn(340), Lsn(340)));
    }

    #[test]
    fn much_wal_does_not_wait() {
        let mut batch = Batch::new();
        assert!(!batch.is_due(Lsn(100), Lsn(180), Lsn(180), Lsn(180)));
        let end = Lsn(180 + SEND_NOW_BYTES);
        assert!(batch.is_due(Lsn(100), Lsn(180), end, end));
    }

    #[test]
    fn the_rest_of_a_record_does_not_wait_for_its_own_acknowledgement() {
        let mut batch = Batch::new();
        // Sent up to 180, within the record that ends at 260; the one before it ends at 160.
        assert!(!batch.is_due(Lsn(100), Lsn(180), Lsn(180), Lsn(160)));
        assert!(batch.is_due(Lsn(160), Lsn(180), Lsn(260), Lsn(260)));
    }
}
