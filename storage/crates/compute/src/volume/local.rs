//! What the agent asks of a volume: which files are here, and where a page is to be read.

use std::collections::HashSet;

use pg_types::{BLCKSZ, ForkNumber, RELSEG_BLOCKS, RelTag};

use super::names::{self, RelFile};
use super::{Volume, VolumeError};

impl Volume {
    /// Where a relation block is to be read through the mount: a path below the volume's root and an offset in bytes.
    /// `None` when there is no such file (any more), or it belongs to an unlogged relation.
    ///
    /// The volume itself is not asked for the block: while it is written back, the kernel may have a newer one.
    pub fn place_of_block(
        &self,
        rel: RelTag,
        block: u32,
    ) -> Result<Option<(String, u64)>, VolumeError> {
        self.check_open()?;
        let Some(directory) = names::database_path(rel.spc, rel.db) else {
            return Ok(None);
        };
        let init = RelFile {
            rel: rel.rel,
            fork: ForkNumber::Init,
            segment: 0,
        };
        match self.find(&format!("{directory}/{}", init.name())) {
            Err(VolumeError::NotFound) => {}
            Ok(_) => return Ok(None),
            Err(error) => return Err(error),
        }
        let file = RelFile {
            rel: rel.rel,
            fork: rel.fork,
            segment: block / RELSEG_BLOCKS,
        };
        let path = format!("{directory}/{}", file.name());
        match self.find(&path) {
            Ok(_) => Ok(Some((
                path,
                u64::from(block % RELSEG_BLOCKS) * BLCKSZ as u64,
            ))),
            Err(VolumeError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Files of the main forks of unlogged relations that were opened or made here, each with that of its init fork, which
    /// is what the relation begins with at every start. Paths below the volume's root.
    ///
    /// # Errors
    ///
    /// Storage cannot say what a database's directory holds, or the volume is closed.
    pub fn unlogged_files(&self) -> Result<Vec<(String, String)>, VolumeError> {
        let mut found = Vec::new();
        for (ino, database, directory) in self.entries(self.find("base")?.ino)? {
            if ino == 0 || !directory {
                continue;
            }
            let entries = self.entries(ino)?;
            let names: HashSet<&str> = entries.iter().map(|(_, name, _)| name.as_str()).collect();
            for (ino, name, _) in &entries {
                let Some(file) = RelFile::parse(name) else {
                    continue;
                };
                let init = RelFile {
                    fork: ForkNumber::Init,
                    ..file
                };
                let begins = RelFile { segment: 0, ..init }.name();
                if *ino != 0 && file.fork == ForkNumber::Main && names.contains(begins.as_str()) {
                    let of = |name: &str| format!("base/{database}/{name}");
                    found.push((of(name), of(&init.name())));
                }
            }
        }
        Ok(found)
    }

    /// Paths of the free space maps that exist here, of relations that survive a restart.
    pub fn local_free_space_maps(&self) -> Result<Vec<String>, VolumeError> {
        let mut paths = Vec::new();
        for (ino, database, directory) in self.entries(self.find("base")?.ino)? {
            if ino == 0 || !directory {
                continue;
            }
            let path = format!("base/{database}");
            let entries = self.entries(ino)?;
            let exists = |name: &str| entries.iter().any(|(_, other, _)| other == name);
            for (ino, name, _) in &entries {
                let Some(file) = RelFile::parse(name) else {
                    continue;
                };
                let init = RelFile {
                    fork: ForkNumber::Init,
                    segment: 0,
                    ..file
                };
                if *ino != 0 && file.fork == ForkNumber::Fsm && !exists(&init.name()) {
                    paths.push(format!("{path}/{name}"));
                }
            }
        }
        Ok(paths)
    }
}
