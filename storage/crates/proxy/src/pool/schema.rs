//! When what a text means in a database may have changed: generations of its schema.
//!
//! Postgres fixes the types of a statement's parameters and rows when it prepares the statement. A driver that prepares
//! a text anew expects types as they are now, so a statement that a server connection has from an earlier generation
//! must not answer for it. Each sign of a change begins a new generation:
//!
//! - the end of a command that changes a schema, for the client that sent it, and again the end of its transaction,
//!   from where on the change is there for all, or undone; whether its client is pooled or direct;
//! - an error by which Postgres says that a statement is outdated, since not every change passes through this process;
//! - time ([`Schemas::renew`]), for the changes that make statements outdated without an error.
//!
//! Nothing here knows of connections or clocks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pg_protocol::endpoint::EndpointName;
use pg_protocol::tracker::BEGIN_BYTES;

/// Fewest databases at which entries of those that nobody uses are looked for.
const FIRST_PURGE: usize = 256;
/// How commands begin in their CommandComplete that change what a text means. Whether a DO has changed something cannot
/// be told. A CREATE TABLE AS says `SELECT`, but makes a table only where there was none.
const CHANGING: [&[u8]; 6] = [
    b"ALTER ",
    b"CREATE ",
    b"DROP ",
    b"DO",
    b"IMPORT FOREIGN SCHEMA",
    b"COMMIT PREPARED",
];

/// A stretch of time within which no change of a database's schema is known; later ones are greater. Generations of all
/// databases are drawn from one row of numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Generation(u64);

impl Generation {
    /// Earlier than all.
    pub const NONE: Generation = Generation(0);
}

/// The generation of one database of an endpoint.
#[derive(Debug)]
pub struct Schema {
    numbers: Arc<AtomicU64>,
    generation: AtomicU64,
}

impl Default for Schema {
    /// Of a database with numbers of its own.
    fn default() -> Schema {
        Schema::new(Arc::default())
    }
}

impl Schema {
    fn new(numbers: Arc<AtomicU64>) -> Schema {
        let schema = Schema {
            numbers,
            generation: AtomicU64::new(0),
        };
        schema.change();
        schema
    }

    /// The generation now. A statement that is sent to a server after this call is at least of this generation.
    pub fn generation(&self) -> Generation {
        Generation(self.generation.load(Ordering::SeqCst))
    }

    /// Begins a new generation.
    pub fn change(&self) {
        let next = self.numbers.fetch_add(1, Ordering::SeqCst) + 1;
        self.generation.fetch_max(next, Ordering::SeqCst);
    }
}

/// A database, by its endpoint and name.
type Database = (EndpointName, Arc<str>);

/// The schemas of all databases that server connections or clients use.
#[derive(Default)]
pub struct Schemas {
    /// A database that is used again after a while must not meet a generation of then: connections of then may be there.
    numbers: Arc<AtomicU64>,
    known: Mutex<HashMap<Database, Weak<Schema>>>,
}

impl Schemas {
    /// The schema of this database, the same for all who ask while any of them keeps it.
    pub fn of(&self, endpoint: &EndpointName, database: &Arc<str>) -> Arc<Schema> {
        let mut known = self.known.lock();
        let key = (endpoint.clone(), database.clone());
        if let Some(schema) = known.get(&key).and_then(Weak::upgrade) {
            return schema;
        }
        if known.len() >= FIRST_PURGE && known.len() == known.capacity() {
            known.retain(|_, schema| schema.strong_count() > 0);
        }
        let schema = Arc::new(Schema::new(self.numbers.clone()));
        known.insert(key, Arc::downgrade(&schema));
        schema
    }

    /// Begins a new generation of each database.
    pub fn renew(&self) {
        let known = self.known.lock();
        for schema in known.values().filter_map(Weak::upgrade) {
            schema.change();
        }
    }
}

/// What a transaction under way may have changed. When this goes, at the transaction's end or with its connection, a new
/// generation begins.
#[derive(Debug)]
pub struct Pending(Arc<Schema>);

impl Pending {
    /// Begins a new generation now, and another one at the end.
    pub fn new(schema: Arc<Schema>) -> Pending {
        schema.change();
        Pending(schema)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.change();
    }
}

