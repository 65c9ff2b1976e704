use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use pg_protocol::messages::Fatal;
use proptest::prelude::*;

use super::*;
use crate::pool::parameters::Tracked;
use crate::pool::schema::Schema;

mod schema;

const LIMIT: usize = 2;
const OUTDATED: &[u8] =
    b"SERROR\0C0A000\0Mcached plan must not change result type\0RRevalidateCachedQuery\0\0";

fn parse(name: &str, query: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{query}\0\0\0").as_bytes())
}

fn bind(name: &str) -> Vec<u8> {
    message(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes())
}

fn describe(name: &str) -> Vec<u8> {
    message(b'D', format!("S{name}\0").as_bytes())
}

fn close(name: &str) -> Vec<u8> {
    message(b'C', format!("S{name}\0").as_bytes())
}

fn execute() -> Vec<u8> {
    message(b'E', b"\0\0\0\0\0")
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', format!("{text}\0").as_bytes())
}

fn error(code: &'static str, text: String) -> Vec<u8> {
    Fatal::new(code, text).to_error_message()
}

/// A statement as a server has it: its query, and the version of the catalog that it was prepared in.
type Prepared = (String, u64);

/// The catalog that all servers of a test share: its version, and the last number that a version was given.
#[derive(Default)]
struct Catalog {
    committed: Cell<u64>,
    last: Cell<u64>,
}

impl Catalog {
    fn next(&self) -> u64 {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }
}

/// What a Postgres does with these messages, as far as it matters here.
#[derive(Default)]
struct Postgres {
    statements: HashMap<String, Prepared>,
    /// Content by the query that the statement is made of; broken ones cannot be prepared.
    bound: Option<String>,
    catalog: Rc<Catalog>,
    /// The version that the transaction has made.
    altered: Option<u64>,
    /// Parse messages of named statements that succeeded.
    parses: usize,
    skipping: bool,
    copying: bool,
    copy_is_extended: bool,
    status: u8,
    inbox: Vec<u8>,
    /// Statements that the pooler made, at their most.
    most: usize,
}

impl Postgres {
    fn new() -> Postgres {
        Postgres::of(Rc::default())
    }

    fn of(catalog: Rc<Catalog>) -> Postgres {
        Postgres {
            status: b'I',
            catalog,
            ..Postgres::default()
        }
    }

    fn version(&self) -> u64 {
        self.altered.unwrap_or(self.catalog.committed.get())
    }

    /// The end of a transaction.
    fn end(&mut self, commit: bool) {
        if let Some(version) = self.altered.take().filter(|_| commit) {
            self.catalog.committed.set(version);
        }
        self.status = b'I';
    }

