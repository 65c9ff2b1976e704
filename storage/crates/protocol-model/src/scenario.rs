//! What a model may do, and how often: the bounds within which it is exhausted.

use consensus::{Change, Configuration, MemberId};

use crate::Bug;
use crate::log::member;
use crate::properties::Milestone;
use crate::step::What;

/// What one compute may do. Computes start in the order of their numbers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Safekeepers whose addresses it is given.
    pub addresses: Vec<usize>,
    /// How often the compute may ask for votes.
    pub campaigns: u8,
    /// Records that the compute may write.
    pub writes: u8,
    /// Whether other things happen between the votes of its elections. Otherwise some safekeepers greet and vote at once.
    pub slow_votes: bool,
    /// Each may be tried whenever the proposer allows it.
    pub changes: Vec<Change>,
    /// How many of them are made.
    pub most_changes: u8,
}

/// The bounds of one search, and what has to be reached in it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of the scenario, as results show it.
    pub name: &'static str,
    /// The log that each safekeeper begins with.
    pub begins: Vec<Configuration>,
    /// What each compute may do, by its number.
    pub computes: Vec<Plan>,
    /// Highest term that votes are asked for in.
    pub highest_term: u64,
    /// Records that a log may have.
    pub records: u64,
    /// Whether each safekeeper greets on its own; otherwise, some do at the moment in which votes are asked for.
    pub greets: bool,
    /// Whether replies to a winner can be lost. Otherwise it hears at once of everything that a safekeeper does for it.
    pub lost_replies: bool,
    /// Whether a safekeeper is told of a commit without being sent a record.
    pub empty_appends: bool,
    /// Whether the safekeepers differ in nothing at the beginning, so that the first election needs to be tried with one
    /// choice of voters of each size.
    pub alike: bool,
    /// Whether other things happen between a write and its fsync.
    pub slow_fsync: bool,
    /// Crashes of safekeepers, in all.
    pub crashes: u8,
    /// Safekeepers that may crash.
    pub crashing: Vec<usize>,
    /// Disks that may be lost, in all.
    pub lost_disks: u8,
    /// Safekeepers that may lose their disk.
    pub losing: Vec<usize>,
    /// Copies of disks that may be made, in all.
    pub copies: u8,
    /// Safekeepers whose disk may be copied and put back.
    pub copying: Vec<usize>,
    /// Messages that may be on their way while other things happen, and which.
    pub late: u8,
    /// Kinds of messages that may be on their way while other things happen.
    pub late_kinds: Vec<What>,
    /// States that have to be reached, at most six.
    pub milestones: Vec<Milestone>,
    /// The mistake that is planted; `None` for the code as it is.
    pub bug: Option<Bug>,
}

/// The configuration of a log that is founded on the first disks of these safekeepers.
pub fn founding(nodes: &[usize]) -> Configuration {
    let ids: Vec<MemberId> = nodes.iter().map(|node| member(*node, 1)).collect();
    Configuration::founding(&ids).expect("founders are distinct")
}

impl Plan {
    /// A plan without changes of members, whose votes come at once.
    pub fn new(addresses: &[usize], campaigns: u8, writes: u8) -> Plan {
        Plan {
            addresses: addresses.to_vec(),
            campaigns,
            writes,
            slow_votes: false,
            changes: Vec::new(),
            most_changes: 0,
        }
    }

    /// The same plan, with other things between the votes.
    pub fn slow(self) -> Plan {
        Plan {
            slow_votes: true,
            ..self
        }
    }

    /// The same plan with these changes, and as many of them to be made as there are.
    pub fn changing(self, changes: &[Change]) -> Plan {
        Plan {
            most_changes: changes.len() as u8,
            changes: changes.to_vec(),
            ..self
        }
    }
}

impl Scenario {
    /// `founders` safekeepers that found a log, `spares` beside them, and nothing that goes wrong.
    pub fn new(name: &'static str, founders: usize, spares: usize) -> Scenario {
        let all: Vec<usize> = (0..founders).collect();
        let mut begins = vec![founding(&all); founders];
        let spare = |node| Configuration::waiting(member(node, 1));
        begins.extend((founders..founders + spares).map(spare));
        Scenario {
            name,
            begins,
            computes: Vec::new(),
            highest_term: 2,
            records: 1,
            greets: false,
            lost_replies: false,
            empty_appends: false,
            alike: true,
            slow_fsync: false,
            crashes: 0,
            crashing: Vec::new(),
            lost_disks: 0,
            losing: Vec::new(),
            copies: 0,
            copying: Vec::new(),
            late: 0,
            late_kinds: Vec::new(),
            milestones: Vec::new(),
            bug: None,
        }
    }

    /// The same scenario with a planted mistake.
    pub fn with(self, bug: Bug) -> Scenario {
        Scenario {
            bug: Some(bug),
            ..self
        }
    }
}
