//! Where a file's missing blocks come from.

use bytes::Bytes;
use pg_types::{BLCKSZ, RelTag, SlruKind};

use crate::source::{PageSource, SourceError};

/// Where a file's missing blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Blocks of a relation fork from `first_block` on.
    Relation { rel: RelTag, first_block: u32 },
    /// Pages of an SLRU from `first_page` on.
    Slru { kind: SlruKind, first_page: u32 },
}

impl Origin {
    /// Pages in the order asked; none is anything but 8192 bytes, or empty for zeroes.
    pub fn fetch(self, source: &dyn PageSource, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
        let (what, pages) = match self {
            Origin::Relation { rel, first_block } => {
                let numbers: Vec<u32> = blocks.iter().map(|block| first_block + block).collect();
                (rel.to_string(), source.pages(rel, &numbers)?)
            }
            Origin::Slru { kind, first_page } => {
                let numbers: Vec<u32> = blocks.iter().map(|block| first_page + block).collect();
                (
                    kind.directory().to_owned(),
                    source.slru_pages(kind, &numbers)?,
                )
            }
        };
        let usable = pages.len() == blocks.len()
            && pages
                .iter()
                .all(|page| page.is_empty() || page.len() == BLCKSZ);
        if !usable {
            return Err(SourceError::Failed(format!(
                "storage answered {} pages of {what} with something else",
                blocks.len()
            )));
        }
        Ok(pages)
    }
}
