//! The login with a password in clear, as SQL over HTTP and WebSockets send it within TLS. It is compared with the
//! verifier that the directory has, and leaves the keys behind that a login by SCRAM leaves.
//!
//! With SCRAM the client hashes its password some thousand times, and the proxy once. Here the proxy does all of it, so
//! this work is bounded: so many at a time, off the threads that serve connections, and no more for one password than
//! [`MOST_ITERATIONS`]. A password that was right is known again by a keyed hash, without the work; a wrong one always costs
//! it, so the time tells nothing of an endpoint or a role.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pg_protocol::endpoint::EndpointName;
use pg_protocol::messages::{self, Fatal};
use pg_protocol::scram::{LoginKeys, Verifier};
use ring::hmac;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;

use crate::login::{self, Context, Login, LoginError, Wanted};
use crate::packets;

/// A verifier that asks for more is none to be checked here: a tenant could have each of its logins cost seconds.
pub const MOST_ITERATIONS: u32 = 20_000;
/// Passwords that were right are known for so long after their last use, and so many of them.
const KNOWN_FOR: Duration = Duration::from_secs(300);
const MOST_KNOWN: usize = 4096;
/// Postgres takes no longer password.
const MOST_PASSWORD_BYTES: u32 = 1024;

type Mark = [u8; 32];

/// A password that was right.
struct Known {
    verifier: Verifier,
    keys: Arc<LoginKeys>,
    used: Instant,
}

/// Checks passwords.
pub struct Passwords {
    places: Arc<Semaphore>,
    secret: hmac::Key,
    known: Mutex<HashMap<Mark, Known>>,
}

impl Passwords {
    /// At most `at_a_time` passwords are hashed at the same time.
    pub fn new(at_a_time: usize) -> Passwords {
        let secret: [u8; 32] = rand::random();
        Passwords {
            places: Arc::new(Semaphore::new(at_a_time)),
            secret: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            known: Mutex::default(),
        }
    }

    /// Logs a client in by its password.
    ///
    /// # Errors
    /// What the client is to be told; the same for an endpoint, a role and a password that are wrong.
    pub async fn log_in(
        &self,
        wanted: Wanted,
        role: &str,
        password: &str,
        context: &Context<'_>,
    ) -> Result<Login, Fatal> {
        let Wanted { endpoint, pooled } = wanted;
        let verifier = login::verifier(&endpoint, role, context).await?;
        let mark = self.mark(&endpoint, role, password);
        let known = self.recall(&mark, &verifier, Instant::now());
        let keys = match known {
            Some(keys) => keys,
            None => {
                let Some(keys) = self.check(password, &verifier).await? else {
                    return Err(login::refuse(&endpoint, role, context));
                };
                let keys = Arc::new(keys);
                self.remember(mark, &verifier, &keys, Instant::now());
                keys
            }
        };
        Ok(Login {
            endpoint,
            pooled,
            keys,
            verifier,
        })
    }

    async fn check(&self, password: &str, verifier: &Verifier) -> Result<Option<LoginKeys>, Fatal> {
        if verifier.iterations() > MOST_ITERATIONS {
            let text = format!(
                "the role's password has {} iterations; a password in clear is checked with {MOST_ITERATIONS} at most",
                verifier.iterations()
            );
            let hint = "Connect by Postgres's protocol with SCRAM, or set the password anew with fewer scram_iterations.";
            return Err(Fatal::new("0A000", text).with_hint(hint));
        }
        let place = self.places.clone().acquire_owned().await;
        let (password, verifier) = (
            zeroize::Zeroizing::new(password.to_owned()),
            verifier.clone(),
        );
        let checked = tokio::task::spawn_blocking(move || {
            let keys = LoginKeys::of_password(&password, &verifier);
            drop(place);
            keys
        });
        checked
            .await
            .map_err(|_| Fatal::new("XX000", "the password could not be checked"))
    }

    fn mark(&self, endpoint: &EndpointName, role: &str, password: &str) -> Mark {
        let mut context = hmac::Context::with_key(&self.secret);
        for text in [endpoint.as_str(), role, password] {
            context.update(&(text.len() as u64).to_be_bytes());
            context.update(text.as_bytes());
        }
        let mut mark = Mark::default();
        mark.copy_from_slice(context.sign().as_ref());
        mark
    }

