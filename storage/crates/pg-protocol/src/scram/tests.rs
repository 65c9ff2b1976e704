use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};
use proptest::prelude::*;

use super::*;

/// The example of RFC 7677, section 3.
const RFC_CLIENT_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const RFC_SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const RFC_SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
const RFC_PROOF: &str = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const RFC_SIGNATURE: &str = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn rfc_verifier() -> Verifier {
    let salt = STANDARD.decode(RFC_SALT).expect("Base64");
    Verifier::of_password(b"pencil", 4096, &salt).expect("iterations")
}

/// A server in the state in which the RFC's example has it: its nonce is no Base64, so `start` cannot make it.
fn rfc_server() -> (Server, String) {
    let (server, first) = Server::start(
        Mechanism::Plain,
        RFC_CLIENT_FIRST.as_bytes(),
        rfc_verifier(),
        None,
        &[0; NONCE_BYTES],
    )
    .expect("well formed");
    server.with_server_nonce(&STANDARD.encode([0; NONCE_BYTES]), RFC_SERVER_NONCE, &first)
}

fn rfc_final(proof: &str) -> String {
    format!("c=biws,r=rOprNGfwEbeRWgbNEkqO{RFC_SERVER_NONCE},p={proof}")
}

#[test]
fn the_server_agrees_with_the_example_of_rfc_7677() {
    let (server, first) = rfc_server();
    assert_eq!(
        first,
        format!("r=rOprNGfwEbeRWgbNEkqO{RFC_SERVER_NONCE},s={RFC_SALT},i=4096")
    );
    let (_, last) = server
        .finish(rfc_final(RFC_PROOF).as_bytes())
        .expect("the proof is right");
    assert_eq!(last, format!("v={RFC_SIGNATURE}"));
}

#[test]
fn another_proof_is_refused() {
    let mut proof = STANDARD.decode(RFC_PROOF).expect("Base64");
    for at in [0, 31] {
        proof[at] ^= 1;
        let (server, _) = rfc_server();
        let outcome = server.finish(rfc_final(&STANDARD.encode(&proof)).as_bytes());
        assert_eq!(outcome.map(|_| ()), Err(ScramError::Refused));
    }
}

/// A client that knows the password, of another author.
fn log_in(
    client: &mut ScramSha256,
    mechanism: Mechanism,
    verifier: &Verifier,
    end_point: Option<&[u8]>,
) -> Result<LoginKeys, ScramError> {
    let (server, first) = Server::start(
        mechanism,
        client.message(),
        verifier.clone(),
        end_point,
        &[3; NONCE_BYTES],
    )?;
    client
        .update(first.as_bytes())
        .expect("the client takes the server's first message");
    let (keys, last) = server.finish(client.message())?;
    client
        .finish(last.as_bytes())
        .expect("the client believes the server");
    Ok(keys)
}

#[test]
fn a_bound_channel_must_be_the_same_on_both_ends() {
    let verifier = rfc_verifier();
    let bound = |hash: &[u8]| {
        ScramSha256::new(
            b"pencil",
            ChannelBinding::tls_server_end_point(hash.to_vec()),
        )
    };
    let plus = Mechanism::Plus;
    assert!(log_in(&mut bound(b"hash"), plus, &verifier, Some(b"hash")).is_ok());
    for (theirs, ours) in [(&b"hash"[..], Some(&b"other"[..])), (b"hash", None)] {
        let outcome = log_in(&mut bound(theirs), plus, &verifier, ours);
        assert!(matches!(outcome, Err(ScramError::Malformed(_))));
    }
}

#[test]
fn a_client_that_was_told_of_no_binding_finds_out() {
    let verifier = rfc_verifier();
    let unrequested = || ScramSha256::new(b"pencil", ChannelBinding::unrequested());
    let unsupported = || ScramSha256::new(b"pencil", ChannelBinding::unsupported());
    let plain = Mechanism::Plain;
    assert!(log_in(&mut unsupported(), plain, &verifier, Some(b"hash")).is_ok());
    assert!(log_in(&mut unrequested(), plain, &verifier, None).is_ok());
    assert!(log_in(&mut unrequested(), plain, &verifier, Some(b"hash")).is_err());
    assert!(
        log_in(
            &mut unsupported(),
            Mechanism::Plus,
            &verifier,
            Some(b"hash")
        )
        .is_err()
    );
}

#[test]
fn malformed_messages_of_a_client_are_refused() {
    let start = |message: &str| {
        Server::start(
            Mechanism::Plain,
            message.as_bytes(),
            rfc_verifier(),
            None,
            &[0; NONCE_BYTES],
        )
    };
    for wrong in [
        "",
        "n",
        "n,",
        "n,,",
        "n,a=other,n=,r=x",
        "n,,n=,r=",
        "n,,r=x,n=",
        "n,,m=new,n=,r=x",
        "p=tls-unique,,n=,r=x",
        "p=tls-server-end-point,,n=,r=x",
        "x,,n=,r=x",
        "n,,n=,r=a b",
    ] {
        assert!(
            matches!(start(wrong), Err(ScramError::Malformed(_))),
            "{wrong}"
        );
    }
    for wrong in [
        "",
        "c=biws",
        "c=biws,r=other,p=",
        "c=eSws,r=xAAAAAAAAAAAAAAAAAAAAAAAA,p=AAAA",
        "c=biws,r=xAAAAAAAAAAAAAAAAAAAAAAAA,p=AAAA",
    ] {
        let (server, _) = start("n,,n=,r=x").expect("well formed");
        let outcome = server.finish(wrong.as_bytes());
        assert!(matches!(outcome, Err(ScramError::Malformed(_))), "{wrong}");
    }
}

