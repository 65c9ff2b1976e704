use proptest::prelude::*;

use super::*;
use crate::pool::schema::Schema;

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
        let statement = contents.statement(&content, b"");
        let given = Given {
            statement,
            since: Generation::NONE,
            told: None,
        };
        client.insert(name, given);
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
    let generation = Schema::default().generation();
    let name: Arc<str> = "a".into();
    server.spoil(&name);
    assert!(server.make_room().is_empty());
    server.insert(name.clone(), generation);
    server.spoil(&name);
    assert_eq!(server.touch(&name, Generation::NONE), Has::Nothing);
    assert_eq!(server.make_room(), [(name, Generation::NONE)]);
    assert!(server.make_room().is_empty());
}

#[test]
fn what_is_from_an_earlier_generation_is_closed_once_and_never_used() {
    let schema = Schema::default();
    let (first, mut server) = (schema.generation(), ServerStatements::new(10));
    schema.change();
    let (second, name): (_, Arc<str>) = (schema.generation(), "a".into());
    server.insert(name.clone(), first);
    assert!(matches!(server.touch(&name, first), Has::Ready(_)));
    assert_eq!(server.touch(&name, second), Has::Outdated);
    let closed = server.make_room();
    assert_eq!(closed, [(name.clone(), Generation::NONE)]);
    // A Close that was skipped leaves it there, and of no use.
    for (name, since) in closed {
        server.insert(name, since);
    }
    assert_eq!(server.touch(&name, first), Has::Outdated);
    server.make_room();
    server.insert(name.clone(), second);
    assert!(matches!(server.touch(&name, first), Has::Ready(_)));
    assert!(matches!(server.touch(&name, second), Has::Ready(_)));
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
            let has = server.touch(&name, Generation::NONE);
            prop_assert_eq!(matches!(has, Has::Ready(_)), known.is_some());
            if let Some(at) = known {
                model.remove(at);
            } else {
                let closed = server.make_room();
                let expected = match model.len() == most {
                    true => vec![(model.remove(0), Generation::NONE)],
                    false => Vec::new(),
                };
                prop_assert_eq!(closed, expected);
                server.insert(name.clone(), Generation::NONE);
            }
            model.push(name);
            prop_assert!(server.len() <= most);
        }
    }
}
