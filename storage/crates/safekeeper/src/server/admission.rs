//! Who may open which kind of connection.

use std::fmt;

use pg_types::{TenantId, TimelineId};
use token::{Gate, Need, Refusal, Rights, Scope};
use wire::wal::{Failure, FailureKind, FirstMessage};

/// Of a reader for whom WAL is kept.
const HOLD: &[Rights] = &[Rights::READ_WAL.and(Rights::TRIM_WAL)];

/// The timeline that a connection is about.
pub(super) fn of(first: &FirstMessage) -> (TenantId, TimelineId) {
    match first {
        FirstMessage::Propose(request) => (request.tenant, request.timeline),
        FirstMessage::Fetch(request) => (request.tenant, request.timeline),
        FirstMessage::Read(request) => (request.tenant, request.timeline),
    }
}

/// Refuses a connection whose token does not allow it, before anything is said of the timeline.
pub(super) fn admit(gate: &Gate, token: Option<&str>, first: &FirstMessage) -> Result<(), Failure> {
    let (tenant, timeline) = of(first);
    let (any_of, what): (&'static [Rights], &str) = match first {
        FirstMessage::Propose(_) => (&[Rights::WRITE_WAL], "propose"),
        FirstMessage::Fetch(_) => (&[Rights::WRITE_WAL, Rights::READ_WAL], "fetch"),
        FirstMessage::Read(request) if request.holds_wal => (HOLD, "read and hold"),
        FirstMessage::Read(_) => (&[Rights::READ_WAL], "read"),
    };
    let need = Need {
        any_of,
        scope: Scope::timeline(tenant, timeline),
    };
    let asked = Asked { what, timeline };
    let token = token.ok_or(Refusal::Missing);
    gate.admit(token, &need, &asked).map_err(|refusal| Failure {
        kind: FailureKind::BadRequest,
        message: format!("{asked} is refused: {refusal}"),
    })
}

struct Asked<'a> {
    what: &'a str,
    timeline: TimelineId,
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a WAL connection to {} of timeline {}",
            self.what, self.timeline
        )
    }
}
