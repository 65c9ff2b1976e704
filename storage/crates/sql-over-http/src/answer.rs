//! What a server answers to a query, as JSON.

use pg_protocol::messages::Fatal;
use thiserror::Error;

use crate::request::is_json;

/// Types whose values are JSON as they are, where the client wants no raw text.
const BOOL: u32 = 16;
const JSONS: [u32; 2] = [114, 3802];
/// `int2`, `int4`, `float4`, `float8`: what a double holds. Larger numbers stay texts.
const NUMBERS: [u32; 4] = [21, 23, 700, 701];

/// How rows are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Each value is Postgres's text, or null.
    pub raw: bool,
    /// Each row is a list of values, in place of an object by columns' names.
    pub arrays: bool,
}

/// Why an answer cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum AnswerError {
    /// The server's message breaks the protocol's format.
    #[error("the compute's answer cannot be understood")]
    Malformed,
    /// A database in SQL_ASCII can have any bytes.
    #[error("a value is not UTF-8, which JSON is made of")]
    NotUtf8,
    /// The JSON would be longer than it may be.
    #[error("the answer is too long")]
    TooLong,
}

struct Column {
    name: String,
    oid: u32,
}

/// One query's result while it is made.
pub struct Answer<'a> {
    out: Json<'a>,
    style: Style,
    columns: Vec<Column>,
    rows: u64,
}

/// JSON that is being written, and its longest length.
struct Json<'a> {
    out: &'a mut Vec<u8>,
    most: usize,
}

impl Json<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<(), AnswerError> {
        if bytes.len() > self.most.saturating_sub(self.out.len()) {
            return Err(AnswerError::TooLong);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// A text in quotes. Each of its characters may take six, so that it is looked at while it is written.
    fn string(&mut self, text: &str) -> Result<(), AnswerError> {
        serde_json::to_writer(self, text).map_err(|_| AnswerError::TooLong)
    }
}

impl std::io::Write for Json<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.put(bytes).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Takes fixed pieces off a message's body.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], AnswerError> {
        let (piece, rest) = self.0.split_first_chunk().ok_or(AnswerError::Malformed)?;
        self.0 = rest;
        Ok(*piece)
    }

    fn bytes(&mut self, count: usize) -> Result<&'a [u8], AnswerError> {
        let (piece, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(AnswerError::Malformed)?;
        self.0 = rest;
        Ok(piece)
    }

    fn text(&mut self) -> Result<&'a str, AnswerError> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let text = self.bytes(end.ok_or(AnswerError::Malformed)?)?;
        self.bytes(1)?;
        std::str::from_utf8(text).map_err(|_| AnswerError::NotUtf8)
    }
}