    /// The query of a statement, or the code of the error with which it cannot be used.
    fn usable(&self, name: &str) -> Result<String, &'static str> {
        let (query, version) = self.statements.get(name).ok_or("26000")?;
        match query.starts_with("table") && *version != self.version() {
            true => Err("0A000"),
            false => Ok(query.clone()),
        }
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.inbox.extend_from_slice(bytes);
        let mut out = Vec::new();
        while self.inbox.len() >= 5 {
            let length = u32::from_be_bytes(self.inbox[1..5].try_into().expect("four")) as usize;
            if self.inbox.len() < length + 1 {
                break;
            }
            let rest = self.inbox.split_off(length + 1);
            let whole = std::mem::replace(&mut self.inbox, rest);
            self.message(whole[0], &whole[5..], &mut out);
            let ours = self.statements.keys();
            self.most = self.most.max(ours.filter(|name| !name.is_empty()).count());
        }
        out
    }

    fn ready(&self) -> Vec<u8> {
        message(b'Z', &[self.status])
    }

    fn fail(&mut self, code: &'static str, text: String, out: &mut Vec<u8>) {
        out.extend(error(code, text));
        self.skip();
    }

    fn skip(&mut self) {
        if self.status == b'T' {
            self.status = b'E';
        }
        self.skipping = true;
    }

    fn message(&mut self, tag: u8, body: &[u8], out: &mut Vec<u8>) {
        let mut texts = body
            .split(|byte| *byte == 0)
            .map(|text| String::from_utf8_lossy(text).into_owned());
        let mut text = || texts.next().unwrap_or_default();
        if self.copying {
            match tag {
                b'c' => {
                    self.copying = false;
                    out.extend(message(b'C', b"COPY 0\0"));
                    if !self.copy_is_extended {
                        out.extend(self.ready());
                    }
                }
                b'f' => {
                    self.copying = false;
                    let extended = self.copy_is_extended;
                    self.fail("57014", "COPY failed".to_owned(), out);
                    self.skipping = extended;
                    if !extended {
                        out.extend(self.ready());
                    }
                }
                b'd' | b'S' | b'H' => {}
                other => panic!("message {other} within a COPY"),
            }
            return;
        }
        if tag == b'S' {
            if self.status == b'I' {
                self.end(!self.skipping);
            }
            self.skipping = false;
            out.extend(self.ready());
            return;
        }
        if self.skipping {
            return;
        }
        match tag {
            b'P' => {
                let (name, query) = (text(), text());
                if !name.is_empty() && self.statements.contains_key(&name) {
                    let text = format!("prepared statement \"{name}\" already exists");
                    self.fail("42P05", text, out);
                } else if query.starts_with("broken")
                    || (query.starts_with("gone") && self.version() > 0)
                {
                    if name.is_empty() {
                        self.statements.remove("");
                    }
                    self.fail("42601", format!("syntax error at \"{query}\""), out);
                } else {
                    self.parses += usize::from(!name.is_empty());
                    self.statements.insert(name, (query, self.version()));
                    out.extend(message(b'1', b""));
                }
            }
            b'B' => {
                let (_, name) = (text(), text());
                match self.usable(&name) {
                    Ok(query) => {
                        self.bound = Some(query);
                        out.extend(message(b'2', b""));
                    }
                    Err(code) => self.unusable(code, &name, out),
                }
            }
            b'D' => {
                let name = text()[1..].to_owned();
                match self.usable(&name) {
                    Ok(query) => {
                        out.extend(message(b't', &[0, 0]));
                        match query.starts_with("table") {
                            true => out.extend(message(b'T', &self.columns())),
                            false => out.extend(message(b'n', b"")),
                        }
                    }
                    Err(code) => self.unusable(code, &name, out),
                }
            }
            b'C' => {
                self.statements.remove(&text()[1..]);
                out.extend(message(b'3', b""));
            }
            b'E' => match self.bound.clone().filter(|_| !body.starts_with(b"weir")) {
                Some(query) => self.run(&query, true, out),
                None => self.fail("34000", "portal does not exist".to_owned(), out),
            },
            b'Q' => {
                self.statements.remove("");
                let query = text();
                self.run(&query, false, out);
                if self.status == b'I' {
                    self.end(!self.skipping);
                }
                self.skipping = false;
                if !self.copying {
                    out.extend(self.ready());
                }
            }
            b'H' | b'd' | b'c' | b'f' => {}
            other => panic!("message {other}"),
        }
    }

    /// One column, whose type is the catalog's version.
    fn columns(&self) -> Vec<u8> {
        let kind = (self.version() as u32).to_be_bytes();
        let (table, rest) = ([0, 0, 0, 1, 0, 1], [0, 4, 0, 0, 0, 0, 0, 0]);
        [&b"\0\x01a\0"[..], &table, &kind, &rest].concat()
    }

    fn unusable(&mut self, code: &'static str, name: &str, out: &mut Vec<u8>) {
        if code == "0A000" {
            out.extend(message(b'E', OUTDATED));
            return self.skip();
        }
        let text = match name {
            "" => "unnamed prepared statement does not exist".to_owned(),
            name => format!("prepared statement \"{name}\" does not exist"),
        };
        self.fail(code, text, out);
    }

    fn run(&mut self, query: &str, extended: bool, out: &mut Vec<u8>) {
        match query {
            "fail" => return self.fail("22012", "division by zero".to_owned(), out),
            "copy" => {
                self.copying = true;
                self.copy_is_extended = extended;
                out.extend(message(b'G', &[0, 0, 0]));
                return;
            }
            "BEGIN" => self.status = b'T',
            "COMMIT" => self.end(self.status == b'T'),
            // To the begin, or to a savepoint there.
            "ROLLBACK" => self.end(false),
            "ROLLBACK TO" => self.altered = None,
            "ALTER TABLE" => self.altered = Some(self.catalog.next()),
            // The unnamed statement stays.
            "DISCARD ALL" => self.statements.retain(|name, _| name.is_empty()),
            _ => {}
        }
        if query.starts_with("table") {
            let row = format!("\0\x01{query}@{}", self.version());
            out.extend(message(b'D', row.as_bytes()));
        } else if query != "DISCARD ALL" {
            out.extend(message(b'D', format!("\0\x01{query}").as_bytes()));
        }
        let tag = query.strip_suffix(" TO").unwrap_or(query);
        out.extend(message(b'C', format!("{tag}\0").as_bytes()));
    }
}

