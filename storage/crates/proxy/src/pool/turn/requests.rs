//! What a client asks for, on its way to the server.

use std::sync::Arc;

use pg_protocol::messages::{Fatal, message};

use super::client::{Next, Step, Took};
use super::inbox::HEADER_BYTES;
use super::{
    Described, Expected, MOST_CLIENT_BYTES, MOST_EXPECTED, MOST_STATEMENT_BYTES,
    MOST_UNNAMED_BYTES, MOST_UNSENT_BYTES, Turn, Unnamed,
};
use crate::pool::description;
use crate::pool::schema::Generation;
use crate::pool::statements::{Given, Has, Held, Name};

/// The portal whose Execute has the server fail: no client names one so.
const NO_PORTAL: &[u8] = b"weir_refused\0\0\0\0\0";

/// What became of a name of the client's.
enum Resolved {
    /// The server connection has what the server knows by this name: the unnamed statement, or none.
    Plain(Box<[u8]>),
    /// The server connection has one of ours.
    Ours(Ours),
    /// What it has, or has no more, cannot serve the client, and the message was refused.
    Refused,
    /// Whether it can serve the client is known after an answer, for which the message has to wait.
    Later,
}

/// One of our statements on the server connection.
struct Ours {
    name: Arc<str>,
    /// The schema's generation there, and for the client.
    there: Generation,
    here: Generation,
}

impl Turn {
    /// Takes messages of the client from its inbox, and adds to `out` what is to be sent to the server.
    ///
    /// # Errors
    /// 08P01 for what no client can send here: the client cannot be understood any more.
    pub fn take_from_client(&mut self, out: &mut Vec<u8>) -> Result<Took, Fatal> {
        self.begun = true;
        let took = loop {
            if out.len() >= MOST_UNSENT_BYTES {
                break Took::Some;
            }
            if self.expected.len() >= MOST_EXPECTED {
                break Took::Enough;
            }
            match self.client.step {
                Step::Pass(left) => {
                    let rest = self.client.inbox.rest();
                    let count = left.min(rest.len());
                    out.extend_from_slice(&rest[..count]);
                    self.client.inbox.consume(count);
                    self.client.step = match left - count {
                        0 => Step::Between,
                        left => Step::Pass(left),
                    };
                    if count < left {
                        break Took::All;
                    }
                }
                Step::Skip(_) => {
                    if !self.client.skip() {
                        break Took::All;
                    }
                }
                Step::Between => match self.client.next()? {
                    None => break Took::All,
                    Some(next) if next.tag == b'X' => break Took::Terminate,
                    Some(next) if self.has_to_wait(&next) => break Took::Enough,
                    Some(next) => self.begin(&next, out),
                },
            }
        };
        self.client.inbox.compact();
        self.unsent |= !out.is_empty();
        Ok(took)
    }

    /// Which statements there are is known only when what may have changed them is answered: a query, which may have
    /// dropped them all, and segments before this one, which may have failed. Of its own segment a message needs to know
    /// nothing more: if something before it fails there, it is skipped.
    fn has_to_wait(&self, next: &Next) -> bool {
        let name = match next.tag {
            b'B' => &next.second,
            b'P' => &next.name,
            b'D' | b'C' if self.client.inbox.rest().get(HEADER_BYTES) == Some(&b'S') => &next.name,
            _ => return false,
        };
        if self.is_learning {
            return true;
        }
        let [named, unnamed] = self.unsure;
        let unsure = match (name.is_empty(), next.tag) {
            (false, _) => named > 0,
            (true, b'P') => false,
            (true, _) => unnamed > 0 && !self.changes.unnamed,
        };
        !self.copying_in && !self.skipping && (self.queries > 0 || unsure)
    }

    fn begin(&mut self, next: &Next, out: &mut Vec<u8>) {
        if self.skipping && next.tag != b'S' {
            self.client.step = Step::Skip(next.total);
            return;
        }
        match next.tag {
            b'P' => self.parse(next, out),
            b'B' => self.bind(next, out),
            b'D' => self.describe(next, out),
            b'C' => self.close(next),
            b'E' => self.ask(Expected::Execute, next),
            b'Q' | b'F' => {
                let before = (next.tag == b'Q').then(|| self.replace_unnamed(None, false));
                self.unsynced = false;
                self.queries += 1;
                self.expected.push_back(Expected::Query { before });
                self.client.step = Step::Pass(next.total);
            }
            b'S' => self.sync(next),
            b'd' | b'c' | b'f' => self.copy(next),
            _ => self.client.step = Step::Pass(next.total),
        }
    }

    /// A message of the extended protocol that is passed on as it is.
    fn ask(&mut self, expected: Expected, next: &Next) {
        self.unsynced = true;
        self.expected.push_back(expected);
        self.client.step = Step::Pass(next.total);
    }

