//! Promise: no record that a user can have Postgres write, however large, stops a timeline or its neighbours: what
//! the record changes is ingested, stored, and read back after a restart from the object store alone. Nor does a task
//! keep an async worker with it from the reads of a neighbour for as long as a stall takes.

mod common;

use common::level_0::WAIT;
use common::neighbour::Reading;
use common::postgres::Bundle;
use common::server::{Server, timeline_path};
use common::written_wal::WrittenWal;
use pg_types::wal::{info, rmgr};
use pg_types::{ForkNumber, Lsn, RelTag};

const MIB: usize = 1 << 20;

/// The main data of a prepare record (`twophase.c: TwoPhaseFileHeader`) of `bytes` bytes, most of them
/// subtransactions.
fn prepared_state(xid: u32, bytes: usize) -> Vec<u8> {
    let gid = b"large\0\0\0";
    let subxacts = (bytes - 72 - gid.len()) / 4;
    let mut state = vec![0; 72];
    state[..4].copy_from_slice(&0x57F9_4534_u32.to_le_bytes());
    state[4..8].copy_from_slice(&(bytes as u32 + 4).to_le_bytes());
    state[8..12].copy_from_slice(&xid.to_le_bytes());
    state[28..32].copy_from_slice(&(subxacts as u32).to_le_bytes());
    state[54..56].copy_from_slice(&6_u16.to_le_bytes());
    state.extend_from_slice(gid);
    for subxact in 0..subxacts as u32 {
        state.extend_from_slice(&(xid + 1 + subxact).to_le_bytes());
    }
    assert_eq!(state.len(), bytes);
    state
}

/// `twophase.c: xl_xact_commit` of a prepared transaction.
fn commit_prepared(xid: u32) -> Vec<u8> {
    let mut body = 1_000_000_i64.to_le_bytes().to_vec();
    body.extend_from_slice(&info::xact::XINFO_HAS_TWOPHASE.to_le_bytes());
    body.extend_from_slice(&xid.to_le_bytes());
    body
}