#[test]
fn verifiers_come_back_and_others_are_none() {
    let text = rfc_verifier().to_text();
    assert_eq!(Verifier::parse(&text), Some(rfc_verifier()));
    let keys = text.rsplit('$').next().expect("it has a $");
    for wrong in [
        "md5d41d8cd98f00b204e9800998ecf8427e".to_owned(),
        text.replace("4096", "0"),
        text.replace("4096", "+4096"),
        text.replace("4096", "4294967295"),
        text.replace(RFC_SALT, ""),
        text.replace(keys, "AAAA:AAAA"),
        text.replace("256$", "512$"),
        String::new(),
    ] {
        assert_eq!(Verifier::parse(&wrong), None, "{wrong}");
    }
}

#[test]
fn nothing_secret_is_printed() {
    let mut client = ScramSha256::new(b"pencil", ChannelBinding::unsupported());
    let keys = log_in(&mut client, Mechanism::Plain, &rfc_verifier(), None).expect("it fits");
    let mock = MockSecret::new(b"secret");
    let printed = format!("{:?} {keys:?} {mock:?}", rfc_verifier());
    assert_eq!(printed, "Verifier(4096 iterations) LoginKeys MockSecret");
}

/// A user that does not exist looks like one that does, each time it is tried: same salt, same iterations, and others
/// for another name. The parts are separated by their lengths, so that no two names share theirs.
#[test]
fn a_mock_is_the_same_each_time_and_another_for_each_name() {
    let mock = MockSecret::new(b"secret");
    let verifier = mock.verifier("ep-a", "user");
    assert_eq!(verifier, mock.verifier("ep-a", "user"));
    assert_eq!((verifier.iterations, verifier.salt.len()), (4096, 16));
    for other in [
        mock.verifier("ep-a", "user2"),
        mock.verifier("ep-b", "user"),
        mock.verifier("ep-au", "ser"),
        MockSecret::new(b"other").verifier("ep-a", "user"),
    ] {
        assert_ne!(verifier.salt, other.salt);
    }
    let mut client = ScramSha256::new(b"pencil", ChannelBinding::unsupported());
    let (server, first) = Server::start(
        Mechanism::Plain,
        client.message(),
        verifier,
        None,
        &[1; NONCE_BYTES],
    )
    .expect("well formed");
    client.update(first.as_bytes()).expect("it looks like any");
    assert_eq!(
        server.finish(client.message()).map(|_| ()),
        Err(ScramError::Refused)
    );
}

#[test]
fn a_server_without_the_verifier_is_found_out() {
    let mut client = ScramSha256::new(b"pencil", ChannelBinding::unsupported());
    let keys = log_in(&mut client, Mechanism::Plain, &rfc_verifier(), None).expect("it fits");
    let (client, first) = Client::start(&[9; NONCE_BYTES]);
    let (_, server_first) = Server::start(
        Mechanism::Plain,
        first.as_bytes(),
        rfc_verifier(),
        None,
        &[5; NONCE_BYTES],
    )
    .expect("well formed");
    let (waiting, _) = client
        .answer(server_first.as_bytes(), &keys)
        .expect("well formed");
    let forged = format!("v={}", STANDARD.encode([0; 32]));
    assert_eq!(waiting.verify(forged.as_bytes()), Err(ScramError::Refused));
    let (client, _) = Client::start(&[9; NONCE_BYTES]);
    let replayed = "r=AAAA,s=AAAA,i=1";
    assert!(client.answer(replayed.as_bytes(), &keys).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The promise of the whole module: whoever knows the password logs in, and what is left of that logs in again.
    #[test]
    fn keys_of_one_login_are_good_for_the_next(
        password in proptest::collection::vec(1_u8..128, 1..20),
        other in proptest::collection::vec(1_u8..128, 1..20),
        salt in proptest::collection::vec(any::<u8>(), 1..40),
        iterations in 1_u32..50,
        plus in any::<bool>(),
    ) {
        let verifier = Verifier::of_password(&password, iterations, &salt).expect("iterations");
        let binding = || match plus {
            true => ChannelBinding::tls_server_end_point(vec![7; 32]),
            false => ChannelBinding::unsupported(),
        };
        let mechanism = if plus { Mechanism::Plus } else { Mechanism::Plain };
        let mut client = ScramSha256::new(&password, binding());
        let keys = log_in(&mut client, mechanism, &verifier, Some(&[7; 32])).expect("the password is right");

        let (client, first) = Client::start(&[9; NONCE_BYTES]);
        let (server, server_first) =
            Server::start(Mechanism::Plain, first.as_bytes(), verifier.clone(), None, &[5; NONCE_BYTES]).expect("well formed");
        let (waiting, last) = client.answer(server_first.as_bytes(), &keys).expect("well formed");
        let (_, server_final) = server.finish(last.as_bytes()).expect("the keys are right");
        prop_assert_eq!(waiting.verify(server_final.as_bytes()), Ok(()));

        prop_assume!(password != other);
        let mut client = ScramSha256::new(&other, binding());
        let outcome = log_in(&mut client, mechanism, &verifier, Some(&[7; 32]));
        prop_assert_eq!(outcome.map(|_| ()), Err(ScramError::Refused));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80), text in "[a-z=,0-9+/]{0,60}") {
        for message in [bytes.as_slice(), text.as_bytes()] {
            for mechanism in [Mechanism::Plain, Mechanism::Plus] {
                let _ = Server::start(mechanism, message, MockSecret::new(b"x").verifier("a", "b"), Some(b"h"), &[0; NONCE_BYTES]);
            }
            let (server, _) = rfc_server();
            let _ = server.finish(message);
        }
        let _ = Verifier::parse(&text);
    }
}
