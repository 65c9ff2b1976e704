//! What the agent asks of a volume: pages and files as they are here.

use pg_types::{ForkNumber, RELSEG_BLOCKS, RelTag};

use super::names::{self, RelFile};
use super::{Volume, VolumeError};

impl Volume {
    /// A relation block as it was last written or read here; `None` when it is not here (any more), or belongs
    /// to an unlogged relation.
    pub fn local_block(&self, rel: RelTag, block: u32) -> Result<Option<Vec<u8>>, VolumeError> {
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
        match self.find(&format!("{directory}/{}", file.name())) {
            Ok(node) => node.file()?.read_local_block(block % RELSEG_BLOCKS),
            Err(VolumeError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
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
