//! The packets with which a client begins: they have a length and a code, and no type.

use thiserror::Error;

/// No startup packet may be longer, its length word included; Postgres's own limit.
pub const MAX_STARTUP_PACKET_BYTES: usize = 10_000;
/// The newest minor version of protocol 3 that is spoken here: cancel keys of other lengths than 4 bytes.
pub const NEWEST_MINOR: u16 = 2;

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// Cancel keys have up to 256 bytes since protocol 3.2.
const MAX_CANCEL_KEY_BYTES: usize = 256;
/// Names of options of the protocol itself begin with this.
const PROTOCOL_OPTION: &str = "_pq_.";

/// Why a first packet is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StartupError {
    /// The packet's length word, the field, is outside of what is possible. Nothing of the packet was read.
    #[error("the first packet says it has {0} bytes; 8 to {MAX_STARTUP_PACKET_BYTES} are possible")]
    Length(u32),
    /// The client speaks another major version than 3. Minor versions are negotiated and never refused.
    #[error("protocol version {major}.{minor} is not spoken here; 3.0 to 3.{NEWEST_MINOR} are")]
    Version {
        /// The upper 16 bits of the packet's code.
        major: u16,
        /// The lower 16 bits.
        minor: u16,
    },
    /// The packet breaks the format of its kind; the field says how.
    #[error("the first packet is malformed: {0}")]
    Malformed(&'static str),
    /// A startup packet without the parameter `user`, or with an empty one.
    #[error("the startup packet names no user")]
    NoUser,
}

/// What a client can begin with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FirstPacket {
    /// The client wants TLS.
    SslRequest,
    /// The client wants encryption by GSSAPI.
    GssEncRequest,
    /// The client wants what another connection runs to be cancelled.
    Cancel(CancelRequest),
    /// The client wants a session.
    Startup(Startup),
}

/// Which connection to cancel. The key is the secret that the connection was given at its begin.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CancelRequest {
    /// The process id of the connection's backend, as the client was told.
    pub process_id: u32,
    /// 4 bytes in protocol 3.0, up to 256 in 3.2.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for CancelRequest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "CancelRequest({}, a key of {} bytes)",
            self.process_id,
            self.key.len()
        )
    }
}

/// A StartupMessage of protocol 3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Startup {
    /// The minor version the client asks for.
    pub minor: u16,
    parameters: Vec<(String, String)>,
    protocol_options: Vec<String>,
}

impl Startup {
    /// A startup packet of protocol 3.0 with these parameters.
    pub fn new(parameters: Vec<(String, String)>) -> Startup {
        Startup {
            minor: 0,
            parameters,
            protocol_options: Vec::new(),
        }
    }

    /// The value of a parameter; of one that is given twice, the last, as Postgres has it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .rfind(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The role that the client wants to be, as it wrote it.
    pub fn user(&self) -> &str {
        self.get("user").unwrap_or_default()
    }

    /// Gives a parameter another value, or takes it away.
    pub fn set(&mut self, name: &str, value: Option<String>) {
        self.parameters.retain(|(known, _)| known != name);
        self.parameters
            .extend(value.map(|value| (name.to_owned(), value)));
    }

    /// All parameters, those of the protocol itself left out, in the client's order.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What a NegotiateProtocolVersion has to say to the client: the minor version that is spoken with it, and the
    /// protocol options that are not known here (none is). None when the client gets all it has asked for.
    pub fn negotiation(&self) -> Option<(u16, &[String])> {
        (self.minor > NEWEST_MINOR || !self.protocol_options.is_empty())
            .then(|| (self.spoken_minor(), self.protocol_options.as_slice()))
    }

    /// The minor version that is spoken with the client.
    pub fn spoken_minor(&self) -> u16 {
        self.minor.min(NEWEST_MINOR)
    }
}

/// The bytes that follow a first packet's length word.
///
/// # Errors
///
/// [`StartupError::Length`] for fewer than 8 bytes in all, or more than [`MAX_STARTUP_PACKET_BYTES`].
pub fn body_bytes(length: [u8; 4]) -> Result<usize, StartupError> {
    let length = u32::from_be_bytes(length);
    match length as usize {
        bytes @ 8..=MAX_STARTUP_PACKET_BYTES => Ok(bytes - 4),
        _ => Err(StartupError::Length(length)),
    }
}

/// Reads a first packet without its length word.
///
/// # Errors
///
/// All of [`StartupError`] but `Length`. A packet that is cut, and one that goes on behind its end, are malformed.
pub fn parse(body: &[u8]) -> Result<FirstPacket, StartupError> {
    let Some((code, rest)) = body.split_first_chunk::<4>() else {
        return Err(StartupError::Malformed("it has no code"));
    };
    match u32::from_be_bytes(*code) {
        SSL_REQUEST if rest.is_empty() => Ok(FirstPacket::SslRequest),
        GSSENC_REQUEST if rest.is_empty() => Ok(FirstPacket::GssEncRequest),
        SSL_REQUEST | GSSENC_REQUEST => Err(StartupError::Malformed(
            "a request for encryption has no further content",
        )),
        CANCEL_REQUEST => parse_cancel(rest),
        version => {
            let (major, minor) = ((version >> 16) as u16, version as u16);
            if major != 3 {
                return Err(StartupError::Version { major, minor });
            }
            parse_startup(minor, rest)
        }
    }
}

fn parse_cancel(rest: &[u8]) -> Result<FirstPacket, StartupError> {
    let Some((process_id, key)) = rest.split_first_chunk::<4>() else {
        return Err(StartupError::Malformed(
            "a cancel request has no process id",
        ));
    };
    if !(4..=MAX_CANCEL_KEY_BYTES).contains(&key.len()) {
        return Err(StartupError::Malformed(
            "a cancel request's key has 4 to 256 bytes",
        ));
    }
    Ok(FirstPacket::Cancel(CancelRequest {
        process_id: u32::from_be_bytes(*process_id),
        key: key.to_vec(),
    }))
}

