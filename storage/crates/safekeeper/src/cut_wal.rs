//! WAL that is cut off a log is set aside first.
//!
//! An election cuts off what a log holds beyond the winner's, and a start what follows the last whole record. Both
//! are right as long as every safekeeper keeps what it acknowledged. When another one has lost its disk, what is cut
//! off can be the last copy of acknowledged commits, and whoever looks for them finds it here.
//!
//! Below a timeline's directory: `cut/<begin>-<number>`, the bytes of the log from `begin` (an LSN, 16 hex digits) on,
//! without the zeroes at their end; `number` tells cuts at one place apart.
//!
//! Invariants:
//! - a file is complete and durable before the log is cut;
//! - files go a week after they were written, or, the oldest first, when those of a timeline exceed 1 GiB; the newest
//!   one stays in any case.
//!
//! A crash leaves at worst a file of a cut that was not made, a copy of what the log still holds.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pg_types::{Lsn, WAL_SEGMENT_BYTES};

use crate::control::sync_dir;
use crate::segments::Segments;

/// Below a timeline's directory.
pub const FOLDER: &str = "cut";
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
const KEPT_BYTES: u64 = 1 << 30;
const CHUNK_BYTES: usize = 1 << 20;

/// Where the bytes of a file of this name began in the log; `None` for every other name.
pub fn begin_of(name: &str) -> Option<Lsn> {
    let (begin, number) = name.split_once('-')?;
    number.parse::<u32>().ok()?;
    let begin = u64::from_str_radix(begin, 16).ok()?;
    // A name that was made by hand may say anything.
    (begin < 1 << 62).then_some(Lsn(begin))
}

/// Copies what the log in `dir` holds from `at` on. Gives the file, or `None` when there are only zeroes. Blocks.
pub fn set_aside(dir: &Path, segments: &mut Segments, at: Lsn) -> io::Result<Option<PathBuf>> {
    let end = end_of_bytes(segments, at)?;
    if end <= at {
        return Ok(None);
    }
    let folder = dir.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let (path, mut file) = create(&folder, at)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut next = at;
    while next < end {
        let length = ((end.0 - next.0) as usize).min(CHUNK_BYTES);
        let length = segments.read(next, &mut buffer[..length])?;
        file.write_all(&buffer[..length])?;
        next = next + length as u64;
    }
    file.sync_all()?;
    sync_dir(&folder)?;
    sync_dir(dir)?;
    Ok(Some(path))
}

fn create(folder: &Path, at: Lsn) -> io::Result<(PathBuf, File)> {
    for number in 0_u32.. {
        let path = folder.join(format!("{:016X}-{number}", at.0));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created.map(|file| (path, file)),
        }
    }
    Err(io::Error::other("every name for WAL to set aside is taken"))
}

/// Behind the last byte from `at` on that is not zero; `at` when there is none.
fn end_of_bytes(segments: &mut Segments, at: Lsn) -> io::Result<Lsn> {
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut next, mut end) = (at, at);
    while segments.cover(next, next + 1) || segments.has_from(next) {
        if !segments.cover(next, next + 1) {
            next = Lsn((next.0 / WAL_SEGMENT_BYTES + 1) * WAL_SEGMENT_BYTES);
            continue;
        }
        let length = segments.read(next, &mut buffer)?;
        if let Some(last) = buffer[..length].iter().rposition(|byte| *byte != 0) {
            end = next + last as u64 + 1;
        }
        next = next + length as u64;
    }
    Ok(end)
}

/// Removes what was kept long enough, as of `now`. Gives the files removed. Blocks.
pub fn prune(dir: &Path, now: SystemTime) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = match fs::read_dir(dir.join(FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let facts = entry.metadata()?;
        files.push((facts.modified()?, facts.len(), entry.path()));
    }
    files.sort();
    let mut bytes: u64 = files.iter().map(|(_, length, _)| length).sum();
    files.pop();
    let mut removed = Vec::new();
    for (written, length, path) in files {
        let is_old = now.duration_since(written).is_ok_and(|age| age > KEPT_FOR);
        if is_old || bytes > KEPT_BYTES {
            fs::remove_file(&path)?;
            bytes -= length;
            removed.push(path);
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(dir: &Path, at: Lsn, bytes: &[u8]) -> Segments {
        let mut segments = Segments::open(dir).expect("open");
        segments.write(at, bytes).expect("write");
        segments
    }

    #[test]
    fn what_is_cut_off_can_be_read_afterwards_across_segments() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let at = Lsn(3 * WAL_SEGMENT_BYTES - 100);
        let wal: Vec<u8> = (0..300_u32).map(|byte| byte as u8 | 1).collect();
        let mut segments = log(dir.path(), at, &wal);
        let cut = at + 40;
        let path = set_aside(dir.path(), &mut segments, cut)
            .expect("set aside")
            .expect("there is something");
        segments.cut(cut).expect("cut");
        assert_eq!(fs::read(&path).expect("read"), &wal[40..]);
        assert!(path.ends_with(format!("cut/{:016X}-0", cut.0)));
        assert_eq!(
            set_aside(dir.path(), &mut segments, cut).expect("look"),
            None
        );

        segments.write(cut, &wal[..8]).expect("write");
        let second = set_aside(dir.path(), &mut segments, cut).expect("set aside");
        assert!(
            second
                .expect("a file")
                .ends_with(format!("cut/{:016X}-1", cut.0))
        );
        assert_eq!(
            fs::read(&path).expect("read"),
            &wal[40..],
            "the first one stays"
        );
    }

    #[test]
    fn files_go_after_a_week_and_the_newest_stays() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let now = SystemTime::now();
        for number in 0..3_u64 {
            let mut segments = log(dir.path(), Lsn(number * 64), &[7; 32]);
            set_aside(dir.path(), &mut segments, Lsn(number * 64)).expect("set aside");
        }
        assert_eq!(
            prune(dir.path(), now).expect("prune"),
            Vec::<PathBuf>::new()
        );
        let later = now + KEPT_FOR + Duration::from_secs(60);
        assert_eq!(prune(dir.path(), later).expect("prune").len(), 2);
        assert_eq!(
            fs::read_dir(dir.path().join(FOLDER)).expect("list").count(),
            1
        );
    }
}
