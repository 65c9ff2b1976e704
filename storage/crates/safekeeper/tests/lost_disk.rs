//! What safekeepers and proposer promise when a member has lost its disk, or has one from the past: what is founded in
//! its place does not vote. Where nothing on the disk tells (a snapshot of its blocks was put back), the log that is left
//! is never cut, stays readable, and a proposer that stands on less stops as soon as it meets it.

mod common;

use std::path::Path;

use common::{Postgres, Quorum, compute, create, current_lsn, eventually};
use pg_types::Lsn;
use proposer::{ElectError, Fatal, elect};

/// What happens to the log of the first safekeeper.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The disk is lost, and a control plane that has not noticed founds the log on it again.
    FoundedAgain,
    /// The blocks of its disk are those from before the rows.
    FromThePast,
}

/// The files of a timeline as they are, and those files put back into the directory that they came from.
struct Snapshot(Vec<(std::ffi::OsString, Vec<u8>)>);

impl Snapshot {
    fn of(dir: &Path) -> Snapshot {
        let entries = std::fs::read_dir(dir).expect("directory of the timeline");
        let files = entries.map(|entry| entry.expect("entry")).filter(|entry| {
            let name = entry.file_name();
            entry.path().is_file() && !name.to_string_lossy().ends_with(".tmp")
        });
        let read = |entry: std::fs::DirEntry| {
            (
                entry.file_name(),
                std::fs::read(entry.path()).expect("read"),
            )
        };
        Snapshot(files.map(read).collect())
    }

    fn put_back(&self, dir: &Path) {
        for entry in std::fs::read_dir(dir).expect("directory of the timeline") {
            let path = entry.expect("entry").path();
            if path.is_file() {
                std::fs::remove_file(path).expect("remove");
            }
        }
        for (name, bytes) in &self.0 {
            std::fs::write(dir.join(name), bytes).expect("write");
        }
    }
}

