//! Several clients of several servers with one catalog, which commands change.

use super::*;
use crate::pool::description;

/// A client, within a turn or not.
struct Seat {
    client: Option<Client>,
    turn: Option<(usize, Turn)>,
}

struct Room {
    servers: Vec<(Postgres, Option<Server>)>,
    seats: Vec<Seat>,
    contents: Arc<Contents>,
    catalog: Rc<Catalog>,
}

impl Room {
    fn new(servers: usize, clients: usize) -> Room {
        let (catalog, schema) = (Rc::<Catalog>::default(), Arc::<Schema>::default());
        let one = |_| {
            let server = Server::new(10, Tracked::default(), schema.clone());
            (Postgres::of(catalog.clone()), Some(server))
        };
        let seat = |_| Seat {
            client: Some(Client::new(Tracked::default())),
            turn: None,
        };
        Room {
            servers: (0..servers).map(one).collect(),
            seats: (0..clients).map(seat).collect(),
            contents: Arc::default(),
            catalog: catalog.clone(),
        }
    }

    /// What a client is told for these bytes, which end with a Sync or are a query. A turn that begins is at the first
    /// server from `at` on that is idle; None: none is, and nothing was sent.
    fn send(&mut self, who: usize, at: usize, bytes: &[u8]) -> Option<Vec<u8>> {
        let seat = &mut self.seats[who];
        let (at, mut turn) = match seat.turn.take() {
            Some(turn) => turn,
            None => {
                let count = self.servers.len();
                let mut places = (0..count).map(|step| (at + step) % count);
                let at = places.find(|at| self.servers[*at].1.is_some())?;
                let server = self.servers[at].1.take()?;
                let client = seat.client.take().expect("it has no turn");
                (at, Turn::new(client, server, self.contents.clone()))
            }
        };
        turn.client.inbox.extend(bytes);
        let mut told = Vec::new();
        loop {
            let mut out = Vec::new();
            let took = turn.take_from_client(&mut out).expect("well formed");
            turn.sent();
            turn.answer(&mut told);
            let answers = self.servers[at].0.take(&out);
            turn.take_from_server(&answers, &mut told)
                .expect("nothing but answers");
            if took == Took::All {
                break;
            }
        }
        match turn.is_over() {
            true => {
                self.servers[at].1 = Some(turn.server);
                seat.client = Some(turn.client);
            }
            false => seat.turn = Some((at, turn)),
        }
        Some(told)
    }

    fn tags(&mut self, who: usize, at: usize, parts: &[Vec<u8>]) -> String {
        tags(&self.send(who, at, &parts.concat()).expect("one is idle"))
    }

    fn parses(&self) -> Vec<usize> {
        let servers = self.servers.iter();
        servers.map(|(server, _)| server.parses).collect()
    }

    /// The version of the catalog that a client sees.
    fn version(&self, who: usize) -> u64 {
        match &self.seats[who].turn {
            Some((at, _)) => self.servers[*at].0.version(),
            None => self.catalog.committed.get(),
        }
    }
}

fn run(name: &str) -> [Vec<u8>; 3] {
    [bind(name), execute(), sync()]
}

fn anew(name: &str) -> [Vec<u8>; 6] {
    let [bound, executed, synced] = run(name);
    [
        close(name),
        parse(name, "table"),
        describe(name),
        bound,
        executed,
        synced,
    ]
}

const WELL: &str = "31tT2DCZ";

#[test]
fn what_is_prepared_after_a_change_is_prepared_once_on_each_server_for_all_clients() {
    let mut room = Room::new(2, 12);
    for at in 0..2 {
        assert_eq!(room.tags(at, at, &anew("s")), WELL);
    }
    assert_eq!(room.parses(), [1, 1]);
    assert_eq!(room.tags(0, 0, &[query("ALTER TABLE")]), "DCZ");
    for _ in 0..3 {
        for who in 0..12 {
            assert_eq!(room.tags(who, who % 2, &anew("s")), WELL);
            assert_eq!(room.tags(who, (who + 1) % 2, &run("s")), "2DCZ");
        }
    }
    assert_eq!(room.parses(), [2, 2]);
    for (server, _) in &room.servers {
        assert_eq!(server.statements.len(), 1, "what is outdated is closed");
    }
}

