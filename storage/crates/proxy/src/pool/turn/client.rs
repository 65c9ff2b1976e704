//! What is known of a client, and where its messages begin and end.

use std::ops::Range;

use pg_protocol::messages::{Fatal, message};

use super::inbox::{HEADER_BYTES, Inbox, MOST_HEAD_BYTES, violation};
use super::{MOST_STATEMENT_BYTES, MOST_UNNAMED_BYTES};
use crate::pool::parameters::Tracked;
use crate::pool::statements::ClientStatements;

/// What becomes of the bytes that come next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// The next byte begins a message.
    Between,
    /// So many are passed on.
    Pass(usize),
    /// So many go nowhere.
    Skip(usize),
}

/// What is known of a client, from turn to turn.
pub struct Client {
    /// What it has sent and nobody has taken.
    pub inbox: Inbox,
    /// The client's prepared statements.
    pub statements: ClientStatements,
    /// The client's settings, as a server has reported them.
    pub settings: Tracked,
    pub(super) step: Step,
}

/// What a client without a server connection has sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Idle {
    /// Not enough to say.
    More,
    /// Something that is answered here, with these bytes.
    Answer(Vec<u8>),
    /// Something for which it needs a server connection.
    Turn,
    /// That it goes.
    Terminate,
}

/// How far the client's messages were taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Took {
    /// All that can be; more bytes are needed.
    All,
    /// Others follow, once what there is has been sent.
    Some,
    /// Others follow, once the server has answered some.
    Enough,
    /// The client goes.
    Terminate,
}

/// The next message, of which as much has come as is needed to handle it.
pub(super) struct Next {
    /// The type.
    pub tag: u8,
    /// Bytes, type and length among them.
    pub total: usize,
    /// The first name in it, and the second one of a Bind.
    pub name: Range<usize>,
    pub second: Range<usize>,
}

impl Client {
    /// A client with the settings that it has been told.
    pub fn new(settings: Tracked) -> Client {
        Client {
            inbox: Inbox::default(),
            statements: ClientStatements::default(),
            settings,
            step: Step::Between,
        }
    }

    /// Whether the client stands between two messages.
    pub fn is_between(&self) -> bool {
        self.step == Step::Between
    }

    /// Looks at what a client without a server connection has sent.
    ///
    /// # Errors
    /// 08P01 for what no client can send here.
    pub fn idle(&mut self) -> Result<Idle, Fatal> {
        loop {
            if let Step::Skip(_) = self.step {
                if !self.skip() {
                    return Ok(Idle::More);
                }
                continue;
            }
            let Some(next) = self.next()? else {
                return Ok(Idle::More);
            };
            match next.tag {
                b'X' => return Ok(Idle::Terminate),
                b'S' => {
                    self.inbox.consume(next.total);
                    return Ok(Idle::Answer(message(b'Z', b"I")));
                }
                // Data of a COPY that has failed, and Flush: a server does nothing with them.
                b'd' | b'c' | b'f' | b'H' => self.step = Step::Skip(next.total),
                _ => return Ok(Idle::Turn),
            }
        }
    }

    /// False: more bytes are needed.
    pub(super) fn skip(&mut self) -> bool {
        if let Step::Skip(left) = self.step {
            let count = left.min(self.inbox.rest().len());
            self.inbox.consume(count);
            self.step = match left - count {
                0 => Step::Between,
                left => Step::Skip(left),
            };
        }
        self.is_between()
    }

    pub(super) fn next(&self) -> Result<Option<Next>, Fatal> {
        let Some((tag, total)) = self.inbox.header()? else {
            return Ok(None);
        };
        let (mut name, mut second) = (0..0, 0..0);
        let mut needed = total.min(MOST_HEAD_BYTES);
        match tag {
            b'P' => match self.inbox.text(HEADER_BYTES, total)? {
                None => return Ok(None),
                Some(range) => {
                    let most = match range.is_empty() {
                        true => MOST_UNNAMED_BYTES,
                        false => MOST_STATEMENT_BYTES,
                    };
                    if total <= most {
                        needed = total;
                    }
                    name = range;
                }
            },
            b'B' => {
                let Some(portal) = self.inbox.text(HEADER_BYTES, total)? else {
                    return Ok(None);
                };
                let Some(statement) = self.inbox.text(portal.end + 1, total)? else {
                    return Ok(None);
                };
                (name, second) = (portal, statement);
            }
            b'D' | b'C' => match self.inbox.text(HEADER_BYTES + 1, total)? {
                None => return Ok(None),
                Some(range) if range.end + 1 != total => {
                    return Err(violation("a Describe or Close has no name, or more"));
                }
                Some(range) => name = range,
            },
            b'Q' | b'F' | b'E' | b'S' | b'H' | b'd' | b'c' | b'f' | b'X' => {}
            _ => return Err(violation(format!("invalid frontend message type {tag}"))),
        }
        let next = Next {
            tag,
            total,
            name,
            second,
        };
        Ok((self.inbox.rest().len() >= needed).then_some(next))
    }
}
