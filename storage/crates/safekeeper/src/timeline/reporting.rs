//! A timeline's metrics.

use super::Timeline;
use crate::metrics;

impl Timeline {
    pub(super) fn report(&self) {
        let (tenant, timeline) = (
            self.identity.tenant.to_string(),
            self.identity.timeline.to_string(),
        );
        let progress = *self.progress.borrow();
        let positions = [
            ("flush", progress.reply.flush_lsn),
            ("commit", progress.reply.commit_lsn),
            ("remote_consistent", progress.remote_consistent_lsn),
            ("ingested", progress.ingested_lsn),
            ("offloaded", self.offloaded_lsn().unwrap_or_default()),
        ];
        for (name, lsn) in positions {
            metrics::POSITION
                .with_label_values(&[tenant.as_str(), timeline.as_str(), name])
                .set(lsn.0 as i64);
        }
        self.report_room(&tenant, &timeline);
    }

    /// Forgets the timeline's metrics.
    pub(super) fn retire(&self) {
        let (tenant, timeline) = (
            self.identity.tenant.to_string(),
            self.identity.timeline.to_string(),
        );
        for gauges in [&metrics::DAMAGED_BYTES, &metrics::KEPT, &metrics::ROOM] {
            let _ = gauges.remove_label_values(&[tenant.as_str(), timeline.as_str()]);
        }
        for name in [
            "flush",
            "commit",
            "remote_consistent",
            "ingested",
            "offloaded",
        ] {
            // It was never reported if the timeline was gone within a second.
            let _ =
                metrics::POSITION.remove_label_values(&[tenant.as_str(), timeline.as_str(), name]);
        }
    }
}