/// A server connection as it is new.
fn fresh() -> Server {
    Server::new(LIMIT, Tracked::default(), Arc::default())
}

/// A client that goes from one server to another after each turn.
struct Pooled {
    servers: Vec<(Postgres, Option<Server>)>,
    turn: Option<(usize, Turn)>,
    client: Option<Client>,
    next: usize,
    contents: Arc<Contents>,
}

impl Pooled {
    fn new(count: usize) -> Pooled {
        let one = |_| (Postgres::new(), Some(fresh()));
        Pooled {
            servers: (0..count).map(one).collect(),
            turn: None,
            client: Some(Client::new(Tracked::default())),
            next: 0,
            contents: Arc::new(Contents::default()),
        }
    }

    /// What the client is told when it has sent these bytes; the server's answers come in pieces of `cut` bytes.
    fn send(&mut self, bytes: &[u8], cut: usize) -> Vec<u8> {
        let mut told = Vec::new();
        match (&mut self.turn, &mut self.client) {
            (Some((_, turn)), _) => turn.client.inbox.extend(bytes),
            (None, Some(client)) => client.inbox.extend(bytes),
            (None, None) => panic!("a client is somewhere"),
        }
        loop {
            let (at, mut turn) = match self.turn.take() {
                Some(turn) => turn,
                None => {
                    let mut client = self.client.take().expect("it has no turn");
                    match client.idle().expect("well formed") {
                        Idle::Turn => {}
                        Idle::Answer(bytes) => {
                            told.extend(bytes);
                            self.client = Some(client);
                            continue;
                        }
                        _ => {
                            self.client = Some(client);
                            return told;
                        }
                    }
                    let at = self.next % self.servers.len();
                    self.next += 1;
                    let server = self.servers[at].1.take().expect("it is idle");
                    (at, Turn::new(client, server, self.contents.clone()))
                }
            };
            loop {
                let mut out = Vec::new();
                let took = turn.take_from_client(&mut out).expect("well formed");
                turn.sent();
                let answers = self.servers[at].0.take(&out);
                turn.answer(&mut told);
                for piece in answers.chunks(cut) {
                    turn.take_from_server(piece, &mut told)
                        .expect("nothing but answers");
                }
                if took == Took::All || turn.is_over() {
                    break;
                }
            }
            if turn.is_over() {
                self.servers[at].1 = Some(turn.server);
                self.client = Some(turn.client);
                continue;
            }
            self.turn = Some((at, turn));
            return told;
        }
    }
}

fn tags(bytes: &[u8]) -> String {
    let mut tracker = pg_protocol::tracker::Tracker::default();
    let mut tags = String::new();
    tracker.feed(bytes, |seen| tags.push(char::from(seen.tag)));
    assert!(tracker.between_messages());
    tags
}

#[test]
fn a_statement_is_there_on_each_server_connection_and_prepared_once_on_each() {
    let mut pooled = Pooled::new(2);
    let told = pooled.send(&[parse("s", "one"), describe("s"), sync()].concat(), 99);
    assert_eq!(tags(&told), "1tnZ");
    for _ in 0..6 {
        let told = pooled.send(&[bind("s"), execute(), sync()].concat(), 99);
        assert_eq!(tags(&told), "2DCZ");
    }
    let told = pooled.send(
        &[parse("t", "one"), bind("t"), execute(), sync()].concat(),
        99,
    );
    assert_eq!(tags(&told), "12DCZ");
    assert!(
        pooled
            .servers
            .iter()
            .all(|(server, _)| server.statements.len() == 1)
    );
}

