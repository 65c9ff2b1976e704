//! Entries of relations that are gone go, and no read ever finds out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use layers::{
    CompactionPlan, LayerName, MergeOptions, PersistentLayer as _, Retention, Value, plan_settling,
};
use pg_types::{ForkNumber, Key, KeyKind, Lsn, RelTag};

use super::Compaction;
use crate::import::encode_u32;
use crate::timeline::Timeline;
use crate::timeline::retention::tests::{DAY, Machine, RECORD_BYTES, WEEK};

const RELS: u32 = 3;
const BLOCKS: u32 = 6;

/// The forks that exist, each with the marks of its pages, 0 for a page of zeroes.
type Content = BTreeMap<u32, Vec<u64>>;

fn rel(number: u32) -> RelTag {
    RelTag {
        spc: 1663,
        db: 5,
        rel: 16384 + number,
        fork: ForkNumber::Main,
    }
}

enum Change {
    Create,
    Write(u32),
    Extend(u32),
    Cut(u32),
    Drop,
}

/// A branch with relations, and what they hold as of each LSN.
struct Relations {
    timeline: Arc<Timeline>,
    now: Content,
    past: Vec<(Lsn, Content)>,
}

impl Relations {
    fn of(timeline: Arc<Timeline>) -> Relations {
        let past = vec![(timeline.last_record_lsn(), Content::new())];
        Relations {
            timeline,
            now: Content::new(),
            past,
        }
    }

    /// One record, as ingest would put it. What the relation's state does not allow changes nothing.
    async fn change(&mut self, machine: &Machine, number: u32, change: Change) -> Lsn {
        let (rel, before) = (rel(number), self.timeline.last_record_lsn());
        let lsn = before + RECORD_BYTES;
        let pages = self.now.get(&number).cloned();
        let mut values = Vec::new();
        let mut cut = None;
        let after = match (change, pages) {
            (Change::Create, None) => Some(Vec::new()),
            (Change::Write(block), pages) => {
                let mut pages = pages.unwrap_or_default();
                let block = block as usize;
                pages.resize(pages.len().max(block + 1), 0);
                pages[block] = lsn.0;
                let image = Bytes::copy_from_slice(&lsn.0.to_le_bytes());
                values.push((Key::rel_block(rel, block as u32), Value::Image(image)));
                Some(pages)
            }
            (Change::Extend(blocks), Some(mut pages)) => {
                pages.resize(pages.len().max(blocks as usize), 0);
                Some(pages)
            }
            (Change::Cut(blocks), Some(mut pages)) if pages.len() > blocks as usize => {
                pages.truncate(blocks as usize);
                cut = Some(blocks);
                Some(pages)
            }
            (Change::Drop, Some(_)) => {
                cut = Some(0);
                None
            }
            (_, pages) => pages,
        };
        let size = match &after {
            Some(pages) => Value::Meta(encode_u32(pages.len() as u32)),
            None => Value::Tombstone,
        };
        if self.now.get(&number).map(Vec::len) != after.as_ref().map(Vec::len) {
            values.push((Key::rel_size(rel), size));
        }
        if let Some(blocks) = cut {
            let floor = self.timeline.reads().rel_floor(rel, before).await;
            let mut floor = floor.expect("floor");
            floor.truncate(lsn, blocks);
            let floor = postcard::to_stdvec(&floor).expect("encoded");
            values.push((Key::rel_floor(rel), Value::Meta(floor.into())));
        }
        match after {
            Some(pages) => self.now.insert(number, pages),
            None => self.now.remove(&number),
        };
        assert_eq!(machine.record(&self.timeline, values), lsn);
        self.past.push((lsn, self.now.clone()));
        lsn
    }

    /// Every LSN that can be read is read, the newest ones first, so that what is kept of later reads is there.
    async fn check(&self, what: &str) {
        for (lsn, content) in self.past.iter().rev() {
            if self.timeline.check_readable(*lsn).is_err() {
                continue;
            }
            for number in 0..RELS {
                let found = self.read(number, *lsn).await;
                let expected = content.get(&number).cloned();
                assert_eq!(found, expected, "{what}: relation {number} at {lsn}");
            }
        }
    }

    async fn read(&self, number: u32, at: Lsn) -> Option<Vec<u64>> {
        let reads = self.timeline.reads();
        let size = reads.rel_size(rel(number), at).await.expect("size")?;
        let blocks: Vec<u32> = (0..size).collect();
        let pages = reads.rel_pages(rel(number), &blocks, at).await;
        let mark = |bytes: &Bytes| match bytes[..].try_into() {
            Ok(bytes) => u64::from_le_bytes(bytes),
            Err(_) => 0,
        };
        let pages = pages.expect("pages");
        Some(pages.iter().map(|page| mark(&page.bytes)).collect())
    }

