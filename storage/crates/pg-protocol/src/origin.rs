//! Where a connection comes from, as a load balancer before the server says it: the header of the PROXY protocol,
//! version 2 (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>, section 2.2).
//!
//! Only headers of TCP are taken, in IPv4 and IPv6. The text that version 1 has is refused, and so is a header that says
//! a connection is somebody's without saying whose: its sender's address would be taken for the client's.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

/// What each header begins with: a signature, version and command, family and transport, and how many bytes follow.
pub const FIXED_BYTES: usize = 16;
/// No more bytes than this follow: addresses have 36, and what senders add has its place.
pub const MOST_REST_BYTES: usize = 4096;
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
const VERSION_2: u8 = 2;
const LOCAL: u8 = 0;
const PROXY: u8 = 1;
const TCP_4: u8 = 0x11;
const TCP_6: u8 = 0x21;

/// The opener of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The sender itself, to see whether somebody answers.
    Sender,
    /// A client with this address.
    Client(SocketAddr),
}

/// Why a header cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum OriginError {
    /// What came is no header of version 2.
    #[error("the connection does not begin with a header of the PROXY protocol, version 2")]
    Signature,
    /// The command is unknown.
    #[error("the PROXY header has the unknown command {0}")]
    Command(u8),
    /// A header for no connection of TCP.
    #[error("the PROXY header is not of TCP in IPv4 or IPv6 (family and transport {0:#04x})")]
    Family(u8),
    /// A header too short for the addresses that it says it has, or too long.
    #[error("the PROXY header says that {0} bytes follow, which does not fit")]
    Length(usize),
}

/// How many bytes of a header follow its fixed ones.
///
/// # Errors
/// It is no header, or a longer one than is taken.
pub fn rest_bytes(fixed: &[u8; FIXED_BYTES]) -> Result<usize, OriginError> {
    let [head @ .., high, low] = fixed;
    if head[..SIGNATURE.len()] != SIGNATURE || head[SIGNATURE.len()] >> 4 != VERSION_2 {
        return Err(OriginError::Signature);
    }
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    match length <= MOST_REST_BYTES {
        true => Ok(length),
        false => Err(OriginError::Length(length)),
    }
}

/// What a header says; `rest` are the bytes that follow its fixed ones, as many as [`rest_bytes`] says. What a sender adds
/// to the addresses is left alone.
///
/// # Errors
/// It is no header of a connection of TCP.
pub fn parse(fixed: &[u8; FIXED_BYTES], rest: &[u8]) -> Result<Origin, OriginError> {
    let length = rest_bytes(fixed)?;
    let short = OriginError::Length(length);
    if rest.len() != length {
        return Err(short);
    }
    let [.., command, family, _, _] = *fixed;
    match command & 0x0F {
        // Whatever addresses it has are to be left alone.
        LOCAL => return Ok(Origin::Sender),
        PROXY => {}
        command => return Err(OriginError::Command(command)),
    }
    let (address, ports): (IpAddr, &[u8]) = match family {
        TCP_4 => {
            let (source, rest) = rest.split_first_chunk::<4>().ok_or(short)?;
            (Ipv4Addr::from(*source).into(), rest.get(4..).ok_or(short)?)
        }
        TCP_6 => {
            let (source, rest) = rest.split_first_chunk::<16>().ok_or(short)?;
            (Ipv6Addr::from(*source).into(), rest.get(16..).ok_or(short)?)
        }
        family => return Err(OriginError::Family(family)),
    };
    let [high, low, _, _] = *ports.first_chunk::<4>().ok_or(short)?;
    let port = u16::from_be_bytes([high, low]);
    Ok(Origin::Client(SocketAddr::new(address, port)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fixed(command: u8, family: u8, length: usize) -> [u8; FIXED_BYTES] {
        let mut bytes = [0; FIXED_BYTES];
        bytes[..12].copy_from_slice(&SIGNATURE);
        bytes[12..14].copy_from_slice(&[command, family]);
        bytes[14..].copy_from_slice(&u16::try_from(length).expect("short").to_be_bytes());
        bytes
    }

    /// A header as a load balancer writes it.
    fn header(source: SocketAddr, added: &[u8]) -> ([u8; FIXED_BYTES], Vec<u8>) {
        let (family, address) = match source.ip() {
            IpAddr::V4(address) => (TCP_4, address.octets().to_vec()),
            IpAddr::V6(address) => (TCP_6, address.octets().to_vec()),
        };
        let own = vec![9; address.len()];
        let ports = [source.port().to_be_bytes(), 5432_u16.to_be_bytes()].concat();
        let rest = [address, own, ports, added.to_vec()].concat();
        (fixed(0x21, family, rest.len()), rest)
    }

    #[test]
    fn what_is_no_header_of_a_tcp_connection_is_refused() {
        let rest = [1; 12];
        let text = b"PROXY TCP4 192.0.2.1";
        let begin = *text.first_chunk::<FIXED_BYTES>().expect("long enough");
        for (head, error) in [
            (begin, OriginError::Signature),
            (
                *b"\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\0\0\0\0\0",
                OriginError::Signature,
            ),
            (fixed(0x11, TCP_4, 12), OriginError::Signature),
            (fixed(0x31, TCP_4, 12), OriginError::Signature),
            (fixed(0x22, TCP_4, 12), OriginError::Command(2)),
            (fixed(0x21, 0x00, 12), OriginError::Family(0x00)),
            (fixed(0x21, 0x12, 12), OriginError::Family(0x12)),
            (fixed(0x21, 0x31, 12), OriginError::Family(0x31)),
            (fixed(0x21, TCP_6, 12), OriginError::Length(12)),
            (fixed(0x21, TCP_4, 11), OriginError::Length(11)),
            (fixed(0x21, TCP_4, 13), OriginError::Length(13)),
            (fixed(0x21, TCP_4, 4097), OriginError::Length(4097)),
        ] {
            assert_eq!(parse(&head, &rest), Err(error), "{head:?}");
        }
        assert_eq!(parse(&fixed(0x20, 0, 0), &[]), Ok(Origin::Sender));
        assert_eq!(parse(&fixed(0x20, TCP_4, 12), &rest), Ok(Origin::Sender));
    }

    proptest! {
        #[test]
        fn what_a_load_balancer_writes_is_read_and_no_part_of_it_is(
            address: IpAddr,
            port: u16,
            added in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let source = SocketAddr::new(address, port);
            let (head, rest) = header(source, &added);
            prop_assert_eq!(rest_bytes(&head), Ok(rest.len()));
            prop_assert_eq!(parse(&head, &rest), Ok(Origin::Client(source)));
            for end in 0..rest.len() {
                prop_assert!(parse(&head, &rest[..end]).is_err());
            }
            for at in 0..12 {
                let mut other = head;
                other[at] ^= 1;
                prop_assert_eq!(parse(&other, &rest), Err(OriginError::Signature));
            }
        }

        #[test]
        fn a_header_that_says_it_is_shorter_than_its_addresses_is_refused(v6: bool, length in 0_usize..36) {
            let (family, least) = if v6 { (TCP_6, 36) } else { (TCP_4, 12) };
            let outcome = parse(&fixed(0x21, family, length), &vec![1; length]);
            prop_assert_eq!(outcome.is_ok(), length >= least);
        }
    }
}
