//! What comes from the server.

use std::sync::Arc;

use super::{Described, Desync, Expected, Turn, Unnamed};
use crate::pool::description::Begun;
use crate::pool::parameters::Tracked;
use crate::pool::schema::{self, Generation, Schema};
use crate::pool::statements::{Announced, ServerStatements};

/// So much of a message is looked at; the rest is passed on as it comes.
const MOST_HEAD_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 5;

/// What is known of a server connection, from turn to turn.
pub struct Server {
    /// The connection's prepared statements.
    pub statements: ServerStatements,
    /// The connection's settings, as the server has reported them.
    pub settings: Tracked,
    /// That of the connection's database.
    pub schema: Arc<Schema>,
    /// The begin of a message of which too little has come.
    held: Vec<u8>,
    /// Bytes of the message that is under way, and whether the client gets them.
    left: usize,
    shown: bool,
    /// Whether the server has said that it ends the connection, and why: its error is FATAL or PANIC.
    has_ended: bool,
}

impl Server {
    /// A connection that has at most `most` prepared statements at a time, and has reported these settings.
    pub fn new(most: usize, settings: Tracked, schema: Arc<Schema>) -> Server {
        Server {
            statements: ServerStatements::new(most),
            settings,
            schema,
            held: Vec::new(),
            left: 0,
            shown: true,
            has_ended: false,
        }
    }

    /// Whether the server stands between two messages.
    pub fn is_between(&self) -> bool {
        self.left == 0 && self.held.is_empty()
    }

