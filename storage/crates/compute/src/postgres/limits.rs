//! What a compute of a size may take of its machine, in the words of the kernel's control groups. Pure.

use std::path::PathBuf;

use serde::Serialize;

/// Memory of a compute of one unit; settings are bounded by the same size (`compute_units` of the spec).
const UNIT_BYTES: f64 = (4u64 << 30) as f64;
/// What part of the memory is left when the kernel begins to take pages back from the group.
const LEFT_PART: u64 = 16;
/// Sessions of a compute of one unit at most, as the list of settings bounds `max_connections`.
const UNIT_SESSIONS: f64 = 500.0;
/// Processes beside the sessions: Postgres's own, parallel workers, programs.
const OTHER_PROCESSES: u64 = 512;
/// In this time, microseconds, a group may use the processors for its share of it.
const PERIOD_US: u64 = 100_000;
/// The least share that the kernel takes.
const LEAST_QUOTA_US: u64 = 1_000;
/// What a group of the first kind has where one of the second has a weight of 100.
const USUAL_SHARES: u64 = 1024;
/// What the kernel takes of shares at most.
const MOST_SHARES: u64 = 262_144;

/// What a compute may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Memory of all its processes, the kernel's cache of their files included, bytes.
    pub memory_bytes: u64,
    /// Time on processors, thousandths of one processor.
    pub cpu_thousandths: u64,
    /// Processes and threads.
    pub processes: u64,
    /// The part of the disks' time, and of that of processors, where others want some too: a compute of one unit has
    /// 100.
    pub io_weight: u64,
}

impl Limits {
    /// Of a compute of so many units, more than 0.
    pub fn of_units(units: f64) -> Limits {
        Limits {
            memory_bytes: (units * UNIT_BYTES) as u64,
            cpu_thousandths: (units * 1000.0).ceil() as u64,
            processes: ((units * UNIT_SESSIONS).ceil() as u64).saturating_add(OTHER_PROCESSES),
            io_weight: (units * 100.0).round() as u64,
        }
    }
}

/// The kernel's two kinds of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A hierarchy for each controller, or for a few.
    One,
    /// One hierarchy.
    Two,
}

/// What is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Controller {
    /// Memory.
    Memory,
    /// Time on processors.
    Cpu,
    /// The number of processes.
    Processes,
    /// The disks' time.
    Io,
}

/// A file of a group and what is to be written to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The file's name.
    pub file: &'static str,
    /// What is written.
    pub value: String,
    /// Whether the limit holds only with it.
    pub needed: bool,
}

impl Controller {
    /// All of them.
    pub const ALL: [Controller; 4] = [
        Controller::Memory,
        Controller::Cpu,
        Controller::Processes,
        Controller::Io,
    ];

    /// The kernel's name for it.
    pub fn name(self, version: Version) -> &'static str {
        match (self, version) {
            (Controller::Memory, _) => "memory",
            (Controller::Cpu, _) => "cpu",
            (Controller::Processes, _) => "pids",
            (Controller::Io, Version::One) => "blkio",
            (Controller::Io, Version::Two) => "io",
        }
    }

    /// What puts a group under the limits, in the order of writing.
    pub fn settings(self, version: Version, limits: &Limits) -> Vec<Setting> {
        let needed = |file, value: String| Setting {
            file,
            value,
            needed: true,
        };
        let weight = limits.io_weight.clamp(1, 10_000);
        let shares = weight * USUAL_SHARES / 100;
        let wished = |file, value: u64| Setting {
            file,
            value: value.to_string(),
            needed: false,
        };
        let memory = limits.memory_bytes;
        let high = memory - memory / LEFT_PART;
        let quota = limits.cpu_thousandths.saturating_mul(PERIOD_US / 1000);
        let quota = quota.max(LEAST_QUOTA_US);
        match (self, version) {
            (Controller::Memory, Version::Two) => vec![
                needed("memory.max", memory.to_string()),
                wished("memory.high", high),
                // What is swapped out counts elsewhere, and would be as much again.
                wished("memory.swap.max", 0),
            ],
            (Controller::Memory, Version::One) => vec![
                needed("memory.limit_in_bytes", memory.to_string()),
                wished("memory.soft_limit_in_bytes", high),
                wished("memory.memsw.limit_in_bytes", memory),
            ],
            (Controller::Cpu, Version::Two) => vec![
                wished("cpu.weight", weight),
                needed("cpu.max", format!("{quota} {PERIOD_US}")),
            ],
            (Controller::Cpu, Version::One) => vec![
                wished("cpu.shares", shares.clamp(2, MOST_SHARES)),
                needed("cpu.cfs_period_us", PERIOD_US.to_string()),
                needed("cpu.cfs_quota_us", quota.to_string()),
            ],
            (Controller::Processes, _) => vec![needed("pids.max", limits.processes.to_string())],
            (Controller::Io, Version::Two) => {
                vec![needed("io.weight", format!("default {weight}"))]
            }
            (Controller::Io, Version::One) => vec![needed(
                "blkio.weight",
                limits.io_weight.clamp(10, 1000).to_string(),
            )],
        }
    }
}

