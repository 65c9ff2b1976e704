//! A timeline as the API shows it.

use consensus::{MemberId, Role, TermStart};
use pg_types::{Lsn, TenantId, TimelineId};
use serde::Serialize;

use crate::damage::Damage;
use crate::registry::Listed;
use crate::timeline::{Status, Verified};

#[derive(Serialize)]
pub(super) struct TimelineBody {
    tenant_id: TenantId,
    timeline_id: TimelineId,
    state: &'static str,
    reason: Option<String>,
    #[serde(flatten)]
    positions: Option<Positions>,
}

#[derive(Serialize)]
struct Positions {
    start_lsn: Lsn,
    system_identifier: String,
    pg_version: u32,
    term: pg_types::Term,
    term_history: Vec<TermStart>,
    flush_lsn: Lsn,
    commit_lsn: Lsn,
    remote_consistent_lsn: Lsn,
    oldest_lsn: Lsn,
    offloaded_lsn: Option<Lsn>,
    damage: Vec<DamageBody>,
    /// The last look at the whole log; null before the first one.
    verified: Option<VerifiedBody>,
    member: MemberBody,
    /// Empty where the log does not name its members yet.
    members: Vec<MemberBody>,
    generation: u32,
    /// The term that confirmed the generation.
    generation_term: pg_types::Term,
}

#[derive(Serialize)]
struct MemberBody {
    node: u64,
    disk: String,
    incarnation: u32,
    /// `voter`, `learner` or, of a log that is no member of its own configuration, `none`.
    role: String,
}

/// A range of the log in which nothing is proven.
#[derive(Serialize)]
struct DamageBody {
    /// Name of the file in which it begins.
    segment: String,
    from_lsn: Lsn,
    to_lsn: Lsn,
    reason: String,
    since: String,
    /// Why the last attempt to repair it failed; null before it ends.
    unrepaired: Option<String>,
}

#[derive(Serialize)]
struct VerifiedBody {
    to_lsn: Lsn,
    at: String,
}

impl MemberBody {
    fn new(id: MemberId, role: Option<Role>) -> MemberBody {
        MemberBody {
            node: id.node,
            disk: id.disk.to_string(),
            incarnation: id.incarnation,
            role: role.map_or_else(|| "none".to_owned(), |role| role.to_string()),
        }
    }
}

impl From<Status> for TimelineBody {
    fn from(status: Status) -> TimelineBody {
        let Status {
            identity,
            position,
            oldest_lsn,
            offloaded_lsn,
            damage,
            verified,
            role,
            stopped,
        } = status;
        TimelineBody {
            tenant_id: identity.tenant,
            timeline_id: identity.timeline,
            state: if stopped.is_some() {
                "stopped"
            } else {
                "active"
            },
            reason: stopped,
            positions: Some(Positions {
                start_lsn: identity.start_lsn,
                system_identifier: identity.system_identifier.to_string(),
                pg_version: identity.pg_version,
                term: position.term,
                term_history: position.history.entries().to_vec(),
                flush_lsn: position.flush_lsn,
                commit_lsn: position.commit_lsn,
                remote_consistent_lsn: position.remote_consistent_lsn,
                oldest_lsn,
                offloaded_lsn,
                damage: damage.into_iter().map(DamageBody::from).collect(),
                verified: verified.map(VerifiedBody::from),
                member: MemberBody::new(position.member, role),
                members: position
                    .configuration
                    .members()
                    .iter()
                    .map(|member| MemberBody::new(member.id, Some(member.role)))
                    .collect(),
                generation: position.configuration.generation.number,
                generation_term: position.configuration.generation.term,
            }),
        }
    }
}

impl From<Damage> for DamageBody {
    fn from(damage: Damage) -> DamageBody {
        DamageBody {
            segment: damage.segment(),
            from_lsn: damage.from,
            to_lsn: damage.to,
            reason: damage.why,
            since: telemetry::rfc3339(damage.since),
            unrepaired: damage.unrepaired,
        }
    }
}

impl From<Verified> for VerifiedBody {
    fn from(verified: Verified) -> VerifiedBody {
        VerifiedBody {
            to_lsn: verified.to,
            at: telemetry::rfc3339(verified.at),
        }
    }
}

impl From<Listed> for TimelineBody {
    fn from(listed: Listed) -> TimelineBody {
        match listed {
            Listed::Open(timeline) => timeline.status().into(),
            Listed::Broken((tenant_id, timeline_id), reason) => TimelineBody {
                tenant_id,
                timeline_id,
                state: "stopped",
                reason: Some(reason),
                positions: None,
            },
        }
    }
}
