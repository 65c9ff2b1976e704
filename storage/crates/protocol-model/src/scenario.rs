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
    pub campaigns: u8,
    pub writes: u8,
    /// Whether other things happen between the votes of its elections. Otherwise some safekeepers greet and vote at once.
    pub slow_votes: bool,
    /// Each may be tried whenever the proposer allows it.
    pub changes: Vec<Change>,
    /// How many of them are made.
    pub most_changes: u8,
}

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    /// The log that each safekeeper begins with.
    pub begins: Vec<Configuration>,
    pub computes: Vec<Plan>,
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
    pub crashes: u8,
    /// Safekeepers that may crash.
    pub crashing: Vec<usize>,
    pub lost_disks: u8,
    /// Safekeepers that may lose their disk.
    pub losing: Vec<usize>,
    pub copies: u8,
    /// Safekeepers whose disk may be copied and put back.
    pub copying: Vec<usize>,
    /// Messages that may be on their way while other things happen, and which.
    pub late: u8,
    pub late_kinds: Vec<What>,
    pub milestones: Vec<Milestone>,
    pub bug: Option<Bug>,
}

pub fn founding(nodes: &[usize]) -> Configuration {
    let ids: Vec<MemberId> = nodes.iter().map(|node| member(*node, 1)).collect();
    Configuration::founding(&ids).expect("founders are distinct")
}

impl Plan {
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

    pub fn slow(self) -> Plan {
        Plan {
            slow_votes: true,
            ..self
        }
    }

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

    pub fn with(self, bug: Bug) -> Scenario {
        Scenario {
            bug: Some(bug),
            ..self
        }
    }
}
