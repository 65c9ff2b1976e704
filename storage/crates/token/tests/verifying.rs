//! Promise: a token counts only as the control plane made it, for the part it names, while it is valid, by a key that
//! counts. Each other one is refused, with the reason.

mod common;

use common::*;
use pg_types::{TenantId, TimelineId};
use proptest::prelude::*;
use serde_json::{Value, json};
use token::limits::{LEEWAY_SECONDS, LONGEST_LIFETIME_SECONDS};
use token::verify::verify;
use token::{Claims, KeySet, Need, Refusal, Rights, Scope};

fn signer() -> Signer {
    Signer::new("k1", 1)
}

fn keys() -> KeySet {
    KeySet::parse(&key_set(&[signer().public()])).expect("a key set")
}

fn check(token: &str) -> Result<Claims, Refusal> {
    verify(&keys(), token, &["pageserver".to_owned()], NOW)
}

fn refused(changes: Value) -> Refusal {
    check(&signer().sign(&claims_with(NOW, &changes))).expect_err("refused")
}

fn is_malformed(found: Result<Claims, Refusal>) -> bool {
    matches!(found, Err(Refusal::Malformed(_)))
}

#[test]
fn a_good_token_says_what_it_grants() {
    let found = check(&signer().sign(&claims(NOW))).expect("good");
    let scope = Scope::timeline(
        TENANT.parse().expect("an id"),
        TIMELINE.parse().expect("an id"),
    );
    assert_eq!((found.rights, found.scope), (Rights::READ_PAGES, scope));
    let many = claims_with(NOW, &json!({"aud": ["safekeeper", "pageserver"]}));
    assert!(check(&signer().sign(&many)).is_ok());
}

#[test]
fn the_algorithm_is_not_the_tokens_choice() {
    for alg in ["none", "None", "HS256", "ES256", "RS256", "eddsa", ""] {
        let header = json!({"alg": alg, "kid": "k1"});
        let found = check(&signer().sign_as(&header, &claims(NOW)));
        assert_eq!(found, Err(Refusal::Algorithm), "{alg}");
    }
    // What libraries fall for: no signature at all, and a MAC by the public key, which everybody knows.
    let unsigned = format!(
        "{}.{}.",
        base64url(json!({"alg": "none"}).to_string()),
        base64url(claims(NOW).to_string())
    );
    assert!(is_malformed(check(&unsigned)));
    let header = json!({"alg": "HS256", "kid": "k1"}).to_string();
    let parts = format!(
        "{}.{}",
        base64url(header),
        base64url(claims(NOW).to_string())
    );
    let public = keys_public();
    let mac = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &public);
    let forged = format!(
        "{parts}.{}",
        base64url(ring::hmac::sign(&mac, parts.as_bytes()))
    );
    assert_eq!(check(&forged), Err(Refusal::Algorithm));
}

fn keys_public() -> Vec<u8> {
    let x = signer().public()["x"].as_str().expect("text").to_owned();
    use base64::Engine as _;
    base64::prelude::BASE64_URL_SAFE_NO_PAD
        .decode(x)
        .expect("base64")
}

#[test]
fn a_swapped_part_breaks_the_signature() {
    let (mine, other) = (
        signer().sign(&claims(NOW)),
        signer().sign(&claims_with(NOW, &json!({"tenant": OTHER_TENANT}))),
    );
    let parts = |token: &str| token.split('.').map(str::to_owned).collect::<Vec<_>>();
    let (mine, other) = (parts(&mine), parts(&other));
    let swapped = format!("{}.{}.{}", mine[0], other[1], mine[2]);
    assert_eq!(check(&swapped), Err(Refusal::Signature));
    let cut = format!("{}.{}.{}", mine[0], mine[1], &mine[2][..40]);
    assert_eq!(check(&cut), Err(Refusal::Signature));
    let none = format!("{}.{}.", mine[0], mine[1]);
    assert_eq!(check(&none), Err(Refusal::Signature));
}

#[test]
fn another_key_counts_for_nothing_by_any_name() {
    let stranger = Signer::new("k2", 2);
    assert_eq!(
        check(&stranger.sign(&claims(NOW))),
        Err(Refusal::UnknownKey)
    );
    // A key that comes along in the header, and a stranger who takes the name of a key that counts.
    let brought =
        json!({"alg": "EdDSA", "kid": "k1", "jwk": stranger.public(), "jku": "http://127.0.0.1/"});
    assert_eq!(
        check(&stranger.sign_as(&brought, &claims(NOW))),
        Err(Refusal::Signature)
    );
    let nameless = json!({"alg": "EdDSA"});
    assert!(is_malformed(check(
        &signer().sign_as(&nameless, &claims(NOW))
    )));
    let extended = json!({"alg": "EdDSA", "kid": "k1", "crit": ["b64"], "b64": false});
    assert!(is_malformed(check(
        &signer().sign_as(&extended, &claims(NOW))
    )));
}

