//! History and leases under a wall clock that jumps, with commits whose times jump along with it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use layers::{BlockCache, Value};
use parking_lot::Mutex;
use pg_types::{Key, Lsn, TenantId, Term, TimelineId};
use wal_decode::TimelineState;

use crate::clock::{Clock, Reading, TimeSource};
use crate::config::TenantConfig;
use crate::disk::DiskCache;
use crate::layer_cache::LayerCache;
use crate::memory::MemoryBudget;
use crate::page_cache::PageCache;
use crate::recent::RecentLayers;
use crate::timeline::{OpenTimeline, Timeline, encode_state};
use crate::timeline_index::{AncestorPoint, Manifest, StartPoint, TimelineIndex};
use crate::timestamp::PgTimestamp;
use crate::version_store::VersionStore;

const SECOND: i64 = 1_000_000;
pub(crate) const DAY: i64 = 86_400 * SECOND;
const YEAR: i64 = 365 * DAY;
/// What a record takes.
pub(crate) const RECORD_BYTES: u64 = 64;
pub(crate) const WEEK: Duration = Duration::from_secs(7 * 86_400);
const TENANT: TenantId = TenantId([1; 16]);
const TIMELINE: TimelineId = TimelineId([2; 16]);
const BRANCH: TimelineId = TimelineId([3; 16]);

/// Clocks that the test sets.
struct SetTime(Mutex<Reading>);

impl TimeSource for SetTime {
    fn read(&self) -> Reading {
        self.0.lock().clone()
    }
}

/// A machine on which a pageserver and a compute run, with one timeline.
pub(crate) struct Machine {
    root: tempfile::TempDir,
    time: Arc<SetTime>,
    pub(crate) timeline: Arc<Timeline>,
}

impl Machine {
    pub(crate) async fn start() -> Machine {
        let root = tempfile::tempdir().expect("tempdir");
        let reading = Reading {
            boot: "first".to_owned(),
            ticks: 0,
            wall: 1_700_000_000 * SECOND,
        };
        let time = Arc::new(SetTime(Mutex::new(reading)));
        let objects = blob::Store::local(&root.path().join("objects")).expect("store");
        let request = serde_json::json!({"new_timeline_id": TIMELINE, "pg_version": 15});
        let manifest = Manifest {
            pg_version: 15,
            system_identifier: 1,
            start_lsn: Lsn(8),
            ancestor: None,
            safekeepers: Vec::new(),
            request: serde_json::from_value(request).expect("request"),
        };
        let mut state = TimelineState::start_of_nothing(pg_types::PgMajor::V15);
        state.last_record_lsn = Lsn(8);
        let value = Value::Meta(encode_state(&state).expect("state"));
        let layer = layers::image_layer(
            Lsn(8),
            vec![(Key::timeline_state(), value)],
            &layers::WriterOptions::default(),
        );
        let created = TimelineIndex::create(
            objects,
            TENANT,
            TIMELINE,
            manifest,
            vec![layer.expect("layer")],
        );
        drop(created.await.expect("create"));
        let timeline = open(root.path(), &time, TIMELINE, None).await;
        Machine {
            root,
            time,
            timeline,
        }
    }

    /// The pageserver dies, and starts again with the clocks as they are by then.
    pub(crate) async fn restart(&mut self) {
        self.timeline.shutdown().await;
        self.timeline = open(self.root.path(), &self.time, TIMELINE, None).await;
    }

    /// A branch of the timeline that leaves it at its last record.
    pub(crate) async fn branch(&self) -> Arc<Timeline> {
        let lsn = self.timeline.last_record_lsn();
        let mut manifest = self.timeline.manifest().clone();
        manifest.start_lsn = lsn;
        manifest.ancestor = Some(AncestorPoint {
            timeline_id: TIMELINE,
            lsn,
        });
        let state = encode_state(&self.timeline.state()).expect("state");
        let values = vec![(Key::timeline_state(), Value::Meta(state))];
        let layer = layers::image_layer(lsn, values, &layers::WriterOptions::default());
        let objects = blob::Store::local(&self.root.path().join("objects")).expect("store");
        let layers = vec![layer.expect("layer")];
        let created = TimelineIndex::create(objects, TENANT, BRANCH, manifest, layers);
        drop(created.await.expect("create"));
        let ancestor = Some((self.timeline.clone(), lsn));
        open(self.root.path(), &self.time, BRANCH, ancestor).await
    }

