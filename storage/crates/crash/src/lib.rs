//! Named places at which a test lets a program die, as a power cut would.
//!
//! ```
//! crash::point!("flush.frozen");
//! ```
//!
//! Invariants: a name that is not in [`POINTS`] does not compile, so the list is all there is. A point that is not
//! armed costs one relaxed load; nothing is armed unless whoever starts the program says so in the environment.
//!
//! An armed point panics where [`BY_VARIABLE`] says so, to show what a panic there does, or keeps its thread. Otherwise it
//! ends the process at once: nothing is flushed, closed or unwound. What that leaves behind is said
//! in the head of the module in which the point stands.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::sync::atomic::{AtomicUsize, Ordering};

/// Arms the point of this name when the program starts.
pub const ARMED_VARIABLE: &str = "WEIR_CRASH_POINT";
/// When set, and not to the empty string, points can be armed while the program runs, over its management API.
pub const ARMABLE_VARIABLE: &str = "WEIR_CRASH_POINTS";

/// When set to `panic`, an armed point panics instead of ending the process itself; when set to `stall`, it computes
/// for a tenth of a second or more and goes on, each time.
pub const BY_VARIABLE: &str = "WEIR_CRASH_BY";

/// Every point of the pageserver, in about the order in which a page's versions meet them.
pub const POINTS: &[&str] = &[
    // Taking a timeline over at the start.
    "attach.generation-claimed",
    "attach.claims-forgotten",
    "attach.index-loaded",
    "attach.index-put",
    "attach.before-orphans",
    "attach.orphans-removed",
    // New timelines, branches, settings.
    "create.claimed",
    "create.layers-queued",
    "create.indexed",
    "tenant.before-config",
    "tenant.config-stored",
    "term.raised",
    "term.stored",
    "aux.document-stored",
    "aux.indexed",
    "lease.stored",
    // Images.
    "images.made",
    "images.appended",
    // From memory to object storage.
    "flush.frozen",
    "flush.written",
    "flush.queued",
    "flush.indexed",
    "flush.replaced",
    "upload.before-layer",
    "upload.layer-stored",
    // The same into a directory that is read in place.
    "in-place.written",
    "in-place.synced",
    "in-place.renamed",
    "index.before-put",
    "index.put",
    "index.reported",
    "drop.before-first",
    "drop.after-first",
    "drop.done",
    "older-indexes.removed",
    // What safekeepers are told, which lets them trim.
    "feedback.before",
    "feedback.sent",
    // Level 0 to level 1.
    "compaction.planned",
    "compaction.inputs-fetched",
    "compaction.output-queued",
    "compaction.outputs-durable",
    "compaction.map-changed",
    "compaction.index-changed",
    "compaction.copies-removed",
    // History.
    "history.before-horizon",
    "history.horizon-stored",
    "settling.planned",
    "settling.outputs-durable",
    "settling.index-changed",
    // Local disk.
    "download.begun",
    "download.first-chunk",
    "download.before-rename",
    "download.renamed",
    "evict.before-remove",
    "evict.removed",
    // A branch made independent of its ancestors.
    "detach.begun",
    "detach.layer-copied",
    "detach.layer-rewritten",
    "detach.copied",
    "detach.indexed",
    "detach.cut-off",
    // Deletion.
    "delete.marked",
    "delete.index-gone",
    "delete.before-unmark",
];

const NONE: usize = usize::MAX;

static ARMED: AtomicUsize = AtomicUsize::new(NONE);

/// A name that is no point.
#[derive(Debug)]
pub struct Unknown(String);

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "there is no crash point {:?}; there are: {}",
            self.0,
            POINTS.join(" ")
        )
    }
}

impl std::error::Error for Unknown {}

/// The place of a name in [`POINTS`]. Panics for a name that is not there, which [`point!`] makes an error of the
/// compiler.
#[doc(hidden)]
pub const fn place(name: &str) -> usize {
    let mut at = 0;
    while at < POINTS.len() {
        if same(POINTS[at].as_bytes(), name.as_bytes()) {
            return at;
        }
        at += 1;
    }
    panic!(
        "no such crash point: add it to crash::POINTS, and the way to it to the crash-point test"
    )
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Dies here if the point of this name is armed.
#[macro_export]
macro_rules! point {
    ($name:literal) => {{
        const PLACE: usize = $crate::place($name);
        $crate::reached(PLACE);
    }};
}

/// What [`point!`] becomes: dies here if the point with this number in [`POINTS`] is armed.
#[doc(hidden)]
#[inline]
pub fn reached(place: usize) {
    if ARMED.load(Ordering::Relaxed) == place {
        act(place);
    }
}

#[cold]
fn act(place: usize) {
    match std::env::var(BY_VARIABLE).as_deref() {
        Ok("panic") => panic!("crash point {} reached: panicking", POINTS[place]),
        Ok("stall") => {
            for number in 0..400_000_000_u64 {
                std::hint::black_box(number);
            }
            return;
        }
        _ => {}
    }
    eprintln!("crash point {} reached: dying", POINTS[place]);
    std::process::abort();
}

/// Arms a point; the one armed before is not any more.
pub fn arm(name: &str) -> Result<(), Unknown> {
    let place = POINTS.iter().position(|point| *point == name);
    let place = place.ok_or_else(|| Unknown(name.to_owned()))?;
    ARMED.store(place, Ordering::Relaxed);
    Ok(())
}

/// Arms the point that the environment names, if it names one.
pub fn arm_from_environment() -> Result<(), Unknown> {
    match std::env::var(ARMED_VARIABLE) {
        Ok(name) if !name.is_empty() => arm(&name),
        _ => Ok(()),
    }
}

/// Whether points may be armed while the program runs.
pub fn is_armable() -> bool {
    std::env::var(ARMABLE_VARIABLE).is_ok_and(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_an_unknown_one_is_refused() {
        for (at, name) in POINTS.iter().enumerate() {
            assert_eq!(place(name), at, "{name} is there twice");
        }
        let error = arm("flush.frozzen")
            .expect_err("a typing error")
            .to_string();
        assert!(
            error.contains("flush.frozzen") && error.contains("flush.frozen"),
            "{error}"
        );
    }

    #[test]
    fn a_point_that_is_not_armed_is_passed() {
        arm("delete.marked").expect("known");
        point!("flush.frozen");
        ARMED.store(NONE, Ordering::Relaxed);
        point!("delete.marked");
    }
}
