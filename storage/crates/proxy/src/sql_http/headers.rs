//! What a request's headers ask for. Names are those of the driver `@neondatabase/serverless`.

use hyper::HeaderMap;
use pg_protocol::messages::Fatal;
use sql_over_http::address::{self, Address};
use sql_over_http::answer::Style;

/// Headers that a browser may send from a page of any origin.
pub const ALLOWED: &str = "Authorization, Content-Type, Neon-Connection-String, Neon-Raw-Text-Output, \
                           Neon-Array-Mode, Neon-Pool-Opt-In, Neon-Batch-Isolation-Level, \
                           Neon-Batch-Read-Only, Neon-Batch-Deferrable";

/// How the transaction of a batch is begun.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Transaction {
    isolation: Option<&'static str>,
    read_only: Option<bool>,
    deferrable: Option<bool>,
}

impl Transaction {
    /// The statement that begins it.
    pub fn begin(&self) -> String {
        let mut text = "BEGIN".to_owned();
        if let Some(level) = self.isolation {
            text += " ISOLATION LEVEL ";
            text += level;
        }
        let modes = [
            (self.read_only, " READ ONLY", " READ WRITE"),
            (self.deferrable, " DEFERRABLE", " NOT DEFERRABLE"),
        ];
        for (mode, yes, no) in modes {
            text += mode.map_or("", |mode| if mode { yes } else { no });
        }
        text
    }
}

/// What the headers say.
pub struct Asked {
    /// The role that asks, its password, and the host.
    pub address: Address,
    /// How rows are to be written.
    pub style: Style,
    /// For a batch.
    pub transaction: Transaction,
}

/// Reads the headers.
///
/// # Errors
/// What is missing or cannot be understood.
pub fn read(headers: &HeaderMap) -> Result<Asked, Fatal> {
    if headers.contains_key("authorization") {
        let text = "tokens are not taken for SQL over HTTP";
        let hint = "Give the role's password in the connection string.";
        return Err(Fatal::new("0A000", text).with_hint(hint));
    }
    if headers.contains_key("content-encoding") {
        let text = "the request's body is encoded, which is not understood here";
        return Err(Fatal::new("0A000", text).with_hint("Send it without Content-Encoding."));
    }
    let address = value(headers, "neon-connection-string")?
        .ok_or_else(|| Fatal::new("08001", "the header Neon-Connection-String is missing"))?;
    Ok(Asked {
        address: address::parse(address)?,
        style: Style {
            raw: flag(headers, "neon-raw-text-output")?.unwrap_or(false),
            arrays: flag(headers, "neon-array-mode")?.unwrap_or(false),
        },
        transaction: Transaction {
            isolation: isolation(headers)?,
            read_only: flag(headers, "neon-batch-read-only")?,
            deferrable: flag(headers, "neon-batch-deferrable")?,
        },
    })
}

fn value<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Fatal> {
    let mut all = headers.get_all(name).iter();
    let text = all.next().map(|value| value.to_str());
    match (text, all.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        _ => Err(wrong(name, "is given twice, or is not ASCII")),
    }
}

fn flag(headers: &HeaderMap, name: &str) -> Result<Option<bool>, Fatal> {
    match value(headers, name)? {
        None => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(wrong(name, "has to be true or false")),
    }
}

fn isolation(headers: &HeaderMap) -> Result<Option<&'static str>, Fatal> {
    let name = "neon-batch-isolation-level";
    match value(headers, name)? {
        None => Ok(None),
        Some("ReadUncommitted") => Ok(Some("READ UNCOMMITTED")),
        Some("ReadCommitted") => Ok(Some("READ COMMITTED")),
        Some("RepeatableRead") => Ok(Some("REPEATABLE READ")),
        Some("Serializable") => Ok(Some("SERIALIZABLE")),
        Some(_) => {
            let levels = "has to be ReadUncommitted, ReadCommitted, RepeatableRead or Serializable";
            Err(wrong(name, levels))
        }
    }
}

fn wrong(name: &str, what: &str) -> Fatal {
    Fatal::new("22023", format!("the header {name} {what}"))
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn asked(pairs: &[(&'static str, &'static str)]) -> Result<Asked, Fatal> {
        let pairs = pairs.iter().map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        read(&pairs.collect())
    }

    const ADDRESS: (&str, &str) = ("neon-connection-string", "postgres://a:b@h/d");

    #[test]
    fn a_transaction_begins_as_it_is_asked_for() {
        let begin = |pairs: &[(&'static str, &'static str)]| {
            asked(&[&[ADDRESS], pairs].concat()).map(|asked| asked.transaction.begin())
        };
        assert_eq!(begin(&[]), Ok("BEGIN".to_owned()));
        let level = ("neon-batch-isolation-level", "Serializable");
        let all = [
            level,
            ("neon-batch-read-only", "true"),
            ("neon-batch-deferrable", "false"),
        ];
        let expected = "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY NOT DEFERRABLE";
        assert_eq!(begin(&all), Ok(expected.to_owned()));
        for wrong in [
            ("neon-batch-isolation-level", "Serializable; DROP TABLE x"),
            ("neon-batch-read-only", "yes"),
            ("neon-array-mode", "1"),
        ] {
            assert_eq!(
                begin(&[wrong]).err().map(|fatal| fatal.sqlstate),
                Some("22023")
            );
        }
    }

    #[test]
    fn who_asks_has_to_be_said_once_and_not_by_a_token() {
        let code =
            |pairs: &[(&'static str, &'static str)]| asked(pairs).err().map(|fatal| fatal.sqlstate);
        assert_eq!(code(&[]), Some("08001"));
        assert_eq!(
            code(&[ADDRESS, ("authorization", "Bearer x")]),
            Some("0A000")
        );
        assert_eq!(
            code(&[ADDRESS, ("content-encoding", "gzip")]),
            Some("0A000")
        );
        assert_eq!(code(&[ADDRESS]), None);
    }

    #[test]
    fn a_header_that_comes_twice_is_no_choice() {
        let mut headers = HeaderMap::new();
        for value in ["postgres://a:b@h/d", "postgres://c:d@h/d"] {
            headers.append("neon-connection-string", HeaderValue::from_static(value));
        }
        assert_eq!(
            read(&headers).err().map(|fatal| fatal.sqlstate),
            Some("22023")
        );
    }
}
