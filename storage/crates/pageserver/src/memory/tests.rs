use futures::FutureExt;
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn usage(open: u64, frozen: u64) -> Usage {
    Usage {
        open: open * MIB,
        frozen: frozen * MIB,
        uploading: 0,
    }
}

#[test]
fn plenty_of_memory_leaves_everybody_alone() {
    let plan = plan(&[usage(100, 0), usage(100, 50)], 0, 1024 * MIB);
    assert_eq!((plan.flush, plan.allowance), (vec![], u64::MAX));
}

#[test]
fn the_largest_open_layers_go_first_and_only_as_many_as_it_takes() {
    let plan = plan(
        &[usage(60, 0), usage(200, 0), usage(0, 0), usage(90, 0)],
        0,
        1024 * MIB,
    );
    assert_eq!((plan.flush, plan.allowance), (vec![1, 3], u64::MAX));
}

#[test]
fn beyond_half_only_those_over_their_share_wait() {
    let usages = [usage(0, 500), usage(10, 60), usage(2, 0), usage(0, 0)];
    let opened = plan(&usages, 0, 1024 * MIB);
    let plan = plan(&usages[..3], 1, 1024 * MIB);
    assert_eq!(opened, plan, "one that is being opened counts as well");
    assert_eq!(plan.allowance, 128 * MIB);
    assert!(usages[0].total() > plan.allowance && usages[1].total() < plan.allowance);
}

#[test]
fn who_cannot_upload_waits_and_nobody_else() {
    let stuck = Usage {
        uploading: 600 * MIB,
        ..usage(0, 64)
    };
    let usages = [stuck, usage(30, 0), usage(1, 0)];
    let plan = plan(&usages, 0, 1024 * MIB);
    assert!(plan.allowance < usages[0].total() && plan.allowance > usages[1].total());
}

struct Fixed(Usage);

impl Member for Fixed {
    fn usage(&self) -> Usage {
        self.0
    }
    fn flush_early(&self) {}
}

/// Promise: whatever is in an account counts, from the first byte on, and no longer than the account is there.
#[test]
fn accounts_are_summed_exactly_and_ease_the_budget_when_they_go() {
    let budget = MemoryBudget::new(64 * MIB);
    let accounts = [budget.account(), budget.account()];
    let member: Arc<dyn Member> = Arc::new(Fixed(usage(0, 40)));
    budget.join(Arc::downgrade(&member));
    assert!(!budget.rebalance(), "nothing is held");
    accounts[0].add(30 * MIB);
    accounts[1].add(10 * MIB);
    accounts[0].remove(10 * MIB);
    assert_eq!(budget.total.load(Ordering::Relaxed), 30 * MIB);
    assert_eq!(
        (accounts[0].held(), accounts[0].added()),
        (20 * MIB, 30 * MIB)
    );
    assert!(budget.rebalance() && budget.allowance.load(Ordering::Relaxed) == 32 * MIB);
    drop((accounts, member));
    assert_eq!(budget.total.load(Ordering::Relaxed), 0);
    assert!(budget.rebalance(), "the allowance is lifted");
    assert!(!budget.rebalance());
    assert_eq!(budget.allowance.load(Ordering::Relaxed), u64::MAX);
}

/// Promise: a layer on its way to the object store counts, for its timeline and for all, exactly until the last copy
/// of its bytes is dropped, also when its timeline is gone before.
#[test]
fn what_is_being_uploaded_counts_until_the_last_copy_is_dropped() {
    let budget = MemoryBudget::new(64 * MIB);
    let account = budget.account();
    let total = || budget.total.load(Ordering::Relaxed) / MIB;
    account.add(MIB);
    let pieces = [5, 3].map(|mib| Bytes::from(vec![7; mib << 20]));
    let layer = account.uploads().counted(pieces);
    let part = layer.iter().next().map(|first| first.slice(10..20));
    assert_eq!((account.uploading(), total()), (8 * MIB, 9));
    drop(layer);
    assert_eq!((account.held(), account.uploading()), (MIB, 5 * MIB));
    assert_eq!((total(), part.as_deref()), (6, Some(&[7; 10][..])));
    drop(account);
    assert_eq!(total(), 5);
    drop(part);
    assert_eq!(total(), 0);
}

