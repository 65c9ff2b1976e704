//! The control file: what a timeline is and what this safekeeper has promised for it.
//!
//! Replaced as a whole: written beside, fsynced, renamed, directory fsynced. A crash leaves the old or the
//! new one. A file that does not check out is never guessed at: the promise in it can't be made up.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use consensus::{CandidateId, Configuration, Durable, MemberId, TermHistory};
use pg_types::{Lsn, TenantId, Term, TimelineId};
use serde::{Deserialize, Serialize};

use crate::origin::Origin;

pub(crate) const FILE: &str = "control";
const MAGIC: &[u8; 8] = b"WEIRSK02";
/// Written before logs knew their members and had identities.
const MAGIC_1: &[u8; 8] = b"WEIRSK01";

/// What a timeline is; never changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline's id.
    pub timeline: TimelineId,
    /// Postgres's identifier of the cluster that the WAL is of (`pg_control.h`: `ControlFileData.system_identifier`).
    pub system_identifier: u64,
    /// Postgres's major version, such as 15.
    pub pg_version: u32,
    /// The record boundary where its WAL begins.
    pub start_lsn: Lsn,
}

/// Content of the control file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Control {
    /// The timeline that the log is of.
    pub identity: Identity,
    /// The member that this log is on this disk; [`MemberId::UNKNOWN`] until a log of an older format is claimed. It differs from
    /// `durable.member` where the log was copied here, or put back from a copy.
    pub member: MemberId,
    /// Of the log's directory, when it was claimed.
    pub origin: Option<Origin>,
    /// What the acceptor has promised and knows.
    pub durable: Durable,
    /// What each reader that holds WAL has durable elsewhere.
    pub readers: BTreeMap<String, Lsn>,
}

/// Format 1.
#[derive(Serialize, Deserialize)]
struct Control1 {
    identity: Identity,
    durable: Durable1,
    readers: BTreeMap<String, Lsn>,
}

#[derive(Serialize, Deserialize)]
struct Durable1 {
    term: Term,
    voted_for: Option<CandidateId>,
    history: TermHistory,
    commit_lsn: Lsn,
    remote_consistent_lsn: Lsn,
}

impl From<Control1> for Control {
    fn from(old: Control1) -> Control {
        Control {
            identity: old.identity,
            member: MemberId::UNKNOWN,
            origin: None,
            durable: Durable {
                member: MemberId::UNKNOWN,
                term: old.durable.term,
                voted_for: old.durable.voted_for,
                history: old.durable.history,
                commit_lsn: old.durable.commit_lsn,
                remote_consistent_lsn: old.durable.remote_consistent_lsn,
                configuration: Configuration::default(),
            },
            readers: old.readers,
        }
    }
}

/// Why a control file cannot be read or written. The timeline does nothing then.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The file system failed. The file in place is the old one or the new one; the caller may try again.
    #[error("cannot {action} control file {path}: {source}")]
    Io {
        /// What was tried, such as `read` or `replace`.
        action: &'static str,
        /// Path of the file, or of its temporary name.
        path: String,
        /// The error of the file system.
        source: std::io::Error,
    },
    /// The file does not check out. Only another, intact copy of it helps.
    #[error(
        "control file {path} is damaged ({why}); put an intact disk of this safekeeper back, and keep this directory: its WAL may be the last copy. The timeline's other safekeepers go on without this one"
    )]
    Damaged {
        /// Path of the file.
        path: String,
        /// For people: what is wrong with its content.
        why: &'static str,
    },
}

fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ControlError {
    let path = path.display().to_string();
    move |source| ControlError::Io {
        action,
        path,
        source,
    }
}

/// Reads the control file of the log in `dir`, of either format. Blocks.
pub fn load(dir: &Path) -> Result<Control, ControlError> {
    let path = dir.join(FILE);
    let bytes = fs::read(&path).map_err(io("read", &path))?;
    parse(&bytes).map_err(|why| ControlError::Damaged {
        path: path.display().to_string(),
        why,
    })
}

