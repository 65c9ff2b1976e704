//! The messages of a client and of a server connection while the client has it: a turn, which is one transaction, or
//! several where the client does not wait for the end of one before it begins the next.
//!
//! Both directions are followed message by message. What the client asks for is put in a queue, in the order in which the
//! server answers; each answer takes its entry out. Some entries never reach the server: a Parse of a statement that the
//! server connection has, and each Close of a statement, are answered here when their turn has come. Some answers never
//! reach the client: those to a Parse or Close of our own.
//!
//! After an error the server skips what follows up to the next Sync. What was noted of the skipped messages is undone
//! then, in reverse order, so that both sides' statements stay what they really are.

mod client;
mod inbox;
mod requests;
mod server;

pub use client::{Client, Idle, Took};
pub use server::Server;
pub(crate) use server::{field, status};

use std::collections::VecDeque;
use std::sync::Arc;

use pg_protocol::messages::message;
use thiserror::Error;

use super::description::Begun;
use super::schema::{Generation, Pending};
use super::statements::{Closing, Contents, Given, Name};

/// Most bytes of statements that a client may have, names included.
pub const MOST_CLIENT_BYTES: usize = 4 << 20;
/// Most bytes of one named statement.
pub const MOST_STATEMENT_BYTES: usize = 1 << 20;
/// An unnamed statement of at most so many bytes outlives its turn.
const MOST_UNNAMED_BYTES: usize = 64 << 10;
/// Once so much waits to be sent, the client's next messages wait.
const MOST_UNSENT_BYTES: usize = 256 << 10;
/// Once so many answers are awaited, the client's next messages wait.
const MOST_EXPECTED: usize = 1 << 16;

/// The server said something that does not fit what it was asked; the connection cannot be used any more.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("the compute sent {meaning} (message {tag:?}), for which it was not asked")]
pub struct Desync {
    tag: char,
    meaning: &'static str,
}

/// What the server has been asked for and not answered yet, or what is answered here in its place.
#[derive(Debug)]
enum Expected {
    /// A Parse of a named statement; with a name of the client's when the client knows of it.
    Parse {
        given: Given,
        named: Option<Name>,
    },
    /// A Parse of the unnamed statement; `shown` when the client knows of it.
    Unnamed {
        shown: bool,
        before: Unnamed,
    },
    /// A Parse of the client that the server never sees, since it has the statement.
    Known {
        named: Name,
        given: Given,
    },
    Bind {
        statement: Option<Arc<str>>,
    },
    /// Of one of our statements, or of anything else.
    Describe {
        statement: Option<Described>,
    },
    Execute,
    /// A Close that the server sees and the client knows of; of the unnamed statement or of a portal.
    Close {
        before: Option<Unnamed>,
    },
    /// A Close of ours.
    Own {
        closed: Closing,
    },
    /// A Close of the client that the server never sees.
    Closed {
        was: Option<(Name, Given)>,
    },
    /// A message that makes the server fail, and the error that the client gets in place of the server's.
    Refused(Vec<u8>),
    /// The end of a segment that has changed these statements.
    Sync(Changes),
    /// A simple query, which drops the unnamed statement, or a call of a function.
    Query {
        before: Option<Unnamed>,
    },
    /// The end of the data of a COPY, which has no answer of its own.
    CopyEnd,
}

/// A statement that is being described, as the server connection has it.
#[derive(Debug)]
struct Described {
    name: Arc<str>,
    since: Generation,
    /// The client's name of it, and since when it has it; None where the pool asks for itself.
    by: Option<(Name, Generation)>,
}

/// Which statements are others than before, if all goes well.
#[derive(Clone, Copy, Default, Debug)]
struct Changes {
    named: bool,
    unnamed: bool,
}

/// The unnamed statement as it was.
#[derive(Debug)]
struct Unnamed {
    parse: Option<Box<[u8]>>,
    here: bool,
}

