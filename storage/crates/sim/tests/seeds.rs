//! Promise: over random schedules of crashes, partitions and competing computes nothing acknowledged is lost
//! or changed. A failure prints its seed; `WEIR_SIM_SEED=n` runs
//! that one, `WEIR_SIM_SEEDS=n` runs n of them, from `WEIR_SIM_FIRST_SEED` on.

use std::panic::catch_unwind;

use sim::Report;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_schedule_loses_what_was_acknowledged() {
    let seeds = match number("WEIR_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("WEIR_SIM_FIRST_SEED").unwrap_or(0);
            first..first + number("WEIR_SIM_SEEDS").unwrap_or(200)
        }
    };
    let count = seeds.end - seeds.start;
    let mut total = Report::default();
    for seed in seeds {
        let outcome = catch_unwind(|| sim::run(seed))
            .unwrap_or_else(|_| panic!("seed {seed}: an assertion of the code failed"));
        let report = outcome.unwrap_or_else(|violation| {
            let (_, trace) = sim::run_traced(seed, None);
            let tail = trace
                .len()
                .saturating_sub(number("WEIR_SIM_TRACE").unwrap_or(200) as usize);
            panic!("{}\n{violation}", trace[tail..].join("\n"))
        });
        total.elections += report.elections;
        total.commits += report.commits;
        total.crashes += report.crashes;
        total.changes += report.changes;
        total.lost_disks += report.lost_disks;
        total.restored_disks += report.restored_disks;
        total.offloads += report.offloads;
        total.fills += report.fills;
        total.lost_wholly += report.lost_wholly;
        total.unavailable += report.unavailable;
        total.committed_bytes += report.committed_bytes;
    }
    println!("{count} seeds: {total:?}");
    if count >= 100 {
        let average = |sum: u32| f64::from(sum) / count as f64;
        let enough = [
            ("elections", total.elections, 3.0),
            ("commits", total.commits, 20.0),
            ("crashes", total.crashes, 3.0),
            ("changes of members", total.changes, 2.0),
            ("lost disks", total.lost_disks, 0.3),
            ("disks put back from a copy", total.restored_disks, 0.1),
            ("logs offloaded", total.offloads, 1.0),
            ("logs filled", total.fills, 0.1),
            ("losses of all disks", total.lost_wholly, 0.1),
        ];
        for (what, sum, least) in enough {
            let average = average(sum);
            assert!(
                average > least,
                "{average} {what} a run are too few to prove anything: {total:?}"
            );
        }
        assert!(
            average(total.unavailable) < 0.5,
            "most runs lose a majority of the disks, and end without the last election: {total:?}"
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..5 {
        assert_eq!(sim::run(seed), sim::run(seed));
    }
}