    pub(crate) fn pass(&self, micros: i64) {
        let mut reading = self.time.0.lock();
        reading.ticks += micros;
        reading.wall += micros;
    }

    /// Noticed by the next reading, as it is within a second.
    fn jump(&self, micros: i64) {
        self.time.0.lock().wall += micros;
        self.timeline.clock.seconds();
    }

    /// A transaction commits, at the time that the wall clock shows; the LSN behind it.
    async fn commit(&self) -> Lsn {
        let lsn = self.record(&self.timeline, Vec::new());
        self.timeline.checkpoint().await.expect("checkpoint");
        lsn
    }

    /// A transaction with these values commits on a timeline of the machine; the LSN behind it, [`RECORD_BYTES`] behind
    /// the one before.
    pub(crate) fn record(&self, timeline: &Timeline, mut values: Vec<(Key, Value)>) -> Lsn {
        let mut state = timeline.state();
        state.prev_record_lsn = state.last_record_lsn;
        state.last_record_lsn = Lsn(state.last_record_lsn.0 + RECORD_BYTES);
        let shown = self.time.read().wall;
        state.last_commit_timestamp = PgTimestamp::from_unix_micros(shown).0;
        let lsn = state.last_record_lsn;
        let value = Value::Meta(encode_state(&state).expect("state"));
        values.push((Key::timeline_state(), value));
        let values = values.iter().map(|(key, value)| (*key, lsn, value.into()));
        timeline.layers.publish(state, values, 0).expect("publish");
        lsn
    }

    async fn trim(&self) -> Lsn {
        let trimmed = self.timeline.trim_history(WEEK, Vec::new()).await;
        trimmed.expect("trim");
        self.timeline.oldest_lsn()
    }

    /// A compute with a term of its own has started at the end of the log; its start.
    pub(crate) async fn compute(&self, term: u64) -> StartPoint {
        let (term, lsn) = (Term(term), self.timeline.last_record_lsn());
        let start = StartPoint { term, lsn };
        self.timeline.raise_term(term);
        let stored = self.timeline.index.store_start(start).await;
        stored.expect("store the start");
        self.timeline.retention.hold_start();
        start
    }

    /// A week and some commits pass: the window begins behind all that was before.
    async fn a_week_passes(&self) {
        self.pass(8 * DAY);
        self.commit().await;
        self.pass(8 * DAY);
        self.commit().await;
    }

    /// The compute says that it runs, as often as it does, for so many seconds.
    fn runs(&self, start: StartPoint, seconds: i64) {
        for _ in 0..seconds / 10 {
            self.pass(10 * SECOND);
            assert!(self.timeline.renew_start(start).expect("it is the newest"));
        }
    }

    pub(crate) async fn lease(&self, at: Lsn, seconds: u64) {
        self.timeline.lease(at, seconds).await.expect("lease");
    }
}

