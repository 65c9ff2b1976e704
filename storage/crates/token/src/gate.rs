//! The check at a part's ports, with its keys, its clock, its metrics and its log.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use prometheus::{IntCounterVec, IntGauge, register_int_counter_vec, register_int_gauge};

use crate::claims::{Claims, Need};
use crate::keys::KeySet;
use crate::refusal::Refusal;
use crate::verify::verify;
use crate::watched::Watched;

static REFUSED: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let counter = register_int_counter_vec!(
        "weir_token_refusals_total",
        "Requests and connections refused for want of a token that allows them",
        &["reason"]
    );
    counter.expect("metric registered once")
});

static AUTHENTICATES: LazyLock<IntGauge> = LazyLock::new(|| {
    let gauge = register_int_gauge!(
        "weir_token_authentication",
        "1 where this program asks for tokens, 0 where it lets everybody in"
    );
    gauge.expect("metric registered once")
});

/// For a part's status: `tokens`, or `none` where this program lets everybody in.
pub fn authentication() -> &'static str {
    match AUTHENTICATES.get() {
        1 => "tokens",
        _ => "none",
    }
}

/// Decides who comes in. Without keys it lets everybody in, and says so.
pub struct Gate {
    keys: Option<Arc<Watched<KeySet>>>,
    audiences: Vec<String>,
    clock: fn() -> SystemTime,
    /// By the place of the reason: in which second it was logged last.
    logged: [AtomicU64; Refusal::REASONS.len()],
}

impl Gate {
    /// `keys`: the file of the key set; without one the part authenticates nobody. `audiences`: the names by which
    /// tokens call this part.
    ///
    /// # Errors
    ///
    /// The key set can't be read or used: a part that was told to ask for tokens does not start without.
    pub fn open(keys: Option<&Path>, audiences: Vec<String>) -> anyhow::Result<Arc<Gate>> {
        Gate::with_clock(keys, audiences, SystemTime::now)
    }

    /// [`open`](Gate::open) with another clock.
    pub fn with_clock(
        keys: Option<&Path>,
        audiences: Vec<String>,
        clock: fn() -> SystemTime,
    ) -> anyhow::Result<Arc<Gate>> {
        let keys = keys
            .map(|path| Watched::open(path, |bytes| Ok(KeySet::parse(bytes)?)))
            .transpose()
            .context("--token-keys, the public keys of the control plane")?;
        match &keys {
            Some(keys) => tracing::info!(keys = ?keys.current().names(), "asks for tokens"),
            None => tracing::warn!(
                "authenticates NOBODY: whoever reaches the ports may do everything; start with --token-keys FILE"
            ),
        }
        AUTHENTICATES.set(i64::from(keys.is_some()));
        for reason in Refusal::REASONS {
            REFUSED.with_label_values(&[reason]).inc_by(0);
        }
        Ok(Arc::new(Gate {
            keys,
            audiences,
            clock,
            logged: Default::default(),
        }))
    }

    /// A gate that lets everybody in, for tests that are about something else.
    pub fn lets_all_in() -> Arc<Gate> {
        Arc::new(Gate {
            keys: None,
            audiences: Vec::new(),
            clock: SystemTime::now,
            logged: Default::default(),
        })
    }

    /// Whether anybody is asked for a token.
    pub fn authenticates(&self) -> bool {
        self.keys.is_some()
    }

    /// Checks a token against a need; what is refused is counted and logged. `what` says for the log what was asked.
    pub fn admit(
        &self,
        token: Result<&str, Refusal>,
        need: &Need,
        what: &dyn std::fmt::Display,
    ) -> Result<(), Refusal> {
        let Some(keys) = &self.keys else {
            return Ok(());
        };
        let now = (self.clock)().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs();
        let found = token.and_then(|token| verify(&keys.current(), token, &self.audiences, now));
        let outcome = match &found {
            Ok(claims) => claims.allow(need),
            Err(refusal) => Err(*refusal),
        };
        if let Err(refusal) = outcome {
            self.note(refusal, found.ok(), now, what);
        }
        outcome
    }

    /// Each reason is logged once a second at most: strangers do not fill the disk.
    fn note(
        &self,
        refusal: Refusal,
        claims: Option<Claims>,
        now: u64,
        what: &dyn std::fmt::Display,
    ) {
        REFUSED.with_label_values(&[refusal.reason()]).inc();
        if self.logged[refusal.place()].swap(now, Ordering::Relaxed) == now {
            return;
        }
        let subject = claims.map(|claims| claims.subject).unwrap_or_default();
        tracing::warn!(
            reason = refusal.reason(),
            subject,
            "refused {what}: {refusal}"
        );
    }
}
