//! Finished WAL of a timeline: what safekeepers put into object storage so that it outlives their disks.
//!
//! Objects are `wal/{begin}-{end}-{term}-{crc}` below the timeline's prefix, each a header and bytes of one WAL
//! segment, encrypted as a whole if the tenant has a data key; `docs/formats.md` has the format. The name carries the
//! positions, the term that wrote the last byte, and the checksum of the bytes.
//!
//! Invariants:
//!
//! 1. Objects are made by creation and never written again: two histories of a timeline, or two versions of one
//!    piece, lie side by side under names of their own. The reader decides by the term histories which of them
//!    counts.
//! 2. An object is whole when it is there, and durable when [`TimelineStore::put_wal`] returns.
//! 3. Only committed WAL is put here; the caller has to make sure of that.
//!
//! What a crash leaves: nothing, a whole object, or (in a directory) a staging file that no listing shows and the
//! deletion of the timeline removes.

use std::fmt;

use bytes::Bytes;
use encryption::{BLOCK_BYTES, CONTENT_BYTES, HEADER_BYTES, Kind};
use object_store::{ObjectMeta, ObjectStoreExt, PutMode, PutPayload};
use pg_types::{Lsn, TenantId, Term, TimelineId, WAL_SEGMENT_BYTES};

use crate::error::BlobError;
use crate::timeline::{TimelineStore, WAL_FOLDER};

/// Version of the format written; newer ones are refused.
pub const WAL_FORMAT_VERSION: u32 = 1;

const MAGIC: &[u8; 8] = b"WEIRWALS";
/// Before the history.
const FIXED_BYTES: usize = 80;
const ENTRY_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
/// More than any history takes; a damaged length must not become an allocation.
const MAX_HEADER_BYTES: usize = FIXED_BYTES + 4096 * ENTRY_BYTES + CRC_BYTES;
/// Enough of an object to decode its header, encrypted or not.
const HEAD_BYTES: usize = HEADER_BYTES + MAX_HEADER_BYTES.div_ceil(CONTENT_BYTES) * BLOCK_BYTES;

/// What an object's name says of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WalName {
    /// LSN of the first byte.
    pub begin: Lsn,
    /// Behind the last byte.
    pub end: Lsn,
    /// The term that wrote the last byte.
    pub term: Term,
    /// CRC-32C of the bytes.
    pub crc: u32,
}

impl WalName {
    /// `None` for a name of another form, or that makes no sense.
    pub fn parse(name: &str) -> Option<WalName> {
        let mut parts = name.split('-');
        let mut number = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            let hex = part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
            hex.then(|| u64::from_str_radix(part, 16).ok()).flatten()
        };
        let (begin, end) = (Lsn(number(16)?), Lsn(number(16)?));
        let (term, crc) = (Term(number(16)?), u32::try_from(number(8)?).ok()?);
        (parts.next().is_none() && in_one_segment(begin, end)).then_some(WalName {
            begin,
            end,
            term,
            crc,
        })
    }

    /// Bytes of WAL in it.
    pub fn length(&self) -> u64 {
        self.end.0 - self.begin.0
    }

    /// Whether it goes to the end of its segment.
    pub fn is_finished(&self) -> bool {
        self.end.0.is_multiple_of(WAL_SEGMENT_BYTES)
    }
}

impl fmt::Display for WalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WalName {
            begin,
            end,
            term,
            crc,
        } = self;
        write!(
            f,
            "{:016X}-{:016X}-{:016X}-{crc:08X}",
            begin.0, end.0, term.0
        )
    }
}

fn in_one_segment(begin: Lsn, end: Lsn) -> bool {
    begin < end && begin.0 / WAL_SEGMENT_BYTES == (end.0 - 1) / WAL_SEGMENT_BYTES
}

/// The header of a piece: the timeline whose WAL it is, and the terms that wrote all WAL up to its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalHeader {
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline.
    pub timeline: TimelineId,
    /// Postgres's identifier of the cluster that the WAL is of.
    pub system_identifier: u64,
    /// Postgres's major version, such as 15.
    pub pg_version: u32,
    /// LSN of the first byte.
    pub begin: Lsn,
    /// Behind the last byte; in the same segment as the first.
    pub end: Lsn,
    /// Terms and where their WAL begins, all before `end`; terms rise, and positions do not fall.
    pub history: Vec<(Term, Lsn)>,
    /// CRC-32C of the bytes.
    pub crc: u32,
}

