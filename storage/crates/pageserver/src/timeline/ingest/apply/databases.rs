//! Databases as a whole: records that make, copy or drop the directory of one, in parts of bounded size.

use layers::Value;
use pg_types::{Key, RelTag};

use super::{Batch, RELATIONS_AT_ONCE};
use crate::error::Result;

/// Pages copied per read when a database directory is copied.
const COPY_PAGES: usize = 256;

impl Batch<'_> {
    /// Drops every fork in the directory of a database, and the directory.
    pub(super) async fn drop_database(&mut self, spc: u32, db: u32) -> Result<()> {
        let rels = self.ingest.reads.list_rels(spc, db, self.before).await?;
        let forks: Vec<RelTag> = rels.into_iter().map(|(rel, _)| rel).collect();
        for forks in forks.chunks(RELATIONS_AT_ONCE) {
            self.drop_forks(forks).await?;
        }
        self.values.push((Key::relmap(spc, db), Value::Tombstone));
        self.values.push((Key::database(spc, db), Value::Tombstone));
        Ok(())
    }

    /// The record names only the directories: the copy is made here, of the pages as they are.
    pub(super) async fn copy_database(
        &mut self,
        source: (u32, u32),
        target: (u32, u32),
    ) -> Result<()> {
        let (spc, db) = target;
        let mut copied = Vec::new();
        for (rel, blocks) in self
            .ingest
            .reads
            .list_rels(source.0, source.1, self.before)
            .await?
        {
            let copy = RelTag { spc, db, ..rel };
            let numbers: Vec<u32> = (0..blocks).collect();
            for chunk in numbers.chunks(COPY_PAGES) {
                let pages = self.ingest.reads.rel_pages(rel, chunk, self.before).await?;
                let copies = chunk
                    .iter()
                    .zip(pages)
                    .filter(|(_, page)| !page.bytes.is_empty())
                    .map(|(block, page)| {
                        let key = Key::rel_block(copy, *block);
                        (key, self.lsn, Value::Image(page.bytes))
                    })
                    .collect();
                // Not gathered with the rest: a database can be larger than memory.
                self.ingest.layers.append_ahead(copies).await?;
                tokio::task::yield_now().await;
            }
            self.sizes.insert(copy, Some(blocks));
            copied.push(copy);
            if copied.len() >= RELATIONS_AT_ONCE {
                self.finish_part(copied.drain(..)).await?;
            }
        }
        if let Some(map) = self
            .ingest
            .reads
            .value(Key::relmap(source.0, source.1), self.before)
            .await?
        {
            self.values.push((Key::relmap(spc, db), Value::Meta(map)));
        }
        self.create_database(spc, db);
        Ok(())
    }

    /// Makes the directory of a database, without a fork in it.
    pub(super) fn create_database(&mut self, spc: u32, db: u32) {
        let version = format!("{}\n", self.ingest.identity.manifest.pg_version);
        self.values
            .push((Key::database(spc, db), Value::Meta(version.into())));
    }
}
