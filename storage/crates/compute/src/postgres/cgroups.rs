//! The control group of a compute's Postgres, by which the kernel bounds what it takes of the machine.
//!
//! A group is made below one that the operator has named and made, in each hierarchy where there is such a one: Weir
//! takes no place among groups by itself, since whoever manages a machine's groups (systemd, a container's runtime) does
//! not expect others there. Both of the kernel's kinds are used, the second before the first.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

use parking_lot::Mutex;
use serde::Serialize;

use super::limits::{Controller, Hierarchy, Limits, Version, hierarchies, out_of_memory_kills};

/// A limit that is not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unlimited {
    /// What is not limited.
    pub controller: Controller,
    /// Why.
    pub reason: String,
}

/// What bounds a compute, as its agent says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bounds {
    /// By the compute's size.
    #[serde(flatten)]
    pub limits: Limits,
    /// Limits that the kernel keeps.
    pub in_force: Vec<Controller>,
    /// Those that it does not.
    pub missing: Vec<Unlimited>,
}

/// A group that was made for a Postgres.
#[derive(Debug)]
pub struct Group {
    made: Vec<Made>,
    missing: Vec<Unlimited>,
    killed_before: u64,
    /// What can change while Postgres runs.
    held: Mutex<Held>,
}

/// A group's directory for one controller; several of one hierarchy are the same.
#[derive(Debug)]
struct Made {
    controller: Controller,
    version: Version,
    directory: PathBuf,
}

#[derive(Debug)]
struct Held {
    limits: Limits,
    /// Directories that Postgres is not in, with why.
    outside: Vec<(PathBuf, String)>,
    /// Limits of a size before, which had to stay.
    kept: Vec<Unlimited>,
}

impl Group {
    /// Makes the group `name` below `parent`, with these limits. Nothing here fails: what is not to be had is said.
    pub fn make(parent: &Path, name: &str, limits: Limits) -> Group {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut group = Group {
            made: Vec::new(),
            missing: Vec::new(),
            killed_before: 0,
            held: Mutex::new(Held {
                limits,
                outside: Vec::new(),
                kept: Vec::new(),
            }),
        };
        for controller in Controller::ALL {
            match make_one(&hierarchies(&table), parent, name, controller, &limits) {
                Ok(made) => group.made.push(made),
                Err(reason) => group.missing.push(Unlimited { controller, reason }),
            }
        }
        // What an agent that was killed has left may have counted some.
        group.killed_before = group.killed();
        group
    }

    /// The group's directories, one a hierarchy.
    pub fn directories(&self) -> Vec<PathBuf> {
        let made = self.made.iter();
        let mut directories: Vec<PathBuf> = made.map(|made| made.directory.clone()).collect();
        directories.sort();
        directories.dedup();
        directories
    }

    /// Takes notice that Postgres has entered the group, but for these directories, with why.
    pub fn entered(&self, outside: Vec<(PathBuf, String)>) {
        self.held.lock().outside = outside;
    }

    /// What bounds those who are in the group.
    pub fn bounds(&self) -> Bounds {
        let held = self.held.lock();
        let mut bounds = Bounds {
            limits: held.limits,
            in_force: Vec::new(),
            missing: self.missing.clone(),
        };
        for made in &self.made {
            let (controller, mut outside) = (made.controller, held.outside.iter());
            let outside = outside.find(|(path, _)| *path == made.directory);
            let mut kept = held.kept.iter();
            if let Some((_, reason)) = outside {
                let reason = reason.clone();
                bounds.missing.push(Unlimited { controller, reason });
            } else if let Some(kept) = kept.find(|kept| kept.controller == controller) {
                bounds.missing.push(kept.clone());
            } else {
                bounds.in_force.push(controller);
            }
        }
        bounds
    }

    /// Whether these limits are those that the group was given last, and none of a size before had to stay.
    pub fn has(&self, limits: &Limits) -> bool {
        let held = self.held.lock();
        held.limits == *limits && held.kept.is_empty()
    }

    /// Puts other limits in the place of those before, while Postgres runs. One that the kernel does not take, and less
    /// memory than is in use, leave the limit before: [`Group::bounds`] says so, and the call can be repeated. Blocks
    /// while the kernel takes pages of memory back, for seconds at most.
    pub fn resize(&self, limits: Limits) {
        let mut kept = Vec::new();
        for made in &self.made {
            let controller = made.controller;
            if let Err(reason) = put(&made.directory, controller, made.version, &limits) {
                kept.push(Unlimited { controller, reason });
            }
        }
        let mut held = self.held.lock();
        (held.limits, held.kept) = (limits, kept);
    }

