//! A timeline's files, opened for reading only.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use pg_types::{Lsn, TenantId, TimelineId, WAL_SEGMENT_BYTES};
use safekeeper::scan::{Wal, read_or_zero};
use safekeeper::{cut_wal, segments};

/// Segments from this number on are names that look like one.
const NO_WAL_GETS_SO_FAR: u64 = (1 << 62) / WAL_SEGMENT_BYTES;

/// The segments of one timeline's directory, as they were when it was opened.
pub struct Segments {
    dir: PathBuf,
    /// Bytes of each file, by the segment's number, or why that is not known.
    pub files: BTreeMap<u64, Result<u64, String>>,
    open: Option<(u64, File)>,
}

impl Segments {
    /// Lists the segments of a timeline's directory; files of other names are passed over. An error means that the
    /// directory cannot be listed.
    pub fn open(dir: &Path) -> io::Result<Segments> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let number = entry.file_name().to_str().and_then(segments::number_of);
            let Some(number) = number.filter(|number| *number < NO_WAL_GETS_SO_FAR) else {
                continue;
            };
            let bytes = match fs::metadata(entry.path()) {
                Ok(facts) if facts.is_file() => Ok(facts.len()),
                Ok(_) => Err("it is no file".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            files.insert(number, bytes);
        }
        Ok(Segments {
            dir: dir.to_owned(),
            files,
            open: None,
        })
    }

    fn file(&mut self, number: u64) -> io::Result<&File> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != number) {
            let file = File::open(self.dir.join(segments::name_of(number)))?;
            self.open = Some((number, file));
        }
        match &self.open {
            Some((_, file)) => Ok(file),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Wal for Segments {
    fn segment_from(&self, number: u64) -> Option<u64> {
        self.files.range(number..).next().map(|(number, _)| *number)
    }

    fn read(&mut self, at: Lsn, buffer: &mut [u8]) -> io::Result<usize> {
        let number = at.0 / WAL_SEGMENT_BYTES;
        if !self.files.contains_key(&number) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let offset = at.0 % WAL_SEGMENT_BYTES;
        let length = buffer.len().min((WAL_SEGMENT_BYTES - offset) as usize);
        read_or_zero(self.file(number)?, offset, &mut buffer[..length])?;
        Ok(length)
    }
}

/// A file of WAL that was cut off a log: `cut/<begin>-<number>`.
pub struct CutFile {
    /// LSN of the first byte, as the file's name says.
    pub begin: Lsn,
    /// Bytes of the file when it was opened.
    pub bytes: u64,
    file: File,
}

impl CutFile {
    /// Opens a file of cut WAL. An error of the kind `InvalidInput` means that its name gives no LSN.
    pub fn open(path: &Path) -> io::Result<CutFile> {
        let name = path.file_name().and_then(|name| name.to_str());
        let begin = name.and_then(cut_wal::begin_of).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "its name is no position")
        })?;
        let file = File::open(path)?;
        let bytes = file.metadata()?.len();
        Ok(CutFile { begin, bytes, file })
    }

    fn end(&self) -> u64 {
        self.begin.0.saturating_add(self.bytes)
    }
}

impl Wal for CutFile {
    fn segment_from(&self, number: u64) -> Option<u64> {
        let first = number.max(self.begin.0 / WAL_SEGMENT_BYTES);
        (first.checked_mul(WAL_SEGMENT_BYTES)? < self.end()).then_some(first)
    }

    fn read(&mut self, at: Lsn, buffer: &mut [u8]) -> io::Result<usize> {
        let number = at.0 / WAL_SEGMENT_BYTES;
        if at < self.begin || self.segment_from(number) != Some(number) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let left = WAL_SEGMENT_BYTES - at.0 % WAL_SEGMENT_BYTES;
        let length = buffer.len().min(left as usize);
        read_or_zero(&self.file, at.0 - self.begin.0, &mut buffer[..length])?;
        Ok(length)
    }
}

/// Files of WAL that was cut off the log in `dir`, in the order of their positions.
pub fn cut_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(dir.join(cut_wal::FOLDER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<PathBuf>>>()?;
    files.sort();
    Ok(files)
}

/// The timelines of a safekeeper's data directory.
pub fn timelines(data_dir: &Path) -> io::Result<Vec<(TenantId, TimelineId)>> {
    let mut found = Vec::new();
    for tenant in fs::read_dir(data_dir)? {
        let tenant = tenant?;
        let Some(tenant_id) = parse(&tenant.file_name()) else {
            continue;
        };
        // A tenant that can't be listed must not hide the others.
        let Ok(entries) = fs::read_dir(tenant.path()) else {
            continue;
        };
        let ids = entries.filter_map(|entry| parse(&entry.ok()?.file_name()));
        found.extend(ids.map(|timeline| (tenant_id, timeline)));
    }
    found.sort();
    Ok(found)
}

/// What else there is beside the timeline's own folder and carries its id: left by a deletion or a creation that was
/// cut short, or put there by a person.
pub fn beside(tenant_dir: &Path, timeline: TimelineId) -> Vec<PathBuf> {
    let own = timeline.to_string();
    let entries = fs::read_dir(tenant_dir).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            (name != own && name.contains(&own)).then(|| entry.path())
        })
        .collect();
    found.sort();
    found
}

fn parse<T: std::str::FromStr>(name: &std::ffi::OsStr) -> Option<T> {
    name.to_str()?.parse().ok()
}