impl WalHeader {
    /// Name of the object that has this header; its term is 0 if the history is empty.
    pub fn name(&self) -> WalName {
        WalName {
            begin: self.begin,
            end: self.end,
            term: self.history.last().map_or(Term(0), |last| last.0),
            crc: self.crc,
        }
    }

    /// The header as an object begins with it, its own checksum included; the WAL follows.
    pub fn encode(&self) -> Vec<u8> {
        let length = FIXED_BYTES + self.history.len() * ENTRY_BYTES + CRC_BYTES;
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&WAL_FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&(length as u32).to_le_bytes());
        out.extend_from_slice(&self.tenant.0);
        out.extend_from_slice(&self.timeline.0);
        out.extend_from_slice(&self.system_identifier.to_le_bytes());
        out.extend_from_slice(&self.pg_version.to_le_bytes());
        out.extend_from_slice(&self.crc.to_le_bytes());
        out.extend_from_slice(&self.begin.0.to_le_bytes());
        out.extend_from_slice(&self.end.0.to_le_bytes());
        for (term, start) in &self.history {
            out.extend_from_slice(&term.0.to_le_bytes());
            out.extend_from_slice(&start.0.to_le_bytes());
        }
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header that `bytes` begin with, and its length. `path` names the object in errors.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<(WalHeader, usize), BlobError> {
        let corrupt = |reason: &str| BlobError::Corrupt {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let mut fields = Fields(bytes);
        let mut next = || fields.u32().ok_or_else(|| corrupt("it is cut short"));
        let _magic = (next()?, next()?);
        if !bytes.starts_with(MAGIC) {
            return Err(corrupt("it does not begin as WAL does here"));
        }
        let (version, length) = (next()?, next()? as usize);
        if version > WAL_FORMAT_VERSION {
            let (path, known) = (path.to_owned(), WAL_FORMAT_VERSION);
            let found = version;
            return Err(BlobError::TooNew { path, found, known });
        }
        let least = FIXED_BYTES + CRC_BYTES;
        if !(least..=MAX_HEADER_BYTES).contains(&length)
            || !(length - least).is_multiple_of(ENTRY_BYTES)
        {
            return Err(corrupt("the length of its header makes no sense"));
        }
        let header = bytes
            .get(..length)
            .ok_or_else(|| corrupt("its header is cut short"))?;
        let (content, crc) = header.split_at(length - CRC_BYTES);
        if crc != crc32c::crc32c(content).to_le_bytes() {
            return Err(corrupt("the checksum of its header is wrong"));
        }
        let decoded = fields.rest(content.len() - 16, version);
        let header = decoded.ok_or_else(|| corrupt("its header makes no sense"))?;
        Ok((header, length))
    }

    fn is_sound(&self) -> bool {
        let ordered = |pair: &[(Term, Lsn)]| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1;
        in_one_segment(self.begin, self.end)
            && self.history.windows(2).all(ordered)
            && self.history.last().is_none_or(|last| last.1 < self.end)
    }
}

/// Numbers from the front of some bytes.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// What follows magic, version and length; `length` bytes of it.
    fn rest(&mut self, length: usize, version: u32) -> Option<WalHeader> {
        (version == WAL_FORMAT_VERSION).then_some(())?;
        self.0 = self.0.get(..length)?;
        let (tenant, timeline) = (TenantId(self.take()?), TimelineId(self.take()?));
        let (system_identifier, pg_version, crc) = (self.u64()?, self.u32()?, self.u32()?);
        let (begin, end) = (Lsn(self.u64()?), Lsn(self.u64()?));
        let mut history = Vec::with_capacity(self.0.len() / ENTRY_BYTES);
        while !self.0.is_empty() {
            history.push((Term(self.u64()?), Lsn(self.u64()?)));
        }
        let header = WalHeader {
            tenant,
            timeline,
            system_identifier,
            pg_version,
            begin,
            end,
            history,
            crc,
        };
        header.is_sound().then_some(header)
    }
}

/// The outcome of putting a piece of WAL into the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalPut {
    /// The piece was not in the store before.
    Written,
    /// The same piece was in the store already.
    Present,
}

impl TimelineStore {
    fn wal_path(&self, name: WalName) -> object_store::path::Path {
        self.path(&format!("{WAL_FOLDER}/{name}"))
    }

    /// All WAL of the timeline that is here, by position.
    pub async fn list_wal(&self) -> Result<Vec<WalName>, BlobError> {
        let parse = |meta: &ObjectMeta| WalName::parse(meta.location.filename()?);
        let mut names: Vec<WalName> = self
            .list(WAL_FOLDER)
            .await?
            .iter()
            .filter_map(parse)
            .collect();
        names.sort();
        Ok(names)
    }