#[test]
fn a_retired_key_counts_until_it_retires() {
    let mut public = signer().public();
    public["weir_retires"] = json!(NOW + 10);
    let keys = KeySet::parse(&key_set(&[public, Signer::new("k2", 2).public()])).expect("keys");
    let token = signer().sign(&claims(NOW));
    let at = |now| verify(&keys, &token, &["pageserver".to_owned()], now);
    assert!(at(NOW + 9).is_ok());
    assert_eq!(at(NOW + 10), Err(Refusal::RetiredKey));
}

#[test]
fn a_token_has_its_time() {
    let token = signer().sign(&claims(NOW));
    let at = |now| verify(&keys(), &token, &["pageserver".to_owned()], now);
    assert!(at(NOW + 299 + LEEWAY_SECONDS).is_ok());
    assert_eq!(at(NOW + 300 + LEEWAY_SECONDS), Err(Refusal::Expired));
    assert!(at(NOW - LEEWAY_SECONDS).is_ok());
    assert_eq!(at(NOW - LEEWAY_SECONDS - 1), Err(Refusal::NotYet));
    // The clock of who checks stands at the beginning or the end of time.
    assert_eq!(at(0), Err(Refusal::NotYet));
    assert_eq!(at(u64::MAX), Err(Refusal::Expired));

    assert_eq!(refused(json!({"nbf": NOW + 1000})), Refusal::NotYet);
    let long = NOW + LONGEST_LIFETIME_SECONDS;
    assert_eq!(refused(json!({"exp": long + 1})), Refusal::Lifetime);
    assert_eq!(refused(json!({"exp": u64::MAX})), Refusal::Lifetime);
    for exp in [json!(null), json!("1900000000"), json!(1.9e9), json!(-1)] {
        let changed = json!({"exp": exp});
        assert!(matches!(refused(changed), Refusal::Malformed(_)), "{exp}");
    }
    for iat in [json!(null), json!("0"), json!(-5)] {
        assert!(matches!(
            refused(json!({"iat": iat})),
            Refusal::Malformed(_)
        ));
    }
}

#[test]
fn a_token_is_for_the_part_it_names() {
    assert_eq!(refused(json!({"aud": "safekeeper"})), Refusal::Audience);
    assert_eq!(refused(json!({"aud": []})), Refusal::Audience);
    assert_eq!(refused(json!({"aud": "pageserver2"})), Refusal::Audience);
    assert_eq!(refused(json!({"iss": "somebody"})), Refusal::Issuer);
    for name in ["iss", "aud", "rights"] {
        let found = refused(json!({ name: null }));
        assert!(matches!(found, Refusal::Malformed(_)), "{name}");
    }
}

#[test]
fn a_scope_that_makes_no_sense_is_not_the_scope_of_all() {
    let mut written = claims(NOW);
    written["tenant"] = Value::Null;
    written["timeline"] = Value::Null;
    assert!(is_malformed(check(&signer().sign(&written))));
    for tenant in [json!(""), json!("*"), json!(7), json!([TENANT])] {
        assert!(matches!(
            refused(json!({"tenant": tenant})),
            Refusal::Malformed(_)
        ));
    }
    // A timeline alone.
    assert!(matches!(
        refused(json!({"tenant": null})),
        Refusal::Malformed(_)
    ));
    // A claim that is there twice is not the last one's.
    let twice =
        claims(NOW)
            .to_string()
            .replacen('{', &format!("{{\"tenant\":\"{OTHER_TENANT}\","), 1);
    let header = json!({"alg": "EdDSA", "kid": "k1"}).to_string();
    let parts = format!("{}.{}", base64url(header), base64url(twice));
    assert!(is_malformed(check(&format!(
        "{parts}.{}",
        signer().signature(&parts)
    ))));
}

#[test]
fn what_is_no_token_is_refused_whatever_its_size() {
    for text in [
        "",
        ".",
        "..",
        "...",
        "a.b",
        "a.b.c",
        "a.b.c.d",
        "%%%.%%%.%%%",
        "=.=.=",
        "é.é.é",
    ] {
        assert!(is_malformed(check(text)), "{text:?}");
    }
    let huge = "a".repeat(10 << 20);
    assert_eq!(check(&huge), Err(Refusal::TooLong));
    let stuffed = claims_with(NOW, &json!({"sub": "x".repeat(8000)}));
    assert_eq!(check(&signer().sign(&stuffed)), Err(Refusal::TooLong));
    // The same token in another alphabet, or padded, is another text: refused, so that a token has one form only.
    let good = signer().sign(&claims(NOW));
    assert!(check(&format!("{good}=")).is_err());
    assert!(check(&format!(" {good}")).is_err());
    assert!(check(&format!("{good}\n")).is_err());
}

