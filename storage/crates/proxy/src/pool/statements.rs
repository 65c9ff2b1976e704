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

use super::description::Description;
#[cfg(doc)]
use super::parameters::Tracked;
use super::schema::Generation;

/// Names on server connections begin so.
const PREFIX: &str = "weir_";
/// So many bytes of the hash are in a name, as two digits each.
const NAMED_BYTES: usize = 20;
/// What a client's entry costs beside name and content.
const ENTRY_BYTES: usize = 120;
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

/// A statement as a client has it.
#[derive(Clone, Debug)]
pub struct Given {
    /// What it is.
    pub statement: Arc<Statement>,
    /// The schema's generation when the client prepared it, at least: one of a server connection must not be older.
    pub since: Generation,
    /// What the client was told of it, if it has asked.
    pub told: Option<Announced>,
}

/// What a client was told of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    /// The description.
    pub description: Description,
    /// The schema's generation in which what was described had been prepared. What is prepared in the same one is the
    /// same. None of any where the schema was the client's own then.
    pub at: Generation,
}

/// The statements of one client.
#[derive(Default)]
pub struct ClientStatements {
    named: HashMap<Name, Given>,
    bytes: usize,
    /// The Parse of the unnamed statement, to be repeated on another server connection.
    unnamed: Option<Box<[u8]>>,
}

impl ClientStatements {
    /// The statement of this name.
    pub fn get(&self, name: &[u8]) -> Option<&Given> {
        self.named.get(name)
    }

    /// Whether a further statement would take the client beyond `most` bytes.
    pub fn is_full(&self, name: &[u8], content: &[u8], most: usize) -> bool {
        self.bytes + name.len() + content.len() + ENTRY_BYTES > most
    }

    /// Remembers a statement. One that had the name goes.
    pub fn insert(&mut self, name: Name, given: Given) {
        self.remove(&name);
        self.bytes += cost(&name, &given.statement);
        self.named.insert(name, given);
    }

    /// Notes what the client was told of a statement that it had in this generation.
    pub fn describe(&mut self, name: &[u8], since: Generation, told: Announced) {
        if let Some(given) = self
            .named
            .get_mut(name)
            .filter(|given| given.since == since)
        {
            given.told = Some(told);
        }
    }

    /// Notes that a statement must not be from before this generation, and may be another than the client was told.
    pub fn renew(&mut self, name: &[u8], since: Generation) {
        if let Some(given) = self.named.get_mut(name) {
            given.since = given.since.max(since);
            if let Some(told) = &mut given.told {
                told.at = Generation::NONE;
            }
        }
    }

    /// Forgets a statement, and answers with it.
    pub fn remove(&mut self, name: &[u8]) -> Option<Given> {
        let given = self.named.remove(name)?;
        self.bytes -= cost(name, &given.statement);
        Some(given)
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

/// What a server connection has of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Has {
    /// One that can be used.
    Ready(Held),
    /// One from an earlier generation of the schema, which is closed before one more is prepared.
    Outdated,
    /// Nothing.
    Nothing,
}

/// A statement as a server connection has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// The schema's generation in which it was prepared.
    pub since: Generation,
    /// What it is, once somebody has asked.
    pub described: Option<Description>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    used: u64,
    held: Held,
}

/// A name on a server connection, and the generation of the schema in which it was prepared.
pub type Closing = (Arc<str>, Generation);

/// The statements of one server connection, by how long ago they were used.
pub struct ServerStatements {
    most: usize,
    clock: u64,
    known: HashMap<Arc<str>, Entry>,
    order: BTreeMap<u64, Arc<str>>,
    stale: Vec<Closing>,
}

impl ServerStatements {
    /// A connection without statements that is to have at most `most`, one at least.
    pub fn new(most: usize) -> ServerStatements {
        ServerStatements {
            most: most.max(1),
            clock: 0,
            known: HashMap::new(),
            order: BTreeMap::new(),
            stale: Vec::new(),
        }
    }

    /// Whether the connection has the statement, from this generation or a later one, which is being used then.
    pub fn touch(&mut self, name: &Arc<str>, since: Generation) -> Has {
        match self.known.get(name) {
            Some(Entry { held, .. }) if held.since >= since => {
                let held = *held;
                self.note(name.clone(), held);
                Has::Ready(held)
            }
            Some(_) => {
                self.spoil(name);
                Has::Outdated
            }
            None => Has::Nothing,
        }
    }

    /// Notes a statement, prepared in this generation, as the one used last.
    pub fn insert(&mut self, name: Arc<str>, since: Generation) {
        let described = None;
        self.note(name, Held { since, described });
    }

    fn note(&mut self, name: Arc<str>, held: Held) {
        self.clock += 1;
        let used = self.clock;
        if let Some(before) = self.known.insert(name.clone(), Entry { used, held }) {
            self.order.remove(&before.used);
        }
        self.order.insert(used, name);
    }

    /// Notes what a statement is that was prepared in this generation.
    pub fn describe(&mut self, name: &str, since: Generation, described: Description) {
        if let Some(Entry { held, .. }) = self.known.get_mut(name)
            && held.since == since
        {
            held.described = Some(described);
        }
    }

    /// Forgets a statement that the connection has not, or has no longer.
    pub fn remove(&mut self, name: &str) {
        if let Some(entry) = self.known.remove(name) {
            self.order.remove(&entry.used);
        }
    }

    /// Notes that a statement cannot be used any more, and has to be closed before it is prepared again.
    pub fn spoil(&mut self, name: &Arc<str>) {
        if self.known.contains_key(name) {
            self.remove(name);
            // Where the Close is not done, the statement stays outdated.
            self.stale.push((name.clone(), Generation::NONE));
        }
    }

    /// Statements that have to be closed before one more is prepared: what is stale, and what was used longest ago where
    /// the connection is full. They are forgotten.
    pub fn make_room(&mut self) -> Vec<Closing> {
        let mut closed = std::mem::take(&mut self.stale);
        while self.known.len() >= self.most {
            let Some((_, name)) = self.order.pop_first() else {
                break;
            };
            let entry = self.known.remove(&name);
            closed.push((
                name,
                entry.map_or(Generation::NONE, |entry| entry.held.since),
            ));
        }
        closed
    }

    /// Forgets all: the connection has dropped them.
    pub fn clear(&mut self) {
        *self = ServerStatements::new(self.most);
    }

    /// How many statements the connection has.
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether the connection has no statement.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests;