async fn bundle(server: &Server, of: &WrittenWal, at: Lsn) -> Bundle {
    let path = timeline_path(of.tenant, of.timeline.id());
    let path = format!("{path}/bundle?lsn={at}&term=1");
    let (status, tar) = server.get_bytes(&path).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&tar));
    Bundle::parse(&tar)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_of_any_size_is_stored_and_given_back() {
    let root = tempfile::tempdir().expect("directory");
    let server = Server::start(root.path(), Default::default()).await;
    let mut large = WrittenWal::of_new_project(&server, root.path()).await;
    let mut neighbour = WrittenWal::of_new_project(&server, root.path()).await;
    let reading = Reading::begin(&neighbour.timeline);
    let xid = 1000;
    // Below one piece of a state as it is stored, at its border, and far beyond what a layer takes as one value.
    let sizes = [800, MIB - 4, MIB, MIB + 4, 40 * MIB + 8];
    let states: Vec<Vec<u8>> = (sizes.iter().enumerate())
        .map(|(at, bytes)| prepared_state(xid + (at as u32 + 1) * 20_000_000, *bytes))
        .collect();
    for state in &states {
        let xid = u32::from_le_bytes([state[8], state[9], state[10], state[11]]);
        large.append(rmgr::XACT, info::xact::PREPARE, xid, state);
    }
    let prepared = large.ingest().await;
    neighbour.append(rmgr::LOGICALMSG, 0, 0, &[7; 3000]);
    neighbour.ingest().await;
    for of in [&large, &neighbour] {
        let stored = tokio::time::timeout(WAIT, of.timeline.checkpoint()).await;
        stored.expect("in time").expect("stored");
    }
    reading.end_unmoved().await;

    let server = Server::start(root.path(), server.stop().await).await;
    large.timeline = server.timeline(large.tenant, large.timeline.id());
    let reading = Reading::begin(&server.timeline(neighbour.tenant, neighbour.timeline.id()));
    let found = bundle(&server, &large, prepared).await;
    let names = || {
        found
            .files
            .iter()
            .filter(|(name, _)| name.contains("pg_twophase"))
    };
    assert_eq!(names().count(), states.len());
    for state in &states {
        let xid = u32::from_le_bytes([state[8], state[9], state[10], state[11]]);
        let file = found.file(&format!("pg_twophase/{xid:08X}"));
        let (content, crc) = file.split_at(file.len() - 4);
        assert!(
            content == state,
            "{} bytes of {}",
            content.len(),
            state.len()
        );
        assert_eq!(crc, crc32c::crc32c(state).to_le_bytes());
    }

    // The largest ends, and its number is used again for a small one: nothing of the large one comes back.
    let again = xid + 5 * 20_000_000;
    large.append(
        rmgr::XACT,
        info::xact::COMMIT_PREPARED | info::xact::HAS_INFO,
        0,
        &commit_prepared(again),
    );
    let ended = large.ingest().await;
    let small = prepared_state(again, 800);
    large.append(rmgr::XACT, info::xact::PREPARE, again, &small);
    let reused = large.ingest().await;
    large.timeline.checkpoint().await.expect("stored");
    let name = format!("pg_twophase/{again:08X}");
    assert!(!bundle(&server, &large, ended).await.has(&name));
    let found = bundle(&server, &large, reused).await;
    assert_eq!(found.file(&name)[..800], small[..]);
    assert_eq!(found.file(&name).len(), 804);
    reading.end_unmoved().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn seventy_thousand_relations_go_in_one_record() {
    const RELATIONS: u32 = 70_000;
    let root = tempfile::tempdir().expect("directory");
    let server = Server::start(root.path(), Default::default()).await;
    let mut many = WrittenWal::of_new_project(&server, root.path()).await;
    let neighbour = WrittenWal::of_new_project(&server, root.path()).await;
    let rel = |number: u32| RelTag {
        spc: 1663,
        db: 5,
        rel: 100_000 + number,
        fork: ForkNumber::Main,
    };
    let words =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
    for number in 0..RELATIONS {
        let rel = rel(number);
        many.append(
            rmgr::SMGR,
            info::smgr::CREATE,
            0,
            &words(&[rel.spc, rel.db, rel.rel, 0]),
        );
    }
    let created = many.ingest().await;
    many.timeline.checkpoint().await.expect("stored");
    let reading = Reading::begin(&neighbour.timeline);
    let mut body = 1_000_000_i64.to_le_bytes().to_vec();
    body.extend_from_slice(&words(&[info::xact::XINFO_HAS_RELFILENODES, RELATIONS]));
    for number in 0..RELATIONS {
        let rel = rel(number);
        body.extend_from_slice(&words(&[rel.spc, rel.db, rel.rel]));
    }
    many.append(
        rmgr::XACT,
        info::xact::COMMIT | info::xact::HAS_INFO,
        800,
        &body,
    );
    let started = std::time::Instant::now();
    let dropped = many.ingest().await;
    println!("{RELATIONS} relations dropped in {:?}", started.elapsed());
    let stored = tokio::time::timeout(WAIT, many.timeline.checkpoint()).await;
    stored.expect("in time").expect("stored");
    reading.end_unmoved().await;

    let server = Server::start(root.path(), server.stop().await).await;
    let timeline = server.timeline(many.tenant, many.timeline.id());
    for number in [0, 1, RELATIONS / 2, RELATIONS - 1] {
        assert_eq!(
            timeline
                .reads()
                .rel_size(rel(number), created)
                .await
                .expect("size"),
            Some(0)
        );
        assert_eq!(
            timeline
                .reads()
                .rel_size(rel(number), dropped)
                .await
                .expect("size"),
            None
        );
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_record_of_hundreds_of_megabytes_is_ingested() {
    const SUBXACTS: u32 = 6_000_000;
    const INVALIDATIONS: usize = 8_000_000;
    let root = tempfile::tempdir().expect("directory");
    let server = Server::start(root.path(), Default::default()).await;
    let mut large = WrittenWal::of_new_project(&server, root.path()).await;
    let neighbour = WrittenWal::of_new_project(&server, root.path()).await;
    let reading = Reading::begin(&neighbour.timeline);
    let mut body = 1_000_000_i64.to_le_bytes().to_vec();
    let parts = info::xact::XINFO_HAS_SUBXACTS | info::xact::XINFO_HAS_INVALS;
    body.extend_from_slice(&parts.to_le_bytes());
    body.extend_from_slice(&SUBXACTS.to_le_bytes());
    for subxact in 0..SUBXACTS {
        body.extend_from_slice(&(1001 + subxact).to_le_bytes());
    }
    body.extend_from_slice(&(INVALIDATIONS as u32).to_le_bytes());
    body.resize(body.len() + INVALIDATIONS * 16, 1);
    large.append(
        rmgr::XACT,
        info::xact::COMMIT | info::xact::HAS_INFO,
        1000,
        &body,
    );
    large.ingest().await;
    let stored = tokio::time::timeout(WAIT, large.timeline.checkpoint()).await;
    stored.expect("in time").expect("stored");
    assert_eq!(large.timeline.state().next_xid, u64::from(1001 + SUBXACTS));
    reading.end_unmoved().await;
    server.stop().await;
}