    /// Whether the server's own last word has been that it ends the connection.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// The text up to the next zero byte, which is taken with it.
fn text<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    let (text, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
    *bytes = rest.get(1..).unwrap_or_default();
    text
}

/// Name and value of a ParameterStatus, of which this is the body.
pub(crate) fn status(mut body: &[u8]) -> Option<(&str, &str)> {
    let name = std::str::from_utf8(text(&mut body)).ok()?;
    Some((name, std::str::from_utf8(text(&mut body)).ok()?))
}

/// A field of an ErrorResponse, of which this is the body.
pub(crate) fn field(mut body: &[u8], code: u8) -> Option<&[u8]> {
    while let [found, rest @ ..] = body {
        if *found == 0 {
            return None;
        }
        body = rest;
        let value = text(&mut body);
        if *found == code {
            return Some(value);
        }
    }
    None
}

impl Turn {
    /// Takes bytes of the server, and adds to `out` what the client gets.
    ///
    /// # Errors
    /// An answer to something that was not asked: the server connection cannot be used any more.
    pub fn take_from_server(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Desync> {
        // What was asked for while nothing came, and is answered here, comes before what the server says now.
        self.answer(out);
        out.reserve(bytes.len());
        while !bytes.is_empty() {
            if self.server.left > 0 {
                let count = self.server.left.min(bytes.len());
                if self.server.shown {
                    out.extend_from_slice(&bytes[..count]);
                }
                self.server.left -= count;
                bytes = &bytes[count..];
                self.answer(out);
                continue;
            }
            if self.server.held.is_empty() {
                let needed = needed(bytes)?;
                if needed <= bytes.len() {
                    let (head, rest) = bytes.split_at(needed);
                    self.take_head(head, out)?;
                    bytes = rest;
                    continue;
                }
            }
            let needed = needed(&self.server.held)?;
            let count = (needed - self.server.held.len()).min(bytes.len());
            self.server.held.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            let have = self.server.held.len();
            if have < HEADER_BYTES || have < self::needed(&self.server.held)? {
                continue;
            }
            // Taken out: an idle connection holds no memory.
            let held = std::mem::take(&mut self.server.held);
            self.take_head(&held, out)?;
        }
        Ok(())
    }

    /// A message of which as much has come as is needed to handle it.
    fn take_head(&mut self, head: &[u8], out: &mut Vec<u8>) -> Result<(), Desync> {
        let shown = self.message(head[0], &head[HEADER_BYTES..], out)?;
        if shown {
            out.extend_from_slice(head);
        }
        self.server.shown = shown;
        self.server.left = total(head) - head.len();
        self.answer(out);
        Ok(())
    }

    /// A message whose begin has come. False: the client does not get it.
    fn message(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) -> Result<bool, Desync> {
        let desync = |meaning| {
            let tag = char::from(tag);
            Err(Desync { tag, meaning })
        };
        let front = self.expected.front();
        match (tag, front) {
            (b'1', Some(Expected::Parse { named, .. })) => {
                let shown = named.is_some();
                self.expected.pop_front();
                return Ok(shown);
            }
            (b'1', Some(Expected::Unnamed { shown, .. })) => {
                let shown = *shown;
                self.expected.pop_front();
                return Ok(shown);
            }
            (b'2', Some(Expected::Bind { .. })) | (b'3', Some(Expected::Close { .. })) => {
                self.expected.pop_front();
            }
            (b't' | b'T' | b'n', Some(Expected::Describe { statement })) => {
                let shown = statement.as_ref().is_none_or(|of| of.by.is_some());
                self.described(tag, body);
                return Ok(shown);
            }
            (b'3', Some(Expected::Own { .. })) => {
                self.expected.pop_front();
                return Ok(false);
            }
            (b'C' | b'I' | b's', Some(Expected::Execute)) => {
                self.expected.pop_front();
                self.completed(tag, body);
            }
            (b'C' | b'I', Some(Expected::Query { .. })) => {
                self.completed(tag, body);
                // Another COPY may follow in the same query.
                if matches!(self.expected.get(1), Some(Expected::CopyEnd)) {
                    self.expected.remove(1);
                }
            }
            (b'G', Some(Expected::Execute | Expected::Query { .. })) => self.copy_in_begins(),
            (b'Z', Some(Expected::Sync(_) | Expected::Query { .. })) => {
                match self.expected.pop_front() {
                    Some(Expected::Sync(changes)) => self.synced(changes),
                    _ => self.queries -= 1,
                }
                self.copying_in = false;
                self.status = body.first().copied().unwrap_or(b'?');
                if self.is_outside() {
                    self.outside();
                }
            }
            (b'E', _) => return Ok(self.failed(body, out)),
            (b'S', _) => {
                if let Some((name, value)) = status(body) {
                    self.server.settings.report(name, value);
                    self.client.settings.report(name, value);
                }
            }
            (b'T', Some(Expected::Execute | Expected::Query { .. })) => {}
            (b'1', _) => return desync("ParseComplete"),
            (b'2', _) => return desync("BindComplete"),
            (b'3', _) => return desync("CloseComplete"),
            (b'T' | b'n', _) => return desync("a description"),
            (b'C' | b'I' | b's', _) => return desync("the end of a statement"),
            (b'G', _) => return desync("the begin of a COPY"),
            (b'Z', _) => return desync("ReadyForQuery"),
            _ => {}
        }
        Ok(true)
    }

    /// A part of a description: the first one, of the parameters, or the last one, of columns or that there are none.
    fn described(&mut self, tag: u8, body: &[u8]) {
        if tag == b't' {
            self.description = Begun::new(body);
            return;
        }
        let Some(Expected::Describe {
            statement: Some(of),
        }) = self.expected.pop_front()
        else {
            return;
        };
        let description = self.description.with_columns(body);
        let statements = &mut self.server.statements;
        statements.describe(&of.name, of.since, description);
        let Some((name, since)) = of.by else {
            self.is_learning = false;
            return;
        };
        let at = match self.altering {
            Some(_) => Generation::NONE,
            None => of.since,
        };
        let told = Announced { description, at };
        self.client.statements.describe(&name, since, told);
    }

    fn completed(&mut self, tag: u8, mut body: &[u8]) {
        self.copying_in = false;
        let done = text(&mut body);
        match (tag, done) {
            (b'C', b"DISCARD ALL" | b"DEALLOCATE ALL") => self.forget_statements(),
            // To a savepoint, perhaps, after which the transaction goes on.
            (b'C', b"ROLLBACK") if self.altering.is_some() => {
                self.spoil_altered();
                self.schema_changed();
            }
            (b'C', done) if schema::is_changed_by(done) => self.schema_changed(),
            _ => {}
        }
    }

    /// The server takes data now, and makes nothing of a Sync that was sent before the data's end.
    fn copy_in_begins(&mut self) {
        self.copying_in = true;
        let ended = |expected: &Expected| matches!(expected, Expected::CopyEnd);
        let end = self.expected.iter().position(ended);
        let end = end.unwrap_or(self.expected.len());
        let (mut at, mut swallowed) = (0, Vec::new());
        self.expected.retain(|expected| {
            at += 1;
            match expected {
                Expected::Sync(changes) if at <= end => {
                    swallowed.push(*changes);
                    false
                }
                _ => true,
            }
        });
        let extended = matches!(self.expected.front(), Some(Expected::Execute));
        if extended && !swallowed.is_empty() {
            let sync = |expected: &Expected| matches!(expected, Expected::Sync(_));
            self.unsynced |= !self.expected.iter().any(sync);
        }
        for changes in swallowed {
            self.synced(changes);
        }
    }

    /// An ErrorResponse. False: the client gets another one in its place.
    fn failed(&mut self, body: &[u8], out: &mut Vec<u8>) -> bool {
        self.copying_in = false;
        if let Some(b"FATAL" | b"PANIC") = field(body, b'V') {
            // Nothing follows, and to whatever was asked for this is the answer.
            self.server.has_ended = true;
            return true;
        }
        let code = field(body, b'C').unwrap_or_default();
        let mut shown = true;
        match self.expected.front() {
            // ReadyForQuery follows, and nothing is skipped.
            Some(Expected::Query { .. }) => return true,
            Some(Expected::Refused(error)) if code == b"34000" => {
                out.extend_from_slice(error);
                shown = false;
            }
            Some(
                Expected::Bind {
                    statement: Some(name),
                }
                | Expected::Describe {
                    statement: Some(Described { name, .. }),
                },
            ) => {
                if schema::is_outdated(code, field(body, b'R')) {
                    // It will be prepared again, here, and wherever a client prepares it from now on.
                    self.server.statements.spoil(name);
                    self.server.schema.change();
                } else if code == b"26000" {
                    self.server.statements.remove(name);
                }
            }
            Some(Expected::Unnamed { .. }) => {
                let failed = self.expected.pop_front();
                self.drop_up_to_sync();
                // The server has dropped the one that it had, and so has the client if the Parse was its own.
                if let Some(Expected::Unnamed { shown, before }) = failed {
                    let parse = before.parse.filter(|_| !shown);
                    self.restore(Unnamed { parse, here: false });
                }
                return true;
            }
            Some(Expected::Parse { given, .. }) if code == b"42P05" => {
                // It is there after all. What is undone below takes it out of what is known; closing it puts that right.
                let name = given.statement.name().clone();
                self.drop_up_to_sync();
                self.server
                    .statements
                    .insert(name.clone(), Generation::NONE);
                self.server.statements.spoil(&name);
                return true;
            }
            _ => {}
        }
        self.drop_up_to_sync();
        shown
    }
}

/// How many bytes of the message that begins so are needed to handle it.
fn needed(begin: &[u8]) -> Result<usize, Desync> {
    if begin.len() < HEADER_BYTES {
        return Ok(HEADER_BYTES);
    }
    let total = total(begin);
    if total < HEADER_BYTES {
        let tag = char::from(begin[0]);
        let meaning = "a message without a length";
        return Err(Desync { tag, meaning });
    }
    Ok(match begin[0] {
        b'Z' | b'S' | b'E' | b'C' | b't' | b'T' => total.min(MOST_HEAD_BYTES),
        _ => HEADER_BYTES,
    })
}

/// Bytes of the message with this header.
fn total(held: &[u8]) -> usize {
    let length = held[1..HEADER_BYTES].try_into().map(u32::from_be_bytes);
    length.map_or(0, |length| length as usize + 1)
}