#[test]
fn without_a_sync_the_server_connection_is_kept() {
    let mut pooled = Pooled::new(2);
    let flush = message(b'H', b"");
    let told = pooled.send(
        &[parse("", "one"), bind(""), execute(), flush.clone()].concat(),
        99,
    );
    assert_eq!(tags(&told), "12DC");
    assert!(pooled.turn.is_some());
    assert_eq!(tags(&pooled.send(&sync(), 99)), "Z");
    assert!(pooled.turn.is_none());
    // Neither a Sync nor a Flush alone needs one.
    assert_eq!(tags(&pooled.send(&[flush, sync()].concat(), 99)), "Z");
    assert_eq!(pooled.next, 1);
    assert_eq!(tags(&pooled.send(&query("BEGIN"), 99)), "DCZ");
    assert!(pooled.turn.is_some());
    assert_eq!(tags(&pooled.send(&query("COMMIT"), 99)), "DCZ");
    assert!(pooled.turn.is_none());
}

#[test]
fn a_turn_lasts_until_each_sync_of_a_pipeline_is_answered() {
    let mut client = Client::new(Tracked::default());
    let each = [parse("", "one"), bind(""), execute(), sync()].concat();
    client.inbox.extend(&each.repeat(2));
    let server = fresh();
    let mut turn = Turn::new(client, server, Arc::default());
    let (mut out, mut told) = (Vec::new(), Vec::new());
    turn.take_from_client(&mut out).expect("well formed");
    assert!(!turn.is_over(), "nothing has been sent");
    turn.sent();
    let answers = Postgres::new().take(&out);
    let half = answers.len() / 2;
    turn.take_from_server(&answers[..half], &mut told)
        .expect("answers");
    assert_eq!((tags(&told).as_str(), turn.is_over()), ("12DCZ", false));
    turn.take_from_server(&answers[half..], &mut told)
        .expect("answers");
    assert!(turn.is_over());
}

#[test]
fn a_copy_within_the_extended_protocol_ends_with_its_second_sync() {
    let mut pooled = Pooled::new(1);
    // As libpq does it: a Sync right behind the Execute, of which the server makes nothing, and one behind the data.
    let begin = [parse("", "copy"), bind(""), execute(), sync()].concat();
    assert_eq!(tags(&pooled.send(&begin, 1)), "12G");
    assert!(pooled.turn.is_some());
    let data = [message(b'd', b"row\n"), message(b'c', b"")].concat();
    assert_eq!(tags(&pooled.send(&data, 1)), "C");
    assert!(pooled.turn.is_some());
    assert_eq!(tags(&pooled.send(&sync(), 1)), "Z");
    assert!(pooled.turn.is_none());
    // Data of a COPY that has failed goes nowhere, and needs no server connection.
    let begun = pooled.next;
    let late = [message(b'd', b"row\n"), message(b'f', b"why\0")].concat();
    assert_eq!(pooled.send(&late, 1), b"");
    assert_eq!(pooled.next, begun);
}

#[test]
fn an_unnamed_statement_outlives_its_turn_and_is_never_another_clients() {
    let mut pooled = Pooled::new(2);
    assert_eq!(
        tags(&pooled.send(&[parse("", "one"), sync()].concat(), 99)),
        "1Z"
    );
    let told = pooled.send(&[bind(""), execute(), sync()].concat(), 99);
    assert_eq!(tags(&told), "2DCZ");
    // Another client, with the same servers.
    pooled.client = Some(Client::new(Tracked::default()));
    let told = pooled.send(&[bind(""), execute(), sync()].concat(), 99);
    assert_eq!(
        told,
        [
            error(
                "26000",
                "unnamed prepared statement does not exist".to_owned()
            ),
            message(b'Z', b"I")
        ]
        .concat()
    );
}

#[test]
fn a_statement_whose_rows_have_changed_is_prepared_again() {
    let mut client = Client::new(Tracked::default());
    client
        .inbox
        .extend(&[parse("s", "one"), bind("s"), sync()].concat());
    let server = fresh();
    let mut turn = Turn::new(client, server, Arc::default());
    let (mut out, mut told) = (Vec::new(), Vec::new());
    turn.take_from_client(&mut out).expect("well formed");
    turn.sent();
    let failed = message(b'E', OUTDATED);
    let answers = [message(b'1', b""), failed, message(b'Z', b"I")].concat();
    turn.take_from_server(&answers, &mut told).expect("answers");
    assert!(turn.is_over());
    turn.client.inbox.extend(&[bind("s"), sync()].concat());
    out.clear();
    turn.take_from_client(&mut out).expect("well formed");
    assert_eq!(tags(&out), "CPBS");
}

