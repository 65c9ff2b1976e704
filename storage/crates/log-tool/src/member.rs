//! What one safekeeper's directory holds of a timeline.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pg_types::{DiskId, Lsn, PgMajor, TenantId, TimelineId, WAL_SEGMENT_BYTES};
use safekeeper::control::{self, Control, Identity};
use safekeeper::disk;
use safekeeper::segments;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::folder::{self, CutFile, Segments};
use crate::part::Part;
use crate::scan::{Means, Scan, scan};

/// What became of the timeline on this member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// There is a folder, and its control file can be used.
    Present,
    /// There is a folder; its control file is missing, can't be read or is damaged.
    ControlDamaged,
    /// The data directory can be read and has no folder of the timeline.
    Absent,
    /// The data directory or the timeline's folder can't be read.
    Unreadable,
}

/// How much of a segment is proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SegmentState {
    /// Every byte of it that the member has to hold is proven.
    Complete,
    /// Proven up to the log's end, which lies in it.
    Last,
    /// Some of it is not proven.
    Damaged,
    /// The log ended before it, or begins behind it: nothing in it counts.
    Beyond,
}

/// One segment's file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Segment {
    /// Name of the file, as Postgres names segments of its timeline 1.
    pub name: String,
    /// LSN of the segment's first byte.
    pub from: Lsn,
    /// Bytes of the file; null when it can't be told, as `reason` says.
    pub bytes: Option<u64>,
    /// Why `bytes` is null, else null.
    pub reason: Option<String>,
    /// How much of the segment is proven.
    pub state: SegmentState,
}

/// WAL that was cut off the log and kept.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cut {
    /// The file; the folder `cut` when that cannot be listed.
    pub file: PathBuf,
    /// LSN of the file's first byte; null when the file cannot be opened.
    pub from: Option<Lsn>,
    /// Bytes of the file; null when it cannot be opened.
    pub bytes: Option<u64>,
    /// Up to where its records are whole.
    pub proven_to: Option<Lsn>,
    /// Why the file cannot be opened, else null.
    pub reason: Option<String>,
}

/// What one safekeeper's directory says and holds of the timeline.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// What the directory is called in the report.
    pub name: String,
    /// The timeline's folder, whether it exists or not.
    pub dir: PathBuf,
    /// What became of the timeline here.
    pub state: State,
    /// Why `state` is not `present`, else null.
    pub reason: Option<String>,
    /// What it is to the log, as the newest configuration in any of the directories says; null when that is not known.
    pub part: Option<Part>,
    /// What the control file says that the timeline is; null when it cannot be used.
    pub identity: Option<Identity>,
    /// All that the control file holds of promises and positions.
    pub durable: Map<String, Value>,
    /// For each reader that holds WAL, the LSN below which it has everything durable elsewhere.
    pub readers: BTreeMap<String, Lsn>,
    /// By position; empty when the log was not read.
    pub segments: Vec<Segment>,
    /// Which ranges of the log are proven; null when it was not read.
    pub scan: Option<Scan>,
    /// WAL that was cut off the log, by file name.
    pub cut: Vec<Cut>,
    /// Folders that carry the timeline's id and are not its own.
    pub beside: Vec<PathBuf>,
    /// The control file; `None` when it cannot be used. No part of the JSON.
    #[serde(skip)]
    pub control: Option<Control>,
    /// Number of the safekeeper and uuid of the data directory, as it says itself.
    #[serde(skip)]
    pub disk: Option<(u64, DiskId)>,
}

/// Clock and output of whoever looks.
pub struct Outside<'a> {
    /// Called after each read with the member whose bytes were read, and their number.
    pub progress: &'a mut dyn FnMut(&str, u64),
    /// Waits a moment, for a safekeeper that writes to the log to go on.
    pub pause: &'a dyn Fn(),
}

/// One member's directory before its log is read.
pub struct Found {
    /// The member as far as it is known: segments, scan and cut WAL are missing.
    pub member: Member,
}

/// What a directory says about itself. The log is not read yet.
pub fn find(name: &str, data_dir: &Path, tenant: TenantId, timeline: TimelineId) -> Found {
    let tenant_dir = data_dir.join(tenant.to_string());
    let dir = tenant_dir.join(timeline.to_string());
    let mut member = Member {
        name: name.to_owned(),
        dir: dir.clone(),
        state: State::Present,
        reason: None,
        part: None,
        identity: None,
        durable: Map::new(),
        readers: BTreeMap::new(),
        segments: Vec::new(),
        scan: None,
        cut: Vec::new(),
        beside: folder::beside(&tenant_dir, timeline),
        control: None,
        disk: disk::stored_identity(data_dir),
    };
    if let Err(error) = fs::read_dir(&dir) {
        if error.kind() == io::ErrorKind::NotFound && data_dir.is_dir() {
            member.state = State::Absent;
            member.reason = Some(format!("{} does not exist", dir.display()));
        } else {
            member.unreadable(&error);
        }
        return Found { member };
    }
    match control::load(&dir) {
        Ok(control) => {
            member.durable = durable(&control);
            member.identity = Some(control.identity);
            member.readers = control.readers.clone();
            member.control = Some(control);
        }
        Err(error) => {
            member.state = State::ControlDamaged;
            member.reason = Some(error.to_string());
        }
    }
    Found { member }
}

