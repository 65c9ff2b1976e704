//! The unit of redo.

use pg_types::BLCKSZ;

/// One page, of a relation or of an SLRU.
pub type Page = [u8; BLCKSZ];
