//! Promise: stock Postgres starts from synthesised files at any 8-byte offset, also where the checkpoint record
//! crosses a page's or a segment's end, without recovery and with the WAL chain intact.

mod support;

use std::os::unix::fs::{FileExt as _, chown};
use std::path::Path;
use std::process::Command;

use compute::start::{StartFiles, StartPoint, lay_out};
use pg_types::v15::ControlFile;
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES};
use support::{Dir, Server, initdb, os_user};
use wal_decode::TimelineState;

fn put(path: &Path, content: &[u8]) {
    std::fs::write(path, content).unwrap();
    let (uid, gid) = os_user();
    chown(path, Some(uid), Some(gid)).unwrap();
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
}

fn install(data: &Path, files: &StartFiles) {
    put(&data.join("global/pg_control"), &files.pg_control);
    for entry in std::fs::read_dir(data.join("pg_wal")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            std::fs::remove_file(path).unwrap();
        }
    }
    for segment in &files.wal {
        let path = data
            .join("pg_wal")
            .join(segment.start.segment_file_name(WAL_SEGMENT_BYTES));
        put(&path, &segment.head);
        std::fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(WAL_SEGMENT_BYTES)
            .unwrap();
    }
}

/// Boots at each LSN, in ascending order on one data directory, so that no page is ever ahead of the WAL.
fn boot_at(data: &Path, socket: &Path, lsns: &[u64]) {
    let template = std::fs::read(data.join("global/pg_control")).unwrap();
    let control = ControlFile::parse(&template).unwrap();
    let state = TimelineState::from_control_file(&control, PgMajor::V15);
    for &lsn in lsns {
        let point = StartPoint {
            lsn: Lsn(lsn),
            prev_record: Lsn(lsn - 512),
            system_identifier: control.system_identifier(),
            state,
            unix_seconds: 1_800_000_000,
        };
        let files = lay_out(&point, &template).unwrap();
        install(data, &files);
        let server = Server::start(
            data,
            socket,
            &["autovacuum=off", "wal_level=replica", "max_wal_senders=10"],
        )
        .unwrap_or_else(|error| panic!("start at {}: {error}", point.lsn));
        assert!(
            !server.log().contains("not properly shut down"),
            "start at {} recovered",
            point.lsn
        );
        let redo = server.sql("SELECT redo_lsn FROM pg_control_checkpoint()");
        assert_eq!(redo, files.checkpoint.to_string());
        let written: Lsn = server
            .sql("SELECT pg_logical_emit_message(false, 'weir', 'x')")
            .parse()
            .unwrap();
        assert!(
            written > files.end,
            "start at {}: the next record ends at {written}",
            point.lsn
        );
        server.sql("SELECT pg_switch_wal()");
        drop(server);
        check_chain(data, &files, written);
    }
}

/// What Postgres wrote continues ours: one stream that a strict reader accepts from the start LSN.
fn check_chain(data: &Path, files: &StartFiles, written: Lsn) {
    let mut decoder = wal_decode::WalStreamDecoder::new(files.checkpoint, PgMajor::V15);
    let (mut at, mut count) = (files.checkpoint, 0);
    while at < written {
        let name = at.segment_file_name(WAL_SEGMENT_BYTES);
        let file = std::fs::File::open(data.join("pg_wal").join(name)).unwrap();
        let offset = at.segment_offset(WAL_SEGMENT_BYTES);
        let length = (WAL_SEGMENT_BYTES - offset).min(written.0 - at.0);
        let mut bytes = vec![0; length as usize];
        file.read_exact_at(&mut bytes, offset).unwrap();
        let mut records = decoder.feed(at, &bytes).unwrap();
        while records.next_record().unwrap().is_some() {
            count += 1;
        }
        at = at + length;
    }
    assert!(count >= 2, "the checkpoint and the message are there");
}

#[test]
fn postgres_starts_at_every_offset_around_a_page_end_and_a_segment_end() {
    let dir = Dir::new("weir-start-");
    let first = dir.make("data-0");
    initdb(&first);
    let second = dir.path().join("data-1");
    assert!(
        Command::new("cp")
            .arg("-a")
            .arg(&first)
            .arg(&second)
            .status()
            .unwrap()
            .success()
    );
    let around = |boundary: u64, header: u64| -> Vec<u64> {
        (boundary - 160..=boundary + 64)
            .step_by(8)
            .filter(|lsn| !(boundary + 1..boundary + header).contains(lsn))
            .collect()
    };
    let pages = around(0x0500_6000, 24);
    let segments = around(0x0700_0000, 40);
    let sockets = [dir.make("s0"), dir.make("s1")];
    std::thread::scope(|scope| {
        let a = scope.spawn(|| boot_at(&first, &sockets[0], &pages));
        let b = scope.spawn(|| boot_at(&second, &sockets[1], &segments));
        for handle in [a, b] {
            if let Err(panic) = handle.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}