#[test]
fn who_has_a_statement_from_before_a_change_goes_on_with_it() {
    let mut room = Room::new(2, 2);
    for at in 0..2 {
        assert_eq!(room.tags(0, at, &[parse("p", "plain"), sync()]), "1Z");
        assert_eq!(room.tags(0, at, &[close("p"), sync()]), "3Z");
    }
    assert_eq!(room.tags(0, 0, &[parse("p", "plain"), sync()]), "1Z");
    assert_eq!(room.tags(1, 0, &[query("ALTER TABLE")]), "DCZ");
    for at in [0, 1, 0, 1] {
        assert_eq!(room.tags(0, at, &run("p")), "2DCZ");
    }
    assert_eq!(room.parses(), [1, 1]);
    // Another client's Parse renews it on a server; the first client is served by that, too, and it stays one.
    assert_eq!(room.tags(1, 0, &[parse("q", "plain"), sync()]), "1Z");
    for who in [0, 1, 0, 1] {
        let name = ["p", "q"][who];
        assert_eq!(room.tags(who, 0, &run(name)), "2DCZ");
    }
    assert_eq!(room.parses(), [2, 1]);
}

#[test]
fn a_change_counts_within_its_transaction_and_again_at_its_end() {
    for end in ["COMMIT", "ROLLBACK"] {
        let mut room = Room::new(2, 2);
        assert_eq!(room.tags(0, 0, &anew("s")), WELL);
        assert_eq!(room.tags(0, 0, &[query("BEGIN")]), "DCZ");
        assert_eq!(room.tags(0, 0, &[query("ALTER TABLE")]), "DCZ");
        // The client sees its own change, and others do not.
        assert_eq!(room.tags(0, 0, &anew("s")), WELL);
        assert_eq!(room.tags(1, 1, &anew("s")), WELL);
        assert_eq!(room.tags(0, 0, &[query("ROLLBACK TO")]), "DCZ");
        assert_eq!(room.tags(0, 0, &anew("s")), WELL);
        assert_eq!(room.tags(0, 0, &[query("ALTER TABLE")]), "DCZ");
        assert_eq!(room.tags(0, 0, &anew("s")), WELL);
        assert_eq!(room.tags(0, 0, &[query(end)]), "DCZ");
        for (who, at) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
            assert_eq!(room.tags(who, at, &anew("s")), WELL, "{end}");
        }
    }
}

#[test]
fn a_client_that_leaves_within_a_transaction_leaves_no_statement_of_its_schema() {
    let mut room = Room::new(1, 2);
    assert_eq!(room.tags(1, 0, &anew("s")), WELL);
    assert_eq!(room.tags(0, 0, &[query("BEGIN")]), "DCZ");
    assert_eq!(room.tags(0, 0, &[query("ALTER TABLE")]), "DCZ");
    assert_eq!(room.tags(0, 0, &anew("t")), WELL);
    let (at, mut turn) = room.seats[0].turn.take().expect("a transaction is open");
    assert!(turn.leave(&mut Vec::new()));
    assert!(turn.is_over() && !turn.is_outside());
    room.servers[at].0.take(&query("ROLLBACK"));
    room.servers[at].1 = Some(turn.server);
    assert_eq!(room.tags(1, 0, &run("s")), "2DCZ");
}

#[test]
fn a_change_that_was_not_seen_costs_one_error_for_all_servers() {
    let mut room = Room::new(3, 4);
    for at in 0..3 {
        assert_eq!(room.tags(0, at, &anew("s")), WELL);
    }
    room.catalog.committed.set(room.catalog.next());
    assert_eq!(room.tags(1, 0, &anew("s")), "31EZ");
    for (who, at) in [(1, 0), (2, 1), (3, 2), (1, 2), (2, 0)] {
        assert_eq!(room.tags(who, at, &anew("s")), WELL);
    }
    assert_eq!(room.parses(), [2, 2, 2]);
}

#[test]
fn an_error_before_it_leaves_an_outdated_statement_outdated() {
    let mut room = Room::new(1, 2);
    assert_eq!(room.tags(0, 0, &anew("s")), WELL);
    assert_eq!(room.tags(0, 0, &[query("ALTER TABLE")]), "DCZ");
    // Both the Close and the Parse of the pooler's are skipped.
    let skipped = [
        parse("", "broken"),
        parse("s", "table"),
        bind("s"),
        execute(),
        sync(),
    ];
    assert_eq!(room.tags(1, 0, &skipped), "EZ");
    assert_eq!(room.tags(1, 0, &anew("s")), WELL);
    assert_eq!(room.servers[0].0.statements.len(), 1);
}

#[test]
fn rows_are_never_others_than_the_client_was_told() {
    let mut room = Room::new(3, 3);
    assert_eq!(room.tags(0, 0, &anew("s")), WELL);
    assert_eq!(room.tags(1, 1, &[query("ALTER TABLE")]), "DCZ");
    // Where the statement is not, the pool makes it and looks at it; where others have renewed it, too.
    assert_eq!(room.tags(0, 1, &run("s")), "EZ");
    assert_eq!(room.tags(2, 0, &anew("s")), WELL);
    let refused = room.send(0, 0, &run("s").concat()).expect("one is idle");
    assert_eq!(
        refused,
        [description::outdated(), message(b'Z', b"I")].concat()
    );
    assert_eq!(room.tags(0, 0, &[describe("s"), sync()]), "EZ");
    // A driver drops it then, and prepares it anew.
    for at in 0..3 {
        assert_eq!(room.tags(0, at, &anew("s")), WELL);
    }
    assert_eq!(room.parses(), [2, 1, 1]);
}

