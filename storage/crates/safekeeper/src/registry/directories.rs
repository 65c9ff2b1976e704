//! Which directories below the data directory are timelines, and which are left over.

use std::ffi::OsStr;
use std::path::Path;
use std::str::FromStr;
use std::{fs, io};

use pg_types::TimelineId;

use super::Id;

/// Suffix of a timeline's directory until its control file is in it.
pub(super) const BEING_CREATED: &str = "new";
/// Suffix of a timeline's directory once it is to be removed.
pub(super) const BEING_DELETED: &str = "deleted";

/// The timelines below `dir`. Removes what a creation or a deletion left that a crash cut short.
pub(super) fn timelines(dir: &Path) -> io::Result<Vec<Id>> {
    let mut found = Vec::new();
    for tenant in fs::read_dir(dir)? {
        let tenant = tenant?;
        let Some(tenant_id) = parse(&tenant.file_name()) else {
            continue;
        };
        for timeline in fs::read_dir(tenant.path())? {
            let timeline = timeline?;
            if let Some(timeline_id) = parse(&timeline.file_name()) {
                found.push((tenant_id, timeline_id));
            } else if is_unfinished(&timeline.file_name()) {
                fs::remove_dir_all(timeline.path())?;
            } else {
                // An operator may have put a log aside here, and it may be the last copy.
                tracing::warn!(path = %timeline.path().display(), "not a timeline; left alone");
            }
        }
    }
    Ok(found)
}

fn parse<T: FromStr>(name: &OsStr) -> Option<T> {
    name.to_str()?.parse().ok()
}

/// Whether a directory's name is the id of a timeline with one of the two suffixes.
fn is_unfinished(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.rsplit_once('.'));
    name.is_some_and(|(id, suffix)| {
        [BEING_CREATED, BEING_DELETED].contains(&suffix) && id.parse::<TimelineId>().is_ok()
    })
}