    /// Whether the same WAL is here already. An object of this name with another header is damaged.
    pub async fn has_wal(&self, header: &WalHeader) -> Result<bool, BlobError> {
        let Some((found, length)) = self.wal_header(header.name()).await? else {
            return Ok(false);
        };
        let path = self.wal_path(header.name());
        let whole = length == header.encode().len() as u64 + header.name().length();
        // Histories drop their oldest terms when they get long.
        let same = WalHeader {
            history: header.history.clone(),
            ..found
        };
        if same == *header && whole {
            return Ok(true);
        }
        Err(BlobError::Corrupt {
            path: path.to_string(),
            reason: "it is not what its name says; look at it, and move it away".to_owned(),
        })
    }

    /// Makes the object, durably, unless it is there already. `content` is what the header describes. Fails with
    /// [`BlobError::Deleted`] if the timeline's data key went with it.
    pub async fn put_wal(&self, header: &WalHeader, content: Bytes) -> Result<WalPut, BlobError> {
        debug_assert_eq!(content.len() as u64, header.name().length());
        let path = self.wal_path(header.name());
        let payload: PutPayload = [Bytes::from(header.encode()), content]
            .into_iter()
            .collect();
        let payload = self
            .encrypted(Kind::Wal, &header.name().to_string(), &path, payload)
            .await?;
        match self.store.put(&path, payload, PutMode::Create).await {
            Ok(()) => Ok(WalPut::Written),
            Err(BlobError::Store(object_store::Error::AlreadyExists { .. })) => {
                self.has_wal(header).await.map(|_| WalPut::Present)
            }
            // A server that refuses a second creation may hang up before it has read all of it; and the answer to a
            // first one may have been lost.
            Err(error) => match self.has_wal(header).await {
                Ok(true) => Ok(WalPut::Present),
                Ok(false) | Err(_) => Err(error),
            },
        }
    }

    /// An object's header, and the length of the whole object before encryption; `None` if there is no such object.
    pub async fn wal_header(&self, name: WalName) -> Result<Option<(WalHeader, u64)>, BlobError> {
        let path = self.wal_path(name);
        let size = match self.store.objects.head(&path).await {
            Ok(meta) => meta.size,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let range = 0..size.min(HEAD_BYTES as u64);
        let bytes = match self.store.objects.get_range(&path, range).await {
            Ok(bytes) => bytes,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (head, size) = self
            .decrypted_head(Kind::Wal, &name.to_string(), &path, bytes, size)
            .await?;
        let (header, _) = self.checked(name, &head)?;
        Ok(Some((header, size)))
    }

    fn checked(&self, name: WalName, bytes: &[u8]) -> Result<(WalHeader, usize), BlobError> {
        let path = self.wal_path(name).to_string();
        let (header, length) = WalHeader::decode(&path, bytes)?;
        let corrupt = |reason: String| BlobError::Corrupt {
            path: path.clone(),
            reason,
        };
        if (header.tenant, header.timeline) != (self.tenant(), self.timeline()) {
            return Err(corrupt(format!(
                "it belongs to tenant {} timeline {}",
                header.tenant, header.timeline
            )));
        }
        if header.name() != name {
            return Err(corrupt(format!("its header is that of {}", header.name())));
        }
        Ok((header, length))
    }

    /// The WAL of an object and its header, with every checksum verified; `None` if there is no such object.
    pub async fn get_wal(&self, name: WalName) -> Result<Option<(WalHeader, Bytes)>, BlobError> {
        let path = self.wal_path(name);
        let Some(stored) = self.store.get(&path).await? else {
            return Ok(None);
        };
        let mut bytes = self
            .decrypted(Kind::Wal, &name.to_string(), &path, stored)
            .await?;
        let (header, length) = self.checked(name, &bytes)?;
        let content = bytes.split_off(length);
        let corrupt = |reason: String| BlobError::Corrupt {
            path: path.to_string(),
            reason,
        };
        if content.len() as u64 != name.length() {
            return Err(corrupt(format!(
                "it holds {} bytes of WAL, not {}",
                content.len(),
                name.length()
            )));
        }
        if crc32c::crc32c(&content) != name.crc {
            return Err(corrupt("the checksum of its WAL is wrong".to_owned()));
        }
        Ok(Some((header, content)))
    }

    /// Fine if it is gone already.
    pub async fn delete_wal(&self, name: WalName) -> Result<(), BlobError> {
        self.store.delete(&self.wal_path(name)).await
    }
}

#[cfg(test)]
#[path = "wal_tests.rs"]
mod tests;
