//! Why a token is not enough.

use crate::limits::{LONGEST_LIFETIME_SECONDS, LONGEST_TOKEN_BYTES};
use crate::rights::Rights;

/// Why a request is refused. None of these holds anything of the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no token.
    #[error(
        "a token of the control plane is needed, as `Authorization: Bearer TOKEN` or in the first frame of a connection"
    )]
    Missing,
    /// There is more than one, or it is not what RFC 7515 calls compact; the field says what is wrong.
    #[error("the token is no token: {0}")]
    Malformed(&'static str),
    /// Longer than any that the control plane makes.
    #[error("the token is longer than {LONGEST_TOKEN_BYTES} bytes")]
    TooLong,
    /// Not EdDSA.
    #[error("the token is not signed by EdDSA, and nothing else counts here")]
    Algorithm,
    /// The key set does not have its key.
    #[error("the token's key is not in the key set; if keys were changed just now, repeat it")]
    UnknownKey,
    /// By a key that counts no longer.
    #[error("the token's key is retired; get a new token")]
    RetiredKey,
    /// Signed by another key, or changed since.
    #[error("the token's signature is not of its contents by its key")]
    Signature,
    /// Too old.
    #[error("the token has expired; get a new one, and see that the clocks agree")]
    Expired,
    /// Made, or to be used, later than now.
    #[error("the token is of a later time; see that the clocks agree")]
    NotYet,
    /// Made for longer than a token may be.
    #[error("the token is made for longer than {LONGEST_LIFETIME_SECONDS} s")]
    Lifetime,
    /// Made by somebody else.
    #[error("the token is not of this installation's control plane")]
    Issuer,
    /// Made for another part.
    #[error("the token is for another part than this one")]
    Audience,
    /// Good, and for other tenants or timelines.
    #[error("the token is for another tenant or timeline than the request, or for less")]
    Scope,
    /// Good, and of other rights.
    #[error("the token does not grant {}", sets(.0))]
    Right(&'static [Rights]),
}

fn sets(any_of: &[Rights]) -> String {
    let sets: Vec<String> = any_of.iter().map(Rights::to_string).collect();
    sets.join(", or ")
}

impl Refusal {
    /// All values of [`reason`](Refusal::reason).
    pub const REASONS: [&str; 14] = [
        "missing",
        "malformed",
        "too_long",
        "algorithm",
        "unknown_key",
        "retired_key",
        "signature",
        "expired",
        "not_yet",
        "lifetime",
        "issuer",
        "audience",
        "scope",
        "right",
    ];

    /// A word for metrics and logs.
    pub fn reason(self) -> &'static str {
        Refusal::REASONS[self.place()]
    }

    pub(crate) fn place(self) -> usize {
        match self {
            Refusal::Missing => 0,
            Refusal::Malformed(_) => 1,
            Refusal::TooLong => 2,
            Refusal::Algorithm => 3,
            Refusal::UnknownKey => 4,
            Refusal::RetiredKey => 5,
            Refusal::Signature => 6,
            Refusal::Expired => 7,
            Refusal::NotYet => 8,
            Refusal::Lifetime => 9,
            Refusal::Issuer => 10,
            Refusal::Audience => 11,
            Refusal::Scope => 12,
            Refusal::Right(_) => 13,
        }
    }

    /// Whether the token is a good one, which does not reach so far.
    pub fn is_forbidden(self) -> bool {
        matches!(self, Refusal::Scope | Refusal::Right(_))
    }
}