    async fn trim(&self, branch_points: &[Lsn]) {
        let trimmed = self
            .timeline
            .trim_history(WEEK, branch_points.to_vec())
            .await;
        trimmed.expect("trim");
    }

    /// Sizes and floors, in all layer files, of relations that do not exist.
    fn entries(&self) -> Vec<String> {
        let mut found = Vec::new();
        for file in self.timeline.store().map().iter() {
            let reader = file.opened().expect("resident");
            for version in reader.iter() {
                let (key, version) = version.expect("readable");
                let is_entry = key.kind == KeyKind::RelFloor || version.value == Value::Tombstone;
                if is_entry {
                    found.push(format!("{key} at {}", version.lsn));
                }
            }
        }
        found
    }

    /// All that is over a week old is history, and merged until there is nothing to merge.
    async fn forget_a_week(&self, machine: &Machine, branch_points: &[Lsn]) {
        for _ in 0..2 {
            machine.pass(8 * DAY);
            machine.record(&self.timeline, Vec::new());
            self.timeline.checkpoint().await.expect("checkpoint");
        }
        self.trim(branch_points).await;
        // Twice: what a merge leaves because something older lies in other layers goes with the next.
        for _ in 0..2 {
            self.merge_all().await;
        }
    }

    /// Everything before the horizon, in one merge.
    async fn merge_all(&self) {
        let compaction = &self.timeline.compaction;
        while compaction.compact_l0().await.expect("level 0") {}
        let retention = compaction.retention.lock().clone();
        let map = self.timeline.store().map();
        let mut plan = CompactionPlan {
            inputs: Vec::new(),
            bytes: 0,
            level: 2,
        };
        for file in map.iter().filter(|file| file.desc().level > 0) {
            plan.bytes += file.desc().size;
            plan.inputs.push(file.desc().clone());
        }
        compaction.compact(plan, retention).await.expect("merged");
    }
}

/// Promise: an entry goes only when no read can tell, in any order of changes, merges of any choice of layers, leases,
/// trims, restarts, and crashes that leave the outputs of a merge beside its inputs; and in the end none is left.
#[tokio::test]
async fn no_read_tells_whether_entries_are_there() {
    for seed in 1..=12_u64 {
        Walk::new(seed).await.run(150).await;
    }
}

/// A random walk.
struct Walk {
    seed: u64,
    random: u64,
    machine: Machine,
    relations: Relations,
}

impl Walk {
    async fn new(seed: u64) -> Walk {
        let machine = Machine::start().await;
        machine.pass(30 * DAY);
        let relations = Relations::of(machine.timeline.clone());
        Walk {
            seed,
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            machine,
            relations,
        }
    }

    fn below(&mut self, end: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as u32 % end
    }

    async fn run(mut self, steps: usize) {
        for step in 0..steps {
            match self.below(20) {
                kind @ 0..12 => self.change(kind).await,
                12..14 => self.checkpoint().await,
                14 => {
                    let days = 1 + self.below(3);
                    self.machine.pass(i64::from(days) * DAY);
                }
                15 => self.relations.trim(&[]).await,
                16..18 => self.merge(false).await,
                18 => self.lease().await,
                _ => match self.below(2) {
                    0 => self.merge(true).await,
                    _ => self.restart().await,
                },
            }
            if step % 5 == 0 {
                let what = format!("seed {}, step {step}", self.seed);
                self.relations.check(&what).await;
            }
        }
        for number in 0..RELS {
            let dropped = self.relations.change(&self.machine, number, Change::Drop);
            dropped.await;
        }
        // Leases of a day end as well.
        self.relations.forget_a_week(&self.machine, &[]).await;
        self.relations.check(&format!("seed {}", self.seed)).await;
        assert_eq!(self.relations.entries(), [""; 0], "seed {}", self.seed);
    }

    async fn change(&mut self, kind: u32) {
        let (number, block) = (self.below(RELS), self.below(BLOCKS));
        let change = match kind {
            0..6 => Change::Write(block),
            6 => Change::Create,
            7 => Change::Extend(block),
            8 | 9 => Change::Cut(block),
            _ => Change::Drop,
        };
        self.relations.change(&self.machine, number, change).await;
    }

    async fn checkpoint(&self) {
        let stored = self.relations.timeline.checkpoint().await;
        stored.expect("checkpoint");
    }

