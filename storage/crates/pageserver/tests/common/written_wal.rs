//! WAL that a test writes itself, record by record, for a timeline without a Postgres: records that a server needs
//! minutes or gigabytes to write, such as the commit of millions of subtransactions.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pageserver::timeline::Timeline;
use pg_types::{Lsn, PgMajor, TenantId, WAL_SEGMENT_BYTES};
use serde_json::json;
use wal_decode::synth::{WalWriter, plain_record};

use super::level_0::WAIT;
use super::server::{FileWal, Server, tenant_id, timeline_id};

/// A timeline and its WAL so far.
pub struct WrittenWal {
    pub tenant: TenantId,
    pub timeline: Arc<Timeline>,
    wal: FileWal,
    directory: PathBuf,
    start: Lsn,
    writer: WalWriter,
    last: Lsn,
}

impl WrittenWal {
    /// A new project whose WAL lies in a directory below `root`.
    pub async fn of_new_project(server: &Server, root: &Path) -> WrittenWal {
        let (tenant, id) = (tenant_id(), timeline_id());
        let directory = root.join(format!("wal-{id}"));
        std::fs::create_dir_all(&directory).expect("WAL directory");
        let wal = server.wals.add(id, &directory);
        let path = format!("/v1/tenant/{tenant}");
        server.request("PUT", &path, None).await;
        let body = json!({"new_timeline_id": id, "pg_version": 15});
        let timelines = format!("{path}/timeline");
        let (status, created) = server.request("POST", &timelines, Some(body)).await;
        assert_eq!(status, 201, "{created}");
        let system = created["system_identifier"].to_string();
        let system = system.trim_matches('"').parse().expect("a number");
        let timeline = server.timeline(tenant, id);
        let start = timeline.last_record_lsn();
        WrittenWal {
            tenant,
            last: timeline.state().prev_record_lsn,
            timeline,
            wal,
            directory,
            start,
            writer: WalWriter::new(start, PgMajor::V15, 1, system),
        }
    }

    /// Adds a record without blocks.
    pub fn append(&mut self, rmid: u8, info: u8, xid: u32, main_data: &[u8]) {
        let record = plain_record(rmid, info, xid, self.last, main_data);
        (self.last, _) = self.writer.append(&record);
    }

    /// Commits all records and waits until they are ingested; where they end.
    pub async fn ingest(&self) -> Lsn {
        let end = self.commit();
        self.timeline.wait_lsn(end, 4 * WAIT).await.expect("ingest");
        end
    }

    /// Commits all records; where they end.
    pub fn commit(&self) -> Lsn {
        let first = self.start.segment_offset(WAL_SEGMENT_BYTES);
        let bytes = self.writer.bytes();
        let mut at = self.start;
        let mut rest = bytes;
        while !rest.is_empty() {
            let offset = at.segment_offset(WAL_SEGMENT_BYTES);
            let (now, later) = rest.split_at(rest.len().min((WAL_SEGMENT_BYTES - offset) as usize));
            let mut file = vec![0; if at == self.start { first as usize } else { 0 }];
            file.extend_from_slice(now);
            let name = at.segment_file_name(WAL_SEGMENT_BYTES);
            std::fs::write(self.directory.join(name), file).expect("a segment");
            at = at + now.len() as u64;
            rest = later;
        }
        self.wal.limit.send_replace(at);
        at
    }
}