    /// That the kernel has ended processes of the group for want of memory, in words; `None` if it has not.
    pub fn out_of_memory(&self) -> Option<String> {
        let killed = self.killed().saturating_sub(self.killed_before);
        (killed > 0).then(|| {
            format!(
                "out of memory: the kernel ended {killed} of this compute's processes, which may take {} MiB",
                self.held.lock().limits.memory_bytes >> 20
            )
        })
    }

    fn killed(&self) -> u64 {
        let mut made = self.made.iter();
        let Some(memory) = made.find(|made| made.controller == Controller::Memory) else {
            return 0;
        };
        ["memory.events", "memory.oom_control"]
            .iter()
            .filter_map(|file| std::fs::read_to_string(memory.directory.join(file)).ok())
            .map(|text| out_of_memory_kills(&text))
            .sum()
    }

    /// Removes the group, once nothing is in it any more.
    pub fn remove(&self) {
        for directory in self.directories() {
            match std::fs::remove_dir(&directory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let directory = directory.display();
                    tracing::warn!(%directory, %error, "cannot remove a control group");
                }
            }
        }
    }
}

/// Moves the calling process into groups; those that it could not enter, with why.
pub fn enter(directories: &[PathBuf]) -> Vec<(PathBuf, String)> {
    directories
        .iter()
        .filter_map(|directory| {
            let error = write(&directory.join("cgroup.procs"), "0").err()?;
            let reason = format!("{} cannot be entered: {error}", directory.display());
            Some((directory.clone(), reason))
        })
        .collect()
}

fn make_one(
    known: &[Hierarchy],
    parent: &Path,
    name: &str,
    controller: Controller,
    limits: &Limits,
) -> Result<Made, String> {
    let mut found = Err(format!(
        "no hierarchy of control groups has both the controller {} and the group {}",
        controller.name(Version::Two),
        parent.display()
    ));
    for version in [Version::Two, Version::One] {
        let wanted = controller.name(version);
        for hierarchy in known.iter().filter(|one| one.version == version) {
            let below = beneath(&hierarchy.mount, parent)?;
            if !below.is_dir() || !offers(hierarchy, &below, wanted) {
                continue;
            }
            let directory = limited(&below, name, controller, version, limits);
            found = directory.map(|directory| Made {
                controller,
                version,
                directory,
            });
            if found.is_ok() {
                return found;
            }
        }
    }
    found
}

/// The named group in a hierarchy.
fn beneath(mount: &Path, parent: &Path) -> Result<PathBuf, String> {
    let mut path = mount.to_owned();
    for part in parent.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => path.push(name),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(format!("{} is no name of a group", parent.display()));
            }
        }
    }
    Ok(path)
}

fn offers(hierarchy: &Hierarchy, below: &Path, wanted: &str) -> bool {
    match hierarchy.version {
        Version::One => hierarchy.controllers.iter().any(|one| one == wanted),
        Version::Two => std::fs::read_to_string(below.join("cgroup.controllers"))
            .is_ok_and(|text| text.split_whitespace().any(|one| one == wanted)),
    }
}

/// Makes the group below `below`, and limits it.
fn limited(
    below: &Path,
    name: &str,
    controller: Controller,
    version: Version,
    limits: &Limits,
) -> Result<PathBuf, String> {
    if version == Version::Two {
        let switch = below.join("cgroup.subtree_control");
        write(&switch, &format!("+{}", controller.name(version)))
            .map_err(|error| format!("{} takes no controller: {error}", switch.display()))?;
    }
    if Path::new(name).components().count() != 1 || name.starts_with('.') {
        return Err(format!("{name:?} can be no name of a group"));
    }
    let directory = below.join(name);
    match std::fs::create_dir(&directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(format!("{} cannot be made: {error}", directory.display())),
    }
    match put(&directory, controller, version, limits) {
        Ok(()) => Ok(directory),
        Err(reason) => {
            // In the first kind, the directory is for this controller alone.
            if version == Version::One {
                std::fs::remove_dir(&directory).ok();
            }
            Err(reason)
        }
    }
}

