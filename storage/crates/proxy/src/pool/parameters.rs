//! Settings that follow a client from one server connection to the next: those that Postgres reports by
//! ParameterStatus, and that drivers rely on. PgBouncer follows the same ones.

use std::collections::HashMap;
use std::sync::Arc;

use pg_protocol::messages::Fatal;

/// The settings that are followed, in Postgres's spelling.
pub const NAMES: [&str; 6] = [
    "client_encoding",
    "DateStyle",
    "TimeZone",
    "IntervalStyle",
    "standard_conforming_strings",
    "application_name",
];
/// The place of `application_name` in [`NAMES`].
const APPLICATION_NAME: usize = 5;
/// Postgres cuts `application_name` here.
const MOST_NAME_BYTES: usize = 63;
/// No value of a followed setting is longer than this.
const MOST_VALUE_BYTES: usize = 1024;
/// So many spellings of values are remembered for each pool.
const MOST_SPELLINGS: usize = 64;

/// The place of a followed setting in [`NAMES`]; names of settings have no case.
pub fn index_of(name: &str) -> Option<usize> {
    NAMES
        .iter()
        .position(|known| known.eq_ignore_ascii_case(name))
}

/// Whether a value can be set at all.
///
/// # Errors
/// 22023, as Postgres refuses a value, for one that is too long or, except of `application_name`, not ASCII.
pub fn check(index: usize, value: &str) -> Result<(), Fatal> {
    let fits = value.len() <= MOST_VALUE_BYTES && (value.is_ascii() || index == APPLICATION_NAME);
    match fits {
        true => Ok(()),
        false => Err(Fatal::new(
            "22023",
            format!("invalid value for parameter \"{}\"", NAMES[index]),
        )),
    }
}

/// Values of the followed settings; those that are not known are None.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Tracked([Option<Arc<str>>; NAMES.len()]);

impl Tracked {
    /// The value of the setting at this place of [`NAMES`].
    pub fn get(&self, index: usize) -> Option<&str> {
        self.0[index].as_deref()
    }

    /// Gives the setting at this place of [`NAMES`] a value.
    pub fn set(&mut self, index: usize, value: &str) {
        if self.get(index) != Some(value) {
            self.0[index] = Some(value.into());
        }
    }

    /// Takes a ParameterStatus; those of other settings change nothing.
    pub fn report(&mut self, name: &str, value: &str) {
        if let Some(index) = index_of(name) {
            self.set(index, value);
        }
    }

    /// Places of the settings that this has and `other` has not, or has otherwise.
    fn differing<'a>(&'a self, other: &'a Tracked) -> impl Iterator<Item = (usize, &'a str)> {
        let known = self.0.iter().enumerate();
        known.filter_map(|(index, value)| match value {
            Some(value) if other.0[index].as_ref() != Some(value) => Some((index, &**value)),
            _ => None,
        })
    }

    /// The settings by which a statement's text is read when it is prepared: how its bytes are characters, what a backslash
    /// means, and which moment a literal of a date or a time is. Each value ends with a zero byte.
    pub fn parse_context(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in &self.0[..APPLICATION_NAME] {
            bytes.extend_from_slice(value.as_deref().unwrap_or_default().as_bytes());
            bytes.push(0);
        }
        bytes
    }

    /// Statements that give a server with the settings `current` these. None when it has them.
    pub fn statements_from(&self, current: &Tracked) -> Option<String> {
        let mut text = String::new();
        for (index, value) in self.differing(current) {
            text += &format!("SET {} TO {};", NAMES[index], quoted(value));
        }
        (!text.is_empty()).then_some(text)
    }

    /// Takes over what a server reported for the settings that this has.
    pub fn follow(&mut self, reported: &Tracked) {
        for (mine, theirs) in self.0.iter_mut().zip(&reported.0) {
            if theirs.is_some() && mine != theirs {
                mine.clone_from(theirs);
            }
        }
    }
}

/// A literal that means the same however the server reads backslashes, and in each encoding of a client: characters
/// that are not ASCII, which only a name of an application can have, become `?`, as Postgres itself has it.
fn quoted(value: &str) -> String {
    let mut text = String::from("E'");
    for character in value.chars() {
        match character {
            '\'' | '\\' => text.extend(['\\', character]),
            ' '..='~' => text.push(character),
            _ => text.push('?'),
        }
    }
    text.push('\'');
    text
}

/// What the connections of a pool have said at their begin, so that further clients can be greeted without one.
#[derive(Clone, Default, Debug)]
pub struct Learned {
    greeting: Vec<(String, String)>,
    baseline: Tracked,
    spellings: HashMap<(usize, Arc<str>), Arc<str>>,
}

