//! What of an index counts as stored.

use futures::FutureExt;

use super::*;

fn manifest(timeline: TimelineId) -> Manifest {
    let request = serde_json::from_value(
        serde_json::json!({"new_timeline_id": timeline, "pg_version": 15, "safekeepers": []}),
    );
    Manifest {
        pg_version: 15,
        system_identifier: 1,
        start_lsn: Lsn(8),
        ancestor: None,
        safekeepers: Vec::new(),
        request: request.expect("request"),
    }
}

/// The start of a compute with a term.
fn start(term: u64) -> StartPoint {
    StartPoint {
        term: Term(term),
        lsn: Lsn(8),
    }
}

/// Promise: a timeline that another pageserver serves from the same store is not taken from it by a creation.
#[tokio::test]
async fn what_the_store_has_is_not_created_again() {
    let root = tempfile::tempdir().expect("tempdir");
    let (tenant, timeline) = (TenantId([1; 16]), TimelineId([2; 16]));
    let store = Store::local(root.path()).expect("store");
    let create = || {
        let manifest = manifest(timeline);
        TimelineIndex::create(store.clone(), tenant, timeline, manifest, Vec::new())
    };
    let (first, _) = create().await.expect("created");
    let refused = create().await.map(|_| ()).expect_err("refused");
    let refused = crate::error::Error::from(refused);
    assert_eq!(refused.code(), ("conflict", 409), "{refused}");
    first.store_start(start(3)).await.expect("still its own");
    first.delete().await.expect("delete");
    let stopped = first.store_start(start(4)).await;
    stopped.expect_err("nothing is written after a deletion");
    create().await.expect("free again");
}

/// Promise: a term counts as stored only once a restart would find it, however often it is asked for.
#[tokio::test]
async fn a_term_counts_once_it_is_durable() {
    let root = tempfile::tempdir().expect("tempdir");
    let (tenant, timeline) = (TenantId([1; 16]), TimelineId([2; 16]));
    let store = Store::local(root.path()).expect("store");
    let created = TimelineIndex::create(
        store.clone(),
        tenant,
        timeline,
        manifest(timeline),
        Vec::new(),
    )
    .await;
    let (index, _) = created.expect("index");
    // The first request is given up before anything was written.
    assert!(index.store_start(start(5)).now_or_never().is_none());
    assert_eq!((index.max_term(), index.durable_term()), (Term(5), Term(0)));
    index.store_start(start(5)).await.expect("store");
    assert_eq!(index.durable_term(), Term(5));
    drop(index);
    let taken = TimelineIndex::take_over(store, tenant, timeline).await;
    let (index, _) = taken.expect("take over").expect("index");
    assert_eq!((index.max_term(), index.durable_term()), (Term(5), Term(5)));
}

/// Promise: a position is stored together with whose WAL everything before it is, and other changes leave that as it
/// is; an index from before that was noted says that it does not know.
#[tokio::test]
async fn a_position_is_stored_with_the_history_of_what_is_before_it() {
    let root = tempfile::tempdir().expect("tempdir");
    let (tenant, timeline) = (TenantId([1; 16]), TimelineId([2; 16]));
    let store = Store::local(root.path()).expect("store");
    let made = manifest(timeline);
    let created = TimelineIndex::create(store.clone(), tenant, timeline, made, Vec::new()).await;
    let (index, _) = created.expect("index");
    assert_eq!(index.ingested(), Some(Ingested::default()));
    let entry = |term, lsn| consensus::TermStart {
        term: Term(term),
        start_lsn: Lsn(lsn),
    };
    let first = Ingested {
        terms: [entry(1, 8)].into_iter().collect(),
        up_to: Lsn(50),
    };
    let second = Ingested {
        terms: [entry(1, 8), entry(3, 60)].into_iter().collect(),
        up_to: Lsn(120),
    };
    let reached = index.reach(Lsn(50), Some(first.clone()));
    // Queued while the first is being stored.
    index.note_ingested(second.clone()).expect("queued");
    let later = index.reach(Lsn(100), Some(second.clone()));
    reached.await.expect("stored");
    later.await.expect("stored");
    index.reach(Lsn(110), None).await.expect("stored");
    index.store_start(start(3)).await.expect("stored");
    drop(index);
    let taken = TimelineIndex::take_over(store, tenant, timeline).await;
    let (index, part) = taken.expect("take over").expect("index");
    assert_eq!(part.disk_consistent_lsn, Lsn(110));
    assert_eq!(index.ingested(), Some(second));

    let mut older = part.metadata.clone();
    older.as_object_mut().expect("fields").remove("ingested");
    let older: Metadata = serde_json::from_value(older).expect("an older index");
    assert_eq!(older.ingested, None);
}