#[test]
fn statements_beyond_a_clients_limits_are_clear_errors() {
    let mut pooled = Pooled::new(1);
    let long = "x".repeat(MOST_STATEMENT_BYTES);
    let told = pooled.send(&[parse("s", &long), bind("s"), sync()].concat(), 99);
    assert_eq!(tags(&told), "EZ");
    assert!(String::from_utf8_lossy(&told).contains("C54000"));
    let mut refused = Vec::new();
    for number in 0..6 {
        let text = format!("{number}{}", "x".repeat(MOST_STATEMENT_BYTES - 100));
        refused = pooled.send(&[parse(&number.to_string(), &text), sync()].concat(), 4096);
    }
    assert_eq!(tags(&refused), "EZ");
    assert!(String::from_utf8_lossy(&refused).contains("C53400"));
    // Unnamed ones pass, however long they are.
    let told = pooled.send(&[parse("", &long), bind(""), sync()].concat(), 99);
    assert_eq!(tags(&told), "12Z");
}

#[test]
fn what_no_client_and_no_server_can_say_ends_the_turn() {
    for wrong in [
        &b"p\0\0\0\x04"[..],
        b"Q\0\0\0\x03",
        b"B\0\0\0\x08none",
        b"D\0\0\0\x09Sab\0\0",
    ] {
        let mut client = Client::new(Tracked::default());
        client.inbox.extend(wrong);
        assert!(client.idle().is_err(), "{wrong:?}");
    }
    for wrong in [
        message(b'Z', b"I"),
        message(b'1', b""),
        b"D\0\0\0\x01".to_vec(),
    ] {
        let server = fresh();
        let client = Client::new(Tracked::default());
        let mut turn = Turn::new(client, server, Arc::default());
        assert!(turn.take_from_server(&wrong, &mut Vec::new()).is_err());
    }
}

#[test]
fn what_a_server_ends_with_is_passed_on_and_remembered() {
    let why = || {
        Fatal::new(
            "57P01",
            "terminating connection due to administrator command",
        )
    };
    // To a query, and to a Parse that waits for its Sync.
    for begun in [query("one"), [parse("a", "one"), sync()].concat()] {
        for (said, ends) in [
            (why().to_message(), true),
            (why().to_error_message(), false),
        ] {
            let mut client = Client::new(Tracked::default());
            client.inbox.extend(&begun);
            assert!(matches!(client.idle(), Ok(Idle::Turn)));
            let mut turn = Turn::new(client, fresh(), Arc::default());
            turn.take_from_client(&mut Vec::new()).expect("well formed");
            let mut out = Vec::new();
            for byte in &said {
                turn.take_from_server(&[*byte], &mut out)
                    .expect("an error is an answer to anything");
            }
            assert_eq!(out, said);
            assert_eq!(turn.server.has_ended(), ends);
        }
    }
}

#[test]
fn a_client_that_leaves_lets_the_server_come_to_its_end() {
    let mut pooled = Pooled::new(1);
    pooled.send(&query("BEGIN"), 99);
    pooled.send(&[parse("", "one"), bind("")].concat(), 99);
    let (at, mut turn) = pooled.turn.take().expect("a transaction is open");
    let mut out = Vec::new();
    assert!(turn.leave(&mut out));
    assert!(!turn.is_over());
    let answers = pooled.servers[at].0.take(&out);
    turn.take_from_server(&answers, &mut Vec::new())
        .expect("answers");
    assert!(turn.is_over() && !turn.is_outside());
    // Within a message, or a COPY, there is no end to come to.
    let mut pooled = Pooled::new(1);
    pooled.send(&query("copy"), 99);
    let (_, mut turn) = pooled.turn.take().expect("a COPY is under way");
    assert!(!turn.leave(&mut Vec::new()));
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof![3 => "[a-d]", 1 => Just(String::new())];
    let content = prop_oneof![
        4 => "[1-4]",
        1 => Just("fail".to_owned()),
        1 => Just("broken".to_owned()),
        1 => Just("BEGIN".to_owned()),
        1 => Just("COMMIT".to_owned()),
    ];
    prop_oneof![
        4 => (name.clone(), content.clone()).prop_map(|(name, text)| parse(&name, &text)),
        4 => name.clone().prop_map(|name| [bind(&name), execute()].concat()),
        2 => name.clone().prop_map(|name| describe(&name)),
        2 => name.prop_map(|name| close(&name)),
        3 => Just(sync()),
        1 => Just(message(b'H', b"")),
        2 => prop_oneof![Just("fail"), Just("BEGIN"), Just("COMMIT"), Just("other")].prop_map(query),
        // What a driver does when it begins anew.
        1 => Just([sync(), query("DISCARD ALL")].concat()),
    ]
}

