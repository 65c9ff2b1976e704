//! For tests: a log that is its only member.

use std::path::Path;

use consensus::Configuration;
use pg_types::{Lsn, TenantId, TimelineId};

use super::Timeline;
use crate::control::Identity;
use crate::disk::Disk;

/// Where the log begins.
pub const START: Lsn = Lsn(0x0150_0000);
pub const SYSTEM_IDENTIFIER: u64 = 7;

/// Makes the log in a folder of `place`, which is an empty one.
pub fn create(place: &Path) -> (Timeline, Configuration) {
    let dir = place.join("timeline");
    std::fs::create_dir(&dir).expect("directory");
    let identity = Identity {
        tenant: TenantId([1; 16]),
        timeline: TimelineId([2; 16]),
        system_identifier: SYSTEM_IDENTIFIER,
        pg_version: 15,
        start_lsn: START,
    };
    let disk = Disk::open(place, 1).expect("disk");
    let log = (identity.tenant, identity.timeline);
    let member = disk.next_member(log).expect("member");
    let configuration = Configuration::founding(&[member]).expect("one member");
    Timeline::create(&dir, identity, member, configuration.clone()).expect("create");
    let timeline = Timeline::open(&dir, &disk).expect("open");
    (timeline, configuration)
}
