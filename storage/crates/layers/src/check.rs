//! The complete check of one layer file: everything that the format promises.

use std::collections::BTreeMap;

use pg_types::{Key, KeyKind, Lsn};
use serde::Serialize;

use crate::desc::LayerDesc;
use crate::error::LayerError;
use crate::format::KeyStat;
use crate::reader::LayerReader;
use crate::source::BlockSource;
use crate::value::{Value, Version};

/// What a sound layer file holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayerContent {
    /// The description that the footer gives, and which the check found to be exact.
    pub desc: LayerDesc,
    /// Data blocks.
    pub blocks: usize,
    /// Versions of all keys.
    pub versions: u64,
    /// Keys with at least one version.
    pub keys: u64,
    /// Bytes of all values, before compression.
    pub value_bytes: u64,
    /// Pages as images, generated ones included.
    pub images: u64,
    /// Pages of zeroes.
    pub zero_pages: u64,
    /// Steps of pages, those that initialise their page included.
    pub deltas: u64,
    /// Metadata values and tombstones.
    pub other: u64,
    /// Images the storage made itself.
    pub generated_images: u64,
    /// Keys by kind.
    pub kinds: BTreeMap<KeyKind, u64>,
    /// Most deltas above the newest start of one key.
    pub longest_chain: u32,
}

impl<S: BlockSource> LayerReader<S> {
    /// Reads the whole file and checks every promise of the format: the checksums of file and blocks, the order
    /// of versions within and across blocks, that the block index names each block's first version, that key
    /// table and bloom filter know every key, and that the footer's ranges and counts are exact.
    pub fn check(&self) -> Result<LayerContent, LayerError> {
        self.verify()?;
        let mut seen = Seen {
            content: LayerContent {
                desc: self.desc(),
                blocks: self.block_count(),
                versions: 0,
                keys: 0,
                value_bytes: 0,
                images: 0,
                zero_pages: 0,
                deltas: 0,
                other: 0,
                generated_images: 0,
                kinds: BTreeMap::new(),
                longest_chain: 0,
            },
            previous: None,
            stats: Vec::new(),
            lsns: (Lsn::MAX, Lsn::INVALID),
        };
        for number in 0..self.block_count() {
            let mut first = None;
            for (key, version) in self.block_versions(number)? {
                first.get_or_insert((key, version.lsn));
                seen.add(&key, &version)
                    .map_err(|reason| self.damaged(format!("block {number}: {reason}")))?;
            }
            if first != Some(self.block_start(number)?) {
                return Err(self.damaged(format!(
                    "the index names another first version for block {number}"
                )));
            }
        }
        self.compare(&seen)?;
        Ok(seen.content)
    }

    fn compare(&self, seen: &Seen) -> Result<(), LayerError> {
        let desc = &seen.content.desc;
        let ends = seen
            .stats
            .first()
            .zip(seen.stats.last())
            .map(|(first, last)| (first.key, last.key));
        let lsns = (desc.lsns.first, desc.lsns.last);
        if ends != Some((desc.keys.first, desc.keys.last)) || seen.lsns != lsns {
            return Err(self.damaged("the footer's ranges are not those of the versions".into()));
        }
        let counts = (seen.content.versions, seen.content.keys);
        if counts != (self.versions(), self.key_count()) {
            return Err(self.damaged("the footer's counts are not those of the versions".into()));
        }
        if self.key_stats()? != seen.stats {
            return Err(self.damaged("the key table does not match the versions".into()));
        }
        if let Some(absent) = seen.stats.iter().find(|it| !self.may_contain(&it.key)) {
            return Err(self.damaged(format!("the bloom filter denies {}", absent.key)));
        }
        Ok(())
    }

    fn damaged(&self, reason: String) -> LayerError {
        LayerError::corrupt(self.name(), reason)
    }
}

struct Seen {
    content: LayerContent,
    previous: Option<(Key, Lsn, u16)>,
    stats: Vec<KeyStat>,
    lsns: (Lsn, Lsn),
}

impl Seen {
    fn add(&mut self, key: &Key, version: &Version) -> Result<(), &'static str> {
        let order = (*key, version.lsn, version.seq);
        if self.previous.is_some_and(|previous| previous >= order) {
            return Err("versions are out of order");
        }
        self.previous = Some(order);
        self.lsns = (self.lsns.0.min(version.lsn), self.lsns.1.max(version.lsn));
        let content = &mut self.content;
        if self.stats.last().is_none_or(|stat| stat.key != *key) {
            self.stats.push(KeyStat::new(*key));
            content.keys += 1;
            *content.kinds.entry(key.kind).or_default() += 1;
        }
        if let Some(stat) = self.stats.last_mut() {
            stat.add(version.as_ref());
            content.longest_chain = content.longest_chain.max(stat.deltas);
        }
        content.versions += 1;
        content.value_bytes += version.value.payload().len() as u64;
        match &version.value {
            Value::Image(_) => {
                content.images += 1;
                content.generated_images += u64::from(version.seq == Version::GENERATED);
            }
            Value::Zero => content.zero_pages += 1,
            Value::Delta { .. } => content.deltas += 1,
            Value::Meta(_) | Value::Tombstone => content.other += 1,
        }
        Ok(())
    }
}
