//! The list of settings that a customer may choose, and the checks by it. Pure.
//!
//! The list is `settings/list.json` of this crate, embedded here; the control plane checks by the same file, with the
//! same rules and sentences (`weir.endpoints.settings_list`). The agent checks again because whoever reaches its port
//! need not have asked the control plane.

mod values;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Settings come as JSON of any scalar kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum SettingValue {
    /// Given to Postgres as `on` or `off`.
    Bool(bool),
    /// Given to Postgres in decimal digits, without a unit.
    Integer(i64),
    /// Given to Postgres in decimal digits, without a unit.
    Float(f64),
    /// Given to Postgres as it stands, a unit included.
    Text(String),
}

impl std::fmt::Display for SettingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettingValue::Bool(true) => f.write_str("on"),
            SettingValue::Bool(false) => f.write_str("off"),
            SettingValue::Integer(value) => value.fmt(f),
            SettingValue::Float(value) => value.fmt(f),
            SettingValue::Text(value) => f.write_str(value),
        }
    }
}

const LONGEST_VALUE: usize = 1000;
const LONGEST_SHOWN: usize = 60;
const LONGEST_OWN_NAME: usize = 51;

static LIST: LazyLock<List> = LazyLock::new(|| {
    // A test reads it; the compiler has read the same bytes.
    serde_json::from_str(include_str!("../../settings/list.json"))
        .unwrap_or_else(|error| unreachable!("the embedded list of settings: {error}"))
});

/// The list as the file has it.
#[derive(Deserialize)]
struct List {
    own_prefix: String,
    /// By major, and by name in small letters.
    majors: BTreeMap<String, BTreeMap<String, Setting>>,
    /// Why settings that Postgres has cannot be chosen.
    refused: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Bool,
    Integer,
    Real,
    Enum,
    String,
}

/// What the list has of one setting for one major.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Setting {
    #[serde(rename = "type")]
    kind: Kind,
    /// Whether a change waits for the next start of Postgres.
    restart: bool,
    unit: Option<String>,
    min: Option<f64>,
    max: Option<f64>,
    /// For a compute of one unit; the lower of this, times the units, and `max` holds.
    per_unit: Option<f64>,
    /// Values outside the range that mean something else.
    #[serde(default)]
    also: Vec<f64>,
    #[serde(default)]
    values: Vec<String>,
    /// Other words that Postgres takes for these values.
    #[serde(default)]
    words: Vec<String>,
    chars: Option<String>,
    #[serde(default)]
    shortest: usize,
    longest: Option<usize>,
    because: Option<String>,
}

/// Any text, at any time: a parameter of the customer's own.
static OWN: Setting = Setting {
    kind: Kind::String,
    restart: false,
    unit: None,
    min: None,
    max: None,
    per_unit: None,
    also: Vec::new(),
    values: Vec::new(),
    words: Vec::new(),
    chars: None,
    shortest: 0,
    longest: None,
    because: None,
};

/// A setting cannot be as asked for; the message names it, and says why and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(String);

/// Checks settings of a compute on this major of Postgres, of so many compute units; the first wrong one is the error.
pub fn check(
    settings: &BTreeMap<String, SettingValue>,
    major: u32,
    units: f64,
) -> Result<(), Refused> {
    let mut names: Vec<String> = Vec::new();
    for (name, value) in settings {
        check_one(name, value, major, units)?;
        let lower = name.to_ascii_lowercase();
        if names.contains(&lower) {
            return Err(Refused(format!(
                "setting {} is named twice, since Postgres does not tell capitals from small letters in names; leave \
                 one of them out",
                shorten(name)
            )));
        }
        names.push(lower);
    }
    Ok(())
}

/// Checks one setting.
pub fn check_one(name: &str, value: &SettingValue, major: u32, units: f64) -> Result<(), Refused> {
    let (shown, lower) = (shorten(name), name.to_ascii_lowercase());
    if let Some(why) = LIST.refused.get(&lower) {
        return Err(Refused(format!(
            "setting {shown} cannot be set: {why}; leave it out"
        )));
    }
    let Some(setting) = find(&lower, major) else {
        return Err(Refused(format!(
            "setting {shown} is not one that Postgres {major} has and a customer may set; check how it is written, or \
             leave it out"
        )));
    };
    let text = value.to_string();
    if text.chars().any(is_control) {
        return Err(Refused(format!(
            "setting {shown}: the value has a line break, a NUL or another control character in it; remove it"
        )));
    }
    let (length, longest) = (
        text.chars().count(),
        setting.longest.unwrap_or(LONGEST_VALUE),
    );
    if length > longest {
        return Err(Refused(format!(
            "setting {shown}: the value is {length} characters long; give at most {longest}"
        )));
    }
    match setting.fault(&text, units) {
        None => Ok(()),
        Some(fault) => {
            let because = setting.because.as_ref();
            let because = because.map_or(String::new(), |why| format!(", since {why}"));
            Err(Refused(format!(
                "setting {shown}: \"{}\" {fault}{because}",
                shorten(&text)
            )))
        }
    }
}

