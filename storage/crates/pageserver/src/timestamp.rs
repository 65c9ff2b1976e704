//! Points in time: Postgres counts microseconds since 2000, the API speaks RFC 3339.

use std::fmt;
use std::str::FromStr;

/// Seconds from the Unix epoch to Postgres's, 2000-01-01T00:00:00Z.
const POSTGRES_EPOCH_UNIX_SECONDS: i64 = 946_684_800;
const MICROS: i64 = 1_000_000;

/// Microseconds since 2000-01-01T00:00:00Z, as in commit records (`TimestampTz`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PgTimestamp(pub i64);

/// The text is not an RFC 3339 time.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("invalid time {0:?}: expected RFC 3339, such as 2026-01-31T12:00:00Z")]
pub struct ParseTimestampError(String);

impl PgTimestamp {
    /// From microseconds since 1970-01-01T00:00:00Z, clamped to what microseconds since 2000 can say.
    pub fn from_unix_micros(micros: i64) -> PgTimestamp {
        PgTimestamp(micros.saturating_sub(POSTGRES_EPOCH_UNIX_SECONDS * MICROS))
    }

    /// Microseconds since 1970-01-01T00:00:00Z, clamped to what they can say.
    pub fn unix_micros(self) -> i64 {
        self.0.saturating_add(POSTGRES_EPOCH_UNIX_SECONDS * MICROS)
    }
}

/// Days since 1970-01-01 of a date in the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years start in March, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Inverse of [`days_from_civil`]: year, month, day.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (
        year,
        month,
        day_of_year - (153 * month_from_march + 2) / 5 + 1,
    )
}

impl fmt::Display for PgTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.div_euclid(MICROS) + POSTGRES_EPOCH_UNIX_SECONDS;
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60,
            self.0.rem_euclid(MICROS)
        )
    }
}

impl FromStr for PgTimestamp {
    type Err = ParseTimestampError;

    fn from_str(text: &str) -> Result<PgTimestamp, ParseTimestampError> {
        parse(text).ok_or_else(|| ParseTimestampError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<PgTimestamp> {
    let number = |range: std::ops::Range<usize>| {
        let part = text.get(range)?;
        part.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| part.parse::<i64>().ok())
            .flatten()
    };
    let is = |at: usize, allowed: &[u8]| {
        text.as_bytes()
            .get(at)
            .is_some_and(|byte| allowed.contains(byte))
    };
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    let separators = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let in_range = (1..=12).contains(&month) && hour < 24 && minute < 60 && second <= 60;
    let days = days_from_civil(year, month, day);
    // A day that its month does not have comes back as another date.
    if !separators || !in_range || civil_from_days(days) != (year, month, day) {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut micros = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        let six: String = fraction[..digits]
            .chars()
            .chain("000000".chars())
            .take(6)
            .collect();
        micros = six.parse::<i64>().ok()?;
        rest = &fraction[digits..];
    }
    let offset_minutes = match rest {
        "Z" | "z" => 0,
        _ => {
            let sign = match rest.as_bytes().first()? {
                b'+' => 1,
                b'-' => -1,
                _ => return None,
            };
            let (hours, minutes) = rest.get(1..)?.split_once(':')?;
            if hours.len() != 2 || minutes.len() != 2 {
                return None;
            }
            let (hours, minutes) = (hours.parse::<i64>().ok()?, minutes.parse::<i64>().ok()?);
            (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))?
        }
    };
    let unix = days * 86_400 + hour * 3600 + minute * 60 + second - offset_minutes * 60;
    Some(PgTimestamp(
        (unix - POSTGRES_EPOCH_UNIX_SECONDS) * MICROS + micros,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_microseconds_agree() {
        for (text, micros) in [
            ("2000-01-01T00:00:00Z", 0),
            ("2000-01-01T00:00:00.000001Z", 1),
            ("1999-12-31T23:59:59.5Z", -500_000),
            ("2000-03-01T01:30:00+01:30", 60 * 86_400 * MICROS),
            ("2024-02-29T12:00:00-02:00", 762_530_400 * MICROS),
        ] {
            assert_eq!(text.parse(), Ok(PgTimestamp(micros)), "{text}");
        }
        for days in -400_000..400_000 {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
        }
        let recent = PgTimestamp::from_unix_micros(1_767_225_599_999_999);
        assert_eq!(recent.to_string(), "2025-12-31T23:59:59.999999Z");
        assert_eq!(recent.to_string().parse(), Ok(recent));
        assert_eq!(recent.unix_micros(), 1_767_225_599_999_999);
    }

    #[test]
    fn what_is_not_a_time_is_refused() {
        for bad in [
            "",
            "2024",
            "2024-02-30T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00+1:00",
            "2024-01-01X00:00:00Z",
            "٢٠٢٤-01-01T00:00:00Z",
        ] {
            assert!(bad.parse::<PgTimestamp>().is_err(), "{bad:?}");
        }
    }
}
