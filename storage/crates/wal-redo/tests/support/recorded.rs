//! A workload run by Postgres, to be replayed as often as wanted.

use std::collections::BTreeSet;
use std::path::Path;

use pg_types::{Key, Lsn};
use wal_decode::{PageDelta, TimelineState};
use wal_redo::oracle::{Oracle, Redo, Report};
use wal_redo::{ClusterSettings, Page};

use super::cluster::Cluster;
use super::files;
use super::servers::{Server, system};

/// A stopped cluster that ran a workload, and what it was before.
pub struct Recorded {
    cluster: Cluster,
    pages: Vec<(Key, Box<Page>)>,
    state: TimelineState,
    pub settings: ClusterSettings,
}

impl Recorded {
    /// Runs `work` on a new cluster of the system's server with these lines in its configuration.
    pub fn run(settings: &str, hint_bits_logged: bool, work: impl FnOnce(&Cluster)) -> Recorded {
        Recorded::run_on(&system(), settings, hint_bits_logged, work)
    }

    /// Runs `work` on a new cluster of this server.
    pub fn run_on(
        server: &Server,
        settings: &str,
        hint_bits_logged: bool,
        work: impl FnOnce(&Cluster),
    ) -> Recorded {
        let major = server.major;
        let mut cluster = Cluster::init_of(server, settings);
        let mut pages = Vec::new();
        files::for_each_page(&cluster.data(), |key, page| {
            pages.push((key, Box::new(*page)))
        })
        .expect("read the new cluster");
        let state = TimelineState::from_control_file(&cluster.control(), major);
        cluster.start();
        work(&cluster);
        cluster.stop();
        Recorded {
            cluster,
            pages,
            state,
            settings: ClusterSettings {
                major,
                hint_bits_logged,
            },
        }
    }

    /// Hands out the pages that the server left.
    pub fn for_each_page(&self, each: impl FnMut(Key, &Page)) {
        files::for_each_page(&self.cluster.data(), each).expect("read the cluster's files");
    }

    fn start(&self) -> Lsn {
        pg_types::wal::next_record_start(self.state.last_record_lsn)
    }

    /// Replays everything and compares with the files at the end.
    pub fn replay(&self, redo: Option<Redo>) -> Report {
        let mut oracle = Oracle::new(self.state, self.settings);
        if let Some(redo) = redo {
            oracle = oracle.with_redo(redo);
        }
        for (key, page) in &self.pages {
            oracle.load(*key, page);
        }
        oracle.loaded_all();
        let pg_wal = self.cluster.data().join("pg_wal");
        files::for_each_record(&pg_wal, self.state.major, Some(self.start()), |record| {
            Ok(oracle.replay(&record)?)
        })
        .expect("replay the WAL");
        compare_files(&mut oracle, &self.cluster.data());
        oracle.into_report()
    }
}

fn compare_files(oracle: &mut Oracle, data: &Path) {
    let mut seen = BTreeSet::new();
    files::for_each_page(data, |key, page| {
        seen.insert(key);
        oracle.compare_file_page(key, page);
    })
    .expect("read the cluster's files");
    files::for_each_small_file(data, |file, content| {
        oracle.compare_small_file(file, content);
    })
    .expect("read the cluster's small files");
    let extra: Vec<Key> = oracle
        .keys()
        .filter(|key| {
            !seen.contains(key)
                && key
                    .rel()
                    .is_none_or(|rel| wal_redo::oracle::is_logged(rel.fork))
        })
        .collect();
    assert!(
        extra.is_empty(),
        "pages that Postgres does not have: {extra:?}"
    );
}

pub fn assert_clean(report: &Report) {
    println!("{report}");
    assert!(report.is_clean(), "redo differs from Postgres:\n{report}");
}

/// Feeds redo damaged copies of every delta and page on the way; it may refuse or make nonsense, not panic.
pub fn with_damaged_copies(settings: ClusterSettings) -> Redo {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    Box::new(move |delta, key, page| {
        if let PageDelta::Record {
            end_lsn,
            will_init,
            record,
        } = delta
        {
            for _ in 0..4 {
                let (mut bytes, mut copy) = (record.to_vec(), *page);
                // Behind the header, where the record's own fields are; and in the page's header and pointers.
                for _ in 0..random(3) {
                    let at = 24 + random(bytes.len() - 24);
                    bytes[at] = random(256) as u8;
                }
                for _ in 0..random(3) {
                    copy[random(200)] = random(256) as u8;
                }
                // Index pages say what they are at their end.
                if random(2) == 0 {
                    copy[8176 + random(16)] = random(256) as u8;
                }
                let damaged = PageDelta::Record {
                    end_lsn: *end_lsn,
                    will_init: *will_init,
                    record: bytes.into(),
                };
                let _ = wal_redo::apply_with(settings, &damaged, key, &mut copy);
            }
        }
        wal_redo::apply_with(settings, delta, key, page)
    })
}