impl Member {
    fn unreadable(&mut self, error: &io::Error) {
        self.state = State::Unreadable;
        self.reason = Some(format!("cannot read {}: {error}", self.dir.display()));
    }
}

impl Found {
    /// Reads the log. `identity` is that of the timeline as another member knows it, for one that has lost its own.
    pub fn read(mut self, identity: Option<&Identity>, outside: &mut Outside<'_>) -> Member {
        let member = &mut self.member;
        if !matches!(member.state, State::Present | State::ControlDamaged) {
            return self.member;
        }
        // Listed when every control file has been read: a segment that holds what one of them says is there by now.
        let mut wal = match Segments::open(&member.dir) {
            Ok(wal) => wal,
            Err(error) => {
                member.unreadable(&error);
                return self.member;
            }
        };
        let identity = member.identity.as_ref().or(identity).copied();
        let mut tell = |bytes| (outside.progress)(&member.name, bytes);
        let mut means = Means {
            major: major(identity.as_ref()),
            system_identifier: identity.map(|identity| identity.system_identifier),
            progress: &mut tell,
            pause: outside.pause,
        };
        let durable = member.control.as_ref().map(|control| &control.durable);
        let begin = durable.map(|durable| durable.remote_consistent_lsn);
        let commit = durable.map_or(Lsn::INVALID, |durable| durable.commit_lsn);
        let scan = scan(&mut wal, begin, commit, &mut means);
        // Nobody writes to what was set aside.
        means.pause = &|| {};
        let cuts = folder::cut_files(&member.dir);
        member.cut = match cuts {
            Ok(files) => files
                .into_iter()
                .map(|file| cut(file, &mut means))
                .collect(),
            Err(error) => vec![unread(member.dir.join("cut"), &error)],
        };
        let begin = begin.unwrap_or(Lsn::INVALID);
        member.segments = wal
            .files
            .iter()
            .map(|(number, bytes)| segment(*number, bytes, begin, &scan))
            .collect();
        member.scan = Some(scan);
        self.member
    }
}

/// The version whose WAL it is; an unknown one is read like the oldest, and its pages say that they are another's.
fn major(identity: Option<&Identity>) -> PgMajor {
    let version = identity.map(|identity| identity.pg_version);
    PgMajor::ALL
        .iter()
        .copied()
        .find(|major| Some(major.facts().number) == version)
        .unwrap_or_default()
}

/// As JSON, with ids as 32 hex digits.
fn durable(control: &Control) -> Map<String, Value> {
    let mut fields = match serde_json::to_value(&control.durable) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    fields.values_mut().for_each(ids_as_hex);
    fields
}

fn ids_as_hex(value: &mut Value) {
    match value {
        Value::Array(items) => {
            let bytes: Option<Vec<u8>> = items
                .iter()
                .map(|item| item.as_u64().and_then(|number| u8::try_from(number).ok()))
                .collect();
            match bytes.filter(|bytes| bytes.len() == 16) {
                Some(bytes) => {
                    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
                    *value = Value::String(digits.collect());
                }
                None => items.iter_mut().for_each(ids_as_hex),
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(ids_as_hex),
        _ => {}
    }
}

fn segment(number: u64, bytes: &Result<u64, String>, begin: Lsn, scan: &Scan) -> Segment {
    let from = Lsn(number * WAL_SEGMENT_BYTES);
    let to = from + WAL_SEGMENT_BYTES;
    let is_faulty = scan
        .faults
        .iter()
        .any(|fault| fault.from < to && fault.to > from);
    let state = if is_faulty {
        SegmentState::Damaged
    } else if to <= begin || from >= scan.end {
        SegmentState::Beyond
    } else if scan.covers(from.max(begin), to) {
        SegmentState::Complete
    } else {
        SegmentState::Last
    };
    Segment {
        name: segments::name_of(number),
        from,
        bytes: bytes.as_ref().ok().copied(),
        reason: bytes.as_ref().err().cloned(),
        state,
    }
}

fn cut(path: PathBuf, means: &mut Means<'_>) -> Cut {
    match CutFile::open(&path) {
        Ok(mut file) => {
            // Whoever cut did so at a record boundary.
            let (begin, bytes) = (file.begin, file.bytes);
            let found = scan(&mut file, Some(begin), Lsn::INVALID, means);
            let proven = found.proven.first().filter(|proven| proven.from == begin);
            Cut {
                from: Some(begin),
                bytes: Some(bytes),
                proven_to: proven.map(|proven| proven.to),
                reason: None,
                file: path,
            }
        }
        Err(error) => unread(path, &error),
    }
}

fn unread(path: PathBuf, error: &io::Error) -> Cut {
    Cut {
        file: path,
        from: None,
        bytes: None,
        proven_to: None,
        reason: Some(error.to_string()),
    }
}
