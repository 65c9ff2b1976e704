//! The header `Neon-Connection-String`: a URL as libpq and drivers take it.

use pg_protocol::messages::Fatal;
use pg_protocol::startup::Startup;
use zeroize::Zeroizing;

/// No URL is longer; Postgres takes no longer startup packet either.
const MOST_BYTES: usize = 8192;
const SCHEMES: [&str; 2] = ["postgresql://", "postgres://"];
/// Parameters of the URL that are the server's to know. The others (`sslmode`, `channel_binding` and so on) say how a client
/// is to connect, which it has done.
const PASSED: [&str; 2] = ["options", "application_name"];

/// The role that wants to connect, and where to.
pub struct Address {
    /// In lower case, without a port.
    pub host: String,
    /// User, database, `options`, `application_name`.
    pub startup: Startup,
    /// As it was before it was written into a URL.
    pub password: Zeroizing<String>,
}

fn malformed(what: &str) -> Fatal {
    Fatal::new("08001", format!("the connection string {what}"))
        .with_hint("It has to be postgresql://ROLE:PASSWORD@HOST/DATABASE?OPTION=VALUE.")
}

/// Reads a URL.
///
/// # Errors
/// 08001, with what is wrong and without the text, which has a password in it.
pub fn parse(text: &str) -> Result<Address, Fatal> {
    if text.len() > MOST_BYTES {
        return Err(malformed(&format!("is longer than {MOST_BYTES} bytes")));
    }
    let rest = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme));
    let rest = rest.ok_or_else(|| malformed("does not begin with postgresql://"))?;
    let rest = rest.split_once('#').map_or(rest, |(before, _)| before);
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, host) = authority
        .rsplit_once('@')
        .ok_or_else(|| malformed("names no role"))?;
    let (role, password) = login
        .split_once(':')
        .ok_or_else(|| malformed("has no password"))?;
    let role = decoded(role)?;
    let password = Zeroizing::new(decoded(password)?);
    if role.is_empty() || password.is_empty() {
        return Err(malformed("has an empty role or password"));
    }
    let mut parameters = vec![("user".to_owned(), role)];
    let database = decoded(database)?;
    if !database.is_empty() {
        parameters.push(("database".to_owned(), database));
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decoded(name)?;
        if PASSED.contains(&name.as_str()) {
            parameters.push((name, decoded(value)?));
        }
    }
    // What is sent as JSON is UTF-8.
    parameters.push(("client_encoding".to_owned(), "UTF8".to_owned()));
    Ok(Address {
        host: host_of(host)?,
        startup: Startup::new(parameters),
        password,
    })
}

/// The host of `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
fn host_of(text: &str) -> Result<String, Fatal> {
    let host = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(address, _)| address),
        None => Some(text.split_once(':').map_or(text, |(host, _)| host)),
    };
    let host = decoded(host.ok_or_else(|| malformed("has a host without its bracket"))?)?;
    match host.is_empty() {
        true => Err(malformed("names no host")),
        false => Ok(host.to_ascii_lowercase()),
    }
}

/// A text in which `%` and two hexadecimal digits stand for a byte.
fn decoded(text: &str) -> Result<String, Fatal> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let digits = [rest.next(), rest.next()].map(|digit| digit.and_then(hexadecimal));
                match digits {
                    [Some(high), Some(low)] => high << 4 | low,
                    _ => return Err(malformed("has a % without two hexadecimal digits")),
                }
            }
            byte => byte,
        };
        // Names end with a zero byte in Postgres's protocol.
        if byte == 0 {
            return Err(malformed("has a zero byte"));
        }
        bytes.push(byte);
    }
    String::from_utf8(bytes).map_err(|_| malformed("is not UTF-8"))
}

fn hexadecimal(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| value.try_into().ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_says_who_and_where() {
        let text = "postgresql://a%40b:p%2Fw%3A@EP-A.db.test:7432/my%20db?sslmode=require&options=endpoint%3Dep-a&x";
        let address = parse(text).expect("it is well formed");
        assert_eq!(address.host, "ep-a.db.test");
        assert_eq!(*address.password, "p/w:");
        let found: Vec<_> = address.startup.parameters().collect();
        let expected = [
            ("user", "a@b"),
            ("database", "my db"),
            ("options", "endpoint=ep-a"),
            ("client_encoding", "UTF8"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_port_a_database_and_options_may_be_missing() {
        for (text, host) in [
            ("postgres://a:b@h", "h"),
            ("postgres://a:b@h:1", "h"),
            ("postgres://a:b@[::1]:1/d", "::1"),
            ("postgres://a:b@c@h/", "h"),
        ] {
            assert_eq!(parse(text).expect(text).host, host);
        }
    }

    #[test]
    fn what_is_no_url_with_a_password_is_refused_without_being_repeated() {
        for text in [
            "",
            "http://a:secret@h/d",
            "postgres://h/d",
            "postgres://secret@h/d",
            "postgres://a:@h/d",
            "postgres://:secret@h/d",
            "postgres://a:secret@/d",
            "postgres://a:secret@[::1/d",
            "postgres://a:secret%4@h/d",
            "postgres://a:secret%00@h/d",
            "postgres://a:secret%FF@h/d",
            &format!("postgres://a:secret@h/{}", "d".repeat(9000)),
        ] {
            let told = parse(text).err().expect(text);
            assert_eq!(told.sqlstate, "08001");
            assert!(!told.message.contains("secret"), "{told:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(postgres://)?[a-z%0-9:@/?&=#\\[\\]\\PC]{0,60}") {
            if let Ok(address) = parse(&text) {
                prop_assert!(address.startup.parameters().all(|(name, value)| !name.contains('\0') && !value.contains('\0')));
            }
        }
    }
}
