//! Members whose directories a safekeeper's own code has written.

#![allow(dead_code)]

use std::path::{Path, PathBuf};

use consensus::{
    AppendHeader, Change, Configuration, ConfigureRequest, ElectedRequest, MemberId, TermHistory,
    TermStart,
};
use log_tool::member::Outside;
use log_tool::report::{Directory, Report, inspect};
use pg_types::wal::{info, rmgr};
use pg_types::{Lsn, PgMajor, TenantId, Term, TimelineId, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
use safekeeper::control::Identity;
use safekeeper::disk::Disk;
use safekeeper::timeline::Timeline;
use wal_decode::synth::{WalWriter, plain_record};
use wire::wal::Feedback;

pub const TENANT: TenantId = TenantId([0xaa; 16]);
pub const TIMELINE: TimelineId = TimelineId([0xbb; 16]);
pub const SYSTEM: u64 = 7;
/// Three pages before a segment ends.
pub const START: Lsn = Lsn(2 * WAL_SEGMENT_BYTES - 3 * XLOG_BLCKSZ);

/// WAL, and where each record of it begins, how long it is and where it ends.
#[derive(Clone)]
pub struct Log {
    pub writer: WalWriter,
    pub records: Vec<(Lsn, u64, Lsn)>,
}

impl Log {
    pub fn new(start: Lsn) -> Log {
        Log {
            writer: WalWriter::new(start, PgMajor::V15, 1, SYSTEM),
            records: Vec::new(),
        }
    }

    /// Adds a record with so many bytes of content.
    pub fn add(&mut self, length: usize, fill: u8) -> &mut Log {
        self.push(info::xlog::NOOP, &vec![fill; length])
    }

    /// Ends the segment, as `pg_switch_wal()` does.
    pub fn switch(&mut self) -> &mut Log {
        self.push(info::xlog::SWITCH, &[]);
        self.writer.fill_segment();
        self.records.last_mut().expect("the switch").2 = self.end();
        self
    }

    fn push(&mut self, info: u8, content: &[u8]) -> &mut Log {
        let prev = self.records.last().map_or(Lsn::INVALID, |it| it.0);
        let record = plain_record(rmgr::XLOG, info, 0, prev, content);
        let (start, end) = self.writer.append(&record);
        self.records.push((start, record.len() as u64, end));
        self
    }

    /// Records of several sizes: on one page, across pages, and across a segment.
    pub fn mixed(start: Lsn) -> Log {
        let mut log = Log::new(start);
        for number in 0..40_usize {
            let length = [13, 200, 1, 3000, 64, 9000, 7][number % 7];
            log.add(length, number as u8);
        }
        log
    }

    pub fn end(&self) -> Lsn {
        self.writer.position()
    }

    /// Whether a checksum depends on the byte at this place.
    pub fn is_covered(&self, place: Lsn) -> bool {
        if place.0 % XLOG_BLCKSZ < pg_types::wal::page_header_bytes(place_page(place)) as u64 {
            return false;
        }
        self.records.iter().any(|(start, length, _)| {
            let end = unpadded_end(*start, *length);
            (*start..end).contains(&place)
        })
    }
}

fn place_page(place: Lsn) -> Lsn {
    Lsn(place.0 / XLOG_BLCKSZ * XLOG_BLCKSZ)
}

/// Behind the last byte of a record, page headers on its way counted.
fn unpadded_end(start: Lsn, length: u64) -> Lsn {
    let padded = pg_types::wal::record_end(start, length);
    Lsn(padded.0 - (8 - length % 8) % 8)
}

pub fn history(terms: &[(u64, Lsn)]) -> TermHistory {
    terms
        .iter()
        .map(|(term, start_lsn)| TermStart {
            term: Term(*term),
            start_lsn: *start_lsn,
        })
        .collect()
}

/// The data directory as the safekeeper that owns it opens it. Two logs of one name are one safekeeper's.
pub fn disk(root: &Path, name: &str) -> Disk {
    let dir = root.join(name);
    std::fs::create_dir_all(&dir).expect("directory");
    Disk::open(&dir, name.bytes().map(u64::from).sum()).expect("disk")
}

/// The member that a log about to be made there will be.
pub fn next_member(root: &Path, name: &str) -> MemberId {
    let disk = disk(root, name);
    disk.next_member((TENANT, TIMELINE)).expect("member")
}

/// The data directory of one safekeeper, written by a safekeeper's code.
pub struct Writer {
    pub timeline: Timeline,
    connection: u64,
    term: Term,
    configuration: Configuration,
}

pub fn timeline_dir(root: &Path, name: &str) -> PathBuf {
    root.join(name)
        .join(TENANT.to_string())
        .join(TIMELINE.to_string())
}

impl Writer {
    /// A log that does not name its members.
    pub fn found(root: &Path, name: &str, start_lsn: Lsn) -> Writer {
        let member = next_member(root, name);
        Writer::found_among(root, name, start_lsn, member, Configuration::default())
    }

    /// A log of this configuration.
    pub fn found_among(
        root: &Path,
        name: &str,
        start_lsn: Lsn,
        member: MemberId,
        configuration: Configuration,
    ) -> Writer {
        let dir = timeline_dir(root, name);
        std::fs::create_dir_all(&dir).expect("directory");
        let identity = Identity {
            tenant: TENANT,
            timeline: TIMELINE,
            system_identifier: SYSTEM,
            pg_version: 15,
            start_lsn,
        };
        Timeline::create(&dir, identity, member, configuration.clone()).expect("create");
        let timeline = Timeline::open(&dir, &disk(root, name)).expect("open");
        Writer {
            connection: timeline.connect(),
            timeline,
            term: Term(0),
            configuration,
        }
    }

    /// Follows the proposer of the last of these terms.
    pub fn follow(&mut self, terms: &[(u64, Lsn)]) -> &mut Writer {
        let history = history(terms);
        self.term = history.last().expect("a term").term;
        self.configuration = self.configuration.confirmed(self.term);
        let request = ElectedRequest {
            history,
            configuration: self.configuration.clone(),
        };
        self.timeline
            .elected(self.connection, &request)
            .expect("elected");
        self
    }

    /// Takes `wal` in small pieces, from where the log ends on; fsyncs and stores the commit LSN.
    pub fn append(&mut self, begin: Lsn, wal: &[u8], commit_lsn: Lsn) -> &mut Writer {
        let mut at = begin;
        for piece in wal.chunks(5000) {
            let header = AppendHeader {
                term: self.term,
                generation: self.configuration.generation,
                begin_lsn: at,
                end_lsn: at + piece.len() as u64,
                commit_lsn,
            };
            self.timeline
                .append(self.connection, &header, piece)
                .expect("append");
            at = at + piece.len() as u64;
        }
        self.timeline.flush().expect("flush");
        self.timeline.maintain().expect("store the commit");
        self
    }

    /// Stores the configuration after a change of members.
    pub fn change(&mut self, change: &Change) -> &mut Writer {
        let next = self.configuration.changed(self.term, change);
        self.configuration = next.expect("a change that can be made");
        let request = ConfigureRequest {
            term: self.term,
            configuration: self.configuration.clone(),
        };
        self.timeline.configure(&request).expect("configure");
        self
    }

    /// What lies before is needed by nobody any more.
    pub fn trim(&mut self, to: Lsn) {
        self.timeline.feedback(
            "pageserver",
            true,
            Feedback {
                ingested_lsn: to,
                remote_consistent_lsn: to,
            },
        );
        self.timeline.maintain().expect("trim");
    }
}

/// A member that holds all of `log` in term 1 and has stored that `commit` is committed.
pub fn write_member(root: &Path, name: &str, log: &Log, commit: Lsn) -> Writer {
    let mut writer = Writer::found(root, name, START);
    writer
        .follow(&[(1, START)])
        .append(START, log.writer.bytes(), commit);
    writer
}

pub fn directories(root: &Path, names: &[&str]) -> Vec<Directory> {
    names
        .iter()
        .map(|name| ((*name).to_owned(), root.join(name)))
        .collect()
}

/// Looks at these members with their bytes compared.
pub fn verify(root: &Path, names: &[&str]) -> Report {
    try_verify(root, names).expect("somebody has it")
}

pub fn try_verify(root: &Path, names: &[&str]) -> Option<Report> {
    let mut outside = Outside {
        progress: &mut |_, _| {},
        pause: &|| std::thread::sleep(std::time::Duration::from_millis(5)),
    };
    inspect(
        &directories(root, names),
        TENANT,
        TIMELINE,
        true,
        &mut outside,
    )
}

/// Changes one byte of a member's log.
pub fn flip(root: &Path, name: &str, place: Lsn, bits: u8) {
    use std::os::unix::fs::FileExt as _;
    let segment = timeline_dir(root, name).join(place.segment_file_name(WAL_SEGMENT_BYTES));
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(segment)
        .expect("segment");
    let offset = place.segment_offset(WAL_SEGMENT_BYTES);
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ bits], offset).expect("write");
}
