//! Prepared statements of the protocol: what clients have named, and what a server connection has.
//!
//! On server connections a statement is named by a hash of its content, so that clients with the same statement share it,
//! and a client's next server connection may have it already. The hash is over the settings that its text was read by,
//! too: Postgres makes a date of the literal '1/2/2030' when it prepares the statement, and `DateStyle` says which.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pg_protocol::messages::message;
use ring::digest;

#[cfg(doc)]
use super::parameters::Tracked;

/// Names on server connections begin so.
const PREFIX: &str = "weir_";
/// So many bytes of the hash are in a name, as two digits each.
const NAMED_BYTES: usize = 20;
/// What a client's entry costs beside name and content.
const ENTRY_BYTES: usize = 100;
/// Fewest statements at which entries of statements that are gone are looked for.
const FIRST_PURGE: usize = 1024;

type Hash = [u8; digest::SHA256_OUTPUT_LEN];

/// The content of a statement: the body of its Parse without the name.
#[derive(PartialEq, Eq, Debug)]
pub struct Statement {
    name: Arc<str>,
    content: Box<[u8]>,
}

impl Statement {
    fn new(hash: &Hash, content: &[u8]) -> Statement {
        let digits = hash[..NAMED_BYTES].iter();
        let name = digits.fold(PREFIX.to_owned(), |name, byte| {
            name + &format!("{byte:02x}")
        });
        Statement {
            name: name.into(),
            content: content.into(),
        }
    }

    /// The name that server connections know it by.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The Parse that prepares it.
    pub fn to_message(&self) -> Vec<u8> {
        let body = [self.name.as_bytes(), b"\0", &self.content].concat();
        message(b'P', &body)
    }
}

/// All statements that some client has, each once.
#[derive(Default)]
pub struct Contents {
    known: Mutex<HashMap<Hash, Weak<Statement>>>,
}

impl Contents {
    /// The statement with this content (query, zero byte, number of types of parameters, types), prepared with these
    /// settings ([`Tracked::parse_context`]).
    pub fn statement(&self, content: &[u8], parse_context: &[u8]) -> Arc<Statement> {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&(parse_context.len() as u64).to_be_bytes());
        context.update(parse_context);
        context.update(content);
        let mut hash = Hash::default();
        hash.copy_from_slice(context.finish().as_ref());
        let mut known = self.known.lock();
        if let Some(statement) = known.get(&hash).and_then(Weak::upgrade) {
            return statement;
        }
        if known.len() >= FIRST_PURGE && known.len() == known.capacity() {
            known.retain(|_, statement| statement.strong_count() > 0);
        }
        let statement = Arc::new(Statement::new(&hash, content));
        known.insert(hash, Arc::downgrade(&statement));
        statement
    }
}

/// A name that a client has given.
pub type Name = Arc<[u8]>;

/// The statements of one client.
#[derive(Default)]
pub struct ClientStatements {
    named: HashMap<Name, Arc<Statement>>,
    bytes: usize,
    /// The Parse of the unnamed statement, to be repeated on another server connection.
    unnamed: Option<Box<[u8]>>,
}

impl ClientStatements {
    /// The statement of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<Statement>> {
        self.named.get(name)
    }

    /// Whether a further statement would take the client beyond `most` bytes.
    pub fn is_full(&self, name: &[u8], content: &[u8], most: usize) -> bool {
        self.bytes + name.len() + content.len() + ENTRY_BYTES > most
    }

    /// Remembers a statement. One that had the name goes.
    pub fn insert(&mut self, name: Name, statement: Arc<Statement>) {
        self.remove(&name);
        self.bytes += cost(&name, &statement);
        self.named.insert(name, statement);
    }

    /// Forgets a statement, and answers with it.
    pub fn remove(&mut self, name: &[u8]) -> Option<Arc<Statement>> {
        let statement = self.named.remove(name)?;
        self.bytes -= cost(name, &statement);
        Some(statement)
    }

    /// Forgets all that have a name.
    pub fn clear(&mut self) {
        self.named = HashMap::new();
        self.bytes = 0;
    }

    /// The whole Parse of the unnamed statement, if there is one.
    pub fn unnamed(&self) -> Option<&[u8]> {
        self.unnamed.as_deref()
    }

    /// Remembers the Parse of the unnamed statement, or that there is none that could be repeated. Answers with the one
    /// before.
    pub fn replace_unnamed(&mut self, parse: Option<Box<[u8]>>) -> Option<Box<[u8]>> {
        std::mem::replace(&mut self.unnamed, parse)
    }
}

fn cost(name: &[u8], statement: &Statement) -> usize {
    name.len() + statement.content.len() + ENTRY_BYTES
}

/// The statements of one server connection, by how long ago they were used.
pub struct ServerStatements {
    most: usize,
    clock: u64,
    used: HashMap<Arc<str>, u64>,
    order: BTreeMap<u64, Arc<str>>,
    stale: Vec<Arc<str>>,
}

impl ServerStatements {
    /// A connection without statements that is to have at most `most`, one at least.
    pub fn new(most: usize) -> ServerStatements {
        ServerStatements {
            most: most.max(1),
            clock: 0,
            used: HashMap::new(),
            order: BTreeMap::new(),
            stale: Vec::new(),
        }
    }