/// Writes the limits of one controller, over those that a group has or has not.
fn put(
    directory: &Path,
    controller: Controller,
    version: Version,
    limits: &Limits,
) -> Result<(), String> {
    if (controller, version) == (Controller::Memory, Version::Two) {
        free_memory(directory, limits.memory_bytes)?;
    }
    let settings = controller.settings(version, limits);
    // Memory with swap may never be less than memory: which of the two has to be written first depends on whether the
    // group grows. What is written in the wrong order fails, and is written again in the right one.
    for setting in settings.iter().rev() {
        write(&directory.join(setting.file), &setting.value).ok();
    }
    for setting in settings {
        let file = directory.join(setting.file);
        if let Err(error) = write(&file, &setting.value)
            && setting.needed
        {
            return Err(format!("{} cannot be written: {error}", file.display()));
        }
    }
    Ok(())
}

/// Has the kernel take pages of a group back until no more than `most` bytes are in use. In the second kind a limit below
/// what is in use ends processes at once; in the first the kernel refuses it by itself.
fn free_memory(directory: &Path, most: u64) -> Result<(), String> {
    let used = || -> u64 {
        let text = std::fs::read_to_string(directory.join("memory.current"));
        text.ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0)
    };
    if used() <= most {
        return Ok(());
    }
    let high = directory.join("memory.high");
    let before = std::fs::read_to_string(&high).unwrap_or_default();
    // The write returns when as much as can be was taken back. Left so low, sessions would stand still for long.
    write(&high, &most.to_string()).ok();
    if used() <= most {
        return Ok(());
    }
    write(&high, before.trim()).ok();
    Err(format!(
        "more than the {} MiB of this size are in use: the limit before stays until they are free",
        most >> 20
    ))
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(file)?
        .write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path, contents: &[(&str, &str)]) {
        for (name, text) in contents {
            std::fs::write(directory.join(name), text).unwrap();
        }
    }

    fn read(directory: &Path, name: &str) -> String {
        std::fs::read_to_string(directory.join(name)).unwrap()
    }

    fn group(directory: &Path, controller: Controller, version: Version, units: f64) -> Group {
        let directory = directory.to_owned();
        Group {
            made: vec![Made {
                controller,
                version,
                directory,
            }],
            missing: Vec::new(),
            killed_before: 0,
            held: Mutex::new(Held {
                limits: Limits::of_units(units),
                outside: Vec::new(),
                kept: Vec::new(),
            }),
        }
    }

    #[test]
    fn a_group_gets_the_limits_of_another_size() {
        let folder = tempfile::tempdir().unwrap();
        files(folder.path(), &[("cpu.max", ""), ("cpu.weight", "")]);
        let group = group(folder.path(), Controller::Cpu, Version::Two, 1.0);
        let (small, large) = (Limits::of_units(0.5), Limits::of_units(4.0));
        assert!(!group.has(&large));
        group.resize(large);
        assert!(group.has(&large) && !group.has(&small));
        assert_eq!(group.bounds().limits, large);
        assert_eq!(group.bounds().in_force, [Controller::Cpu]);
        group.resize(small);
        assert!(read(folder.path(), "cpu.max").starts_with("50000 100000"));
    }

    #[test]
    fn memory_in_use_keeps_the_limit_before_until_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let four_gib = (4u64 << 30).to_string();
        let limits = [("memory.max", four_gib.as_str()), ("memory.high", "max")];
        files(folder.path(), &limits);
        files(
            folder.path(),
            &[("memory.swap.max", "0"), ("memory.current", "2147483648\n")],
        );
        let group = group(folder.path(), Controller::Memory, Version::Two, 1.0);
        let small = Limits::of_units(0.25);
        group.resize(small);
        assert!(!group.has(&small), "it is to be tried again");
        assert_eq!(read(folder.path(), "memory.max"), four_gib);
        assert!(
            read(folder.path(), "memory.high").starts_with("max"),
            "no session is held up"
        );
        let bounds = group.bounds();
        assert!(bounds.in_force.is_empty());
        assert!(
            bounds.missing[0]
                .reason
                .contains("1024 MiB of this size are in use")
        );
        files(folder.path(), &[("memory.current", "1000\n")]);
        group.resize(small);
        assert!(group.has(&small));
        assert!(read(folder.path(), "memory.max").starts_with("1073741824"));
        assert_eq!(group.bounds().in_force, [Controller::Memory]);
    }

    #[test]
    fn a_limit_that_the_kernel_does_not_take_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let group = group(folder.path(), Controller::Processes, Version::One, 1.0);
        group.resize(Limits::of_units(2.0));
        assert!(
            group.bounds().missing[0]
                .reason
                .contains("pids.max cannot be written")
        );
    }
}
