//! The index of a timeline: the layers that make up the timeline, and the LSN that they reach.

use layers::{LayerDesc, LayerName};
use pg_types::{Lsn, TenantId, TimelineId};
use serde::{Deserialize, Serialize};

use crate::error::BlobError;
use crate::generation::Generation;

/// Version of the index format written; older ones are read, newer ones refused.
pub const INDEX_FORMAT_VERSION: u32 = 2;
/// Begins the last line of an index from version 2 on; 8 hex digits of CRC-32C of everything before follow.
const TRAILER: &[u8] = b"\ncrc32c ";

/// A layer and the generation that wrote it: together its object name.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct RemoteLayer {
    /// What the layer holds.
    #[serde(flatten)]
    pub desc: LayerDesc,
    /// The generation under which the layer was written.
    pub generation: Generation,
}

impl RemoteLayer {
    /// The object's name in the timeline's folder of layers: `{layer}-{generation}`.
    pub fn object_name(&self) -> String {
        format!("{}-{}", self.desc.name(), self.generation.suffix())
    }

    pub(crate) fn parse(object_name: &str, size: u64) -> Option<RemoteLayer> {
        let (name, generation) = object_name.rsplit_once('-')?;
        let desc = LayerName(name.to_owned()).parse(size).ok()?;
        Some(RemoteLayer {
            desc,
            generation: Generation::from_suffix(generation)?,
        })
    }
}

/// Where a branch came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ancestor {
    /// The timeline that the branch was made from.
    pub timeline: TimelineId,
    /// Where the branch begins: the ancestor's history up to and including here is its own.
    pub lsn: Lsn,
}

/// The content of `index/{generation}.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct IndexPart {
    /// [`INDEX_FORMAT_VERSION`] of the program that wrote the index; [`IndexPart::encode`] writes its own.
    pub format_version: u32,
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline.
    pub timeline: TimelineId,
    /// The generation that wrote this index.
    pub generation: Generation,
    /// Everything ingested up to and including here is in the layers.
    pub disk_consistent_lsn: Lsn,
    /// `None` for a timeline that was not made as a branch, or was detached since.
    pub ancestor: Option<Ancestor>,
    /// What the pageserver keeps about the timeline; opaque here.
    pub metadata: serde_json::Value,
    /// All layers of the timeline itself, without its ancestor's; all are durable.
    pub layers: Vec<RemoteLayer>,
}

impl IndexPart {
    /// The index of a timeline without layers.
    pub fn empty(tenant: TenantId, timeline: TimelineId, ancestor: Option<Ancestor>) -> IndexPart {
        IndexPart {
            format_version: INDEX_FORMAT_VERSION,
            tenant,
            timeline,
            generation: Generation::default(),
            disk_consistent_lsn: Lsn::INVALID,
            ancestor,
            metadata: serde_json::Value::Null,
            layers: Vec::new(),
        }
    }

    /// The object's content: JSON and a line with its checksum.
    pub fn encode(&self) -> Vec<u8> {
        // Of thousands of layers, that takes tens of milliseconds.
        stalls::off_worker(|| {
            let written = IndexPart {
                format_version: INDEX_FORMAT_VERSION,
                ..self.clone()
            };
            seal(serde_json::to_vec_pretty(&written).expect("an index has only string keys"))
        })
    }

    /// Reads an index; `path` is for error messages.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<IndexPart, BlobError> {
        stalls::off_worker(|| IndexPart::parse(path, bytes))
    }

    fn parse(path: &str, bytes: &[u8]) -> Result<IndexPart, BlobError> {
        #[derive(Deserialize)]
        struct Head {
            format_version: u32,
        }
        let corrupt = |error: serde_json::Error| BlobError::Corrupt {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let (json, crc) = split_trailer(bytes);
        let damaged = |reason: &str| BlobError::Corrupt {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        if crc.is_some_and(|crc| crc32c::crc32c(json) != crc) {
            return Err(damaged("its checksum does not match"));
        }
        let head: Head = serde_json::from_slice(json).map_err(corrupt)?;
        if head.format_version > INDEX_FORMAT_VERSION {
            return Err(BlobError::TooNew {
                path: path.to_owned(),
                found: head.format_version,
                known: INDEX_FORMAT_VERSION,
            });
        }
        if head.format_version >= 2 && crc.is_none() {
            return Err(damaged("its last line, the checksum, is missing"));
        }
        serde_json::from_slice(json).map_err(corrupt)
    }
}

/// A document followed by its checksum, on a line of its own.
pub fn seal(mut json: Vec<u8>) -> Vec<u8> {
    let crc = crc32c::crc32c(&json);
    json.extend_from_slice(TRAILER);
    json.extend_from_slice(format!("{crc:08x}\n").as_bytes());
    json
}

/// The document that [`seal`] was given, unless it was changed or cut since; `path` is for the error.
pub fn unseal<'a>(path: &str, bytes: &'a [u8]) -> Result<&'a [u8], BlobError> {
    match split_trailer(bytes) {
        (json, Some(crc)) if crc32c::crc32c(json) == crc => Ok(json),
        _ => Err(BlobError::Corrupt {
            path: path.to_owned(),
            reason: "its checksum is missing or does not match".to_owned(),
        }),
    }
}

/// The JSON and the checksum on the line behind it, if there is one.
fn split_trailer(bytes: &[u8]) -> (&[u8], Option<u32>) {
    let split = || {
        let at = bytes.len().checked_sub(TRAILER.len() + 9)?;
        let (json, line) = bytes.split_at(at);
        let digits = line.strip_prefix(TRAILER)?.strip_suffix(b"\n")?;
        let crc = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        // Only the one spelling a writer uses.
        (format!("{crc:08x}").as_bytes() == digits).then_some((json, Some(crc)))
    };
    split().unwrap_or((bytes, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> IndexPart {
        IndexPart::empty(TenantId([1; 16]), TimelineId([2; 16]), None)
    }

    /// Promise: whatever bit of an index flips, and wherever it is cut, it is refused, never read differently.
    #[test]
    fn a_damaged_index_is_refused() {
        let good = index().encode();
        assert_eq!(IndexPart::decode("it", &good).expect("index"), index());
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            let read = IndexPart::decode("it", &bad);
            assert!(read.is_err(), "flip at {at} goes unnoticed");
            assert!(IndexPart::decode("it", &good[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn an_index_of_the_first_version_is_read() {
        let old = serde_json::to_vec_pretty(&IndexPart {
            format_version: 1,
            ..index()
        });
        let read = IndexPart::decode("it", &old.expect("json")).expect("index");
        assert_eq!(read.format_version, 1);
    }
}
