//! Why there is no connection, as words for the log and the metrics.

use std::io;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus::{IntCounterVec, register_int_counter_vec};
use rustls::{CertificateError, Error};

static FAILURES: LazyLock<IntCounterVec> = LazyLock::new(|| {
    let counter = register_int_counter_vec!(
        "weir_tls_handshake_failures_total",
        "Connections between parts that came to nothing, since one side did not prove itself to the other",
        &["side", "reason"]
    );
    counter.expect("metric registered once")
});

/// All values of `reason`.
pub(crate) const REASONS: [&str; 13] = [
    "no_certificate",
    "expired",
    "not_yet",
    "unknown_authority",
    "name",
    "part",
    "certificate",
    "not_tls",
    "version",
    "refused_by_peer",
    "closed",
    "timeout",
    "other",
];

/// In which second each reason was logged last.
static LOGGED: [AtomicU64; REASONS.len()] = [const { AtomicU64::new(0) }; REASONS.len()];

/// Which side of a connection this program is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Side {
    fn word(self) -> &'static str {
        match self {
            Side::Server => "server",
            Side::Client => "client",
        }
    }
}

/// Each series is there from the beginning, so that its first failure is an increase.
pub(crate) fn show_all() {
    for side in [Side::Server, Side::Client] {
        for reason in REASONS {
            FAILURES.with_label_values(&[side.word(), reason]).inc_by(0);
        }
    }
}

/// Counts a failure, and logs its reason once a second at most: strangers do not fill the disk.
pub(crate) fn note(side: Side, peer: &str, error: &io::Error) {
    let reason = reason_of(error);
    FAILURES.with_label_values(&[side.word(), reason]).inc();
    let place = REASONS.iter().position(|known| *known == reason);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    if place.is_some_and(|place| LOGGED[place].swap(now, Ordering::Relaxed) != now) {
        tracing::warn!(side = side.word(), reason, %peer, "no TLS with another part: {error}");
    }
}

pub(crate) fn reason_of(error: &io::Error) -> &'static str {
    let tls = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>());
    match (tls, error.kind()) {
        (Some(error), _) => reason_of_tls(error),
        (None, io::ErrorKind::TimedOut) => "timeout",
        (
            None,
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe,
        ) => "closed",
        (None, _) => "other",
    }
}

fn reason_of_tls(error: &Error) -> &'static str {
    match error {
        Error::NoCertificatesPresented => "no_certificate",
        Error::InvalidCertificate(error) => match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => "expired",
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "not_yet"
            }
            // A CA of another installation can have the same name as ours; then the signature is wrong.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => "unknown_authority",
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "name"
            }
            CertificateError::ApplicationVerificationFailure => "part",
            _ => "certificate",
        },
        Error::InvalidMessage(_) => "not_tls",
        Error::PeerIncompatible(_) => "version",
        Error::AlertReceived(_) => "refused_by_peer",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, InvalidMessage};

    use super::*;

    #[test]
    fn each_failure_has_one_of_the_words() {
        let tls = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        for (error, word) in [
            (tls(Error::NoCertificatesPresented), "no_certificate"),
            (
                tls(Error::InvalidCertificate(CertificateError::Expired)),
                "expired",
            ),
            (
                tls(Error::InvalidCertificate(CertificateError::BadSignature)),
                "unknown_authority",
            ),
            (
                tls(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
                "unknown_authority",
            ),
            (
                tls(Error::InvalidCertificate(CertificateError::NotValidForName)),
                "name",
            ),
            (
                tls(Error::InvalidCertificate(
                    CertificateError::ApplicationVerificationFailure,
                )),
                "part",
            ),
            (
                tls(Error::InvalidMessage(InvalidMessage::InvalidContentType)),
                "not_tls",
            ),
            (
                tls(Error::AlertReceived(AlertDescription::AccessDenied)),
                "refused_by_peer",
            ),
            (io::Error::from(io::ErrorKind::TimedOut), "timeout"),
            (io::Error::from(io::ErrorKind::UnexpectedEof), "closed"),
            (io::Error::other("anything"), "other"),
        ] {
            assert_eq!(reason_of(&error), word, "{error}");
            assert!(REASONS.contains(&word));
        }
    }
}
