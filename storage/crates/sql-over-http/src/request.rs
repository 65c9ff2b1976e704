//! The body of a request: one query, or a batch of them. Parameters are turned into Postgres's text, and into the bytes of
//! a Bind, while they are read: a body takes no more memory than a few times its length.

use std::fmt;

use pg_protocol::messages::Fatal;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Parameters of one query; Postgres's own limit.
const MOST_PARAMETERS: usize = 65_535;
/// Queries of a batch.
pub const MOST_QUERIES: usize = 10_000;

/// A query with its parameters.
#[derive(PartialEq, Eq, Debug)]
pub struct Query {
    /// SQL, without a zero byte.
    pub text: String,
    /// The values.
    pub parameters: Parameters,
    /// Whether this query's rows are to be arrays, where the query says so itself.
    pub arrays: Option<bool>,
}

/// Values of parameters, each as a Bind has it: its length, or -1 for NULL, and its text.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// How many there are.
    pub count: u16,
    /// One behind the other.
    pub encoded: Vec<u8>,
}

/// What is asked for.
#[derive(PartialEq, Eq, Debug)]
pub enum Body {
    /// One query, in a transaction of its own.
    One(Query),
    /// All of them in one transaction.
    Batch(Vec<Query>),
}

/// Reads a body.
///
/// # Errors
/// 22P02 with what is wrong and where, in lines and columns of the body.
pub fn parse(body: &[u8]) -> Result<Body, Fatal> {
    let hint = "It has to be {\"query\": TEXT, \"params\": [...]} or {\"queries\": [{\"query\": TEXT, \"params\": [...]}, ...]}.";
    let raw: RawBody = serde_json::from_slice(body).map_err(|error| {
        let text = format!("the request's body cannot be understood: {error}");
        Fatal::new("22P02", text).with_hint(hint)
    })?;
    let both = "the request's body has to have either a query or queries";
    match (raw.query, raw.queries) {
        (Some(text), None) => Ok(Body::One(Query {
            text: text.0,
            parameters: raw.params.unwrap_or_default(),
            arrays: raw.array_mode,
        })),
        (None, Some(queries)) => Ok(Body::Batch(queries.0)),
        _ => Err(Fatal::new("22P02", both).with_hint(hint)),
    }
}

#[derive(Deserialize)]
struct RawBody {
    query: Option<Sql>,
    params: Option<Parameters>,
    #[serde(rename = "arrayMode")]
    array_mode: Option<bool>,
    queries: Option<Queries>,
}

#[derive(Deserialize)]
struct RawQuery {
    query: Sql,
    params: Option<Parameters>,
    #[serde(rename = "arrayMode")]
    array_mode: Option<bool>,
}

struct Sql(String);

impl<'de> Deserialize<'de> for Sql {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Sql, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.contains('\0') {
            true => Err(D::Error::custom("a query has a zero byte")),
            false => Ok(Sql(text)),
        }
    }
}

struct Queries(Vec<Query>);

impl<'de> Deserialize<'de> for Queries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Queries, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Queries;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of queries")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Queries, A::Error> {
                let mut queries = Vec::new();
                while let Some(raw) = all.next_element::<RawQuery>()? {
                    if queries.len() == MOST_QUERIES {
                        let text = format!("a batch has at most {MOST_QUERIES} queries");
                        return Err(A::Error::custom(text));
                    }
                    queries.push(Query {
                        text: raw.query.0,
                        parameters: raw.params.unwrap_or_default(),
                        arrays: raw.array_mode,
                    });
                }
                Ok(Queries(queries))
            }
        }
        deserializer.deserialize_seq(All)
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Parameters, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Parameters;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a list of parameters")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Parameters, A::Error> {
                let mut parameters = Parameters::default();
                let mut count = 0_usize;
                loop {
                    let at = parameters.encoded.len();
                    parameters.encoded.extend((-1_i32).to_be_bytes());
                    let out = &mut parameters.encoded;
                    let form = Form::Parameter;
                    let Some(found) = all.next_element_seed(Value { out, form })? else {
                        parameters.encoded.truncate(at);
                        break;
                    };
                    if count == MOST_PARAMETERS {
                        let text = format!("a query has at most {MOST_PARAMETERS} parameters");
                        return Err(A::Error::custom(text));
                    }
                    count += 1;
                    if found == Found::Text {
                        let length = parameters.encoded.len() - at - 4;
                        let length = i32::try_from(length)
                            .map_err(|_| A::Error::custom("a parameter is too long"))?;
                        parameters.encoded[at..at + 4].copy_from_slice(&length.to_be_bytes());
                    }
                }
                parameters.count = count as u16;
                Ok(parameters)
            }
        }
        deserializer.deserialize_seq(All)
    }
}

