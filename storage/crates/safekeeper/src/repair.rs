//! Taking the place of damaged WAL: from a peer, or from the object store.
//!
//! Damage begins at a record boundary. From there on WAL is taken from elsewhere, record by record, and compared with the
//! segments here. The first segment that differs is written anew: what is before the damage is the log's own, proven when
//! the damage was found, and what is behind is the other's. It takes the old one's place once the records that end behind
//! it are whole (`replaced` says how), and is looked at as it is on disk. Then comes the next one.
//!
//! Invariants:
//! - only what is committed here is replaced, by what is committed there;
//! - what takes its place has right checksums, record by record, and is of the log's own history: both logs give the same
//!   terms to everything that both have committed;
//! - what is replaced is kept (`replaced`);
//! - one segment is on its way at a time, from one place, within the rate that is allowed.
//!
//! A crash leaves the old segment or the new one. Repeating it does nothing where nothing differs any more.

mod gathering;
mod peer;
mod store;

use std::sync::Arc;
use std::time::Duration;

use consensus::TermHistory;
use part_tls::Dialer;
use pg_types::{Lsn, WAL_SEGMENT_BYTES};
use token::OwnToken;

use self::gathering::{Gathering, Segment};
use crate::damage::Damage;
use crate::metrics;
use crate::replaced::Beside;
use crate::segments;
use crate::timeline::{MendError, Mended, RepairView, Timeline};
use crate::verify::{self, AtOnce, Range};

/// Where WAL may come from.
pub struct Sources {
    /// `host:port` of the WAL ports of safekeepers; this one may be among them.
    pub peers: Vec<String>,
    /// The object store with finished WAL; `None` where nothing is offloaded.
    pub store: Option<blob::Store>,
    /// Bytes a second that are asked of them.
    pub bytes_per_second: u64,
    /// How this safekeeper is called where it reads.
    pub name: String,
    /// What peers are shown.
    pub token: OwnToken,
    /// How they are connected to.
    pub dialer: Dialer,
}

/// Whether one log may lend WAL to the other: both give the same terms to everything that both have committed, up to `to`.
fn agrees(ours: &TermHistory, theirs: &TermHistory, to: Lsn) -> bool {
    let common = ours.common_point(to, theirs);
    common.is_some_and(|common| common >= to)
}

/// Repairs what is damaged in `damage`, as far as it is committed. Gives why there is something left. One at a time.
pub async fn repair(
    timeline: &Arc<Timeline>,
    damage: &Damage,
    sources: &Sources,
) -> Result<(), String> {
    let mut from = damage.from;
    // Each round replaces a segment, or is the last.
    loop {
        let Some(view) = timeline.repair_view() else {
            return Err("the timeline has stopped".to_owned());
        };
        from = from.max(view.horizon);
        let to = damage.to.min(view.commit);
        if from >= to {
            break;
        }
        let checked = round(timeline, &view, Range { from, to }, sources).await?;
        match checked {
            // What is still not as it should be is known as damage, and this time nothing differed.
            None => break,
            Some(checked_to) => from = checked_to,
        }
    }
    let commit = timeline.progress().borrow().reply.commit_lsn;
    if damage.to > commit {
        let at = damage.from.max(commit);
        return Err(format!(
            "what is behind {at} is not known to be committed, so no peer's is known to be the same; it is repaired when it is committed. Until then keep the other safekeepers of this timeline running"
        ));
    }
    match timeline.is_damaged(damage.from, damage.to) {
        true => Err(
            "others hold the same bytes; `weir log verify` shows which records are concerned"
                .to_owned(),
        ),
        false => Ok(()),
    }
}

/// Replaces the first segment that differs, looks at it, and gives up to where; `None` when nothing differs.
async fn round(
    timeline: &Arc<Timeline>,
    view: &RepairView,
    range: Range,
    sources: &Sources,
) -> Result<Option<Lsn>, String> {
    let (gathering, place) = gather(timeline, view, range, sources).await?;
    let checked = gathering.checked_to();
    let replaced = gathering.into_segment();
    let timeline = timeline.clone();
    let view = view.clone();
    let work = move || {
        let replaced = match replaced {
            Some(segment) => install(&timeline, segment, &place)?,
            None => false,
        };
        let range = Range {
            from: range.from,
            to: checked,
        };
        let looked = verify::verify(timeline.dir(), &timeline.identity, range, &mut AtOnce);
        timeline.looked_at(range, &view, &looked.unwrap_or_default(), false);
        Ok(replaced.then_some(checked))
    };
    tokio::task::spawn_blocking(work)
        .await
        .expect("a repair does not panic")
}

