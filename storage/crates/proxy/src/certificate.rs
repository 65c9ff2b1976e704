//! The hash of a certificate that `tls-server-end-point` binds a login to (RFC 5929, section 4.1).

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
