//! Promises of a change of members under load: no transaction fails, what was lost is replaced, and whoever holds an
//! outdated list of safekeepers, or has the lost one's name, decides nothing afterwards.

mod common;

use std::time::Duration;

use common::{Frozen, PATIENCE, Postgres, Quorum, SafekeeperProcess, compute, current_lsn, finish};
use consensus::ChangeError;
use proposer::{Configuration, ElectError, MemberChange, MemberError, ProposerHandle, elect};

async fn make_learner(quorum: &Quorum, safekeeper: &SafekeeperProcess) {
    let url = safekeeper.url(quorum.tenant, quorum.timeline);
    let made = common::create_as(&url, quorum.start_lsn, quorum.system_identifier, true).await;
    assert_eq!(made.status(), 201);
}

async fn change(handle: &ProposerHandle, change: MemberChange) -> Configuration {
    let changed = handle.change_members(&change, PATIENCE).await;
    changed.unwrap_or_else(|error| panic!("{change:?}: {error}"))
}

fn voters(configuration: &Configuration) -> Vec<u64> {
    configuration.voters().map(|id| id.node).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_safekeeper_that_lost_its_disk_is_replaced_while_the_compute_writes() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let outdated = quorum.config();
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    finish(postgres.pgbench(&["-i", "-q", "-s", "1"])).await;
    quorum.all_committed(current_lsn(&client).await).await;

    let load = postgres.pgbench(&["-n", "-c", "4", "-T", "6"]);
    quorum.safekeepers[0].kill();
    std::fs::remove_dir_all(&quorum.safekeepers[0].dir).expect("lose the disk");
    let fourth = SafekeeperProcess::start(4, dir.path()).await;
    make_learner(&quorum, &fourth).await;
    let add = MemberChange::Add {
        address: fourth.wal.clone(),
    };
    let with = change(&handle, add.clone()).await;
    assert_eq!((voters(&with), with.members().len()), (vec![1, 2, 3], 4));
    assert_eq!(
        change(&handle, add).await,
        with,
        "a repetition changes nothing"
    );
    change(&handle, MemberChange::Promote { safekeeper: 4 }).await;
    let last = change(&handle, MemberChange::Remove { safekeeper: 1 }).await;
    assert_eq!(voters(&last), [2, 3, 4]);
    let stranger = MemberChange::Promote { safekeeper: 9 };
    let refused = handle.change_members(&stranger, PATIENCE).await;
    assert_eq!(refused, Err(MemberError::NoSuchMember(9)));
    let report = finish(load).await;
    assert!(
        report.contains("number of failed transactions: 0"),
        "{report}"
    );

    // Of the first three, two are gone now; what was acknowledged since is held by 3 and 4.
    quorum.safekeepers[1].kill();
    client
        .batch_execute("CREATE TABLE afterwards AS SELECT generate_series(1, 777) AS id")
        .await
        .expect("two of the three members are a majority");
    let end = current_lsn(&client).await;
    let committed = tokio::time::timeout(PATIENCE, handle.committed(end)).await;
    committed.expect("in time").expect("committed");
    handle.shutdown().await;
    postgres.kill();

    // A control plane that knows none of this founds the lost log again and starts a compute with its old list.
    quorum.safekeepers[0].restart().await;
    let url = quorum.safekeepers[0].url(quorum.tenant, quorum.timeline);
    let made = common::create(&url, quorum.start_lsn, quorum.system_identifier).await;
    assert_eq!(made.status(), 201);
    let mut old_list = outdated;
    old_list.election_timeout = Duration::from_secs(3);
    let refused = elect(old_list).await;
    let Err(ElectError::NoQuorum { detail, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert!(
        detail.contains("safekeeper 2, ") && detail.contains("safekeeper 4, "),
        "{detail}"
    );

    quorum.safekeepers.push(fourth);
    let elected = elect(quorum.config()).await.expect("elected by 3 and 4");
    assert!(elected.start_lsn >= end);
    let generation = quorum.status(3).await["generation"].clone();
    assert_eq!(generation, 4, "listed, added, promoted, removed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_log_is_made_again_on_its_own_safekeeper_without_any_compute() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    finish(postgres.pgbench(&["-i", "-q", "-s", "1"])).await;
    let end = current_lsn(&client).await;
    quorum.all_committed(end).await;
    handle.shutdown().await;
    postgres.kill();

    quorum.safekeepers[1].kill();
    let folder = quorum.safekeepers[1].timeline_dir(quorum.tenant, quorum.timeline);
    std::fs::remove_dir_all(folder).expect("lose the log");
    quorum.safekeepers[1].restart().await;
    make_learner(&quorum, &quorum.safekeepers[1]).await;
    let changer = elect(quorum.config()).await.expect("elected by 1 and 3");
    let address = quorum.safekeepers[1].wal.clone();
    for change in [
        MemberChange::Remove { safekeeper: 2 },
        MemberChange::Add { address },
        MemberChange::Promote { safekeeper: 2 },
    ] {
        let changed = changer.change_members(&change, PATIENCE).await;
        changed.unwrap_or_else(|error| panic!("{change:?}: {error}"));
    }
    assert_eq!(voters(&changer.members()), [1, 3, 2]);
    drop(changer);

    // The new log is as good as any: with the first one gone it is half of the majority.
    quorum.safekeepers[0].kill();
    let elected = elect(quorum.config()).await.expect("elected by 2 and 3");
    assert!(elected.start_lsn >= end);
    assert!(
        quorum.wal(1, quorum.start_lsn, end) == quorum.wal(2, quorum.start_lsn, end),
        "other bytes than those of its peer"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_become_five_and_three_again() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    client
        .batch_execute("CREATE TABLE t (i int)")
        .await
        .expect("table");
    for id in [4, 5] {
        let safekeeper = SafekeeperProcess::start(id, dir.path()).await;
        make_learner(&quorum, &safekeeper).await;
        let address = safekeeper.wal.clone();
        change(&handle, MemberChange::Add { address }).await;
        change(&handle, MemberChange::Promote { safekeeper: id }).await;
        quorum.safekeepers.push(safekeeper);
    }
    assert_eq!(voters(&handle.members()), [1, 2, 3, 4, 5]);
    for index in [0, 3] {
        quorum.safekeepers[index].kill();
    }
    client
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .expect("three of five");

    // Without 2 the voters would be 1, 3, 4 and 5, of whom only two answer.
    let stalls = MemberChange::Remove { safekeeper: 2 };
    let refused = handle.change_members(&stalls, Duration::from_secs(1)).await;
    let would_stall = MemberError::Refused(consensus::ChangeError::WouldStall);
    assert_eq!(refused, Err(would_stall));
    change(&handle, MemberChange::Remove { safekeeper: 1 }).await;
    let three = change(&handle, MemberChange::Remove { safekeeper: 4 }).await;
    assert_eq!(voters(&three), [2, 3, 5]);
    quorum.safekeepers[1].kill();
    client
        .batch_execute("INSERT INTO t VALUES (2)")
        .await
        .expect("two of three");
    handle.shutdown().await;
}

/// Promise: a removal is said to be done only when a majority has stored it, however often it is asked for. Until
/// then the removed safekeeper may still vote, so whoever believes the answer and clears that disk could lose WAL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_removal_is_done_only_when_a_majority_has_stored_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let (handle, client) = compute(quorum.config(), &mut postgres).await;
    quorum.all_committed(current_lsn(&client).await).await;
    let listed = handle.members();
    assert_eq!(voters(&listed), [1, 2, 3]);

    let frozen = [1, 2].map(|index| quorum.safekeepers[index].freeze());
    let remove = MemberChange::Remove { safekeeper: 1 };
    let short = Duration::from_millis(500);
    let first = handle.change_members(&remove, short).await;
    assert_eq!(first, Err(MemberError::NotStored { timeout: short }));
    // By now the list without 1 is in the proposer's memory, and on the disk of neither of its two voters.
    assert_eq!(voters(&handle.members()), [2, 3]);
    let second = handle.change_members(&remove, short).await;
    assert_eq!(second, Err(MemberError::NotStored { timeout: short }));
    // The same holds of what such a list says no to, and of the next step.
    let promote = MemberChange::Promote { safekeeper: 1 };
    let other = handle.change_members(&promote, short).await;
    assert_eq!(other, Err(ChangeError::Unfinished.into()));

    frozen.into_iter().for_each(Frozen::thaw);
    let stored = change(&handle, remove).await;
    assert_eq!(voters(&stored), [2, 3]);
    assert_eq!(stored.generation.number, listed.generation.number + 1);
    for index in [1, 2] {
        let generation = quorum.status(index).await["generation"].clone();
        assert_eq!(generation, stored.generation.number, "of two voters, both");
    }
    client
        .batch_execute("CREATE TABLE t (i int)")
        .await
        .expect("the two that are left commit");
    handle.shutdown().await;
}

/// Promise: a log that does not name its members yet has none that could be "removed already".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_removed_from_a_log_that_does_not_name_its_members() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let postgres = Postgres::init(dir.path());
    let mut quorum = Quorum::start(dir.path(), 3, &postgres).await;
    quorum.safekeepers[2].kill();
    let changer = elect(quorum.config()).await.expect("elected by 1 and 2");
    for change in [
        MemberChange::Remove { safekeeper: 1 },
        MemberChange::Promote { safekeeper: 1 },
    ] {
        let refused = changer
            .change_members(&change, Duration::from_millis(300))
            .await;
        assert_eq!(refused, Err(ChangeError::Unlisted.into()), "{change:?}");
    }
    quorum.safekeepers[2].restart().await;
    let remove = MemberChange::Remove { safekeeper: 1 };
    let changed = changer.change_members(&remove, PATIENCE).await;
    assert_eq!(voters(&changed.expect("all three follow")), [2, 3]);
}

/// Promise: who has lost its term says nothing of the members any more, which its successor may have changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proposer_that_lost_its_term_says_of_no_member_that_it_is_removed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let postgres = Postgres::init(dir.path());
    let quorum = Quorum::start(dir.path(), 3, &postgres).await;
    let former = elect(quorum.config()).await.expect("elected");
    let remove = MemberChange::Remove { safekeeper: 1 };
    let removed = former.change_members(&remove, PATIENCE).await;
    assert_eq!(voters(&removed.expect("two are left")), [2, 3]);

    let successor = elect(quorum.config()).await.expect("elected again");
    let mut fatal = former.fatal();
    tokio::time::timeout(PATIENCE, fatal.wait_for(Option::is_some))
        .await
        .expect("in time")
        .expect("fenced");
    let answer = former.change_members(&remove, PATIENCE).await;
    assert!(matches!(answer, Err(MemberError::Stopped(_))), "{answer:?}");
    drop(successor);
}
