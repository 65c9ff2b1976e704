//! Which endpoint a client means. It may say so by the host name of TLS (SNI), by `endpoint=NAME` in the parameter
//! `options`, or by `endpoint=NAME;` before the user's name, for clients that can do neither.

use std::fmt;

use thiserror::Error;

/// Longest name of an endpoint; the API's limit.
const MAX_NAME_BYTES: usize = 60;
const KEYWORD: &str = "endpoint";

/// Why the endpoint is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// The connection names no endpoint: neither by host name, nor in its options, nor before the user's name.
    #[error("the connection does not say which endpoint it is for")]
    Missing,
    /// Two of the ways to name an endpoint name different ones: the first field and the second.
    #[error("the connection names two endpoints, {0} and {1}")]
    Contradiction(EndpointName, EndpointName),
    /// The text that names an endpoint is no [`EndpointName`].
    #[error(
        "this is no name of an endpoint: lower-case letters, digits and - are allowed, at most 60"
    )]
    Name,
}

/// A name that an endpoint can have: 1 to 60 of `a-z`, `0-9` and `-`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointName(String);

impl EndpointName {
    /// Takes a name as it stands, upper-case letters refused.
    ///
    /// # Errors
    ///
    /// [`EndpointError::Name`] for an empty or longer text, and for one with any other character.
    pub fn new(name: &str) -> Result<EndpointName, EndpointError> {
        let known = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
        match (1..=MAX_NAME_BYTES).contains(&name.len()) && name.as_bytes().iter().all(known) {
            true => Ok(EndpointName(name.to_owned())),
            false => Err(EndpointError::Name),
        }
    }

    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EndpointName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The endpoint of a host name below one of the domains: `NAME.DOMAIN`. None for other hosts, a domain itself among
/// them. Host names have no case. `domains` are in lower case, without a dot at the end.
///
/// # Errors
///
/// [`EndpointError::Name`] when what stands before the domain is no name that an endpoint can have.
pub fn of_host(host: &str, domains: &[String]) -> Result<Option<EndpointName>, EndpointError> {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let Some((first, domain)) = host.split_once('.') else {
        return Ok(None);
    };
    match domains.iter().any(|known| known == domain) {
        true => EndpointName::new(first).map(Some),
        false => Ok(None),
    }
}

/// Takes `endpoint=NAME` out of the startup parameter `options`: answers with the name and with the other options as
/// they were written. Postgres separates options by white space, and a backslash makes the next character part of one.
///
/// # Errors
///
/// [`EndpointError::Name`] for a name that no endpoint can have, [`EndpointError::Contradiction`] for two names.
pub fn of_options(options: &str) -> Result<(Option<EndpointName>, String), EndpointError> {
    let (mut found, mut others): (Option<EndpointName>, Vec<&str>) = (None, Vec::new());
    for word in words(options) {
        let name = word
            .strip_prefix(KEYWORD)
            .and_then(|rest| rest.strip_prefix(['=', '$']));
        match name {
            Some(name) => found = agreed(found, Some(EndpointName::new(name)?))?,
            None => others.push(word),
        }
    }
    Ok((found, others.join(" ")))
}

fn words(options: &str) -> Vec<&str> {
    let (mut words, mut begin, mut escaped) = (Vec::new(), None, false);
    for (at, character) in options.char_indices() {
        // What C's isspace says in the locale C.
        let space = matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0B' | '\x0C');
        match begin {
            Some(from) if space && !escaped => {
                words.push(&options[from..at]);
                begin = None;
            }
            None if !space => begin = Some(at),
            _ => {}
        }
        escaped = character == '\\' && !escaped;
    }
    words.extend(begin.map(|from| &options[from..]));
    words
}

/// Takes the endpoint off a text that begins with it: `endpoint=NAME;REST`. In place of `=` and of `;` there may be a
/// `$`. A text that does not begin so is all rest.
///
/// # Errors
///
/// [`EndpointError::Name`] for a name that no endpoint can have.
pub fn of_prefix(text: &str) -> Result<(Option<EndpointName>, &str), EndpointError> {
    let named = text
        .strip_prefix(KEYWORD)
        .and_then(|rest| rest.strip_prefix(['=', '$']))
        .and_then(|rest| rest.split_once([';', '$']));
    match named {
        Some((name, rest)) => Ok((Some(EndpointName::new(name)?), rest)),
        None => Ok((None, text)),
    }
}

/// One endpoint of two ways to name it; None when neither names one.
///
/// # Errors
///
/// [`EndpointError::Contradiction`] when the two name different ones.
pub fn agreed(
    one: Option<EndpointName>,
    other: Option<EndpointName>,
) -> Result<Option<EndpointName>, EndpointError> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => Err(EndpointError::Contradiction(one, other)),
        (one, other) => Ok(one.or(other)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> EndpointName {
        EndpointName::new(text).expect("a name")
    }

    #[test]
    fn a_host_names_an_endpoint_only_below_a_domain() {
        let domains = ["db.example.com".to_owned(), "localhost".to_owned()];
        let of = |host| of_host(host, &domains);
        assert_eq!(of("ep-a-1.db.example.com"), Ok(Some(name("ep-a-1"))));
        assert_eq!(of("EP-A-1.DB.example.com."), Ok(Some(name("ep-a-1"))));
        assert_eq!(of("ep-a-1.localhost"), Ok(Some(name("ep-a-1"))));
        for none in [
            "db.example.com",
            "a.ep-a-1.db.example.com",
            "ep-a-1.evil.com",
            "localhost",
            "",
            "127.0.0.1",
        ] {
            assert_eq!(of(none), Ok(None), "{none}");
        }
        assert_eq!(of("ep_a.db.example.com"), Err(EndpointError::Name));
    }

    #[test]
    fn options_lose_the_endpoint_and_nothing_else() {
        assert_eq!(
            of_options("-c geqo=off endpoint=ep-a  -c search_path=a\\ b"),
            Ok((
                Some(name("ep-a")),
                "-c geqo=off -c search_path=a\\ b".to_owned()
            ))
        );
        assert_eq!(
            of_options("endpoint$ep-a"),
            Ok((Some(name("ep-a")), String::new()))
        );
        // An escaped space does not end a word, and an endpoint within a word is none.
        assert_eq!(
            of_options("-c\\ endpoint=ep-a"),
            Ok((None, "-c\\ endpoint=ep-a".to_owned()))
        );
        assert_eq!(
            of_options("endpoint=a endpoint=b"),
            Err(EndpointError::Contradiction(name("a"), name("b")))
        );
        assert_eq!(of_options("endpoint=../a"), Err(EndpointError::Name));
    }

    #[test]
    fn a_prefix_is_taken_in_all_its_spellings() {
        for text in [
            "endpoint=ep-a;ro;le",
            "endpoint$ep-a;ro;le",
            "endpoint=ep-a$ro;le",
        ] {
            assert_eq!(of_prefix(text), Ok((Some(name("ep-a")), "ro;le")));
        }
        for text in ["role", "endpoint", "endpoint=ep-a", "endpoint;a;b"] {
            assert_eq!(of_prefix(text), Ok((None, text)));
        }
        assert_eq!(of_prefix("endpoint=A;b"), Err(EndpointError::Name));
    }

    proptest! {
        #[test]
        fn an_endpoint_is_found_wherever_it_stands(
            before in proptest::collection::vec("[a-z=-]{1,5}", 0..4),
            after in proptest::collection::vec("[a-z=-]{1,5}", 0..4),
            wanted in "[a-z0-9-]{1,60}",
        ) {
            let joined = [before.clone(), vec![format!("endpoint={wanted}")], after.clone()].concat().join(" ");
            let (found, rest) = of_options(&joined).expect("well formed");
            prop_assert_eq!(found, Some(name(&wanted)));
            prop_assert_eq!(rest, [before, after].concat().join(" "));
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,80}") {
            let _ = (of_options(&text), of_prefix(&text), of_host(&text, std::slice::from_ref(&text)));
        }
    }
}
