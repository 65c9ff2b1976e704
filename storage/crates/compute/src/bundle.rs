//! The bundle of small files at an LSN, as the pageserver packs it.

use std::io::Read as _;
use std::path::{Component, Path};

use pg_types::Lsn;
use serde::Deserialize;
use wal_decode::TimelineState;

/// `weir/start.json`.
#[derive(Clone, Debug, Deserialize)]
pub struct StartInfo {
    /// The LSN that the files are of.
    pub lsn: Lsn,
    /// Start of the last record before `lsn`, which the next record names as its predecessor.
    pub prev_record_lsn: Lsn,
    /// Decimal, because it does not fit the integers of JSON.
    pub system_identifier: String,
    /// Major version of the timeline's Postgres, such as 15.
    pub pg_version: u32,
    /// Counters and settings that the WAL up to `lsn` says, as recovery would follow them.
    pub timeline_state: TimelineState,
}

/// Everything the pageserver gives for a start.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// What `weir/start.json` says.
    pub info: StartInfo,
    /// The cluster's identifier, parsed from `info`.
    pub system_identifier: u64,
    /// Template of `pg_control`.
    pub pg_control: Vec<u8>,
    /// Path below PGDATA and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// What a suspended compute shipped at exactly this LSN; empty after a crash.
    pub auxiliary: Vec<(String, Vec<u8>)>,
}

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The bundle, or `weir/aux.tar` in it, breaks off or is no tar.
    #[error("the bundle is not a readable tar: {0}")]
    Tar(#[from] std::io::Error),
    /// `weir/start.json` is not what [`StartInfo`] describes.
    #[error("the bundle's start.json can't be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A file that each bundle has is missing; the field is its path in the bundle.
    #[error("the bundle has no {0}")]
    Missing(&'static str),
    /// The system identifier is no decimal number of 64 bits; the field is its text.
    #[error("the bundle's system identifier {0:?} is not a number")]
    SystemIdentifier(String),
    /// A path, the field, is empty, absolute, or has a `.` or `..` in it. No file of the bundle may be written.
    #[error("the bundle names {0:?}, which is not a plain path below the data directory")]
    Path(String),
}

impl Bundle {
    /// Takes a bundle apart: `weir/` holds what a start is made of, and everything else goes below PGDATA.
    ///
    /// # Errors
    ///
    /// [`BundleError`] for the first part that cannot be used.
    pub fn parse(tar: &[u8]) -> Result<Bundle, BundleError> {
        let (mut info, mut pg_control, mut auxiliary) = (None, None, Vec::new());
        let mut files = Vec::new();
        for (path, content) in unpack(tar)? {
            match path.as_str() {
                "weir/start.json" => info = Some(serde_json::from_slice::<StartInfo>(&content)?),
                "weir/pg_control" => pg_control = Some(content),
                "weir/aux.tar" => auxiliary = unpack(&content)?,
                // Entries below `weir/` of a newer pageserver.
                other if other.starts_with("weir/") => {}
                _ => files.push((path, content)),
            }
        }
        let info = info.ok_or(BundleError::Missing("weir/start.json"))?;
        let system_identifier = info
            .system_identifier
            .parse()
            .map_err(|_| BundleError::SystemIdentifier(info.system_identifier.clone()))?;
        Ok(Bundle {
            system_identifier,
            pg_control: pg_control.ok_or(BundleError::Missing("weir/pg_control"))?,
            info,
            files,
            auxiliary,
        })
    }
}

/// The regular files of a tar.
fn unpack(tar: &[u8]) -> Result<Vec<(String, Vec<u8>)>, BundleError> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(tar).entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = entry.path()?.to_string_lossy().into_owned();
        let plain = Path::new(&path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !plain || path.is_empty() {
            return Err(BundleError::Path(path));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        files.push((path, content));
    }
    Ok(files)
}

/// A tar of regular files, readable by [`Bundle::parse`] and by the pageserver.
pub fn pack(files: &[(String, Vec<u8>)]) -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_entry_type(tar::EntryType::Regular);
        builder.append_data(&mut header, path, content.as_slice())?;
    }
    builder.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &[u8]) -> (String, Vec<u8>) {
        (path.to_owned(), content.to_vec())
    }

    #[test]
    fn files_are_sorted_by_purpose() {
        let state = TimelineState::start_of_nothing(pg_types::PgMajor::V15);
        let json = serde_json::json!({
            "lsn": "0/1500000", "prev_record_lsn": "0/14FFF00", "system_identifier": "7300000000000000001",
            "pg_version": 15, "timeline_state": state,
        });
        let aux = pack(&[file("pg_stat/pgstat.stat", b"stats")]).unwrap();
        let tar = pack(&[
            file("weir/start.json", json.to_string().as_bytes()),
            file("weir/pg_control", b"control"),
            file("weir/aux.tar", &aux),
            file("base/5/PG_VERSION", b"15\n"),
        ])
        .unwrap();
        let bundle = Bundle::parse(&tar).unwrap();
        assert_eq!(bundle.system_identifier, 7_300_000_000_000_000_001);
        assert_eq!(bundle.info.lsn, Lsn(0x150_0000));
        assert_eq!(bundle.files, [file("base/5/PG_VERSION", b"15\n")]);
        assert_eq!(bundle.auxiliary, [file("pg_stat/pgstat.stat", b"stats")]);
    }

    #[test]
    fn what_is_missing_or_malformed_is_named() {
        let missing = Bundle::parse(&pack(&[file("weir/pg_control", b"x")]).unwrap()).unwrap_err();
        assert_eq!(missing.to_string(), "the bundle has no weir/start.json");
        assert!(matches!(
            Bundle::parse(b"not a tar at all"),
            Err(BundleError::Tar(_) | BundleError::Missing(_))
        ));
    }
}
