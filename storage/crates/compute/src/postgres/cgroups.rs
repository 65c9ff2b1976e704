//! The control group of a compute's Postgres, by which the kernel bounds what it takes of the machine.
//!
//! A group is made below one that the operator has named and made, in each hierarchy where there is such a one: Weir
//! takes no place among groups by itself, since whoever manages a machine's groups (systemd, a container's runtime) does
//! not expect others there. Both of the kernel's kinds are used, the second before the first.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Component, Path, PathBuf};

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

/// A group that was made for a Postgres, which has yet to enter it.
#[derive(Debug)]
pub struct Group {
    limits: Limits,
    made: Vec<(Controller, PathBuf)>,
    missing: Vec<Unlimited>,
    killed_before: u64,
}

impl Group {
    /// Makes the group `name` below `parent`, with these limits. Nothing here fails: what is not to be had is said.
    pub fn make(parent: &Path, name: &str, limits: Limits) -> Group {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut group = Group {
            limits,
            made: Vec::new(),
            missing: Vec::new(),
            killed_before: 0,
        };
        for controller in Controller::ALL {
            match make_one(&hierarchies(&table), parent, name, controller, &limits) {
                Ok(directory) => group.made.push((controller, directory)),
                Err(reason) => group.missing.push(Unlimited { controller, reason }),
            }
        }
        // What an agent that was killed has left may have counted some.
        group.killed_before = group.killed();
        group
    }

    /// The group's directories, one a hierarchy.
    pub fn directories(&self) -> Vec<PathBuf> {
        let mut directories: Vec<PathBuf> =
            self.made.iter().map(|(_, path)| path.clone()).collect();
        directories.sort();
        directories.dedup();
        directories
    }

    /// What bounds those who are in the group; but for directories, with why, that could not be entered.
    pub fn bounds(&self, outside: &[(PathBuf, String)]) -> Bounds {
        let mut bounds = Bounds {
            limits: self.limits,
            in_force: Vec::new(),
            missing: self.missing.clone(),
        };
        for (controller, directory) in &self.made {
            match outside.iter().find(|(path, _)| path == directory) {
                None => bounds.in_force.push(*controller),
                Some((_, reason)) => bounds.missing.push(Unlimited {
                    controller: *controller,
                    reason: reason.clone(),
                }),
            }
        }
        bounds
    }

    /// That the kernel has ended processes of the group for want of memory, in words; `None` if it has not.
    pub fn out_of_memory(&self) -> Option<String> {
        let killed = self.killed().saturating_sub(self.killed_before);
        (killed > 0).then(|| {
            format!(
                "out of memory: the kernel ended {killed} of this compute's processes, which may take {} MiB",
                self.limits.memory_bytes >> 20
            )
        })
    }

    fn killed(&self) -> u64 {
        let memory = |(controller, path): &(Controller, PathBuf)| {
            (*controller == Controller::Memory).then(|| path.clone())
        };
        let Some(directory) = self.made.iter().find_map(memory) else {
            return 0;
        };
        ["memory.events", "memory.oom_control"]
            .iter()
            .filter_map(|file| std::fs::read_to_string(directory.join(file)).ok())
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
) -> Result<PathBuf, String> {
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
            found = limited(&below, name, controller, version, limits);
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
    for setting in controller.settings(version, limits) {
        let file = directory.join(setting.file);
        if let Err(error) = write(&file, &setting.value)
            && setting.needed
        {
            // In the first kind, the directory is for this controller alone.
            if version == Version::One {
                std::fs::remove_dir(&directory).ok();
            }
            return Err(format!("{} cannot be written: {error}", file.display()));
        }
    }
    Ok(directory)
}

fn write(file: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .open(file)?
        .write_all(text.as_bytes())
}