async fn open(
    root: &Path,
    time: &Arc<SetTime>,
    id: TimelineId,
    ancestor: Option<(Arc<Timeline>, Lsn)>,
) -> Arc<Timeline> {
    let objects = blob::Store::local(&root.join("objects")).expect("store");
    let clock = Clock::open(time.clone(), objects.clone()).await;
    let taken = TimelineIndex::take_over(objects.clone(), TENANT, id).await;
    let (index, part) = taken.expect("take over").expect("index");
    let cache = LayerCache::new(
        root.join(format!("copies-{id}")),
        Arc::new(BlockCache::new(1 << 20)),
        DiskCache::new(root, 1 << 30),
        Arc::new(RecentLayers::new(0)),
        objects.timeline(TENANT, id),
    );
    let memory = MemoryBudget::new(64 << 20);
    let pages = Arc::new(PageCache::new(1 << 20));
    let at = part.disk_consistent_lsn;
    let below = ancestor.as_ref();
    let below = below.map(|(timeline, lsn)| (timeline.store().clone(), *lsn));
    let store = VersionStore::new(Arc::new(cache), part.layers, below, memory.account(), pages);
    let store = Arc::new(store);
    let state = store.values(&[Key::timeline_state()], at).await;
    let state = state.expect("state").pop().flatten().expect("a state");
    // Small layers, merged as soon as there are two.
    let config = TenantConfig {
        compaction_threshold: 2,
        compaction_target_bytes: 256,
        ..TenantConfig::default()
    };
    Timeline::open(OpenTimeline {
        tenant: TENANT,
        id,
        config: Arc::new(parking_lot::RwLock::new(Arc::new(config))),
        ancestor,
        store,
        index,
        state: crate::timeline::decode_state(&state).expect("state"),
        memory,
        clock: clock.expect("clock"),
        background: tokio::runtime::Handle::current(),
    })
}

/// Promise: when the clocks of computes and pageserver jump ahead together, not a commit of the last window is lost,
/// not even over restarts; the status says why; a window later history goes again.
#[tokio::test]
async fn a_clock_a_year_ahead_costs_no_history() {
    let mut machine = Machine::start().await;
    machine.pass(30 * DAY);
    let old = machine.commit().await;
    machine.pass(8 * DAY);
    let young = machine.commit().await;
    machine.pass(DAY);
    assert_eq!(machine.trim().await, old, "what is over a week old goes");
    machine.jump(YEAR);
    let ahead = machine.commit().await;
    assert_eq!(machine.trim().await, old);
    let held = machine.timeline.status().await.history_held;
    let held = held.expect("a reason");
    assert!(
        held.contains("31536000 s within the history window"),
        "{held}"
    );
    machine.restart().await;
    machine.pass(5 * DAY);
    machine.commit().await;
    assert_eq!(machine.trim().await, old);
    // The first day of the window that the jump fell into.
    machine.pass(DAY + SECOND);
    machine.commit().await;
    assert_eq!(machine.trim().await, young);
    machine.pass(DAY);
    machine.commit().await;
    assert_eq!(machine.trim().await, ahead, "the new time holds");
    assert_eq!(machine.timeline.status().await.history_held, None);
}

/// Promise: a clock set back costs nothing either, and holds history no longer than it is wrong and a window more.
#[tokio::test]
async fn a_clock_set_back_costs_no_history_and_history_goes_on() {
    let machine = Machine::start().await;
    machine.pass(30 * DAY);
    let old = machine.commit().await;
    machine.pass(8 * DAY);
    machine.commit().await;
    assert_eq!(machine.trim().await, old);
    machine.jump(-YEAR);
    machine.commit().await;
    machine.pass(10 * DAY);
    machine.commit().await;
    let kept = machine.trim().await;
    assert!(kept <= old, "{kept} {old}");
    machine.jump(YEAR);
    machine.pass(8 * DAY);
    let right = machine.commit().await;
    machine.pass(8 * DAY);
    machine.commit().await;
    assert_eq!(machine.trim().await, right);
}

/// Promise: a lease lasts as long as it was given for, whatever the clock does meanwhile and over a restart.
#[tokio::test]
async fn leases_end_neither_early_nor_never() {
    for jump in [YEAR, -YEAR] {
        let mut machine = Machine::start().await;
        machine.pass(30 * DAY);
        machine.commit().await;
        let leased = machine.commit().await;
        machine.pass(8 * DAY);
        machine.lease(leased, 3600).await;
        machine.commit().await;
        machine.pass(SECOND);
        machine.commit().await;
        // Nobody looks before the pageserver dies.
        machine.time.0.lock().wall += jump;
        machine.restart().await;
        machine.pass(3590 * SECOND);
        machine.trim().await;
        assert!(machine.timeline.is_leased(leased), "too early ({jump})");
        machine.pass(10 * SECOND);
        machine.trim().await;
        assert!(!machine.timeline.is_leased(leased), "too late ({jump})");
    }
}