    /// Whether the connection has the statement, which is being used then.
    pub fn touch(&mut self, name: &Arc<str>) -> bool {
        let known = self.used.contains_key(name);
        if known {
            self.insert(name.clone());
        }
        known
    }

    /// Notes a statement as the one used last.
    pub fn insert(&mut self, name: Arc<str>) {
        self.clock += 1;
        if let Some(before) = self.used.insert(name.clone(), self.clock) {
            self.order.remove(&before);
        }
        self.order.insert(self.clock, name);
    }

    /// Forgets a statement that the connection has not, or has no longer.
    pub fn remove(&mut self, name: &str) {
        if let Some(when) = self.used.remove(name) {
            self.order.remove(&when);
        }
    }

    /// Notes that a statement cannot be used any more, and has to be closed before it is prepared again.
    pub fn spoil(&mut self, name: &Arc<str>) {
        if self.used.contains_key(name) {
            self.remove(name);
            self.stale.push(name.clone());
        }
    }

    /// Statements that have to be closed before one more is prepared: what is stale, and what was used longest ago where
    /// the connection is full. They are forgotten.
    pub fn make_room(&mut self) -> Vec<Arc<str>> {
        let mut closed = std::mem::take(&mut self.stale);
        while self.used.len() >= self.most {
            let Some((_, name)) = self.order.pop_first() else {
                break;
            };
            self.used.remove(&name);
            closed.push(name);
        }
        closed
    }

    /// Forgets all: the connection has dropped them.
    pub fn clear(&mut self) {
        *self = ServerStatements::new(self.most);
    }

    /// How many statements the connection has.
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Whether the connection has no statement.
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_same_content_is_one_statement_and_other_content_another() {
        let contents = Contents::default();
        let one = contents.statement(b"SELECT $1\0\0\0", b"UTF8\0");
        let same = contents.statement(b"SELECT $1\0\0\0", b"UTF8\0");
        assert!(Arc::ptr_eq(&one, &same));
        for (content, settings) in [
            (&b"SELECT $1\0\0\x01\0\0\0\x17"[..], &b"UTF8\0"[..]),
            (b"SELECT $1\0\0\0", b"LATIN1\0"),
            (b"8\0SELECT $1\0\0\0", b"UTF"),
        ] {
            let other = contents.statement(content, settings);
            assert_ne!(one.name(), other.name(), "{content:?} {settings:?}");
        }
        assert!(one.name().len() < 64, "Postgres's limit of names");
        let parse = one.to_message();
        assert_eq!(parse[0], b'P');
        assert!(parse.ends_with(b"\0SELECT $1\0\0\0"));
    }

    #[test]
    fn statements_that_nobody_has_are_not_kept() {
        let contents = Contents::default();
        for number in 0..100 * FIRST_PURGE {
            contents.statement(number.to_string().as_bytes(), b"");
        }
        assert!(contents.known.lock().len() < 4 * FIRST_PURGE);
    }

    #[test]
    fn a_clients_bytes_are_counted_and_given_back() {
        let contents = Contents::default();
        let mut client = ClientStatements::default();
        let content = [b'x'; 400];
        let mut count = 0_u32;
        while !client.is_full(&count.to_be_bytes(), &content, 10_000) {
            let name: Name = count.to_be_bytes().to_vec().into();
            client.insert(name, contents.statement(&content, b""));
            count += 1;
        }
        assert_eq!(count, 19);
        assert!(client.remove(&0_u32.to_be_bytes()).is_some());
        assert!(client.remove(&0_u32.to_be_bytes()).is_none());
        assert!(!client.is_full(&0_u32.to_be_bytes(), &content, 10_000));
        client.clear();
        assert_eq!(client.bytes, 0);
    }

    #[test]
    fn what_is_stale_is_closed_before_it_is_prepared_again() {
        let mut server = ServerStatements::new(10);
        let name: Arc<str> = "a".into();
        server.spoil(&name);
        assert!(server.make_room().is_empty());
        server.insert(name.clone());
        server.spoil(&name);
        assert!(!server.touch(&name));
        assert_eq!(server.make_room(), std::slice::from_ref(&name));
        assert!(server.make_room().is_empty());
    }

    proptest! {
        /// Against a list in the order of use.
        #[test]
        fn a_server_never_has_more_than_its_limit_and_loses_what_was_used_longest_ago(
            most in 1_usize..6,
            uses in proptest::collection::vec(0_u8..10, 0..60),
        ) {
            let mut server = ServerStatements::new(most);
            let mut model: Vec<Arc<str>> = Vec::new();
            for number in uses {
                let name: Arc<str> = number.to_string().into();
                let known = model.iter().position(|other| *other == name);
                prop_assert_eq!(server.touch(&name), known.is_some());
                if let Some(at) = known {
                    model.remove(at);
                } else {
                    let closed = server.make_room();
                    let expected = match model.len() == most {
                        true => vec![model.remove(0)],
                        false => Vec::new(),
                    };
                    prop_assert_eq!(closed, expected);
                    server.insert(name.clone());
                }
                model.push(name);
                prop_assert!(server.len() <= most);
            }
        }
    }
}
