//! What has to be known of a certificate: the hash that `tls-server-end-point` binds a login to (RFC 5929,
//! section 4.1), and when it expires.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

/// Algorithms with which certificates are signed: the identifier in DER, and the hash to take.
const SIGNATURES: [(&[u8], &Algorithm); 8] = [
    // RSA with SHA-1, -256, -384, -512; in place of SHA-1, SHA-256 is taken.
    (b"\x2A\x86\x48\x86\xF7\x0D\x01\x01\x05", &SHA256),
    (b"\x2A\x86\x48\x86\xF7\x0D\x01\x01\x0B", &SHA256),
    (b"\x2A\x86\x48\x86\xF7\x0D\x01\x01\x0C", &SHA384),
    (b"\x2A\x86\x48\x86\xF7\x0D\x01\x01\x0D", &SHA512),
    // ECDSA with SHA-1, -256, -384, -512.
    (b"\x2A\x86\x48\xCE\x3D\x04\x01", &SHA256),
    (b"\x2A\x86\x48\xCE\x3D\x04\x03\x02", &SHA256),
    (b"\x2A\x86\x48\xCE\x3D\x04\x03\x03", &SHA384),
    (b"\x2A\x86\x48\xCE\x3D\x04\x03\x04", &SHA512),
];

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;
const VERSION: u8 = 0xA0;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The hash of a certificate in DER. None when the RFC says of none for its signature (Ed25519), or when libraries
/// disagree (RSA-PSS): channel binding is not offered then.
pub fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(whole, SEQUENCE)?;
    let (algorithm, _) = element(rest, SEQUENCE)?;
    let (identifier, _) = element(algorithm, OBJECT_IDENTIFIER)?;
    let (_, hash) = SIGNATURES.iter().find(|(known, _)| *known == identifier)?;
    Some(digest(hash, certificate).as_ref().to_vec())
}

/// The last moment at which a certificate in DER is valid, seconds since the Unix epoch. None for bytes that are no
/// certificate (RFC 5280, section 4.1).
pub fn not_after(certificate: &[u8]) -> Option<i64> {
    let (whole, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(whole, SEQUENCE)?;
    // A certificate of version 1 does not say its version.
    let rest = element(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_serial, rest) = element(rest, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    let (validity, _) = element(rest, SEQUENCE)?;
    let (_not_before, rest) = time(validity)?;
    time(rest).map(|(seconds, _)| seconds)
}

/// The time with which the bytes begin, seconds since the Unix epoch, and what follows it.
fn time(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (text, rest) = element(bytes, UTC_TIME).or_else(|| element(bytes, GENERALIZED_TIME))?;
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (year, fields) = match digits.len() {
        // Of two digits, those below 50 are of this century.
        12 => (number(&digits[..2]), &digits[2..]),
        14 => (number(&digits[..4]), &digits[4..]),
        _ => return None,
    };
    let year = match (digits.len(), year) {
        (12, 0..=49) => 2000 + year,
        (12, _) => 1900 + year,
        _ => year,
    };
    let mut fields = fields.chunks(2).map(number);
    let mut next = |allowed: std::ops::RangeInclusive<i64>| {
        fields.next().filter(|field| allowed.contains(field))
    };
    let (month, day) = (next(1..=12)?, next(1..=31)?);
    let (hour, minute, second) = (next(0..=23)?, next(0..=59)?, next(0..=60)?);
    let days = days_since_epoch(year, month, day);
    Some((((days * 24 + hour) * 60 + minute) * 60 + second, rest))
}

fn number(digits: &[u8]) -> i64 {
    digits
        .iter()
        .fold(0, |all, digit| all * 10 + i64::from(digit - b'0'))
}

/// Of the Gregorian calendar. Years begin with March here, so that the leap day is a year's last.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// The content of the element of DER with which the bytes begin, and what follows the element.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[first, length], rest) = bytes.split_first_chunk::<2>()?;
    if first != tag {
        return None;
    }
    let (length, rest) = match length {
        0..=0x7F => (usize::from(length), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(length & 0x7F))?;
            let length = digits
                .iter()
                .fold(0, |all, digit| all << 8 | usize::from(*digit));
            (length, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(algorithm: &[u8]) -> Vec<u8> {
        let der = |tag: u8, body: &[u8]| [&[tag, body.len() as u8], body].concat();
        let identifier = der(OBJECT_IDENTIFIER, algorithm);
        der(
            SEQUENCE,
            &[
                der(SEQUENCE, b"to be signed"),
                der(SEQUENCE, &identifier),
                der(3, b"signature"),
            ]
            .concat(),
        )
    }

    /// A certificate without what is not read here, valid from one time to the other.
    fn valid(version: bool, from: (u8, &str), to: (u8, &str)) -> Vec<u8> {
        let der = |tag: u8, body: &[u8]| [&[tag, body.len() as u8], body].concat();
        let validity = [der(from.0, from.1.as_bytes()), der(to.0, to.1.as_bytes())];
        let signed = [
            if version {
                der(VERSION, &der(INTEGER, &[2]))
            } else {
                Vec::new()
            },
            der(INTEGER, &[1]),
            der(SEQUENCE, b"algorithm"),
            der(SEQUENCE, b"issuer"),
            der(SEQUENCE, &validity.concat()),
        ];
        der(SEQUENCE, &der(SEQUENCE, &signed.concat()))
    }

    #[test]
    fn a_certificate_says_when_it_expires() {
        let from = (UTC_TIME, "250101000000Z");
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "000229235959Z", 951_868_799),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
            // The time of a certificate that never expires.
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            for version in [true, false] {
                let whole = valid(version, from, (tag, text));
                assert_eq!(not_after(&whole), Some(seconds), "{text}");
                for end in 0..whole.len() {
                    assert_eq!(not_after(&whole[..end]), None);
                }
            }
        }
        for text in [
            "251301000000Z",
            "250132000000Z",
            "250101240000Z",
            "250101006000Z",
            "25010100000Z",
            "2501010000000",
            "25010100-100Z",
            "Z",
        ] {
            assert_eq!(
                not_after(&valid(true, from, (UTC_TIME, text))),
                None,
                "{text}"
            );
        }
    }

    #[test]
    fn the_hash_is_that_of_the_signature() {
        for (algorithm, bytes) in [
            (SIGNATURES[1].0, 32),
            (SIGNATURES[6].0, 48),
            (SIGNATURES[3].0, 64),
        ] {
            let hash = end_point(&certificate(algorithm)).expect("a known algorithm");
            assert_eq!(hash.len(), bytes);
        }
        // Ed25519, and bytes that are no certificate.
        assert_eq!(end_point(&certificate(b"\x2B\x65\x70")), None);
        let whole = certificate(SIGNATURES[0].0);
        for end in 0..whole.len() {
            assert_eq!(end_point(&whole[..end]), None);
        }
    }
}