    fn sync(&mut self, next: &Next) {
        self.client.step = Step::Pass(next.total);
        let ended = |expected: &Expected| matches!(expected, Expected::CopyEnd);
        if self.copying_in && !self.expected.iter().any(ended) {
            // A server that takes the data of a COPY makes nothing of a Sync.
            return;
        }
        self.expect_sync();
    }

    fn copy(&mut self, next: &Next) {
        if self.expected.is_empty() && !self.unsynced {
            // The COPY has failed meanwhile.
            self.client.step = Step::Skip(next.total);
            return;
        }
        if next.tag != b'd' {
            self.expected.push_back(Expected::CopyEnd);
        }
        self.client.step = Step::Pass(next.total);
    }

    fn parse(&mut self, next: &Next, out: &mut Vec<u8>) {
        self.unsynced = true;
        let whole = self.client.inbox.rest();
        let whole = &whole[..next.total.min(whole.len())];
        if next.name.is_empty() {
            let kept = (next.total <= MOST_UNNAMED_BYTES).then(|| Box::from(whole));
            let before = self.replace_unnamed(kept, true);
            self.changes.unnamed = true;
            let shown = true;
            return self.ask(Expected::Unnamed { shown, before }, next);
        }
        self.client.step = Step::Skip(next.total);
        let name: Name = whole[next.name.clone()].into();
        let shown = String::from_utf8_lossy(&name).into_owned();
        if next.total > MOST_STATEMENT_BYTES {
            let text = format!(
                "prepared statement \"{shown}\" has more than the {MOST_STATEMENT_BYTES} bytes that a pooler keeps"
            );
            let hint = "Send it without a name, or connect to the endpoint's own host.";
            return self.refuse(Fatal::new("54000", text).with_hint(hint), out);
        }
        let statements = &self.client.statements;
        if statements.get(&name).is_some() {
            let text = format!("prepared statement \"{shown}\" already exists");
            return self.refuse(Fatal::new("42P05", text), out);
        }
        let content = &whole[next.name.end + 1..];
        if statements.is_full(&name, content, MOST_CLIENT_BYTES) {
            let text = format!(
                "prepared statements of this connection have more than the {MOST_CLIENT_BYTES} bytes that a pooler keeps"
            );
            let hint =
                "Close statements that are not used any more, or prepare fewer in the driver.";
            return self.refuse(Fatal::new("53400", text).with_hint(hint), out);
        }
        self.changes.named = true;
        let statement = self
            .contents
            .statement(content, &self.server.settings.parse_context());
        // The client expects the types of its parameters and rows as they are now.
        let since = self.server.schema.generation();
        let given = Given {
            statement,
            since,
            told: None,
        };
        let statements = &mut self.client.statements;
        statements.insert(name.clone(), given.clone());
        if self.altering.is_some() {
            self.own.push(name.clone());
        }
        match self.held(&given) {
            Some(_) => {
                let named = name;
                self.expected.push_back(Expected::Known { named, given });
            }
            None => self.prepare(given, Some(name), out),
        }
    }

    /// The statement as the server connection has it, from the client's generation of the schema or a later one.
    fn held(&mut self, given: &Given) -> Option<Held> {
        let name = given.statement.name();
        let counts = &mut self.preparations;
        let (count, held) = match self.server.statements.touch(name, given.since) {
            Has::Ready(held) => (&mut counts.reused, Some(held)),
            Has::Outdated => (&mut counts.renewed, None),
            Has::Nothing => (&mut counts.prepared, None),
        };
        *count += 1;
        held
    }

    /// Has the server prepare a statement that it has not, in this generation. Without a name of the client's, the client
    /// learns nothing of it.
    fn prepare(&mut self, given: Given, named: Option<Name>, out: &mut Vec<u8>) {
        self.changes.named = true;
        for closed in self.server.statements.make_room() {
            let body = [b"S", closed.0.as_bytes(), b"\0"].concat();
            out.extend(message(b'C', &body));
            self.expected.push_back(Expected::Own { closed });
        }
        let name = given.statement.name().clone();
        if self.altering.is_some() {
            self.altered.push(name.clone());
        }
        self.server.statements.insert(name, given.since);
        out.extend(given.statement.to_message());
        self.expected.push_back(Expected::Parse { given, named });
    }

