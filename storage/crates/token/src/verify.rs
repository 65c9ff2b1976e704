//! Whether a token is one, of the control plane, for this part, now.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{ED25519, UnparsedPublicKey};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::claims::{Claims, Scope, Written};
use crate::keys::KeySet;
use crate::limits::{LEEWAY_SECONDS, LONGEST_LIFETIME_SECONDS, LONGEST_TOKEN_BYTES};
use crate::refusal::Refusal;
use crate::rights::Rights;

/// The issuer of all tokens.
pub const ISSUER: &str = "weir-control-plane";

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
    /// Extensions that whoever does not know them has to refuse (RFC 7515, 4.1.11); none is known here.
    crit: Option<IgnoredAny>,
}

/// What `token` grants at a part that goes by one of the names `audiences`, at `now`, seconds since the Unix epoch.
pub fn verify(
    keys: &KeySet,
    token: &str,
    audiences: &[String],
    now: u64,
) -> Result<Claims, Refusal> {
    if token.len() > LONGEST_TOKEN_BYTES {
        return Err(Refusal::TooLong);
    }
    let (signed, signature) = token
        .rsplit_once('.')
        .ok_or(Refusal::Malformed("it has no signature"))?;
    let (header, claims) = signed
        .split_once('.')
        .ok_or(Refusal::Malformed("it has not three parts"))?;
    if claims.contains('.') {
        return Err(Refusal::Malformed("it has not three parts"));
    }
    let header: Header = serde_json::from_slice(&decoded(header)?)
        .map_err(|_| Refusal::Malformed("its header lacks `alg` or `kid`, or is no JSON"))?;
    if header.alg != "EdDSA" {
        return Err(Refusal::Algorithm);
    }
    if header.crit.is_some() {
        return Err(Refusal::Malformed("its header has `crit`"));
    }
    let key = keys.get(&header.kid).ok_or(Refusal::UnknownKey)?;
    if key.retires.is_some_and(|retires| retires <= now) {
        return Err(Refusal::RetiredKey);
    }
    UnparsedPublicKey::new(&ED25519, key.public)
        .verify(signed.as_bytes(), &decoded(signature)?)
        .map_err(|_| Refusal::Signature)?;
    let written: Written = serde_json::from_slice(&decoded(claims)?)
        .map_err(|_| Refusal::Malformed("its claims are not those of Weir"))?;
    granted(written, audiences, now)
}

fn granted(written: Written, audiences: &[String], now: u64) -> Result<Claims, Refusal> {
    if written.iss != ISSUER {
        return Err(Refusal::Issuer);
    }
    if !written
        .aud
        .names()
        .iter()
        .any(|name| audiences.contains(name))
    {
        return Err(Refusal::Audience);
    }
    let begins = written.nbf.unwrap_or(0).max(written.iat);
    if begins > now.saturating_add(LEEWAY_SECONDS) {
        return Err(Refusal::NotYet);
    }
    if written.exp.saturating_add(LEEWAY_SECONDS) <= now {
        return Err(Refusal::Expired);
    }
    if written.exp.saturating_sub(written.iat) > LONGEST_LIFETIME_SECONDS {
        return Err(Refusal::Lifetime);
    }
    if written.timeline.is_some() && written.tenant.is_none() {
        return Err(Refusal::Malformed("it names a timeline and no tenant"));
    }
    Ok(Claims {
        subject: written.sub,
        rights: Rights::named(written.rights.iter().map(String::as_str)),
        scope: Scope {
            tenant: written.tenant,
            timeline: written.timeline,
        },
        expires: written.exp,
    })
}

fn decoded(part: &str) -> Result<Vec<u8>, Refusal> {
    BASE64_URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| Refusal::Malformed("a part of it is not base64url"))
}
