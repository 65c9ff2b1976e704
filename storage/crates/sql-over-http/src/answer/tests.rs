use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn described(columns: &[(&str, u32)]) -> Vec<u8> {
    let mut body = (columns.len() as u16).to_be_bytes().to_vec();
    for (name, oid) in columns {
        body.extend(name.as_bytes());
        body.extend([0, 0, 0, 0, 9, 0, 1]);
        body.extend(oid.to_be_bytes());
        body.extend([0, 4, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0]);
    }
    body
}

fn row(values: &[Option<&str>]) -> Vec<u8> {
    let mut body = (values.len() as u16).to_be_bytes().to_vec();
    for value in values {
        let length = value.map_or(-1, |value| value.len() as i32);
        body.extend(length.to_be_bytes());
        body.extend(value.unwrap_or_default().as_bytes());
    }
    body
}

fn made(style: Style, columns: &[(&str, u32)], rows: &[&[Option<&str>]], tag: &str) -> Value {
    let mut out = Vec::new();
    let mut answer = Answer::begin(&mut out, MOST, style).expect("there is room");
    answer.columns(&described(columns)).expect("well formed");
    for values in rows {
        answer.row(&row(values)).expect("well formed");
    }
    answer
        .end(&[tag.as_bytes(), b"\0"].concat())
        .expect("well formed");
    serde_json::from_slice(&out).expect("JSON")
}

const MOST: usize = 10_000;
const RAW: Style = Style {
    raw: true,
    arrays: true,
};
const TYPED: Style = Style {
    raw: false,
    arrays: false,
};

#[test]
fn raw_text_in_lists_is_what_the_driver_asks_for() {
    let rows: &[&[Option<&str>]] = &[&[Some("1"), None], &[Some("2"), Some("a\"\u{1}é")]];
    let found = made(RAW, &[("a", 23), ("b", 25)], rows, "SELECT 2");
    let field = |name: &str, oid: u32| {
        json!({"name": name, "dataTypeID": oid, "tableID": 9, "columnID": 1, "dataTypeSize": 4,
               "dataTypeModifier": -1, "format": "text"})
    };
    let expected = json!({
        "fields": [field("a", 23), field("b", 25)],
        "rows": [["1", null], ["2", "a\"\u{1}é"]],
        "command": "SELECT", "rowCount": 2, "rowAsArray": true,
    });
    assert_eq!(found, expected);
}

#[test]
fn types_that_json_has_are_that_where_no_raw_text_is_wanted() {
    let values = [
        (16, "t", json!(true)),
        (16, "f", json!(false)),
        (23, "-7", json!(-7)),
        (701, "1e+20", json!(1e20)),
        (701, "NaN", json!("NaN")),
        (701, "-Infinity", json!("-Infinity")),
        (20, "9007199254740993", json!("9007199254740993")),
        (1700, "0.10", json!("0.10")),
        (3802, "{\"a\": [1]}", json!({"a": [1]})),
        (25, "{}", json!("{}")),
    ];
    for (oid, text, expected) in values {
        let found = made(TYPED, &[("a", oid)], &[&[Some(text)]], "SELECT 1");
        assert_eq!(found["rows"], json!([{ "a": expected }]), "{oid} {text}");
    }
}

#[test]
fn a_commands_tag_says_how_many_rows_it_met() {
    for (tag, command, count) in [
        ("INSERT 0 5", "INSERT", json!(5)),
        ("UPDATE 0", "UPDATE", json!(0)),
        ("CREATE TABLE", "CREATE", json!(null)),
    ] {
        let found = made(RAW, &[], &[], tag);
        assert_eq!(
            (&found["command"], &found["rowCount"]),
            (&json!(command), &count)
        );
        assert_eq!(found["rows"], json!([]));
    }
}

#[test]
fn an_error_has_all_of_postgress_fields() {
    let found: Value =
        serde_json::from_slice(&error(b"SERROR\0C42601\0Mat \"x\"\0P8\0\0")).expect("JSON");
    assert_eq!(found["message"], "at \"x\"");
    assert_eq!(
        (&found["code"], &found["position"]),
        (&json!("42601"), &json!("8"))
    );
    assert_eq!(
        (&found["severity"], &found["detail"]),
        (&json!("ERROR"), &json!(null))
    );
    let own = fatal(&Fatal::new("57014", "too long").with_hint("less"));
    let own: Value = serde_json::from_slice(&own).expect("JSON");
    assert_eq!(
        (&own["code"], &own["hint"]),
        (&json!("57014"), &json!("less"))
    );
}

#[test]
fn what_is_cut_or_does_not_fit_is_refused() {
    let mut out = Vec::new();
    let mut answer = Answer::begin(&mut out, MOST, RAW).expect("there is room");
    let description = described(&[("a", 23)]);
    assert_eq!(
        answer.columns(&description[..9]),
        Err(AnswerError::Malformed)
    );
    let mut out = Vec::new();
    let mut answer = Answer::begin(&mut out, MOST, RAW).expect("there is room");
    answer.columns(&description).expect("well formed");
    assert_eq!(answer.row(&row(&[None, None])), Err(AnswerError::Malformed));
    assert_eq!(
        answer.row(b"\0\x01\0\0\0\x05ab"),
        Err(AnswerError::Malformed)
    );
    assert_eq!(
        answer.row(b"\0\x01\0\0\0\x01\xFF"),
        Err(AnswerError::NotUtf8)
    );
}

#[test]
fn an_answer_ends_where_it_may_not_grow_and_has_not_grown_further() {
    for text in ["x".repeat(MOST), "\u{1}".repeat(MOST / 5)] {
        for style in [RAW, TYPED] {
            let mut out = Vec::new();
            let mut answer = Answer::begin(&mut out, MOST, style).expect("there is room");
            answer
                .columns(&described(&[("a", 25)]))
                .expect("there is room");
            assert_eq!(answer.row(&row(&[Some(&text)])), Err(AnswerError::TooLong));
            assert!(answer.held() <= 2 * MOST);
        }
    }
}

proptest! {
    #[test]
    fn no_value_breaks_the_json(text in "\\PC{0,30}", oid in prop_oneof![Just(16_u32), Just(23), Just(701), Just(114), any::<u32>()]) {
        for style in [RAW, TYPED] {
            let found = made(style, &[(&text, oid)], &[&[Some(&text)]], "SELECT 1");
            prop_assert_eq!(found["rows"].as_array().map(Vec::len), Some(1));
        }
    }
}
