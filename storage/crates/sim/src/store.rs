//! The store of finished WAL.

use consensus::TermHistory;
use pg_types::{Lsn, Term};

use crate::log::Log;

/// What one voter offloaded: its log from where it begins to what it knew as committed.
#[derive(Clone, Debug)]
pub struct Piece {
    /// Record boundary at which the log begins; WAL before it was trimmed.
    pub begin: Lsn,
    /// Terms that wrote the piece.
    pub history: TermHistory,
    /// The log up to the end of the piece; nothing before `begin` counts.
    pub log: Log,
}

impl Piece {
    /// End of the piece, exclusive.
    pub fn end(&self) -> Lsn {
        self.log.end()
    }

    /// That wrote the last byte.
    fn term(&self) -> Term {
        self.history.last().map_or(Term(0), |last| last.term)
    }
}

/// Nothing goes from it.
#[derive(Default, Debug)]
pub struct ObjectStore(Vec<Piece>);

impl ObjectStore {
    /// Adds a piece.
    pub fn put(&mut self, piece: Piece) {
        self.0.push(piece);
    }

    /// The furthest beginning of a piece.
    pub fn begin(&self) -> Option<Lsn> {
        self.0.iter().map(|piece| piece.begin).max()
    }

    /// The piece of the highest term that goes furthest.
    pub fn newest(&self) -> Option<&Piece> {
        self.0
            .iter()
            .max_by_key(|piece| (piece.term(), piece.end()))
    }
}
