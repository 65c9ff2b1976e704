//! What strangers send to the proxy before they have proven anything, and what computes send to it.

use std::net::IpAddr;

use pg_protocol::addresses::Addresses;
use pg_protocol::endpoint::{of_host, of_options, of_prefix};
use pg_protocol::messages::parse_sasl_initial;
use pg_protocol::origin::{FIXED_BYTES, MOST_REST_BYTES, Origin, parse as parse_origin, rest_bytes};
use pg_protocol::scram::{Client, LoginKeys, Mechanism, MockSecret, Server, Verifier};
use pg_protocol::startup::{FirstPacket, parse};
use pg_protocol::tracker::Tracker;

/// The bytes as a first packet; then what names an endpoint in it.
pub fn startup(data: &[u8]) {
    let Ok(FirstPacket::Startup(mut startup)) = parse(data) else {
        return;
    };
    let _ = startup.negotiation();
    assert!(!startup.user().is_empty());
    for (_, value) in startup.parameters() {
        let domains = [value.to_ascii_lowercase()];
        let _ = of_host(value, &domains);
        if let Ok((_, rest)) = of_options(value) {
            // What is left names no endpoint any more, and stays what it is.
            assert_eq!(of_options(&rest), Ok((None, rest.clone())));
        }
        if let Ok((None, rest)) = of_prefix(value) {
            assert_eq!(rest, value);
        }
    }
    startup.set("user", None);
    assert_eq!(startup.user(), "");
}

/// The bytes as either message of a client, as either answer of a server, and as a stored verifier.
pub fn scram_messages(data: &[u8]) {
    let verifier = || MockSecret::new(b"secret").verifier("endpoint", "role");
    let random = [7; 18];
    let first = parse_sasl_initial(data).map_or(data, |(_, first)| first);
    for mechanism in [Mechanism::Plain, Mechanism::Plus] {
        for end_point in [None, Some(&b"hash"[..])] {
            if let Ok((server, _)) = Server::start(mechanism, first, verifier(), end_point, &random)
            {
                // Nobody knows a password that fits.
                assert!(server.finish(data).is_err());
            }
        }
    }
    let started = Server::start(Mechanism::Plain, b"n,,n=,r=x", verifier(), None, &random);
    let (server, _) = started.expect("well formed");
    assert!(server.finish(data).is_err());

    let stored = Verifier::of_password(b"password", 1, b"salt").expect("iterations");
    let keys = LoginKeys::of_password("password", &stored).expect("the password of the verifier");
    let (client, _) = Client::start(&random);
    if let Ok((waiting, _)) = client.answer(data, &keys) {
        assert!(waiting.verify(data).is_err());
    }
    if let Some(verifier) = std::str::from_utf8(data).ok().and_then(Verifier::parse) {
        assert_eq!(Verifier::parse(&verifier.to_text()), Some(verifier));
    }
}

/// The bytes as a stream of messages: in one piece and byte by byte, the same is seen.
pub fn messages(data: &[u8]) {
    let (mut whole, mut all) = (Tracker::default(), Vec::new());
    whole.feed(data, |seen| all.push(seen));
    let (mut pieces, mut again) = (Tracker::default(), Vec::new());
    for byte in data {
        pieces.feed(std::slice::from_ref(byte), |seen| again.push(seen));
    }
    assert_eq!(all, again);
    assert_eq!(whole.between_messages(), pieces.between_messages());
}

/// The bytes as the header of a load balancer: what it says about a client is within the bytes it says it has.
pub fn origin(data: &[u8]) {
    let Some((fixed, rest)) = data.split_first_chunk::<FIXED_BYTES>() else {
        return;
    };
    let Ok(length) = rest_bytes(fixed) else {
        assert!(parse_origin(fixed, rest).is_err());
        return;
    };
    assert!(length <= MOST_REST_BYTES);
    let Some(rest) = rest.get(..length) else {
        assert!(parse_origin(fixed, rest).is_err());
        return;
    };
    if let Ok(Origin::Client(client)) = parse_origin(fixed, rest) {
        let address = match client.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        assert!(rest.starts_with(&address));
    }
}

/// The bytes as ranges of addresses, one a line: a set of several holds what a set of one of them holds.
pub fn addresses(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(all) = Addresses::parse(text.lines()) else {
        return;
    };
    for line in text.lines() {
        let one = Addresses::parse([line]).expect("it was one of the lines");
        for end in line.split(['-', '/']) {
            if let Ok(address) = end.trim().parse::<IpAddr>() {
                if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
                    // The end of a range of IPv6 that holds more than IPv4 is none of its addresses.
                    continue;
                }
                assert!(one.contains(address), "{line} and {address}");
                assert!(all.contains(address), "{line} and {address}");
            }
        }
    }
}