fn parse_startup(minor: u16, mut rest: &[u8]) -> Result<FirstPacket, StartupError> {
    let mut startup = Startup {
        minor,
        parameters: Vec::new(),
        protocol_options: Vec::new(),
    };
    loop {
        let name = text(&mut rest)?;
        if name.is_empty() {
            break;
        }
        let value = text(&mut rest)?;
        if name.starts_with(PROTOCOL_OPTION) {
            startup.protocol_options.push(name.to_owned());
        } else {
            startup.parameters.push((name.to_owned(), value.to_owned()));
        }
    }
    if !rest.is_empty() {
        return Err(StartupError::Malformed("bytes follow the last parameter"));
    }
    if startup.user().is_empty() {
        return Err(StartupError::NoUser);
    }
    Ok(FirstPacket::Startup(startup))
}

/// A text that ends with a zero byte.
fn text<'a>(rest: &mut &'a [u8]) -> Result<&'a str, StartupError> {
    let end = rest
        .iter()
        .position(|byte| *byte == 0)
        .ok_or(StartupError::Malformed("a parameter has no end"))?;
    let (text, after) = rest.split_at(end);
    *rest = &after[1..];
    std::str::from_utf8(text).map_err(|_| StartupError::Malformed("a parameter is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn startup(version: u32, text: &[u8]) -> Result<FirstPacket, StartupError> {
        parse(&[&version.to_be_bytes(), text].concat())
    }

    #[test]
    fn the_codes_without_content_are_told_apart() {
        assert_eq!(
            parse(&80_877_103_u32.to_be_bytes()),
            Ok(FirstPacket::SslRequest)
        );
        assert_eq!(
            parse(&80_877_104_u32.to_be_bytes()),
            Ok(FirstPacket::GssEncRequest)
        );
        assert!(startup(80_877_103, b"x").is_err());
    }

    #[test]
    fn lengths_are_bounded_before_anything_is_read() {
        assert_eq!(body_bytes([0, 0, 0, 8]), Ok(4));
        assert_eq!(body_bytes(10_000_u32.to_be_bytes()), Ok(9_996));
        for wrong in [0, 7, 10_001, u32::MAX] {
            assert_eq!(
                body_bytes(wrong.to_be_bytes()),
                Err(StartupError::Length(wrong))
            );
        }
    }

    #[test]
    fn a_cancel_request_has_a_key_of_either_protocol_and_does_not_print_it() {
        for key in [&b"abcd"[..], &[7; 32], &[7; 256]] {
            let body = [&[0, 0, 0, 9], key].concat();
            let Ok(FirstPacket::Cancel(request)) = startup(80_877_102, &body) else {
                panic!("a key of {} bytes is possible", key.len());
            };
            assert_eq!((request.process_id, request.key.as_slice()), (9, key));
            assert!(!format!("{request:?}").contains('['));
        }
        for wrong in [&b""[..], &[0, 0, 0, 9], &[0; 7], &[0; 261]] {
            assert!(startup(80_877_102, wrong).is_err());
        }
    }

    #[test]
    fn of_a_parameter_given_twice_the_last_counts_and_protocol_options_are_apart() {
        let text = b"user\0a\0database\0d\0user\0b\0_pq_.new\0x\0\0";
        let Ok(FirstPacket::Startup(mut read)) = startup(0x0003_0002, text) else {
            panic!("it is well formed");
        };
        assert_eq!((read.user(), read.get("database")), ("b", Some("d")));
        assert_eq!(read.negotiation(), Some((2, &["_pq_.new".to_owned()][..])));
        read.set("user", Some("c".to_owned()));
        let all: Vec<_> = read.parameters().collect();
        assert_eq!(all, [("database", "d"), ("user", "c")]);
    }

    #[test]
    fn newer_minors_are_negotiated_and_other_majors_refused() {
        let minor = |version| match startup(version, b"user\0a\0\0") {
            Ok(FirstPacket::Startup(read)) => read.negotiation().map(|(minor, _)| minor),
            other => panic!("{other:?}"),
        };
        assert_eq!(minor(0x0003_0000), None);
        assert_eq!(minor(0x0003_0002), None);
        assert_eq!(minor(0x0003_270F), Some(2));
        for version in [0x0002_0000, 0x0004_0000] {
            assert!(matches!(
                startup(version, b"user\0a\0\0"),
                Err(StartupError::Version { .. })
            ));
        }
    }

    #[test]
    fn what_is_cut_or_goes_on_is_refused() {
        assert_eq!(startup(0x0003_0000, b"\0"), Err(StartupError::NoUser));
        for wrong in [
            &b""[..],
            b"user\0a",
            b"user\0a\0",
            b"user\0\0x",
            b"user\0a\0\0x",
            b"user\0\xFF\0\0",
        ] {
            assert!(startup(0x0003_0000, wrong).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn parameters_come_back_as_they_were_written(
            pairs in proptest::collection::vec(("[a-z_]{1,12}", "[^\0]{0,20}"), 0..8),
        ) {
            let mut text = Vec::new();
            for (name, value) in &pairs {
                text.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
            }
            text.extend_from_slice(b"user\0someone\0\0");
            let Ok(FirstPacket::Startup(read)) = startup(0x0003_0000, &text) else {
                return Err(TestCaseError::fail("it is well formed"));
            };
            let written: Vec<_> = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let read: Vec<_> = read.parameters().collect();
            prop_assert_eq!(&read[..read.len() - 1], &written[..]);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = startup(0x0003_0000, &bytes);
        }
    }
}