/// Rows that safekeepers 1 and 2 hold; then 1 has met its fate, 2 is down and 3 is back, which never had the rows.
/// `commit_is_durable`: whether 2 will still know after its restart that they are committed.
async fn lose_the_first_disk(
    dir: &Path,
    postgres: &mut Postgres,
    commit_is_durable: bool,
    fate: Fate,
) -> (Quorum, Lsn) {
    let mut quorum = Quorum::start(dir, 3, postgres).await;
    let (handle, client) = compute(quorum.config(), postgres).await;
    client
        .batch_execute("CREATE TABLE t (i int)")
        .await
        .expect("table");
    quorum.all_committed(current_lsn(&client).await).await;
    let first = quorum.safekeepers[0].timeline_dir(quorum.tenant, quorum.timeline);
    eventually("the members to be written down", async || {
        let control = safekeeper::control::load(&first).ok()?;
        (!control.durable.configuration.is_unlisted()).then_some(())
    })
    .await;
    let past = Snapshot::of(&first);
    quorum.safekeepers[2].kill();
    client
        .batch_execute("INSERT INTO t SELECT generate_series(1, 777)")
        .await
        .expect("two of three are a majority");
    let acknowledged = current_lsn(&client).await;
    tokio::time::timeout(common::PATIENCE, handle.committed(acknowledged))
        .await
        .expect("committed in time")
        .expect("committed");
    if commit_is_durable {
        let second = quorum.safekeepers[1].timeline_dir(quorum.tenant, quorum.timeline);
        eventually("the second safekeeper to store the commit", async || {
            let control = safekeeper::control::load(&second).ok()?;
            (control.durable.commit_lsn >= acknowledged).then_some(())
        })
        .await;
    }
    handle.shutdown().await;
    postgres.kill();

    quorum.safekeepers[0].kill();
    quorum.safekeepers[1].kill();
    if fate == Fate::FromThePast {
        past.put_back(&first);
        quorum.safekeepers[0].restart().await;
    } else {
        std::fs::remove_dir_all(quorum.safekeepers[0].dir.join(quorum.tenant.to_string()))
            .expect("lose the disk");
        quorum.safekeepers[0].restart().await;
        let url = quorum.safekeepers[0].url(quorum.tenant, quorum.timeline);
        let made = create(&url, quorum.start_lsn, quorum.system_identifier).await;
        assert_eq!(made.status(), 201);
    }
    quorum.safekeepers[2].restart().await;
    (quorum, acknowledged)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_founded_again_does_not_vote_in_place_of_the_lost_one() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let fate = Fate::FoundedAgain;
    let (mut quorum, acknowledged) =
        lose_the_first_disk(dir.path(), &mut postgres, false, fate).await;
    let made = quorum.status(0).await;
    let lost = quorum.status(2).await["members"][0].clone();
    assert_eq!(
        (&made["member"]["incarnation"], &lost["incarnation"]),
        (&2.into(), &1.into())
    );
    assert_eq!(made["member"]["role"], "learner");
    let before = quorum.status(2).await;
    let mut config = quorum.config();
    config.election_timeout = std::time::Duration::from_secs(3);
    // Nobody who could know better is asked: what the pageserver has ingested is not said.
    let refused = elect(config.clone()).await;
    let Err(ElectError::NoQuorum { detail, .. }) = refused else {
        panic!("{refused:?}")
    };
    let disk = lost["disk"].as_str().expect("disk of the lost log");
    assert!(
        detail.contains(disk),
        "names the log that is needed: {detail}"
    );
    let now = quorum.status(2).await;
    assert_eq!(
        now["term_history"], before["term_history"],
        "a term was announced"
    );
    assert_eq!(now["flush_lsn"], before["flush_lsn"]);

    quorum.safekeepers[1].restart().await;
    config.election_timeout = common::PATIENCE;
    let elected = elect(config)
        .await
        .expect("elected by two of the three that the log names");
    assert!(elected.start_lsn >= acknowledged);
    assert_eq!(
        quorum.status(0).await["flush_lsn"],
        made["flush_lsn"],
        "the new log is no member"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_is_not_won_below_what_the_pageserver_has_ingested() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let (mut quorum, acknowledged) =
        lose_the_first_disk(dir.path(), &mut postgres, true, Fate::FromThePast).await;
    let before = quorum.status(2).await;
    let mut config = quorum.config();
    config.ingested_lsn = acknowledged;
    let refused = elect(config.clone()).await;
    let Err(ElectError::Fatal(Fatal::LostWal { detail })) = refused else {
        panic!("{refused:?}")
    };
    assert!(detail.contains(&acknowledged.to_string()), "{detail}");
    let now = quorum.status(2).await;
    assert_eq!(
        now["term_history"], before["term_history"],
        "a term was announced"
    );
    assert_eq!(now["flush_lsn"], before["flush_lsn"]);

    quorum.safekeepers[1].restart().await;
    // The two that lack it can still be the first to vote; an agent starts again after that, and so does this.
    let elected = eventually(
        "an election with the one that has everything",
        async || match elect(config.clone()).await {
            Ok(elected) => Some(elected),
            Err(ElectError::Fatal(Fatal::LostWal { .. })) => None,
            Err(error) => panic!("{error}"),
        },
    )
    .await;
    assert!(elected.start_lsn >= acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_with_more_ends_a_proposer_that_stands_on_less_and_keeps_its_log() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let (mut quorum, acknowledged) =
        lose_the_first_disk(dir.path(), &mut postgres, true, Fate::FromThePast).await;
    // Nobody who could know better is asked.
    let elected = elect(quorum.config()).await.expect("elected on less");
    assert!(elected.start_lsn < acknowledged);
    let mut fatal = elected.fatal();
    assert_eq!(*fatal.borrow(), None);

    quorum.safekeepers[1].restart().await;
    let held = quorum.wal(1, quorum.start_lsn, acknowledged);
    let reason = tokio::time::timeout(common::PATIENCE, fatal.wait_for(Option::is_some))
        .await
        .expect("noticed in time")
        .expect("proposer lives")
        .clone();
    let Some(Fatal::Diverged { detail }) = reason else {
        panic!("{reason:?}")
    };
    assert!(detail.contains(&quorum.safekeepers[1].wal), "{detail}");
    let status = quorum.status(1).await;
    assert_eq!(
        (&status["state"], &status["reason"]),
        (&"active".into(), &serde_json::Value::Null)
    );
    assert!(quorum.lsn(1, "commit_lsn").await >= acknowledged);
    assert!(
        quorum.wal(1, quorum.start_lsn, acknowledged) == held,
        "the log was touched"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_election_cuts_off_is_set_aside() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut postgres = Postgres::init(dir.path());
    let (mut quorum, acknowledged) =
        lose_the_first_disk(dir.path(), &mut postgres, false, Fate::FromThePast).await;
    let elected = elect(quorum.config()).await.expect("elected on less");
    let start = elected.start_lsn;
    assert!(start < acknowledged);
    let held = quorum.wal(1, start, acknowledged);
    // Whether the rows are committed is not known there, so the log is cut; they must not be gone with it.
    quorum.safekeepers[1].restart().await;
    eventually("the log to be cut", async || {
        (quorum.lsn(1, "flush_lsn").await == start).then_some(())
    })
    .await;
    let folder = quorum.safekeepers[1].timeline_dir(quorum.tenant, quorum.timeline);
    let kept = folder.join(format!("cut/{:016X}-0", start.0));
    let mut kept = std::fs::read(kept).expect("what was cut off");
    // Padding behind the last record is zero, and zeroes at the end are left out.
    kept.resize(kept.len().max(held.len()), 0);
    assert!(kept.starts_with(&held), "other bytes than those of the log");
}