/// Whether a command may have changed what a text means, by what its CommandComplete says of it, or by the begin of that.
pub fn is_changed_by(command: &[u8]) -> bool {
    let begins = |known: &&[u8]| command.starts_with(known);
    matches!(command.first(), Some(b'A' | b'C' | b'D' | b'I')) && CHANGING.iter().any(begins)
}

/// The same where no more than the first bytes are known, and without two-phase commits.
pub fn begins_like_a_change(begin: [u8; BEGIN_BYTES]) -> bool {
    matches!(&begin, b"ALTE" | b"CREA" | b"DROP" | b"DO\0\0" | b"IMPO")
}

/// Whether an error that a Bind or Describe of a prepared statement met can be one of a statement that is outdated. `code`
/// and `routine` are those of the ErrorResponse.
pub fn is_outdated(code: &[u8], routine: Option<&[u8]>) -> bool {
    match code {
        // "cached plan must not change result type"; features that are not supported have this code, too.
        b"0A000" => routine == Some(b"RevalidateCachedQuery"),
        // "cache lookup failed for type", and other internal errors.
        b"XX000" => true,
        // Of privileges, which hold for whoever asks.
        b"42501" => false,
        // The text was well formed when it was prepared: its names or types are others now.
        _ => code.starts_with(b"42"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generation_is_never_met_again() {
        let schemas = Schemas::default();
        let endpoint = EndpointName::new("ep-a").expect("a name");
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let schema = schemas.of(&endpoint, &one);
        assert!(Arc::ptr_eq(&schema, &schemas.of(&endpoint, &one)));
        let first = schema.generation();
        assert!(first > Generation::NONE);
        assert_ne!(first, schemas.of(&endpoint, &other).generation());
        schemas.renew();
        let second = schema.generation();
        assert!(second > first);
        drop(schema);
        assert!(schemas.of(&endpoint, &one).generation() > second);
    }

    #[test]
    fn databases_that_nobody_uses_are_not_kept() {
        let schemas = Schemas::default();
        let endpoint = EndpointName::new("ep-a").expect("a name");
        for number in 0..20 * FIRST_PURGE {
            schemas.of(&endpoint, &number.to_string().into());
        }
        assert!(schemas.known.lock().len() < 4 * FIRST_PURGE);
    }

    #[test]
    fn a_change_counts_at_once_and_at_its_end() {
        let schema = Arc::new(Schema::default());
        let before = schema.generation();
        let pending = Pending::new(schema.clone());
        let within = schema.generation();
        assert!(within > before);
        drop(pending);
        assert!(schema.generation() > within);
    }

    /// The first bytes of the body of a CommandComplete.
    fn begin(command: &str) -> [u8; BEGIN_BYTES] {
        let mut begin = [0; BEGIN_BYTES];
        let count = command.len().min(BEGIN_BYTES);
        begin[..count].copy_from_slice(&command.as_bytes()[..count]);
        begin
    }

    #[test]
    fn commands_and_errors_are_told_apart() {
        for command in [
            "ALTER TABLE",
            "CREATE TYPE",
            "DROP SCHEMA",
            "DO",
            "IMPORT FOREIGN SCHEMA",
            "COMMIT PREPARED",
        ] {
            assert!(is_changed_by(command.as_bytes()), "{command}");
            let known = begins_like_a_change(begin(command));
            assert_eq!(known, command != "COMMIT PREPARED", "{command}");
        }
        for command in [
            "",
            "SELECT 1",
            "INSERT 0 1",
            "COMMIT",
            "DELETE 3",
            "COPY 5",
            "ANALYZE",
            "CALL",
            "SET",
        ] {
            assert!(!is_changed_by(command.as_bytes()), "{command}");
            assert!(!begins_like_a_change(begin(command)), "{command}");
        }
        assert!(is_outdated(b"0A000", Some(b"RevalidateCachedQuery")));
        assert!(is_outdated(b"XX000", None));
        assert!(is_outdated(b"42804", None));
        for code in [&b"0A000"[..], b"42501", b"22P02", b"26000", b"57014", b""] {
            assert!(!is_outdated(code, Some(b"other")), "{code:?}");
        }
    }
}