    fn recall(&self, mark: &Mark, verifier: &Verifier, now: Instant) -> Option<Arc<LoginKeys>> {
        let mut known = self.known.lock();
        let found = known.get_mut(mark)?;
        if found.verifier != *verifier || now.saturating_duration_since(found.used) > KNOWN_FOR {
            known.remove(mark);
            return None;
        }
        found.used = now;
        Some(found.keys.clone())
    }

    fn remember(&self, mark: Mark, verifier: &Verifier, keys: &Arc<LoginKeys>, now: Instant) {
        let mut known = self.known.lock();
        if known.len() >= MOST_KNOWN {
            known.retain(|_, one| now.saturating_duration_since(one.used) <= KNOWN_FOR);
        }
        if known.len() >= MOST_KNOWN {
            // The work is done again for some: rare enough to choose without care.
            known.clear();
        }
        let one = Known {
            verifier: verifier.clone(),
            keys: keys.clone(),
            used: now,
        };
        known.insert(mark, one);
    }

    /// Asks a client of Postgres's protocol for its password in clear. The client has been told of success when this
    /// returns well, and of nothing otherwise.
    ///
    /// # Errors
    /// As `log_in`; or the client went away, or sent no password.
    pub async fn ask(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        wanted: Wanted,
        role: &str,
        context: &Context<'_>,
    ) -> Result<Login, LoginError> {
        stream.write_all(&messages::cleartext_password()).await?;
        stream.flush().await?;
        let message = packets::message(stream, MOST_PASSWORD_BYTES).await?;
        let password = message.body.strip_suffix(b"\0");
        let password = password.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let (b'p', Some(password)) = (message.tag, password) else {
            return Err(Fatal::new("08P01", "a password was expected").into());
        };
        let login = self.log_in(wanted, role, password, context).await?;
        stream.write_all(&messages::authentication_ok()).await?;
        stream.flush().await?;
        Ok(login)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verifier(password: &str) -> Verifier {
        Verifier::of_password(password.as_bytes(), 10, b"salt").expect("iterations")
    }

    #[tokio::test]
    async fn a_password_is_right_or_wrong_and_prepared_as_postgres_does() {
        let passwords = Passwords::new(1);
        for (stored, sent, right) in [
            ("pencil", "pencil", true),
            ("pencil", "pencils", false),
            // A soft hyphen is nothing, and a ligature is its letters.
            ("fix", "\u{FB01}\u{AD}x", true),
        ] {
            let keys = passwords.check(sent, &verifier(stored)).await;
            assert_eq!(keys.expect("it is checked").is_some(), right, "{sent:?}");
        }
    }

    #[tokio::test]
    async fn a_verifier_that_asks_for_seconds_of_work_is_not_checked() {
        let keys = Verifier::of_password(b"x", 1, b"salt").expect("iterations");
        let costly = keys.to_text().replacen("$1:", "$20001:", 1);
        let costly = Verifier::parse(&costly).expect("it is well formed");
        let refused = Passwords::new(1).check("x", &costly).await;
        assert_eq!(refused.err().map(|fatal| fatal.sqlstate), Some("0A000"));
    }

    #[test]
    fn a_password_is_known_again_until_its_verifier_changes_or_time_passes() {
        let passwords = Passwords::new(1);
        let (old, new) = (verifier("a"), verifier("b"));
        let keys = Arc::new(LoginKeys::of_password("a", &old).expect("it is right"));
        let name = EndpointName::new("ep-a").expect("a name");
        let mark = passwords.mark(&name, "app", "a");
        let now = Instant::now();
        passwords.remember(mark, &old, &keys, now);
        assert!(passwords.recall(&mark, &old, now).is_some());
        let other = passwords.mark(&name, "ap", "pa");
        assert!(passwords.recall(&other, &old, now).is_none());
        assert!(passwords.recall(&mark, &new, now).is_none());
        assert!(passwords.recall(&mark, &old, now).is_none(), "forgotten");
        passwords.remember(mark, &old, &keys, now);
        let later = now + KNOWN_FOR + Duration::from_secs(1);
        assert!(passwords.recall(&mark, &old, later).is_none());
    }

    #[test]
    fn what_is_known_is_bounded() {
        let passwords = Passwords::new(1);
        let verifier = verifier("a");
        let keys = Arc::new(LoginKeys::of_password("a", &verifier).expect("it is right"));
        for number in 0..3 * MOST_KNOWN as u32 {
            let mut mark = Mark::default();
            mark[..4].copy_from_slice(&number.to_be_bytes());
            passwords.remember(mark, &verifier, &keys, Instant::now());
        }
        assert!(passwords.known.lock().len() <= MOST_KNOWN);
    }
}