/// A client with a server connection.
pub struct Turn {
    /// What is known of the client.
    pub client: Client,
    /// What is known of the server connection.
    pub server: Server,
    contents: Arc<Contents>,
    expected: VecDeque<Expected>,
    /// How many of these are simple queries or calls.
    queries: usize,
    /// How many of these are Syncs of segments that have changed named statements, or the unnamed one.
    unsure: [usize; 2],
    /// What has been changed since the last Sync.
    changes: Changes,
    /// What the last ReadyForQuery said: `I` outside of transactions.
    status: u8,
    begun: bool,
    /// Messages of the extended protocol were sent, and no Sync after them.
    unsynced: bool,
    /// The server skips what comes, up to a Sync.
    skipping: bool,
    copying_in: bool,
    /// The unnamed statement of the server connection is this client's.
    unnamed_here: bool,
    left: bool,
    unsent: bool,
    /// The transaction has changed the schema.
    altering: Option<Pending>,
    /// What was prepared since then, by its name on the server, and by the client's: as the schema is for this
    /// transaction only.
    altered: Vec<Arc<str>>,
    own: Vec<Name>,
    /// What has come of a description.
    description: Begun,
    /// A description is awaited that decides whether the client's next message can be served.
    is_learning: bool,
    preparations: Preparations,
}

/// What became of the needs of statements of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Preparations {
    /// The server connection had the statement.
    pub reused: u64,
    /// The server connection had it not.
    pub prepared: u64,
    /// The server connection had one from an earlier generation of the schema.
    pub renewed: u64,
}

impl Turn {
    /// Begins with a server connection outside of a transaction.
    pub fn new(client: Client, server: Server, contents: Arc<Contents>) -> Turn {
        Turn {
            client,
            server,
            contents,
            expected: VecDeque::new(),
            queries: 0,
            unsure: [0; 2],
            changes: Changes::default(),
            status: b'I',
            begun: false,
            unsynced: false,
            skipping: false,
            copying_in: false,
            unnamed_here: false,
            left: false,
            unsent: false,
            altering: None,
            altered: Vec::new(),
            own: Vec::new(),
            description: Begun::default(),
            is_learning: false,
            preparations: Preparations::default(),
        }
    }

    /// Whether the turn has ended: the next message of the client can go to any server connection. When the client has
    /// left, whether the server has nothing more to do for it; it may be within a transaction then.
    pub fn is_over(&self) -> bool {
        self.begun
            && self.expected.is_empty()
            && !self.unsynced
            && !self.skipping
            && !self.unsent
            && self.client.is_between()
            && self.server.is_between()
            && (self.status == b'I' || self.left)
    }

    /// Whether the server is outside of a transaction, as far as it has said.
    pub fn is_outside(&self) -> bool {
        self.status == b'I'
    }

    /// Whether bytes can be put between what the client has got so far and what comes.
    pub fn can_tell(&self) -> bool {
        self.server.is_between()
    }

    /// Notes that all bytes that were to be sent to the server have been.
    pub fn sent(&mut self) {
        self.unsent = false;
    }

    /// What became of the needs of statements so far.
    pub fn preparations(&self) -> Preparations {
        self.preparations
    }

    /// Notes that nothing more comes from the client. Bytes for the server that end what the client has begun are added to
    /// `out`. False: the client has left within a message or a COPY, and the server connection has to be closed.
    pub fn leave(&mut self, out: &mut Vec<u8>) -> bool {
        if !self.client.is_between() || self.unsent || self.copying_in {
            return false;
        }
        self.left = true;
        self.begun = true;
        self.spoil_altered();
        if self.unsynced || self.skipping {
            out.extend(message(b'S', b""));
            self.expect_sync();
        }
        true
    }

    fn expect_sync(&mut self) {
        let changes = std::mem::take(&mut self.changes);
        self.unsure[0] += usize::from(changes.named);
        self.unsure[1] += usize::from(changes.unnamed);
        self.expected.push_back(Expected::Sync(changes));
        self.unsynced = false;
        self.skipping = false;
    }

    fn synced(&mut self, changes: Changes) {
        self.unsure[0] -= usize::from(changes.named);
        self.unsure[1] -= usize::from(changes.unnamed);
    }

    /// Adds to `out` the answers whose turn has come and that the server does not give.
    pub fn answer(&mut self, out: &mut Vec<u8>) {
        if !self.server.is_between() {
            return;
        }
        loop {
            match self.expected.front() {
                Some(Expected::Known { .. }) => out.extend(message(b'1', b"")),
                Some(Expected::Closed { .. }) => out.extend(message(b'3', b"")),
                // Of a copy that is over.
                Some(Expected::CopyEnd) => {}
                _ => return,
            }
            self.expected.pop_front();
        }
    }

