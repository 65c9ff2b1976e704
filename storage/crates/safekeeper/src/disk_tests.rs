//! Promises: a directory keeps its identity for as long as it is itself, and no copy has it.

use std::collections::BTreeMap;
use std::process::Command;

use consensus::{Configuration, Durable};
use pg_types::Lsn;

use super::*;
use crate::control::{self, Identity};

fn identity() -> Identity {
    Identity {
        tenant: TenantId([1; 16]),
        timeline: TimelineId([2; 16]),
        system_identifier: 7,
        pg_version: 15,
        start_lsn: Lsn(0x0150_0000),
    }
}

fn log() -> (TenantId, TimelineId) {
    (identity().tenant, identity().timeline)
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.expect("cp runs").success());
}

/// Gives the log of [`identity`] to the disk, in `dir`.
fn give(disk: &Disk, dir: &Path) -> MemberId {
    fs::create_dir(dir).expect("directory");
    let member = disk.next_member(log()).expect("member");
    let configuration = Configuration::founding(&[member]).expect("one member");
    let control = Control {
        identity: identity(),
        member,
        origin: Some(Origin::of(dir).expect("origin")),
        durable: Durable::new(member, identity().start_lsn, configuration),
        readers: BTreeMap::new(),
    };
    control::store(dir, &control).expect("store");
    member
}

#[test]
fn a_directory_keeps_its_identity_when_it_is_moved_and_a_copy_gets_another() {
    let place = tempfile::tempdir().expect("temporary directory");
    let [first, moved, copied] = ["first", "moved", "copied"].map(|name| place.path().join(name));
    fs::create_dir(&first).expect("directory");
    let id = Disk::open(&first, 1).expect("new").id();
    assert_eq!(Disk::open(&first, 1).expect("again").id(), id);
    fs::rename(&first, &moved).expect("move");
    assert_eq!(Disk::open(&moved, 1).expect("moved").id(), id);
    copy(&moved, &copied);
    let other = Disk::open(&copied, 1).expect("copy").id();
    assert_ne!(other, id);
    assert_eq!(Disk::open(&copied, 1).expect("copy, again").id(), other);
    let stored = fs::read_to_string(copied.join(FILE)).expect("read");
    assert!(
        stored.contains(&id.to_string()),
        "where it came from: {stored}"
    );
}

#[test]
fn a_directory_of_another_safekeeper_or_with_a_damaged_identity_is_not_used() {
    let place = tempfile::tempdir().expect("temporary directory");
    Disk::open(place.path(), 1).expect("new");
    let other = Disk::open(place.path(), 2).expect_err("of safekeeper 1");
    assert!(matches!(
        other,
        DiskError::OtherNode {
            owner: 1,
            node: 2,
            ..
        }
    ));
    fs::write(place.path().join(FILE), b"{}").expect("write");
    let damaged = Disk::open(place.path(), 1).expect_err("damaged");
    assert!(matches!(damaged, DiskError::Damaged { .. }));
}

#[test]
fn a_log_that_is_lost_and_made_again_has_another_name() {
    let place = tempfile::tempdir().expect("temporary directory");
    let disk = Disk::open(place.path(), 1).expect("new");
    let dir = place.path().join("log");
    let first = give(&disk, &dir);
    fs::remove_dir_all(&dir).expect("lost");
    let second = give(&disk, &dir);
    assert_eq!((first.incarnation, second.incarnation), (1, 2));
    let again = Disk::open(place.path(), 1).expect("after a restart");
    assert_eq!(again.next_member(log()).expect("third").incarnation, 3);
}

#[test]
fn a_log_put_back_from_a_copy_does_not_claim_the_name_it_had() {
    let place = tempfile::tempdir().expect("temporary directory");
    let disk = Disk::open(place.path(), 1).expect("new");
    let [dir, backup] = ["log", "backup"].map(|name| place.path().join(name));
    let member = give(&disk, &dir);
    let mut control = control::load(&dir).expect("load");
    assert!(!disk.claim(&dir, &mut control).expect("its own"));
    copy(&dir, &backup);
    fs::remove_dir_all(&dir).expect("lost");
    copy(&backup, &dir);
    let mut control = control::load(&dir).expect("load");
    assert!(disk.claim(&dir, &mut control).expect("a copy"));
    assert_eq!(control.durable.member, member, "what it was made to be");
    assert_eq!(control.member.incarnation, 2);
    control::store(&dir, &control).expect("store");
    let mut control = control::load(&dir).expect("load");
    assert!(!disk.claim(&dir, &mut control).expect("stays what it is"));
}