    async fn lease(&self) {
        let at = self.relations.timeline.last_record_lsn();
        self.machine.lease(at, 86_400).await;
    }

    async fn restart(&mut self) {
        self.checkpoint().await;
        self.machine.restart().await;
        self.relations.timeline = self.machine.timeline.clone();
    }

    /// Some of what is history. With `dies`, the pageserver dies when the index names the outputs already.
    async fn merge(&mut self, dies: bool) {
        let most = 1 << self.below(14);
        let timeline = self.relations.timeline.clone();
        let compaction: &Compaction = &timeline.compaction;
        while compaction.compact_l0().await.expect("level 0") {}
        let retention = compaction.retention.lock().clone();
        let map = timeline.store().map();
        let Some(plan) = plan_settling(&map, retention.horizon(), 1, most) else {
            return;
        };
        if !dies {
            compaction.compact(plan, retention).await.expect("merged");
            return;
        }
        let names: Vec<LayerName> = plan.inputs.iter().map(|desc| desc.name()).collect();
        let inputs: Vec<_> = (names.iter())
            .map(|name| map.get(name).cloned().expect("an input"))
            .collect();
        let horizon = retention.horizon();
        let (known, entries) = compaction.known(&plan, horizon).await.expect("known");
        let (readers, turn) = compaction.opened(2, &inputs).await.expect("opened");
        let options = MergeOptions {
            target_bytes: 256,
            level: 2,
            retention,
            ..MergeOptions::default()
        };
        let merged = compaction.merge(readers, options, known, turn).await;
        merged.expect("merged");
        // Any change of the index names what was uploaded before.
        let index = &timeline.index;
        let stored = index.store_horizon(index.horizon(), 0, None).await;
        stored.expect("stored");
        drop((entries, timeline));
        self.restart().await;
    }
}

/// Promise: an image that was being made when its page was cut off stays hidden, and keeps what hides it.
#[tokio::test]
async fn an_image_that_comes_late_stays_hidden() {
    let machine = Machine::start().await;
    machine.pass(30 * DAY);
    let mut relations = Relations::of(machine.timeline.clone());
    for block in 0..3 {
        relations.change(&machine, 0, Change::Write(block)).await;
    }
    let images = relations.timeline.images.clone();
    let making = images.begin_making();
    let at = making.at;
    relations.change(&machine, 0, Change::Cut(1)).await;
    relations.forget_a_week(&machine, &[]).await;
    assert_eq!(relations.entries().len(), 1, "{:?}", relations.entries());
    let image = Bytes::copy_from_slice(&7_u64.to_le_bytes());
    let store = relations.timeline.store();
    let put = store.append_image(Key::rel_block(rel(0), 2), at, image);
    put.expect("put");
    drop(making);
    // Within the size again, and not written since.
    relations.change(&machine, 0, Change::Extend(3)).await;
    relations.check("with the image").await;
    relations.forget_a_week(&machine, &[]).await;
    relations.check("without the image").await;
    assert_eq!(relations.entries(), [""; 0]);
}

/// Promise: what an earlier read found is not taken for what is there after a drop that nothing tells of any more.
#[tokio::test]
async fn what_was_kept_from_before_a_drop_does_not_come_back() {
    let machine = Machine::start().await;
    machine.pass(30 * DAY);
    let mut relations = Relations::of(machine.timeline.clone());
    let written = relations.change(&machine, 0, Change::Write(0)).await;
    assert_eq!(relations.read(0, written).await, Some(vec![written.0]));
    relations.change(&machine, 0, Change::Drop).await;
    relations.forget_a_week(&machine, &[]).await;
    assert_eq!(relations.entries(), [""; 0]);
    let now = relations.timeline.last_record_lsn();
    assert_eq!(relations.read(0, now).await, None);
    // The number is used again, and the page is not written.
    relations.change(&machine, 0, Change::Create).await;
    relations.change(&machine, 0, Change::Extend(1)).await;
    relations.check("used again").await;
}

