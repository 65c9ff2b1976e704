//! Redo makes what Postgres makes, on the minors of 15 that are not the system's: the oldest supported and the
//! newest.
//!
//! What their redo does otherwise is in `wal_redo::minors`, which these tests hold against the servers. Minors of 17
//! and 18 are in `oracle_versions`.

mod support;

use pg_types::wal::{info, rmgr};
use pg_types::{ForkNumber, PgMajor};
use support::recorded::{Recorded, assert_clean};
use support::servers::{Server, others_of_15, servers};
use support::{trees, workload};
use wal_redo::masking::PageClass;
use wal_redo::minors::{DIFFERENCES, gist_tuples_deleted};

const SETTINGS: &str = "
fsync = off
wal_level = replica
wal_consistency_checking = all
wal_keep_size = 8GB
max_wal_size = 8GB
max_prepared_transactions = 5
max_connections = 20
lock_timeout = 120s
statement_timeout = 300s
autovacuum_naptime = 1s
track_commit_timestamp = on
full_page_writes = off
";

/// Promise: heap, B-trees, sequences and the small managers, as `oracle.rs` has it of the system's server.
#[test]
fn every_page_is_what_other_minors_of_15_have() {
    for server in others_of_15() {
        println!("Postgres {}", server.name());
        let settings = format!(
            "{SETTINGS}wal_compression = {}\n",
            server.compression("lz4")
        );
        let recorded = Recorded::run_on(&server, &settings, false, |cluster| {
            workload::run(cluster, 60)
        });
        let report = recorded.replay(None);
        assert_clean(&report);
        for op in [info::heap::UPDATE, info::heap::DELETE, info::heap::LOCK] {
            assert!(report.of(rmgr::HEAP, op).redone > 0, "{report}");
        }
        let unlinked = report.of(rmgr::BTREE, info::btree::UNLINK_PAGE);
        assert!(unlinked.redone > 0, "{report}");
    }
}

/// Promise: trees and ranges, as `oracle_trees_and_ranges.rs` has it of the system's server.
#[test]
fn trees_and_ranges_are_what_other_minors_of_15_have() {
    for server in others_of_15() {
        println!("Postgres {}", server.name());
        let settings = format!(
            "{}full_page_writes = off\nwal_compression = {}\n",
            trees::SETTINGS,
            server.compression("lz4")
        );
        let recorded =
            Recorded::run_on(&server, &settings, false, |cluster| trees::run(cluster, 20));
        let report = recorded.replay(None);
        assert_clean(&report);
        for op in [info::gist::PAGE_UPDATE, info::gist::DELETE] {
            assert!(report.of(rmgr::GIST, op).redone > 0, "{report}");
        }
    }
}

/// Rows go, and nothing else happens to the index.
const GIST: &str = "
CREATE TABLE places (id int, p point);
CREATE INDEX places_p ON places USING gist (p);
INSERT INTO places SELECT i, point(i % 97, i % 89) FROM generate_series(1, 3000) i;
DELETE FROM places WHERE id % 3 = 0;
VACUUM places;
";

/// Whether the server's pages have the flag that minors differ in, after a vacuum that took tuples off leaves. With
/// page images on: they bear what the server did, and not what its redo does.
fn sets_the_flag(server: &Server) -> bool {
    let recorded = Recorded::run_on(server, trees::SETTINGS, false, |cluster| {
        cluster.sql(GIST);
    });
    assert_clean(&recorded.replay(None));
    let (mut leaves, mut flagged) = (0, 0);
    recorded.for_each_page(|key, page| {
        let is_main = key.rel().is_some_and(|rel| rel.fork == ForkNumber::Main);
        if is_main && PageClass::of_page(page, ForkNumber::Main) == PageClass::Gist {
            leaves += 1;
            flagged += u32::from(gist_tuples_deleted(page));
        }
    });
    assert!(leaves > 3, "the index has {leaves} pages");
    flagged > 0
}

/// Promise: the first row of the table is true of each server there is, so that the oracle leaves the flag out for
/// the reason that is written there.
#[test]
fn minors_set_the_gist_flag_as_the_table_says() {
    let row = DIFFERENCES
        .iter()
        .find(|row| row.records.contains(&"Gist/PAGE_UPDATE"))
        .expect("the table has it");
    for server in PgMajor::ALL.into_iter().flat_map(servers) {
        let since = row.since.iter().find(|(major, _)| *major == server.major);
        let stopped = since.is_some_and(|(_, minor)| server.minor >= *minor);
        assert_eq!(sets_the_flag(&server), !stopped, "{}", server.name());
    }
}