    /// After an error: what the server skips is as if it had never been sent.
    fn drop_up_to_sync(&mut self) {
        let sync = |expected: &Expected| matches!(expected, Expected::Sync(_));
        let end = self.expected.iter().position(sync);
        let upto = end.unwrap_or(self.expected.len());
        let dropped: Vec<Expected> = self.expected.drain(..upto).collect();
        self.skipping = end.is_none() && (self.unsynced || !dropped.is_empty());
        self.unsynced |= self.skipping;
        for expected in dropped.into_iter().rev() {
            self.undo(expected);
        }
    }

    fn undo(&mut self, expected: Expected) {
        match expected {
            Expected::Parse { given, named } => {
                self.server.statements.remove(given.statement.name());
                if let Some(named) = named {
                    self.client.statements.remove(&named);
                }
            }
            Expected::Unnamed { before, .. }
            | Expected::Close {
                before: Some(before),
            } => self.restore(before),
            Expected::Known { named, .. } => {
                self.client.statements.remove(&named);
            }
            Expected::Describe {
                statement: Some(Described { by: None, .. }),
            } => self.is_learning = false,
            Expected::Own {
                closed: (name, since),
            } => self.server.statements.insert(name, since),
            Expected::Query { before } => {
                self.queries -= 1;
                if let Some(before) = before {
                    self.restore(before);
                }
            }
            Expected::Closed {
                was: Some((name, given)),
            } if self.client.statements.get(&name).is_none() => {
                self.client.statements.insert(name, given);
            }
            _ => {}
        }
    }

    /// Replaces the unnamed statement; answers with what it was.
    fn replace_unnamed(&mut self, parse: Option<Box<[u8]>>, here: bool) -> Unnamed {
        Unnamed {
            parse: self.client.statements.replace_unnamed(parse),
            here: std::mem::replace(&mut self.unnamed_here, here),
        }
    }

    /// Puts the unnamed statement back to what it was. Where a later segment has replaced it already, that segment found it
    /// so.
    fn restore(&mut self, was: Unnamed) {
        let later = self
            .expected
            .iter_mut()
            .find_map(|expected| match expected {
                Expected::Unnamed { before, .. }
                | Expected::Close {
                    before: Some(before),
                }
                | Expected::Query {
                    before: Some(before),
                } => Some(before),
                _ => None,
            });
        match later {
            Some(before) => *before = was,
            None => {
                self.replace_unnamed(was.parse, was.here);
            }
        }
    }

    /// The server has dropped all prepared statements, and so has the client. Those that were asked for since are there.
    fn forget_statements(&mut self) {
        self.server.statements.clear();
        self.client.statements.clear();
        for expected in &self.expected {
            let (named, given) = match expected {
                Expected::Parse { named, given } => {
                    let name = given.statement.name().clone();
                    self.server.statements.insert(name, given.since);
                    (named.as_ref(), given)
                }
                Expected::Known { named, given } => (Some(named), given),
                _ => continue,
            };
            if let Some(named) = named {
                let statements = &mut self.client.statements;
                statements.insert(named.clone(), given.clone());
            }
        }
    }

    /// A command of the transaction has changed the schema, or undone a change. What the client has prepared behind it
    /// must not be from before it.
    fn schema_changed(&mut self) {
        self.altering = Some(Pending::new(self.server.schema.clone()));
        let since = self.server.schema.generation();
        for expected in &mut self.expected {
            match expected {
                Expected::Known { named, given } => {
                    given.since = since;
                    self.client.statements.renew(named, since);
                    self.own.push(named.clone());
                }
                Expected::Parse { given, named } => {
                    self.altered.push(given.statement.name().clone());
                    self.own.extend(named.clone());
                }
                _ => {}
            }
        }
    }

    /// The transaction has ended. What it has changed is there for all, or undone.
    fn outside(&mut self) {
        if self.altering.take().is_none() {
            return;
        }
        self.spoil_altered();
        let since = self.server.schema.generation();
        for name in self.own.drain(..) {
            self.client.statements.renew(&name, since);
        }
    }

    /// What was prepared while the schema was another than before and than it may be now is of no use to anybody.
    fn spoil_altered(&mut self) {
        for name in self.altered.drain(..) {
            self.server.statements.spoil(&name);
        }
    }
}

#[cfg(test)]
mod tests;