fn parse(bytes: &[u8]) -> Result<Control, &'static str> {
    let (magic, body) = bytes.split_first_chunk::<8>().ok_or("it is cut short")?;
    if magic != MAGIC && magic != MAGIC_1 {
        return Err("it does not start as one, or is of another version");
    }
    let (payload, sum) = body.split_last_chunk::<4>().ok_or("it is cut short")?;
    if crc32c::crc32c(payload) != u32::from_le_bytes(*sum) {
        return Err("its checksum is wrong");
    }
    let parsed = if magic == MAGIC_1 {
        postcard::from_bytes::<Control1>(payload).map(Control::from)
    } else {
        postcard::from_bytes(payload)
    };
    parsed.map_err(|_| "its content makes no sense")
}

/// Puts a control file in place of the one in `dir`, durably. Blocks.
pub fn store(dir: &Path, control: &Control) -> Result<(), ControlError> {
    let payload = postcard::to_stdvec(control).expect("plain structs serialise into memory");
    let (path, temporary) = (dir.join(FILE), dir.join("control.tmp"));
    let mut file = File::create(&temporary).map_err(io("write", &temporary))?;
    let sum = crc32c::crc32c(&payload).to_le_bytes();
    [&MAGIC[..], &payload, &sum]
        .iter()
        .try_for_each(|part| file.write_all(part))
        .and_then(|()| file.sync_all())
        .map_err(io("write", &temporary))?;
    fs::rename(&temporary, &path).map_err(io("replace", &path))?;
    sync_dir(dir).map_err(io("fsync the directory of", &path))
}

/// Makes creations, renames and removals in a directory durable.
pub fn sync_dir(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> Control {
        let member = MemberId {
            node: 3,
            disk: pg_types::DiskId([5; 16]),
            incarnation: 1,
        };
        let start_lsn = Lsn(0x0150_0000);
        let configuration = Configuration::founding(&[member]).expect("one member");
        Control {
            identity: Identity {
                tenant: TenantId([1; 16]),
                timeline: TimelineId([2; 16]),
                system_identifier: 7,
                pg_version: 15,
                start_lsn,
            },
            member,
            origin: None,
            durable: Durable::new(member, start_lsn, configuration),
            readers: BTreeMap::from([("pageserver".to_owned(), start_lsn)]),
        }
    }

    #[test]
    fn a_control_file_of_format_1_is_read_and_names_no_members() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let new = control();
        let old = Control1 {
            identity: new.identity,
            durable: Durable1 {
                term: Term(4),
                voted_for: Some(CandidateId([9; 16])),
                history: TermHistory::default(),
                commit_lsn: Lsn(0x0160_0000),
                remote_consistent_lsn: Lsn(0x0155_0000),
            },
            readers: new.readers.clone(),
        };
        let payload = postcard::to_stdvec(&old).expect("serialise");
        let sum = crc32c::crc32c(&payload).to_le_bytes();
        let bytes = [&MAGIC_1[..], &payload, &sum].concat();
        fs::write(dir.path().join(FILE), bytes).expect("write");
        let read = load(dir.path()).expect("load");
        assert_eq!((read.identity, read.readers), (new.identity, new.readers));
        assert_eq!(
            (read.durable.term, read.durable.commit_lsn),
            (Term(4), Lsn(0x0160_0000))
        );
        assert_eq!(read.member, MemberId::UNKNOWN);
        assert!(read.durable.configuration.is_unlisted());
    }

    #[test]
    fn a_control_file_comes_back_as_it_was() {
        let dir = tempfile::tempdir().expect("temporary directory");
        store(dir.path(), &control()).expect("store");
        assert_eq!(load(dir.path()).expect("load"), control());
    }

    #[test]
    fn any_torn_or_flipped_control_file_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        store(dir.path(), &control()).expect("store");
        let good = fs::read(dir.path().join(FILE)).expect("read");
        for cut in 0..good.len() {
            assert!(parse(&good[..cut]).is_err(), "cut to {cut} bytes");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(parse(&bad).is_err(), "flipped a bit of byte {at}");
        }
    }
}
