//! What is stored of a password, and what is known of it after a login.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use super::SCRAM_SHA_256;

pub(super) const KEY_BYTES: usize = digest::SHA256_OUTPUT_LEN;
pub(super) type Key = [u8; KEY_BYTES];

/// What Postgres does when none is set (`scram_iterations`), and what stands for users that do not exist.
const USUAL_ITERATIONS: u32 = 4096;
const SALT_BYTES: usize = 16;
/// No verifier asks a client for more work than this.
const MAX_ITERATIONS: u32 = 10_000_000;
const MAX_SALT_BYTES: usize = 1024;

pub(super) fn sha256(bytes: &[u8]) -> Key {
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    key
}

pub(super) fn hmac256(key: &[u8], bytes: &[u8]) -> Key {
    let mut tag = [0; KEY_BYTES];
    tag.copy_from_slice(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), bytes).as_ref());
    tag
}

/// One key exclusive-or the other.
pub(super) fn xor(one: &Key, other: &Key) -> Key {
    std::array::from_fn(|at| one[at] ^ other[at])
}

/// What a server stores in place of a password, in Postgres's form of RFC 5803:
/// `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, the last three in Base64.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Key,
    pub(super) server_key: Key,
}

impl Verifier {
    /// Reads `rolpassword` of `pg_authid`; None for anything else, such as an MD5 hash.
    pub fn parse(text: &str) -> Option<Verifier> {
        let rest = text.strip_prefix(SCRAM_SHA_256)?.strip_prefix('$')?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let salt = STANDARD.decode(salt).ok()?;
        let digits = iterations.bytes().all(|byte| byte.is_ascii_digit());
        let iterations = iterations.parse().ok().filter(|_| digits)?;
        let possible = (1..=MAX_ITERATIONS).contains(&iterations)
            && (1..=MAX_SALT_BYTES).contains(&salt.len());
        possible.then_some(Verifier {
            iterations,
            salt,
            stored_key: key(stored_key)?,
            server_key: key(server_key)?,
        })
    }

    /// The verifier of a password.
    pub fn of_password(password: &[u8], iterations: u32, salt: &[u8]) -> Option<Verifier> {
        let (client_key, server_key) = derive(password, iterations, salt)?;
        Some(Verifier {
            iterations,
            salt: salt.to_vec(),
            stored_key: sha256(client_key.as_slice()),
            server_key,
        })
    }

    /// How often a password is hashed to be compared with this.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// As `rolpassword` has it. A method, so that nobody prints it by accident.
    pub fn to_text(&self) -> String {
        format!(
            "{SCRAM_SHA_256}${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(self.stored_key),
            STANDARD.encode(self.server_key)
        )
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Verifier({} iterations)", self.iterations)
    }
}

fn key(text: &str) -> Option<Key> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

type Derived = (Zeroizing<Key>, Key);

/// Client key and server key of a password.
fn derive(password: &[u8], iterations: u32, salt: &[u8]) -> Option<Derived> {
    let rounds = iterations.try_into().ok()?;
    let mut salted = Zeroizing::new([0; KEY_BYTES]);
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        rounds,
        salt,
        password,
        salted.as_mut_slice(),
    );
    let client_key = Zeroizing::new(hmac256(salted.as_slice(), b"Client Key"));
    Some((client_key, hmac256(salted.as_slice(), b"Server Key")))
}

/// What a login left behind: enough to log in again to a server with the same verifier, and to know that server.
/// Forgotten, overwritten with zeros, when it is dropped.
pub struct LoginKeys {
    pub(super) client_key: Zeroizing<Key>,
    pub(super) server_key: Zeroizing<Key>,
}

impl LoginKeys {
    /// The keys, if the client key is the one that the verifier was made of.
    pub(super) fn proven(client_key: Key, verifier: &Verifier) -> Option<LoginKeys> {
        let keys = LoginKeys {
            client_key: Zeroizing::new(client_key),
            server_key: Zeroizing::new(verifier.server_key),
        };
        let stored_key = sha256(keys.client_key.as_slice());
        bool::from(stored_key.ct_eq(&verifier.stored_key)).then_some(keys)
    }
}

impl LoginKeys {
    /// The keys, if the password is the one that the verifier was made of. It is prepared by SASLprep (RFC 4013), as
    /// Postgres and its clients do it; one that cannot be prepared is taken as it is. The work is that of the verifier's
    /// iterations, whether or not the password is right.
    pub fn of_password(password: &str, verifier: &Verifier) -> Option<LoginKeys> {
        let prepared = stringprep::saslprep(password).map(|text| Zeroizing::new(text.into_owned()));
        let bytes = prepared.as_ref().map_or(password, |text| text.as_str());
        let (client_key, _) = derive(bytes.as_bytes(), verifier.iterations, &verifier.salt)?;
        LoginKeys::proven(*client_key, verifier)
    }
}

impl fmt::Debug for LoginKeys {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("LoginKeys")
    }
}

/// Makes verifiers for users that do not exist, so that they look like users: the same name gets the same salt each
/// time, and no password fits. All proxies of an installation have to have the same secret, or the salt tells.
pub struct MockSecret(hmac::Key);

impl MockSecret {
    /// At least 32 random bytes; they must be kept, and shared by all proxies.
    pub fn new(secret: &[u8]) -> MockSecret {
        MockSecret(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The verifier of a user that does not exist on an endpoint: salt and keys follow from the secret and both
    /// names, and there are 4096 iterations, which Postgres takes unless `scram_iterations` says otherwise.
    pub fn verifier(&self, endpoint: &str, user: &str) -> Verifier {
        let part = |what: &str| {
            let mut context = hmac::Context::with_key(&self.0);
            for text in [what, endpoint, user] {
                context.update(&(text.len() as u64).to_be_bytes());
                context.update(text.as_bytes());
            }
            let mut key = [0; KEY_BYTES];
            key.copy_from_slice(context.sign().as_ref());
            key
        };
        Verifier {
            iterations: USUAL_ITERATIONS,
            salt: part("salt")[..SALT_BYTES].to_vec(),
            stored_key: part("stored key"),
            server_key: part("server key"),
        }
    }
}

impl fmt::Debug for MockSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("MockSecret")
    }
}