/// Promise: what a compute started from is readable for as long as it says that it runs, also over a restart of the
/// pageserver, and not for ever after it is gone.
#[tokio::test]
async fn the_start_of_a_compute_is_readable_while_it_runs_and_no_longer() {
    let mut machine = Machine::start().await;
    machine.pass(30 * DAY);
    machine.commit().await;
    let start = machine.compute(1).await;
    machine.commit().await;
    machine.runs(start, 8 * 86_400);
    machine.commit().await;
    machine.runs(start, 8 * 86_400);
    machine.commit().await;
    assert!(machine.trim().await > start.lsn, "the window begins behind");
    let readable = |machine: &Machine| machine.timeline.check_readable(start.lsn);
    readable(&machine).expect("held");
    machine.restart().await;
    machine.timeline.raise_term(start.term);
    machine.trim().await;
    machine.pass(100 * SECOND);
    readable(&machine).expect("held although the compute could not say so meanwhile");
    machine.runs(start, 600);
    machine.trim().await;
    readable(&machine).expect("held");

    machine.pass(121 * SECOND);
    readable(&machine).expect_err("the compute is gone");
    machine.trim().await;
    machine.restart().await;
    machine.timeline.raise_term(start.term);
    readable(&machine).expect_err("what was given up is not offered again by a restart");
    let late = machine.timeline.take_start(start).await;
    let late = late.expect_err("it is gone").to_string();
    assert!(late.contains("Start it anew"), "{late}");
}

/// Promise: a compute that nobody heard of for a while gets its start back where that is within the history.
#[tokio::test]
async fn a_hold_that_has_lapsed_is_taken_anew_within_the_history() {
    let machine = Machine::start().await;
    machine.pass(30 * DAY);
    machine.commit().await;
    let start = machine.compute(1).await;
    machine.commit().await;
    machine.pass(3600 * SECOND);
    machine.trim().await;
    assert!(!machine.timeline.renew_start(start).expect("newest"));
    machine.timeline.take_start(start).await.expect("readable");
    machine.runs(start, 600);
    assert!(machine.timeline.is_leased(start.lsn));
}

/// Promise: nobody holds more than one LSN of a timeline, and nobody who was replaced holds any.
#[tokio::test]
async fn only_the_newest_compute_holds_history_and_only_its_start() {
    let machine = Machine::start().await;
    machine.pass(30 * DAY);
    let before = machine.commit().await;
    let old = machine.compute(1).await;
    let other = StartPoint {
        lsn: Lsn(before.0 - 64),
        ..old
    };
    machine
        .timeline
        .renew_start(other)
        .expect_err("another LSN");
    machine.commit().await;
    let new = machine.compute(2).await;
    machine.timeline.renew_start(old).expect_err("fenced");
    assert!(!machine.timeline.is_leased(old.lsn), "let go at once");
    assert!(machine.timeline.is_leased(new.lsn));
    let unknown = StartPoint {
        term: Term(3),
        ..new
    };
    machine
        .timeline
        .renew_start(unknown)
        .expect_err("no such compute");
    machine.a_week_passes().await;
    machine.trim().await;
    machine.timeline.check_readable(old.lsn).expect_err("gone");
    machine
        .timeline
        .take_start(new)
        .await
        .expect_err("it was not heard of for a week");
}

/// Promise: a pageserver that knows nothing of the time before keeps everything for a window.
#[tokio::test]
async fn a_lost_count_keeps_history_for_a_window() {
    let mut machine = Machine::start().await;
    machine.pass(30 * DAY);
    let old = machine.commit().await;
    machine.pass(8 * DAY);
    machine.commit().await;
    let count = machine.root.path().join("objects/clock.json");
    std::fs::write(&count, b"{}").expect("damage");
    machine.restart().await;
    assert!(machine.trim().await < old);
    let held = machine.timeline.status().await.history_held;
    assert!(held.expect("a reason").contains("not known"));
    machine.pass(7 * DAY);
    assert_eq!(machine.trim().await, old);
}
