//! The status, layers and metrics that a timeline reports.

use std::sync::Arc;
use std::time::Duration;

use layers::PersistentLayer as _;
use pg_types::Lsn;
use pg_types::wal::{RECORD_HEADER_BYTES, record_end};
use wal_decode::TimelineState;

use super::Timeline;
use crate::api::{
    FullPageWrites, LayerInfo, LayerSummary, TimelineStateName, TimelineStatus, UploadsFailing,
};

/// Bytes of an `XLOG_FPW_CHANGE` record: header, header of the main data, one flag.
const FPW_CHANGE_RECORD_BYTES: u64 = (RECORD_HEADER_BYTES + 2 + 1) as u64;

impl Timeline {
    /// The timeline as of now. Counts the logical size if that was not done yet, which reads the sizes of all forks;
    /// a size that can't be counted is logged and shown as 0.
    pub async fn status(&self) -> TimelineStatus {
        let progress = self.position.progress();
        let state = self.state();
        let mut layers = LayerSummary::default();
        for file in self.store.map().iter() {
            match file.desc().kind {
                layers::LayerKind::Delta => layers.delta += 1,
                layers::LayerKind::Image => layers.image += 1,
            }
            layers.bytes += file.desc().size;
        }
        let size = self.size_or_zero().await;
        let name = if progress.stopped.is_some() {
            TimelineStateName::Stopped
        } else {
            TimelineStateName::Active
        };
        let ancestor = self.ancestor();
        let consistent_lsn = self.remote_consistent_lsn();
        TimelineStatus {
            timeline_id: self.id(),
            tenant_id: self.tenant(),
            state: name,
            reason: progress.stopped.map(|reason| reason.to_string()),
            pg_version: self.identity.manifest.pg_version,
            system_identifier: self.identity.manifest.system_identifier.to_string(),
            start_lsn: self.identity.manifest.start_lsn,
            oldest_lsn: self.oldest_lsn(),
            last_record_lsn: progress.last_record_lsn,
            prev_record_lsn: progress.prev_record_lsn,
            disk_consistent_lsn: consistent_lsn,
            remote_consistent_lsn: consistent_lsn,
            ancestor_timeline_id: ancestor.as_ref().map(|(ancestor, _)| ancestor.id()),
            ancestor_lsn: ancestor.map(|(_, branch_lsn)| branch_lsn),
            current_logical_size: size,
            history_bytes: self.history_bytes(),
            history_held: self.retention.held(),
            start_held: self.held_start(),
            uploads_failing: self.uploads_failing(),
            full_page_writes: full_page_writes(&state),
            image_threshold: self.config().threshold(state.full_page_writes),
            max_term: self.max_term().0,
            layers,
            safekeepers: self.safekeepers.list().borrow().clone(),
            sick_safekeepers: self.safekeepers.sick(),
        }
    }

    /// Bytes of layers brought to the object store since the timeline was attached.
    pub fn uploaded_bytes(&self) -> u64 {
        self.index.uploads().uploaded_bytes
    }

    fn uploads_failing(&self) -> Option<UploadsFailing> {
        let trouble = self.index.trouble()?;
        let now = self.clock.seconds();
        let at = |elapsed: Duration| self.clock.shown_at(now.saturating_sub(elapsed.as_secs()));
        Some(UploadsFailing {
            since: trouble.elapsed.map(|elapsed| at(elapsed).to_string()),
            reason: trouble.reason,
        })
    }

    /// Refreshes what metrics say of uploads; to be called every second or so.
    pub(crate) fn report_uploads(&self) {
        let elapsed = self.index.trouble().and_then(|trouble| trouble.elapsed);
        let seconds = elapsed.unwrap_or_default().as_secs();
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        self.identity.metrics.uploads_failing.set(seconds);
    }

    async fn size_or_zero(&self) -> u64 {
        self.current_size().await.unwrap_or_else(|error| {
            tracing::warn!(tenant = %self.tenant(), timeline = %self.id(), "cannot count the size: {error}");
            0
        })
    }

    /// The timeline's own layer files, without its ancestors'.
    pub fn layer_infos(&self) -> Vec<LayerInfo> {
        let map = self.store.map();
        let info = |file: &Arc<crate::layer_file::LayerFile>| {
            let desc = file.desc();
            LayerInfo {
                name: desc.name().0,
                kind: kind_name(desc.kind).to_owned(),
                level: desc.level,
                lsn_start: desc.lsns.first,
                lsn_end: desc.lsns.last,
                bytes: desc.size,
                resident: file.is_resident(),
            }
        };
        map.iter().map(info).collect()
    }
}

fn full_page_writes(state: &TimelineState) -> FullPageWrites {
    let start = state.full_page_writes_lsn;
    let lsn = if start.is_valid() {
        record_end(start, FPW_CHANGE_RECORD_BYTES)
    } else {
        Lsn::INVALID
    };
    FullPageWrites {
        enabled: state.full_page_writes,
        lsn,
    }
}

pub(super) fn kind_name(kind: layers::LayerKind) -> &'static str {
    match kind {
        layers::LayerKind::Delta => "delta",
        layers::LayerKind::Image => "image",
    }
}