/// Promise: merges whose outcome is not stored yet keep their room, and no more than theirs; settling has its own.
#[tokio::test]
async fn a_merge_that_is_not_stored_leaves_room_for_another() {
    let budget = MemoryBudget::new(MIB);
    let stuck = budget.merge_room(1, MAX_MERGED_BYTES).await;
    drop(budget.merge_turn(1).await);
    let other = budget.merge_room(1, MAX_MERGED_BYTES).await;
    assert!(budget.merge_room(1, 1).now_or_never().is_none());
    let settling = budget.merge_room(2, u64::MAX).now_or_never();
    assert!(settling.is_some());
    drop(other);
    assert!(
        budget
            .merge_room(1, MAX_MERGED_BYTES)
            .now_or_never()
            .is_some()
    );
    drop(stuck);
}

/// Promise: a look follows what has changed, not the clock; while memory is plenty nothing is looked at.
#[test]
fn whoever_changes_the_sum_has_everybody_looked_at() {
    let budget = MemoryBudget::new(128 * MIB);
    let account = budget.account();
    let is_told = || budget.pressed.notified().now_or_never().is_some();
    account.add(32 * MIB);
    account.remove(8 * MIB);
    assert!(!is_told(), "a quarter is free for the asking");
    account.add(9 * MIB);
    assert!(is_told() && !is_told());
    account.add(100);
    assert!(!is_told(), "too little to look again");
    account.add(MIB);
    assert!(is_told());
    account.remove(100);
    assert!(is_told(), "something was given back");
}

#[tokio::test]
async fn settling_gives_way_from_the_moment_level_0_wants_its_turn() {
    let budget = MemoryBudget::new(MIB);
    budget.give_way_to_l0();
    let first = budget.merge_turn(1).await;
    let waiting = budget.clone();
    let second = tokio::spawn(async move { drop(waiting.merge_turn(1).await) });
    while *budget.l0_pending.lock() < 2 {
        tokio::task::yield_now().await;
    }
    let settling = budget.clone();
    let settling = tokio::task::spawn_blocking(move || settling.give_way_to_l0());
    drop(first);
    second.await.expect("the second turn comes");
    settling.await.expect("settling goes on");
    assert_eq!(*budget.l0_pending.lock(), 0);
}

proptest! {
    /// However much is loaded, by however many, and however slowly files are written: ingest of one step at a time
    /// under the plan keeps the sum below the limit plus a step each, and a timeline below its share is never
    /// stopped.
    #[test]
    fn the_sum_stays_below_the_limit(
        timelines in 1_usize..12,
        steps in prop::collection::vec((0_usize..12, 1_u64..4), 1..400),
        flushed_every in 1_usize..60,
    ) {
        let limit = 256 * MIB;
        let mut usages = vec![usage(0, 0); timelines];
        let mut slack = 0;
        for (step, (who, size)) in steps.into_iter().enumerate() {
            let plan = plan(&usages, 0, limit);
            for at in &plan.flush {
                let open = std::mem::take(&mut usages[*at].open);
                usages[*at].frozen += open;
            }
            let who = who % timelines;
            let size = size * MIB;
            if usages[who].total() <= plan.allowance {
                usages[who].open += size;
                slack = slack.max(size);
            } else {
                prop_assert!(usages[who].total() > limit / 2 / timelines as u64);
                prop_assert_eq!(usages[who].open, 0, "it waits for what nobody writes");
            }
            if step % flushed_every == 0 {
                let slowest = step % timelines;
                usages[slowest].frozen = 0;
            }
            let total: u64 = usages.iter().map(|usage| usage.total()).sum();
            prop_assert!(total <= limit + slack * timelines as u64, "{total}");
        }
    }
}