/// Whether it took its place. Blocks.
fn install(timeline: &Timeline, segment: Segment, place: &str) -> Result<bool, String> {
    let number = segment.number;
    let beside = Beside::begin(timeline.dir(), number)
        .and_then(|beside| {
            beside.write(&segment.bytes, 0)?;
            Ok(beside)
        })
        .map_err(|error| {
            let dir = timeline.dir().display();
            format!(
                "cannot write a segment beside the log in {dir}: {error}; free or repair the disk"
            )
        })?;
    let end = Lsn(number * WAL_SEGMENT_BYTES + segment.bytes.len() as u64);
    let mended = Mended {
        beside,
        number,
        end,
    };
    let evidence = match timeline.install_mended(mended) {
        Ok(evidence) => evidence,
        Err(MendError::Gone) => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    metrics::REPAIRS.with_label_values(&["repaired"]).inc();
    tracing::warn!(
        tenant = %timeline.identity.tenant, timeline = %timeline.identity.timeline, segment = segments::name_of(number), from = place,
        damaged = evidence.map(|path| path.display().to_string()),
        "a damaged segment was replaced; look at the disk, and remove the damaged file when it is understood"
    );
    Ok(true)
}

/// Asks everyone, until one has what is needed.
async fn gather(
    timeline: &Arc<Timeline>,
    view: &RepairView,
    range: Range,
    sources: &Sources,
) -> Result<(Gathering, String), String> {
    let mut why = Vec::new();
    for address in &sources.peers {
        let gathering = Gathering::begin(timeline, view, range);
        match peer::take(address, timeline, view, sources, gathering).await {
            Ok(Some(gathering)) => return Ok((gathering, address.clone())),
            // It is this safekeeper.
            Ok(None) => {}
            Err(error) => why.push(format!("{address}: {error:#}")),
        }
    }
    if let Some(store) = &sources.store {
        let gathering = Gathering::begin(timeline, view, range);
        match store::take(store, timeline, view, sources, gathering).await {
            Ok(gathering) => return Ok((gathering, "the object store".to_owned())),
            Err(error) => why.push(format!("the object store: {error:#}")),
        }
    }
    if why.is_empty() {
        why.push("it knows no other safekeeper; start it with --peers".to_owned());
    }
    Err(format!(
        "nobody has it: {}. Start the other safekeepers of this timeline, or replace this one in it (`weir safekeepers set`); keep its directory",
        why.join("; ")
    ))
}

/// Keeps within the rate after so many bytes.
async fn pace(bytes: usize, sources: &Sources) {
    let pause: Duration = verify::pause_after(bytes, sources.bytes_per_second);
    tokio::time::sleep(pause).await;
}

#[cfg(test)]
mod tests {
    use consensus::TermStart;
    use pg_types::Term;
    use proptest::prelude::*;

    use super::*;

    fn history(entries: &[(u64, u64)]) -> TermHistory {
        let entry = |(term, start): &(u64, u64)| TermStart {
            term: Term(*term),
            start_lsn: Lsn(*start),
        };
        entries.iter().map(entry).collect()
    }

    #[test]
    fn a_log_of_another_history_lends_nothing() {
        let ours = history(&[(1, 0), (3, 100), (4, 200)]);
        assert!(agrees(&ours, &ours, Lsn(300)));
        // Behind what both have committed they may part.
        assert!(agrees(
            &ours,
            &history(&[(1, 0), (3, 100), (5, 250)]),
            Lsn(200)
        ));
        assert!(!agrees(
            &ours,
            &history(&[(1, 0), (3, 100), (5, 250)]),
            Lsn(240)
        ));
        assert!(!agrees(&ours, &history(&[(1, 0), (2, 50)]), Lsn(120)));
        assert!(!agrees(&ours, &history(&[(9, 0)]), Lsn(10)));
        assert!(!agrees(&ours, &history(&[]), Lsn(10)));
    }

    proptest! {
        /// Promise: where two logs agree up to a position, each byte before it was written by the same term in both.
        #[test]
        fn agreement_means_the_same_term_for_each_byte(
            shared in prop::collection::vec(1_u64..20, 0..4),
            ours in prop::collection::vec((1_u64..3, 0_u64..20), 0..4),
            theirs in prop::collection::vec((1_u64..3, 0_u64..20), 0..4),
            to in 1_u64..100,
        ) {
            // Terms are won once: those that only one log has are told apart by their parity.
            let (mut common, mut at) = (vec![(1, 0)], 0);
            for (number, length) in shared.iter().enumerate() {
                at += length;
                common.push((number as u64 + 2, at));
            }
            let extend = |own: &[(u64, u64)], parity: u64| {
                let (mut entries, mut at, mut term) = (common.clone(), at, 100 + parity);
                for (step, length) in own {
                    at += length;
                    term += step * 2;
                    entries.push((term, at));
                }
                history(&entries)
            };
            let (ours, theirs) = (extend(&ours, 0), extend(&theirs, 1));
            if agrees(&ours, &theirs, Lsn(to)) {
                for lsn in 0..to {
                    prop_assert_eq!(ours.term_at(Lsn(lsn)), theirs.term_at(Lsn(lsn)), "at {}", lsn);
                }
            }
        }
    }
}
