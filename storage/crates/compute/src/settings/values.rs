//! Values of Postgres's settings, read as Postgres's own configuration parser reads them. Pure.
//!
//! The rules are those of the documentation's "Setting Parameters" and of `guc.c`: a whole number may be decimal,
//! octal with a leading 0, hexadecimal, or have a fraction and an exponent, and is rounded; units are case-sensitive
//! and follow the number, perhaps after blanks; words are not case-sensitive. The control plane reads them by the
//! same rules (`weir.endpoints.setting_values`), and both are tested with one table of cases.

/// Units of values in bytes, smallest first. What Postgres calls `8kB` is a unit of settings only.
const BYTES: [(&str, f64); 5] = [
    ("B", 1.0),
    ("kB", 1024.0),
    ("MB", 1_048_576.0),
    ("GB", 1_073_741_824.0),
    ("TB", 1_099_511_627_776.0),
];
/// Units of values in microseconds, smallest first.
const MICROSECONDS: [(&str, f64); 6] = [
    ("us", 1.0),
    ("ms", 1e3),
    ("s", 1e6),
    ("min", 6e7),
    ("h", 3.6e9),
    ("d", 8.64e10),
];
const BLOCK: &str = "8kB";

/// As a word or the beginning of one that is clear; `None` when it is none.
pub fn boolean(text: &str) -> Option<bool> {
    let word = text.to_lowercase();
    let begins = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    if ["on", "1"].contains(&word.as_str()) || begins("true") || begins("yes") {
        return Some(true);
    }
    let off = ["off", "of", "0"].contains(&word.as_str()) || begins("false") || begins("no");
    off.then_some(false)
}

/// In the setting's unit, rounded to a whole number, which is infinite beyond 32 bits; `None` when it is no number or
/// has a unit that is not of the setting's kind.
pub fn integer(text: &str, unit: Option<&str>) -> Option<f64> {
    let (negative, rest) = signed(text);
    let (number, rest) = match rest.strip_prefix("0x").or(rest.strip_prefix("0X")) {
        Some(hexadecimal) => {
            let end = run(hexadecimal, |c| c.is_ascii_hexdigit());
            (digits(&hexadecimal[..end], 16)?, &hexadecimal[end..])
        }
        None => {
            let end = decimal(rest)?;
            (decimal_or_octal(&rest[..end])?, &rest[end..])
        }
    };
    let exact = converted(if negative { -number } else { number }, rest, unit)?;
    let rounded = exact.round_ties_even();
    let fits = (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&rounded);
    Some(if fits {
        rounded
    } else {
        rounded * f64::INFINITY
    })
}

/// In the setting's unit; `None` when it is no number or has a unit that is not of the setting's kind.
pub fn real(text: &str, unit: Option<&str>) -> Option<f64> {
    let (negative, rest) = signed(text);
    let end = decimal(rest)?;
    let number: f64 = rest[..end].parse().ok()?;
    let number = if negative { -number } else { number };
    converted(number, &rest[end..], unit)
}

/// Whether there is a minus, and what follows the sign.
fn signed(text: &str) -> (bool, &str) {
    let text = text.trim_start_matches(is_blank);
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// What C's `isspace` takes for one.
fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || c == '\u{b}'
}

fn run(text: &str, of: impl Fn(char) -> bool) -> usize {
    text.find(|c| !of(c)).unwrap_or(text.len())
}

/// Where a decimal number at the beginning of the text ends: digits, a fraction, an exponent.
fn decimal(text: &str) -> Option<usize> {
    let digit = |c: char| c.is_ascii_digit();
    let whole = run(text, digit);
    let mut end = whole;
    let mut fraction = 0;
    if text[end..].starts_with('.') {
        fraction = run(&text[end + 1..], digit);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return None;
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['+', '-']));
        let exponent = run(&text[end + 1 + sign..], digit);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    Some(end)
}

fn decimal_or_octal(text: &str) -> Option<f64> {
    let whole = &text[..run(text, |c| c.is_ascii_digit())];
    if whole.starts_with('0') && whole.contains(['8', '9']) {
        return None;
    }
    if whole == text && whole.starts_with('0') {
        return digits(text, 8);
    }
    text.parse().ok()
}

fn digits(text: &str, radix: u32) -> Option<f64> {
    if text.is_empty() {
        return None;
    }
    let held = text.trim_start_matches('0');
    match held.is_empty() {
        true => Some(0.0),
        // Beyond what 64 bits hold it is beyond every bound.
        false => Some(u64::from_str_radix(held, radix).map_or(f64::INFINITY, |value| value as f64)),
    }
}

/// A number that the text follows, which may be a unit, as one in `unit`. A fraction is rounded to a multiple of the
/// next smaller unit, as Postgres does: 0.0001TB is 0GB.
fn converted(number: f64, text: &str, unit: Option<&str>) -> Option<f64> {
    let given = text.trim_start_matches(is_blank).trim_end_matches(is_blank);
    if given.is_empty() {
        return Some(number);
    }
    let (units, base) = kind(unit?)?;
    let at = units.iter().position(|(name, _)| *name == given)?;
    let exact = number * units[at].1 / base;
    let smaller = at.checked_sub(1).map(|at| units[at].1 / base);
    Some(match smaller {
        Some(smaller) if exact.is_finite() => (exact / smaller).round_ties_even() * smaller,
        _ => exact,
    })
}

/// The units of a setting's kind, and the size of its own.
fn kind(unit: &str) -> Option<(&'static [(&'static str, f64)], f64)> {
    if unit == BLOCK {
        return Some((&BYTES, 8192.0));
    }
    [&BYTES[..], &MICROSECONDS[..]]
        .into_iter()
        .find_map(|units| {
            let own = units.iter().find(|(name, _)| *name == unit)?;
            Some((units, own.1))
        })
}

/// What may follow a value of a setting in this unit, smallest first.
pub fn units_of(unit: Option<&str>) -> Vec<&'static str> {
    let units = unit.and_then(kind).map(|(units, _)| units);
    units
        .unwrap_or_default()
        .iter()
        .map(|unit| unit.0)
        .collect()
}

/// A bound as people write it: in the largest unit in which it is a whole number.
pub fn written(number: f64, unit: Option<&str>) -> String {
    let (Some(unit), true) = (unit, number > 0.0) else {
        return plain(number);
    };
    let Some((units, base)) = kind(unit) else {
        return plain(number);
    };
    let exact = number * base;
    if exact.fract() != 0.0 {
        return format!("{}{unit}", plain(number));
    }
    let whole = units.iter().rev().find(|unit| exact % unit.1 == 0.0);
    whole.map_or_else(
        || plain(number),
        |(name, size)| format!("{}{name}", exact / size),
    )
}

fn plain(number: f64) -> String {
    if number.abs() < 1e15 {
        return number.to_string();
    }
    // As Postgres writes the bounds of its real numbers.
    format!("{number:e}").replacen('e', "e+", 1)
}