/// Whether a change of this setting waits for the next start of Postgres.
pub fn needs_restart(name: &str, major: u32) -> bool {
    find(&name.to_ascii_lowercase(), major).is_some_and(|setting| setting.restart)
}

fn find(lower: &str, major: u32) -> Option<&'static Setting> {
    if let Some((prefix, rest)) = lower.split_once('.') {
        let letters = |c: char| c.is_ascii_lowercase() || c == '_';
        let own = prefix == LIST.own_prefix
            && rest.starts_with(letters)
            && rest.len() <= LONGEST_OWN_NAME
            && rest.chars().all(|c| letters(c) || c.is_ascii_digit());
        return own.then_some(&OWN);
    }
    LIST.majors.get(&major.to_string())?.get(lower)
}

fn is_control(c: char) -> bool {
    c < ' ' || c == '\u{7f}'
}

/// For messages: no control characters, no more than fits a line.
fn shorten(text: &str) -> String {
    let clean = text.chars().map(|c| if is_control(c) { '?' } else { c });
    let mut shown: String = clean.clone().take(LONGEST_SHOWN).collect();
    if clean.count() > LONGEST_SHOWN {
        shown.push_str("...");
    }
    shown
}

impl Setting {
    /// What is wrong with a value, as a sentence that goes on behind it.
    fn fault(&self, text: &str, units: f64) -> Option<String> {
        match self.kind {
            Kind::Bool => match values::boolean(text) {
                Some(_) => None,
                None => Some("is not a boolean; give on or off".to_owned()),
            },
            Kind::Enum => {
                let lower = text.to_lowercase();
                let known = self.values.contains(&lower) || self.words.contains(&lower);
                let all = self.values.join(", ");
                (!known).then(|| format!("is not one of its values; give one of {all}"))
            }
            Kind::String => {
                let chars = self.chars.as_ref()?;
                let fits = text.chars().all(|c| chars.contains(c));
                let long_enough = text.chars().count() >= self.shortest;
                (!fits || !long_enough).then(|| {
                    "has characters in it that such a value has not, or none; give it as Postgres's manual writes it"
                        .to_owned()
                })
            }
            Kind::Integer => self.fault_of_number(values::integer(text, self.unit()), units),
            Kind::Real => self.fault_of_number(values::real(text, self.unit()), units),
        }
    }

    fn unit(&self) -> Option<&str> {
        self.unit.as_deref()
    }

    fn fault_of_number(&self, number: Option<f64>, units: f64) -> Option<String> {
        let least = self.min.unwrap_or(f64::NEG_INFINITY);
        let most = self.max.unwrap_or(f64::INFINITY);
        let by_size = self.per_unit.map(|each| (each * units).floor());
        let most = by_size.map_or(most, |by_size| most.min(by_size));
        let or = |value: &f64| format!(", or {}", values::written(*value, None));
        let also: String = self.also.iter().map(or).collect();
        let span = format!(
            "from {} to {}{also}",
            values::written(least, self.unit()),
            values::written(most, self.unit())
        );
        let Some(number) = number else {
            let kind = match self.kind {
                Kind::Integer => "a whole number",
                _ => "a number",
            };
            let following = values::units_of(self.unit()).join(", ");
            let with_unit = match following.is_empty() {
                true => String::new(),
                false => format!(", with a unit of {following} or none"),
            };
            return Some(format!("is not {kind}{with_unit}; give one {span}"));
        };
        if (least..=most).contains(&number) || self.also.contains(&number) {
            return None;
        }
        let plural = if units == 1.0 { "" } else { "s" };
        let size = match self.per_unit {
            Some(_) => format!(" of a compute of {units} unit{plural}"),
            None => String::new(),
        };
        Some(format!("is out of the range{size}; give a value {span}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Case {
        name: String,
        value: SettingValue,
        #[serde(default = "fifteen")]
        major: u32,
        #[serde(default = "one")]
        units: f64,
        /// Part of what is said of it; nothing is wrong without.
        refused: Option<String>,
    }

    fn fifteen() -> u32 {
        15
    }

    fn one() -> f64 {
        1.0
    }

    #[test]
    fn the_control_planes_cases_have_the_same_answers_here() {
        let cases: Vec<Case> =
            serde_json::from_str(include_str!("../../settings/cases.json")).unwrap();
        assert!(cases.len() > 100, "{}", cases.len());
        for case in cases {
            let said = check_one(&case.name, &case.value, case.major, case.units)
                .err()
                .map(|refused| refused.to_string());
            let told = (case.name, case.value, said.clone());
            match (said, case.refused) {
                (None, None) => {}
                (Some(said), Some(part)) => {
                    assert!(said.contains(&part), "{told:?} lacks {part:?}")
                }
                (_, expected) => panic!("{told:?}, expected {expected:?}"),
            }
        }
    }

    #[test]
    fn a_name_in_other_letters_is_the_same_setting() {
        let settings =
            ["work_mem", "Work_Mem"].map(|name| (name.to_owned(), SettingValue::Integer(64)));
        let refused = check(&settings.into(), 15, 1.0).unwrap_err();
        assert!(refused.to_string().contains("named twice"), "{refused}");
    }
}