impl<'a> Answer<'a> {
    /// Begins a result behind `out`, which may have `most` bytes in all.
    ///
    /// # Errors
    /// There is no room.
    pub fn begin(
        out: &'a mut Vec<u8>,
        most: usize,
        style: Style,
    ) -> Result<Answer<'a>, AnswerError> {
        let mut out = Json { out, most };
        out.put(b"{\"fields\":[")?;
        Ok(Answer {
            out,
            style,
            columns: Vec::new(),
            rows: 0,
        })
    }

    /// Bytes of memory that the JSON holds so far, results before this one included.
    pub fn held(&self) -> usize {
        self.out.out.capacity()
    }

    /// Takes a RowDescription, once and before rows.
    ///
    /// # Errors
    /// The message is malformed, or there is no room.
    pub fn columns(&mut self, body: &[u8]) -> Result<(), AnswerError> {
        let mut reader = Reader(body);
        for number in 0..u16::from_be_bytes(reader.take()?) {
            let name = reader.text()?.to_owned();
            let table = u32::from_be_bytes(reader.take()?);
            let column = i16::from_be_bytes(reader.take()?);
            let oid = u32::from_be_bytes(reader.take()?);
            let size = i16::from_be_bytes(reader.take()?);
            let modifier = i32::from_be_bytes(reader.take()?);
            let _format: [u8; 2] = reader.take()?;
            let comma = if number == 0 { "" } else { "," };
            self.out.put(format!("{comma}{{\"name\":").as_bytes())?;
            self.out.string(&name)?;
            let rest = format!(
                ",\"dataTypeID\":{oid},\"tableID\":{table},\"columnID\":{column},\"dataTypeSize\":{size},\
                 \"dataTypeModifier\":{modifier},\"format\":\"text\"}}"
            );
            self.out.put(rest.as_bytes())?;
            self.columns.push(Column { name, oid });
        }
        Ok(())
    }

    /// Takes a DataRow.
    ///
    /// # Errors
    /// The message is malformed, has another number of values than there are columns, a value is not UTF-8, or there is no
    /// room.
    pub fn row(&mut self, body: &[u8]) -> Result<(), AnswerError> {
        let mut reader = Reader(body);
        if usize::from(u16::from_be_bytes(reader.take()?)) != self.columns.len() {
            return Err(AnswerError::Malformed);
        }
        let begin = match self.rows {
            0 => &b"],\"rows\":["[..],
            _ => b",",
        };
        self.out.put(begin)?;
        self.rows += 1;
        let [open, close] = if self.style.arrays {
            ["[", "]"]
        } else {
            ["{", "}"]
        };
        self.out.put(open.as_bytes())?;
        for (number, column) in self.columns.iter().enumerate() {
            if number > 0 {
                self.out.put(b",")?;
            }
            if !self.style.arrays {
                self.out.string(&column.name)?;
                self.out.put(b":")?;
            }
            match usize::try_from(i32::from_be_bytes(reader.take()?)) {
                Err(_) => self.out.put(b"null")?,
                Ok(length) => {
                    let text = std::str::from_utf8(reader.bytes(length)?)
                        .map_err(|_| AnswerError::NotUtf8)?;
                    match self.style.raw {
                        true => self.out.string(text)?,
                        false => typed(&mut self.out, text, column.oid)?,
                    }
                }
            }
        }
        self.out.put(close.as_bytes())
    }

    /// Takes a CommandComplete, or an EmptyQueryResponse without a tag, and ends the result.
    ///
    /// # Errors
    /// The message is malformed, or there is no room.
    pub fn end(mut self, tag: &[u8]) -> Result<(), AnswerError> {
        if self.rows == 0 {
            self.out.put(b"],\"rows\":[")?;
        }
        let tag = match tag {
            [] => "",
            tag => Reader(tag).text()?,
        };
        self.out.put(b"],\"command\":")?;
        self.out.string(tag.split(' ').next().unwrap_or_default())?;
        let count = tag.rsplit(' ').next();
        let count = count.and_then(|word| word.parse::<u64>().ok());
        let count = count.map_or("null".to_owned(), |count| count.to_string());
        let arrays = self.style.arrays;
        let rest = format!(",\"rowCount\":{count},\"rowAsArray\":{arrays}}}");
        self.out.put(rest.as_bytes())
    }
}

/// A value as JSON has its type, where it has one and the value is one of its.
fn typed(out: &mut Json<'_>, text: &str, oid: u32) -> Result<(), AnswerError> {
    let numeric = |first: char| first == '-' || first.is_ascii_digit();
    match oid {
        BOOL => out.put(if text == "t" { b"true" } else { b"false" }),
        // What is no JSON here would break the whole answer: NaN, say, or a document that is nested too deep.
        _ if NUMBERS.contains(&oid) && text.starts_with(numeric) && is_json(text) => {
            out.put(text.as_bytes())
        }
        _ if JSONS.contains(&oid) && is_json(text) => out.put(text.as_bytes()),
        _ => out.string(text),
    }
}

/// Names of an ErrorResponse's fields in JSON.
const ERROR_FIELDS: [(u8, &str); 17] = [
    (b'M', "message"),
    (b'S', "severity"),
    (b'C', "code"),
    (b'D', "detail"),
    (b'H', "hint"),
    (b'P', "position"),
    (b'p', "internalPosition"),
    (b'q', "internalQuery"),
    (b'W', "where"),
    (b's', "schema"),
    (b't', "table"),
    (b'c', "column"),
    (b'd', "dataType"),
    (b'n', "constraint"),
    (b'F', "file"),
    (b'L', "line"),
    (b'R', "routine"),
];

/// An ErrorResponse's body as JSON: all fields, null where there is none.
pub fn error(body: &[u8]) -> Vec<u8> {
    let all = ERROR_FIELDS.iter().map(|(code, name)| {
        let text = field(body, *code).map(String::from_utf8_lossy);
        let value = serde_json::Value::from(text);
        format!("\"{name}\":{value}")
    });
    let all: Vec<_> = all.collect();
    format!("{{{}}}", all.join(",")).into_bytes()
}

/// A field of an ErrorResponse's body.
pub fn field(body: &[u8], code: u8) -> Option<&[u8]> {
    body.split(|byte| *byte == 0)
        .find_map(|field| field.strip_prefix(&[code]))
}

/// An error of the proxy's own, as JSON.
pub fn fatal(fatal: &Fatal) -> Vec<u8> {
    error(&fatal.to_error_message()[5..])
}

#[cfg(test)]
mod tests {
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
}