#[test]
fn rights_that_are_not_known_grant_nothing() {
    let found = check(&signer().sign(&claims_with(
        NOW,
        &json!({"rights": ["everything", "READ_PAGES", "manage "]}),
    )));
    assert_eq!(found.expect("good").rights, Rights::default());
}

#[test]
fn no_debug_output_and_no_error_shows_a_token() {
    let token = signer().sign(&claims_with(NOW, &json!({"aud": "other"})));
    let error = check(&token).expect_err("refused");
    let shown = format!("{error} {error:?}");
    for part in token.split('.') {
        assert!(!shown.contains(part));
    }
}

#[test]
fn a_key_set_is_used_whole_or_not_at_all() {
    let good = signer().public();
    let with = |name: &str, value: Value| {
        let mut key = Signer::new("k2", 2).public();
        key[name] = value;
        KeySet::parse(&key_set(&[good.clone(), key]))
    };
    assert!(with("kid", json!("k2")).is_ok());
    for (name, value) in [
        ("kty", json!("oct")),
        ("crv", json!("X25519")),
        ("alg", json!("HS256")),
        ("x", json!("AAAA")),
        ("x", json!("not base64")),
        ("kid", json!("k1")),
        ("kid", json!(null)),
        ("weir_retires", json!("soon")),
    ] {
        assert!(with(name, value.clone()).is_err(), "{name} {value}");
    }
    for text in ["", "{}", "[]", "{\"keys\":[]}", "{\"keys\":[{}]}"] {
        assert!(KeySet::parse(text.as_bytes()).is_err(), "{text}");
    }
    assert!(KeySet::parse(&vec![b' '; 1 << 20]).is_err());
}

fn id(number: u8) -> [u8; 16] {
    [number; 16]
}

fn scope() -> impl Strategy<Value = Scope> {
    // Of few ids, so that they meet.
    let ids = (prop::option::of(0..3_u8), prop::option::of(0..3_u8));
    ids.prop_map(|(tenant, timeline)| Scope {
        tenant: tenant.map(|number| TenantId(id(number))),
        timeline: tenant
            .and(timeline)
            .map(|number| TimelineId(id(number + 100))),
    })
}

const NEEDS: [&[Rights]; 4] = [
    &[Rights::READ_PAGES],
    &[Rights::WRITE_WAL],
    &[Rights::MANAGE, Rights::READ_PAGES],
    &[Rights::METRICS],
];

proptest! {
    #[test]
    fn what_is_granted_is_what_was_signed(
        scope in scope(), names in prop::sample::subsequence(Rights::NAMES.to_vec(), 0..=6),
        needed in scope_needed(), need in prop::sample::select(NEEDS.to_vec()),
    ) {
        let names: Vec<_> = names.into_iter().map(|(_, name)| name).collect();
        let mut changes = json!({"rights": names, "tenant": null, "timeline": null});
        if let Some(tenant) = scope.tenant {
            changes["tenant"] = json!(tenant);
        }
        if let Some(timeline) = scope.timeline {
            changes["timeline"] = json!(timeline);
        }
        let found = check(&signer().sign(&claims_with(NOW, &changes))).expect("good");
        prop_assert_eq!(found.scope, scope);

        let reaches = scope.tenant.is_none()
            || scope.tenant == needed.tenant && (scope.timeline.is_none() || scope.timeline == needed.timeline);
        let may = need.iter().any(|set| {
            Rights::NAMES.iter().all(|(right, name)| !set.include(*right) || names.contains(name))
        });
        let outcome = found.allow(&Need { any_of: need, scope: needed });
        prop_assert_eq!(outcome.is_ok(), reaches && may);
        prop_assert_eq!(outcome == Err(Refusal::Scope), !reaches);
    }

    #[test]
    fn one_changed_character_is_refused(at in any::<prop::sample::Index>(), by in 1..127_u8) {
        let good = signer().sign(&claims(NOW));
        let mut bytes = good.clone().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = (bytes[at] + by) % 128;
        let changed = String::from_utf8(bytes).expect("ASCII");
        prop_assume!(changed != good);
        prop_assert!(check(&changed).is_err());
    }

    #[test]
    fn any_text_is_refused(text in "\\PC{0,200}") {
        prop_assert!(check(&text).is_err());
    }

    #[test]
    fn any_signed_json_is_claims_or_an_error(text in "\\PC{0,60}") {
        let header = json!({"alg": "EdDSA", "kid": "k1"}).to_string();
        let parts = format!("{}.{}", base64url(header), base64url(text));
        let token = format!("{parts}.{}", signer().signature(&parts));
        prop_assert!(check(&token).is_err());
    }
}

/// Of requests: they are about the installation, a tenant or a timeline.
fn scope_needed() -> impl Strategy<Value = Scope> {
    scope()
}
