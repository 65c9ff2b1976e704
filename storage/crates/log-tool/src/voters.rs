//! Who of the directories votes, as the newest configuration that one of them holds says.
//!
//! A majority is counted among the voters of the log, not among the directories that were looked at: a spare safekeeper's
//! lacks most logs, and a member that was removed may hold an old one, without anything being wrong.

use consensus::{Configuration, Generation, MemberId, Role};

use crate::member::Member;
use crate::part::Part;

/// The configuration with the highest generation; `None` when no directory names the log's members, as logs that were
/// founded before they did: then each directory counts as a voter's.
pub fn newest(members: &[Member]) -> Option<&Configuration> {
    members
        .iter()
        .filter_map(|member| Some(&member.control.as_ref()?.durable.configuration))
        .filter(|known| known.generation != Generation::ZERO && !known.is_unlisted())
        .max_by_key(|known| known.generation)
}

/// The member of the configuration that a directory is, or was before it lost its log. A log on a disk that is a copy
/// is nobody: it does not vote.
pub fn identity(member: &Member, configuration: &Configuration) -> Option<MemberId> {
    let known = configuration.members().iter().map(|known| known.id);
    match (&member.control, member.disk) {
        (Some(control), _) => known.into_iter().find(|id| *id == control.member),
        (None, Some((node, disk))) => known
            .into_iter()
            .find(|id| (id.node, id.disk) == (node, disk)),
        (None, None) => None,
    }
}

/// `None` when the directory does not say whose it is, or nobody names the members.
pub fn part(member: &Member, configuration: Option<&Configuration>) -> Option<Part> {
    let configuration = configuration?;
    if member.control.is_none() && member.disk.is_none() {
        return None;
    }
    let role = identity(member, configuration).and_then(|id| configuration.role_of(id));
    Some(match role {
        Some(Role::Voter) => Part::Voter,
        Some(Role::Learner) => Part::Learner,
        None => Part::None,
    })
}

/// Voters of whom no directory was looked at.
pub fn unseen(members: &[Member], configuration: &Configuration) -> Vec<MemberId> {
    let seen: Vec<MemberId> = members
        .iter()
        .filter_map(|member| identity(member, configuration))
        .collect();
    configuration
        .voters()
        .filter(|voter| !seen.contains(voter))
        .collect()
}