proptest! {
    /// A client is told the same through a pool as by a server of its own, whatever it sends, however it is cut.
    #[test]
    fn a_client_cannot_tell_a_pool_from_a_server(
        pieces in proptest::collection::vec(piece(), 0..30),
        servers in 1_usize..4,
        groups in proptest::collection::vec(1_usize..6, 30),
        cut in 1_usize..40,
    ) {
        let (mut direct, mut pooled) = (Postgres::new(), Pooled::new(servers));
        let mut pieces = pieces.into_iter().peekable();
        let mut groups = groups.into_iter();
        while pieces.peek().is_some() {
            let group: Vec<u8> = pieces.by_ref().take(groups.next().unwrap_or(1)).flatten().collect();
            let expected = direct.take(&group);
            let told = pooled.send(&group, cut);
            prop_assert_eq!(
                String::from_utf8_lossy(&told).into_owned(),
                String::from_utf8_lossy(&expected).into_owned()
            );
        }
        let expected = direct.take(&sync());
        prop_assert_eq!(pooled.send(&sync(), cut), expected);
        for (server, _) in &pooled.servers {
            // One beyond the limit while an error kept a Close from being done.
            prop_assert!(server.most <= LIMIT + 30);
            let names: HashSet<_> = server.statements.keys().filter(|name| !name.is_empty()).collect();
            prop_assert!(names.iter().all(|name| name.starts_with("weir_")));
        }
    }

    /// A server that answers what it was not asked, and a client that asks in any order: the turn goes on or ends with an
    /// error, and what is counted stays right.
    #[test]
    fn no_messages_make_it_panic(
        steps in proptest::collection::vec(
            prop_oneof![
                2 => piece().prop_map(|bytes| (true, bytes)),
                1 => prop_oneof![Just(b'd'), Just(b'c'), Just(b'f')].prop_map(|tag| (true, message(tag, b"x"))),
                4 => (proptest::sample::select(b"123CDEGHINSTVWZnst".to_vec()), any::<u8>())
                    .prop_map(|(tag, byte)| (false, message(tag, &[byte, 0]))),
                2 => Just((false, message(b'Z', b"I"))),
            ],
            0..60,
        ),
    ) {
        let mut turn = Turn::new(
            Client::new(Tracked::default()),
            fresh(),
            Arc::default(),
        );
        let (mut out, mut told) = (Vec::new(), Vec::new());
        for (from_client, bytes) in steps {
            if from_client {
                turn.client.inbox.extend(&bytes);
            } else if turn.take_from_server(&bytes, &mut told).is_err() {
                break;
            }
            if turn.take_from_client(&mut out).is_err() {
                break;
            }
            turn.sent();
            out.clear();
            if turn.expected.is_empty() {
                prop_assert_eq!((turn.queries, turn.unsure), (0, [0; 2]));
                prop_assert!(!turn.is_learning);
            }
        }
        turn.leave(&mut out);
    }

    #[test]
    fn no_bytes_make_it_panic(
        client in proptest::collection::vec(any::<u8>(), 0..200),
        server in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut turn = Turn::new(
            Client::new(Tracked::default()),
            fresh(),
            Arc::default(),
        );
        turn.client.inbox.extend(&client);
        let mut out = Vec::new();
        let _ = turn.take_from_client(&mut out);
        let _ = turn.take_from_server(&server, &mut out);
    }
}