    /// Has the server have the statement that the client means by a name.
    fn resolve(&mut self, name: &[u8], out: &mut Vec<u8>) -> Resolved {
        if name.is_empty() {
            if !self.unnamed_here {
                let Some(parse) = self.client.statements.unnamed() else {
                    let text = "unnamed prepared statement does not exist";
                    self.refuse(Fatal::new("26000", text), out);
                    return Resolved::Refused;
                };
                out.extend_from_slice(parse);
                let before = Unnamed {
                    parse: Some(parse.into()),
                    here: false,
                };
                self.unnamed_here = true;
                self.changes.unnamed = true;
                let shown = false;
                self.expected.push_back(Expected::Unnamed { shown, before });
            }
            return Resolved::Plain(Box::default());
        }
        let Some(given) = self.client.statements.get(name).cloned() else {
            // The server says that there is none, in its own words.
            return Resolved::Plain(name.into());
        };
        let held = self.held(&given).unwrap_or_else(|| {
            let since = self.server.schema.generation();
            let given = given.clone();
            self.prepare(Given { since, ..given }, None, out);
            let described = None;
            Held { since, described }
        });
        let ours = Ours {
            name: given.statement.name().clone(),
            there: held.since,
            here: given.since,
        };
        match (given.told, held.described) {
            (Some(told), Some(described)) if told.description != described => {
                self.refuse_with(description::outdated(), out);
                Resolved::Refused
            }
            // It may be another, since something is known to have changed between the two.
            (Some(told), None) if told.at != held.since => {
                self.learn(ours, out);
                Resolved::Later
            }
            _ => Resolved::Ours(ours),
        }
    }

    /// Asks the server what a statement is, at once.
    fn learn(&mut self, ours: Ours, out: &mut Vec<u8>) {
        self.is_learning = true;
        out.extend(message(b'D', &[b"S", ours.name.as_bytes(), b"\0"].concat()));
        out.extend(message(b'H', b""));
        let statement = Some(Described {
            name: ours.name,
            since: ours.there,
            by: None,
        });
        self.expected.push_back(Expected::Describe { statement });
    }

    fn bind(&mut self, next: &Next, out: &mut Vec<u8>) {
        self.unsynced = true;
        let rest = self.client.inbox.rest();
        let portal: Box<[u8]> = rest[next.name.clone()].into();
        let name: Box<[u8]> = rest[next.second.clone()].into();
        let (there, statement): (Box<[u8]>, _) = match self.resolve(&name, out) {
            Resolved::Plain(name) => (name, None),
            Resolved::Ours(ours) => (ours.name.as_bytes().into(), Some(ours.name)),
            Resolved::Refused => {
                self.client.step = Step::Skip(next.total);
                return;
            }
            Resolved::Later => return,
        };
        let total = next.total - name.len() + there.len();
        out.push(b'B');
        out.extend_from_slice(&(total as u32 - 1).to_be_bytes());
        for text in [&portal, &there] {
            out.extend_from_slice(text);
            out.push(0);
        }
        let head = next.second.end + 1;
        self.client.inbox.consume(head);
        self.client.step = match next.total - head {
            0 => Step::Between,
            left => Step::Pass(left),
        };
        self.expected.push_back(Expected::Bind { statement });
    }

    fn describe(&mut self, next: &Next, out: &mut Vec<u8>) {
        let whole = self.client.inbox.rest();
        if whole[HEADER_BYTES] != b'S' {
            return self.ask(Expected::Describe { statement: None }, next);
        }
        self.unsynced = true;
        let name: Box<[u8]> = whole[next.name.clone()].into();
        let (there, statement): (Box<[u8]>, _) = match self.resolve(&name, out) {
            Resolved::Plain(name) => (name, None),
            Resolved::Ours(ours) => {
                let of = Described {
                    name: ours.name.clone(),
                    since: ours.there,
                    by: Some((name.into(), ours.here)),
                };
                (ours.name.as_bytes().into(), Some(of))
            }
            Resolved::Refused => {
                self.client.step = Step::Skip(next.total);
                return;
            }
            Resolved::Later => return,
        };
        self.client.step = Step::Skip(next.total);
        out.extend(message(b'D', &[b"S", &there[..], b"\0"].concat()));
        self.expected.push_back(Expected::Describe { statement });
    }

    fn close(&mut self, next: &Next) {
        let whole = self.client.inbox.rest();
        if whole[HEADER_BYTES] != b'S' {
            return self.ask(Expected::Close { before: None }, next);
        }
        if next.name.is_empty() {
            let before = Some(self.replace_unnamed(None, false));
            self.changes.unnamed = true;
            return self.ask(Expected::Close { before }, next);
        }
        self.unsynced = true;
        let name: Name = whole[next.name.clone()].into();
        self.changes.named = true;
        let was = self.client.statements.remove(&name);
        let was = was.map(|given| (name, given));
        self.expected.push_back(Expected::Closed { was });
        self.client.step = Step::Skip(next.total);
    }

    /// Has the server fail, so that it skips what follows and its transaction has failed, as if the error were its own.
    fn refuse(&mut self, error: Fatal, out: &mut Vec<u8>) {
        self.refuse_with(error.to_error_message(), out);
    }

    /// The same with a whole ErrorResponse.
    fn refuse_with(&mut self, error: Vec<u8>, out: &mut Vec<u8>) {
        out.extend(message(b'E', NO_PORTAL));
        self.expected.push_back(Expected::Refused(error));
    }
}