/// Promise: a branch keeps what hides its ancestor's pages, lets go of what hides nothing, and after it has left its
/// ancestor lets go of the rest; the ancestor keeps what the branch reads, with what hides it, until then.
#[tokio::test]
async fn a_branch_hides_what_its_ancestor_has_for_as_long_as_it_has_it() {
    let machine = Machine::start().await;
    machine.pass(30 * DAY);
    let mut main = Relations::of(machine.timeline.clone());
    for number in 0..2 {
        main.change(&machine, number, Change::Write(1)).await;
    }
    main.change(&machine, 1, Change::Drop).await;
    main.timeline.checkpoint().await.expect("checkpoint");
    let point = main.timeline.last_record_lsn();
    let mut branch = Relations::of(machine.branch().await);
    branch.now = main.now.clone();
    branch.past = vec![(point, main.now.clone())];
    main.change(&machine, 0, Change::Drop).await;
    main.forget_a_week(&machine, &[point]).await;
    assert_eq!(main.entries().len(), 2, "{:?}", main.entries());

    branch.change(&machine, 0, Change::Drop).await;
    // Its own, and one whose number the ancestor has used.
    for number in [1, 2] {
        branch.change(&machine, number, Change::Write(0)).await;
        branch.change(&machine, number, Change::Drop).await;
    }
    branch.forget_a_week(&machine, &[]).await;
    let entries = branch.entries();
    assert_eq!(entries.len(), 2, "{entries:?}");
    let of_first = rel(0).to_string();
    assert!(
        entries.iter().all(|it| it.contains(&of_first)),
        "{entries:?}"
    );
    branch.check("beside the ancestor").await;

    let copied = branch.timeline.copy_ancestors().await.expect("copied");
    // While the copies are not read, nobody lets go of anything.
    branch.change(&machine, 2, Change::Write(0)).await;
    branch.change(&machine, 2, Change::Drop).await;
    branch.forget_a_week(&machine, &[]).await;
    assert_eq!(branch.entries().len(), 4, "{:?}", branch.entries());
    main.change(&machine, 2, Change::Write(0)).await;
    main.change(&machine, 2, Change::Drop).await;
    main.forget_a_week(&machine, &[point]).await;
    assert_eq!(main.entries().len(), 4, "{:?}", main.entries());
    let left = branch.timeline.leave_ancestors(copied).await;
    left.expect("left");
    branch.check("with copies").await;
    branch.forget_a_week(&machine, &[]).await;
    branch.check("on its own").await;
    assert_eq!(branch.entries(), [""; 0]);
    main.forget_a_week(&machine, &[]).await;
    assert_eq!(main.entries(), [""; 0]);
}

/// Promise: a merge that let go of something that hides a version by now is given up, and its outputs are no part of the
/// timeline, also after a restart.
#[tokio::test]
async fn a_merge_that_was_mistaken_changes_nothing() {
    let mut machine = Machine::start().await;
    machine.pass(30 * DAY);
    let mut relations = Relations::of(machine.timeline.clone());
    let written = relations.change(&machine, 0, Change::Write(2)).await;
    relations.change(&machine, 0, Change::Cut(1)).await;
    relations.timeline.checkpoint().await.expect("checkpoint");
    let timeline = relations.timeline.clone();
    let compaction = &timeline.compaction;
    machine.pass(8 * DAY);
    machine.record(&timeline, Vec::new());
    machine.pass(8 * DAY);
    machine.record(&timeline, Vec::new());
    timeline.checkpoint().await.expect("checkpoint");
    relations.trim(&[]).await;
    while compaction.compact_l0().await.expect("level 0") {}
    let map = timeline.store().map();
    let inputs: Vec<_> = (map.iter().filter(|file| file.desc().level == 1))
        .cloned()
        .collect();
    let plan = CompactionPlan {
        inputs: inputs.iter().map(|file| file.desc().clone()).collect(),
        bytes: 0,
        level: 2,
    };
    let retention: Retention = compaction.retention.lock().clone();
    let horizon = retention.horizon();
    let (known, _entries) = compaction.known(&plan, horizon).await.expect("known");
    let (readers, turn) = compaction.opened(2, &inputs).await.expect("opened");
    let options = MergeOptions {
        level: 2,
        retention,
        ..MergeOptions::default()
    };
    let merged = compaction.merge(readers, options, known, turn).await;
    let merged = merged.expect("merged");
    // What no part of the pageserver does.
    let image = Bytes::copy_from_slice(&7_u64.to_le_bytes());
    let put = (timeline.store()).append_image(Key::rel_block(rel(0), 2), written, image);
    put.expect("put");
    let names: Vec<LayerName> = inputs.iter().map(|file| file.name().clone()).collect();
    let added = merged.added;
    let checked = compaction.checked(merged.dropped, &names, &added).await;
    let error = checked.err().expect("it is mistaken").to_string();
    assert!(error.contains("hides an older version"), "{error}");
    machine.restart().await;
    let map = machine.timeline.store().map();
    let is_there = |name: LayerName| map.get(&name).is_some();
    assert!(!added.iter().any(|layer| is_there(layer.desc.name())));
    assert!(names.into_iter().all(is_there));
}