/// A tree of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// The kind.
    pub version: Version,
    /// Where it is mounted.
    pub mount: PathBuf,
    /// Names of its controllers; of the second kind, groups say themselves which they have.
    pub controllers: Vec<String>,
}

/// The hierarchies that `/proc/self/mountinfo` names.
pub fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    mountinfo.lines().filter_map(hierarchy).collect()
}

fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (mount, filesystem) = line.split_once(" - ")?;
    let mut words = filesystem.split(' ');
    let version = match words.next()? {
        "cgroup2" => Version::Two,
        "cgroup" => Version::One,
        _ => return None,
    };
    let options = words.nth(1)?;
    Some(Hierarchy {
        version,
        mount: mount.split(' ').nth(4)?.into(),
        controllers: options.split(',').map(str::to_owned).collect(),
    })
}

/// How many processes the kernel has ended for want of memory, by a group's `memory.events` or `memory.oom_control`.
pub fn out_of_memory_kills(text: &str) -> u64 {
    let number = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
    text.lines().find_map(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(controller: Controller, version: Version, units: f64) -> Vec<(String, String)> {
        let settings = controller.settings(version, &Limits::of_units(units));
        let pair = |setting: Setting| (setting.file.to_owned(), setting.value);
        settings.into_iter().map(pair).collect()
    }

    fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
        let owned = |(file, value): &(&str, &str)| ((*file).to_owned(), (*value).to_owned());
        of.iter().map(owned).collect()
    }

    #[test]
    fn a_compute_of_one_unit_has_four_gibibytes_and_one_processor() {
        let limits = Limits::of_units(1.0);
        assert_eq!(limits.memory_bytes, 4 << 30);
        assert_eq!(limits.cpu_thousandths, 1000);
        assert_eq!(limits.processes, 1012);
    }

    #[test]
    fn limits_are_written_in_the_words_of_the_kind() {
        let memory = written(Controller::Memory, Version::Two, 2.0);
        assert_eq!(
            memory,
            pairs(&[
                ("memory.max", "8589934592"),
                ("memory.high", "8053063680"),
                ("memory.swap.max", "0")
            ])
        );
        let cpu = |version| written(Controller::Cpu, version, 0.25);
        assert_eq!(
            cpu(Version::Two),
            pairs(&[("cpu.weight", "25"), ("cpu.max", "25000 100000")])
        );
        assert_eq!(
            cpu(Version::One),
            pairs(&[
                ("cpu.shares", "256"),
                ("cpu.cfs_period_us", "100000"),
                ("cpu.cfs_quota_us", "25000")
            ])
        );
        let io = |version, units| written(Controller::Io, version, units);
        assert_eq!(
            io(Version::Two, 4.0),
            pairs(&[("io.weight", "default 400")])
        );
        assert_eq!(io(Version::One, 64.0), pairs(&[("blkio.weight", "1000")]));
    }

    #[test]
    fn no_size_gives_a_limit_that_the_kernel_refuses() {
        for units in [f64::MIN_POSITIVE, 0.001, 0.25, 1.0, 128.0, 1e9, f64::MAX] {
            let limits = Limits::of_units(units);
            for version in [Version::One, Version::Two] {
                let quota = written(Controller::Cpu, version, units).pop().unwrap().1;
                let quota: u64 = quota.split(' ').next().unwrap().parse().unwrap();
                assert!(quota >= LEAST_QUOTA_US, "{units}");
            }
            assert!(limits.processes > OTHER_PROCESSES, "{units}");
        }
    }

    #[test]
    fn hierarchies_of_both_kinds_are_found_among_other_mounts() {
        let table = "\
            22 27 0:21 / /proc rw,relatime - proc proc rw\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory\n\
            36 31 0:33 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = hierarchies(table);
        let mounts: Vec<_> = found
            .iter()
            .map(|one| one.mount.to_str().unwrap())
            .collect();
        assert_eq!(
            mounts,
            [
                "/sys/fs/cgroup/memory",
                "/sys/fs/cgroup/cpu,cpuacct",
                "/sys/fs/cgroup/unified"
            ]
        );
        assert_eq!(found[1].controllers, ["rw", "cpu", "cpuacct"]);
        assert_eq!(found[2].version, Version::Two);
    }

    #[test]
    fn ends_for_want_of_memory_are_counted_in_both_kinds_of_files() {
        let events = "low 0\nhigh 12\nmax 4\noom 2\noom_kill 3\noom_group_kill 1\n";
        assert_eq!(out_of_memory_kills(events), 3);
        let control = "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n";
        assert_eq!(out_of_memory_kills(control), 7);
        assert_eq!(out_of_memory_kills(""), 0);
    }
}
