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
mod tests;