#[test]
fn what_the_pool_asks_for_itself_is_asked_once_and_seen_by_nobody() {
    let mut room = Room::new(2, 2);
    let prepared = [parse("p", "plain"), describe("p"), sync()];
    assert_eq!(room.tags(0, 0, &prepared), "1tnZ");
    assert_eq!(room.tags(1, 0, &[query("ALTER TABLE")]), "DCZ");
    for (tags, parts) in [
        ("2DCZ", run("p").to_vec()),
        (
            "2DC2DCZ",
            [bind("p"), execute(), bind("p"), execute(), sync()].to_vec(),
        ),
        ("tnZ", [describe("p"), sync()].to_vec()),
    ] {
        for at in [1, 0] {
            assert_eq!(room.tags(0, at, &parts), tags);
        }
    }
    assert_eq!(room.parses(), [1, 1]);
}

#[test]
fn a_text_that_cannot_be_prepared_any_more_is_an_error_of_whoever_needs_it() {
    let mut room = Room::new(2, 2);
    let prepared = [
        parse("g", "gone"),
        describe("g"),
        parse("p", "plain"),
        sync(),
    ];
    assert_eq!(room.tags(0, 0, &prepared), "1tn1Z");
    assert_eq!(room.tags(1, 0, &[query("ALTER TABLE")]), "DCZ");
    for _ in 0..2 {
        assert_eq!(room.tags(0, 1, &run("g")), "EZ");
        assert_eq!(room.tags(0, 1, &run("p")), "2DCZ");
        // Where it was prepared in time, it is still there.
        assert_eq!(room.tags(0, 0, &run("g")), "2DCZ");
    }
}

#[test]
fn a_change_within_a_pipeline_counts_for_what_comes_after_its_answer() {
    let mut room = Room::new(1, 2);
    assert_eq!(room.tags(1, 0, &anew("s")), WELL);
    // The Parse is answered here before it is known what the Execute before it has done.
    let pipeline = [
        parse("", "ALTER TABLE"),
        bind(""),
        execute(),
        parse("s", "table"),
        sync(),
    ];
    assert_eq!(room.tags(0, 0, &pipeline), "12DC1Z");
    assert_eq!(room.tags(0, 0, &run("s")), "2DCZ");
}

#[derive(Clone, Debug)]
enum Step {
    Prepare(u8),
    Run(u8),
    Query(&'static str),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u8..3).prop_map(Step::Prepare),
        4 => (0_u8..3).prop_map(Step::Run),
        1 => prop_oneof![
            3 => Just("ALTER TABLE"),
            2 => Just("BEGIN"),
            1 => Just("ROLLBACK TO"),
            1 => Just("ROLLBACK"),
            1 => Just("COMMIT"),
        ]
        .prop_map(Step::Query),
    ]
}

proptest! {
    /// Whatever clients change, and wherever each is served, it is as by a server of its own: a statement that was prepared
    /// in the schema that its client sees now works, and one that was prepared in another one is said to be outdated.
    #[test]
    fn a_statement_works_exactly_in_the_schema_that_it_was_prepared_in(
        steps in proptest::collection::vec((0_usize..4, 0_usize..3, step()), 0..60),
        servers in 1_usize..4,
    ) {
        let mut room = Room::new(servers, 4);
        let mut given: HashMap<(usize, u8), u64> = HashMap::new();
        for (who, at, step) in steps {
            match step {
                Step::Query(text) => {
                    room.send(who, at, &query(text));
                }
                Step::Prepare(number) => {
                    let name = number.to_string();
                    let text = format!("table {number}");
                    let parts = [close(&name), parse(&name, &text), describe(&name), sync()];
                    let Some(told) = room.send(who, at, &parts.concat()) else { continue };
                    prop_assert_eq!(tags(&told), "31tTZ");
                    given.insert((who, number), room.version(who));
                }
                Step::Run(number) => {
                    let Some(version) = given.get(&(who, number)).copied() else { continue };
                    let seen = room.version(who);
                    let Some(told) = room.send(who, at, &run(&number.to_string()).concat()) else { continue };
                    // The next message is the CommandComplete.
                    let row = format!("table {number}@{seen}C");
                    let found = told.windows(row.len()).any(|window| window == row.as_bytes());
                    let works = version == seen;
                    prop_assert_eq!(tags(&told), if works { "2DCZ" } else { "EZ" });
                    prop_assert_eq!(found, works);
                }
            }
        }
        for (server, _) in &room.servers {
            prop_assert!(server.statements.len() <= 3, "one for each text");
        }
    }
}