impl Learned {
    /// Of the settings that a new server connection has reported.
    pub fn new(greeting: Vec<(String, String)>) -> Learned {
        let mut baseline = Tracked::default();
        for (name, value) in &greeting {
            baseline.report(name, value);
        }
        Learned {
            greeting,
            baseline,
            spellings: HashMap::new(),
        }
    }

    /// Remembers what a server made of the values that a client has asked for.
    pub fn learn(&mut self, asked: &Tracked, reported: &Tracked) {
        for (index, value) in asked.0.iter().enumerate() {
            if let (Some(value), Some(reported)) = (value, &reported.0[index])
                && index != APPLICATION_NAME
                && self.spellings.len() < MOST_SPELLINGS
            {
                let key = (index, value.clone());
                self.spellings.insert(key, reported.clone());
            }
        }
    }

    /// The settings of a client that asked for these, as a server would report them. None when only a server knows.
    pub fn settings_of(&self, asked: &Tracked) -> Option<Tracked> {
        let mut settings = self.baseline.clone();
        for (index, value) in asked.0.iter().enumerate() {
            let Some(value) = value else { continue };
            if settings.0[index].as_ref() == Some(value) {
                continue;
            }
            let plain = value.len() <= MOST_NAME_BYTES
                && value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            settings.0[index] = match index {
                APPLICATION_NAME if plain => Some(value.clone()),
                _ => Some(self.spellings.get(&(index, value.clone()))?.clone()),
            };
        }
        Some(settings)
    }

    /// What a client with these settings is told at its begin: all that servers report, by name and value.
    pub fn greeting<'a>(
        &'a self,
        settings: &'a Tracked,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.greeting.iter().map(|(name, value)| {
            let own = index_of(name).and_then(|index| settings.get(index));
            (name.as_str(), own.unwrap_or(value))
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tracked(values: &[(&str, &str)]) -> Tracked {
        let mut tracked = Tracked::default();
        for (name, value) in values {
            tracked.report(name, value);
        }
        tracked
    }

    #[test]
    fn only_what_differs_is_set() {
        let current = tracked(&[("timezone", "UTC"), ("DateStyle", "ISO, MDY")]);
        assert_eq!(current.statements_from(&current), None);
        assert_eq!(Tracked::default().statements_from(&current), None);
        let wanted = tracked(&[("TIMEZONE", "Europe/Berlin"), ("datestyle", "ISO, MDY")]);
        assert_eq!(
            wanted.statements_from(&current).as_deref(),
            Some("SET TimeZone TO E'Europe/Berlin';")
        );
    }

    #[test]
    fn a_value_cannot_end_its_quotes() {
        assert_eq!(quoted("a'; DROP x; --\\"), "E'a\\'; DROP x; --\\\\'");
        assert_eq!(quoted("Zoë\n"), "E'Zo??'");
    }

    #[test]
    fn a_client_is_greeted_without_a_server_only_when_all_is_known() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut learned = Learned::new(vec![
            pair("server_version", "15.1"),
            pair("DateStyle", "ISO, MDY"),
            pair("application_name", ""),
        ]);
        let asked = tracked(&[("DateStyle", "german"), ("application_name", "x")]);
        assert_eq!(learned.settings_of(&asked), None);
        let reported = tracked(&[("DateStyle", "German, DMY"), ("application_name", "x")]);
        learned.learn(&asked, &reported);
        let settings = learned.settings_of(&asked).expect("it is known now");
        let greeting: Vec<_> = learned.greeting(&settings).collect();
        let expected = [
            ("server_version", "15.1"),
            ("DateStyle", "German, DMY"),
            ("application_name", "x"),
        ];
        assert_eq!(greeting, expected);
        assert_eq!(
            learned.settings_of(&tracked(&[("application_name", "Zoë")])),
            None
        );
    }

    #[test]
    fn a_value_that_no_server_takes_is_refused_before_one_is_asked() {
        assert!(check(2, "Europe/Berlin").is_ok());
        assert!(check(5, "Zoë").is_ok());
        assert_eq!(
            check(2, "Zoë").err().map(|fatal| fatal.sqlstate),
            Some("22023")
        );
        assert!(check(5, &"x".repeat(2000)).is_err());
    }

    proptest! {
        #[test]
        fn each_quote_and_backslash_within_a_literal_is_escaped(value in "\\PC{0,40}") {
            let text = quoted(&value);
            let mut inner = text[2..text.len() - 1].chars();
            while let Some(character) = inner.next() {
                prop_assert!(character != '\'');
                if character == '\\' {
                    prop_assert!(matches!(inner.next(), Some('\\' | '\'')));
                }
            }
        }
    }
}