/// Where a value stands, which decides how it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// A parameter: strings are as they are, null is no text at all.
    Parameter,
    /// An element of an array in Postgres's form: strings in quotes.
    Element,
    /// Within an object, which stays JSON.
    Json,
}

#[derive(PartialEq, Eq)]
enum Found {
    Null,
    Text,
}

/// Writes one value of JSON behind `out`.
struct Value<'a> {
    out: &'a mut Vec<u8>,
    form: Form,
}

impl Value<'_> {
    fn plain<E>(self, text: &str) -> Result<Found, E> {
        self.out.extend(text.as_bytes());
        Ok(Found::Text)
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = Found;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Found, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = Found;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Found, E> {
        match self.form {
            Form::Parameter => Ok(Found::Null),
            Form::Element => self.plain("NULL"),
            Form::Json => self.plain("null"),
        }
    }

    fn visit_bool<E>(self, value: bool) -> Result<Found, E> {
        self.plain(if value { "true" } else { "false" })
    }

    fn visit_i64<E>(self, value: i64) -> Result<Found, E> {
        self.plain(&value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Found, E> {
        self.plain(&value.to_string())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Found, E> {
        // The shortest text that means the same double, as in JavaScript.
        let text = serde_json::to_string(&value).map_err(E::custom)?;
        self.plain(&text)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Found, E> {
        match self.form {
            Form::Parameter => self.plain(value),
            Form::Element => {
                quote(self.out, value.as_bytes());
                Ok(Found::Text)
            }
            Form::Json => {
                serde_json::to_writer(self.out, value).map_err(E::custom)?;
                Ok(Found::Text)
            }
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Found, A::Error> {
        let (brackets, form) = match self.form {
            Form::Json => (b"[]", Form::Json),
            _ => (b"{}", Form::Element),
        };
        self.out.push(brackets[0]);
        let mut first = true;
        loop {
            let at = self.out.len();
            if !first {
                self.out.push(b',');
            }
            let out = &mut *self.out;
            if all.next_element_seed(Value { out, form })?.is_none() {
                self.out.truncate(at);
                break;
            }
            first = false;
        }
        self.out.push(brackets[1]);
        Ok(Found::Text)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Found, A::Error> {
        if self.form == Form::Element {
            let mut json = Vec::new();
            object(&mut json, &mut all)?;
            quote(self.out, &json);
        } else {
            object(self.out, &mut all)?;
        }
        Ok(Found::Text)
    }
}

fn object<'de, A: MapAccess<'de>>(out: &mut Vec<u8>, all: &mut A) -> Result<(), A::Error> {
    out.push(b'{');
    let mut first = true;
    while let Some(name) = all.next_key::<String>()? {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, &name).map_err(A::Error::custom)?;
        out.push(b':');
        let form = Form::Json;
        all.next_value_seed(Value { out, form })?;
    }
    out.push(b'}');
    Ok(())
}

/// Puts an element of an array into quotes.
fn quote(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}

/// Whether a text is one value of JSON.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(json: &str) -> Vec<Option<String>> {
        let body = format!("{{\"query\": \"q\", \"params\": {json}}}");
        let Ok(Body::One(query)) = parse(body.as_bytes()) else {
            panic!("{body} is well formed");
        };
        let mut rest = query.parameters.encoded.as_slice();
        let mut found = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length));
            let (text, after) = after.split_at(*length.as_ref().unwrap_or(&0));
            found.push(
                length
                    .ok()
                    .map(|_| String::from_utf8_lossy(text).into_owned()),
            );
            rest = after;
        }
        assert_eq!(found.len(), usize::from(query.parameters.count));
        found
    }

    #[test]
    fn parameters_become_postgress_text() {
        for (json, text) in [
            ("null", None),
            ("true", Some("true")),
            ("-9223372036854775808", Some("-9223372036854775808")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("0.1", Some("0.1")),
            ("\"a\\u00e9\\\"\"", Some("aé\"")),
            ("\"\"", Some("")),
            ("[]", Some("{}")),
            (
                "[1, null, \"a,\\\"\\\\b\", [true]]",
                Some(r#"{1,NULL,"a,\"\\b",{true}}"#),
            ),
            (
                r#"{"a": [1, null, "x\""], "b": {}}"#,
                Some(r#"{"a":[1,null,"x\""],"b":{}}"#),
            ),
            (r#"[{"a": "x\""}]"#, Some(r#"{"{\"a\":\"x\\\"\"}"}"#)),
        ] {
            let found = values(&format!("[{json}, 7]"));
            let expected = [text.map(str::to_owned), Some("7".to_owned())];
            assert_eq!(found, expected, "{json}");
        }
        assert_eq!(values("[]"), []);
        assert_eq!(values("null"), []);
    }

    #[test]
    fn one_query_or_a_batch_and_nothing_else() {
        let one = parse(br#"{"query": "SELECT 1", "later": [1]}"#).expect("one");
        assert!(
            matches!(one, Body::One(query) if query.text == "SELECT 1" && query.arrays.is_none())
        );
        let batch =
            br#"{"queries": [{"query": "a", "params": [1], "arrayMode": true}, {"query": "b"}]}"#;
        let Ok(Body::Batch(queries)) = parse(batch) else {
            panic!("a batch");
        };
        let counts: Vec<_> = queries
            .iter()
            .map(|query| (query.parameters.count, query.arrays))
            .collect();
        assert_eq!(counts, [(1, Some(true)), (0, None)]);
        for wrong in [
            &b""[..],
            b"[]",
            b"{}",
            b"{\"query\": 1}",
            b"{\"query\": \"a\", \"queries\": []}",
            b"{\"query\": \"a\\u0000; DROP TABLE x\"}",
            b"{\"query\": \"a\", \"params\": 1}",
            b"{\"query\": \"a\", \"params\": {}}",
            b"{\"query\": \"a\"} {}",
            b"{\"queries\": [{}]}",
            b"{\"query\": \"\xFF\"}",
        ] {
            let told = parse(wrong).expect_err("it is refused");
            assert_eq!(told.sqlstate, "22P02", "{wrong:?}");
        }
    }

    #[test]
    fn there_are_limits_and_no_depth_overflows_the_stack() {
        let many = format!(
            "{{\"query\": \"a\", \"params\": [{}0]}}",
            "0,".repeat(65_535)
        );
        assert!(parse(many.as_bytes()).is_err());
        let most = format!(
            "{{\"query\": \"a\", \"params\": [{}0]}}",
            "0,".repeat(65_534)
        );
        assert!(parse(most.as_bytes()).is_ok());
        let queries = format!(
            "{{\"queries\": [{}{{\"query\": \"\"}}]}}",
            "{\"query\": \"\"},".repeat(MOST_QUERIES)
        );
        assert!(parse(queries.as_bytes()).is_err());
        for bracket in ["[", "{\"a\":"] {
            let deep = format!(
                "{{\"query\": \"a\", \"params\": [{}",
                bracket.repeat(1_000_000)
            );
            assert!(parse(deep.as_bytes()).is_err());
        }
    }

    proptest! {
        #[test]
        fn an_object_stays_the_same_json(text in "\\PC{0,20}", number in any::<i64>()) {
            let object = serde_json::json!({ text.clone(): [number, text, null] });
            let found = values(&format!("[{object}]"));
            let again: serde_json::Value = serde_json::from_str(found[0].as_deref().unwrap_or_default()).expect("JSON");
            prop_assert_eq!(again, object);
        }

        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&bytes);
        }
    }
}
