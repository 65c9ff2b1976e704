//! What unlogged relations hold, which ends with a run: each start begins them anew, from their init forks.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_types::rel::DEFAULT_TABLESPACE;
use serde::Serialize;
use wal_decode::RelationId;

use super::live::Live;
use super::wal_by_relation::{Name, connect, databases, names};
use super::{Agent, State};
use crate::volume::through_mount;

/// Relations told one by one, the largest.
const MOST_RELATIONS: usize = 10;

/// Why it cannot be said what unlogged relations hold.
#[derive(Debug, thiserror::Error)]
pub enum UnloggedError {
    /// No Postgres runs in the state of the field, so that they hold nothing that could be kept.
    #[error("the compute is {0:?}; unlogged relations hold rows only while it runs")]
    NotRunning(State),
    /// The files could not be looked at. Ask again.
    #[error("what unlogged relations hold cannot be counted now: {0:#}")]
    Files(anyhow::Error),
}

/// The answer of `GET /unlogged`.
#[derive(Debug, Serialize)]
pub struct Unlogged {
    /// Of all of them.
    bytes: u64,
    relations: Vec<Relation>,
    /// There are more than are listed.
    more: bool,
}

/// One that holds something.
#[derive(Debug, Serialize)]
struct Relation {
    bytes: u64,
    database: Option<String>,
    /// Null where Postgres does not say it in time.
    #[serde(flatten)]
    name: Name,
}

impl Agent {
    /// Bytes of unlogged relations beyond what they begin with; `None` when that cannot be said now.
    pub(super) async fn unlogged_bytes(&self, live: &Arc<Live>) -> Option<u64> {
        match self.counted(live).await {
            Ok(counted) => Some(counted.values().sum()),
            Err(error) => {
                tracing::debug!("cannot count what unlogged relations hold: {error:#}");
                None
            }
        }
    }

    /// What a suspend would empty, as of now: all bytes, and the ten largest relations by name.
    ///
    /// # Errors
    ///
    /// [`UnloggedError`] when no Postgres runs, or its files cannot be looked at. A Postgres that does not say names
    /// leaves the relations without.
    pub async fn unlogged(&self) -> Result<Unlogged, UnloggedError> {
        let live = self
            .running()
            .ok_or_else(|| UnloggedError::NotRunning(self.status.lock().state))?;
        let counted = self.counted(&live).await.map_err(UnloggedError::Files)?;
        let bytes = counted.values().sum();
        let mut largest: Vec<(RelationId, u64)> = counted
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        largest.sort_by_key(|(id, bytes)| (std::cmp::Reverse(*bytes), *id));
        let more = largest.len() > MOST_RELATIONS;
        largest.truncate(MOST_RELATIONS);
        let (mut known, mut named) = (HashMap::new(), HashMap::new());
        if !largest.is_empty()
            && let Ok(admin) = connect(&live.socket, live.port, "postgres").await
            && let Ok(databases) = databases(&admin).await
        {
            let ids: Vec<RelationId> = largest.iter().map(|(id, _)| *id).collect();
            named = names(&live, &databases, &ids).await;
            known = databases;
        }
        let relation = |(id, bytes): (RelationId, u64)| Relation {
            bytes,
            database: known.get(&id.database).cloned(),
            name: named.remove(&id).unwrap_or_default(),
        };
        Ok(Unlogged {
            bytes,
            relations: largest.into_iter().map(relation).collect(),
            more,
        })
    }

    async fn counted(&self, live: &Arc<Live>) -> anyhow::Result<HashMap<RelationId, u64>> {
        let (live, root) = (live.clone(), self.paths.volume.clone());
        // Reads through the mount, which this process serves on other threads.
        tokio::task::spawn_blocking(move || count(&live, root)).await?
    }
}

/// Sizes as the kernel has them: it knows of writes that have not come to the volume yet.
fn count(live: &Live, root: PathBuf) -> anyhow::Result<HashMap<RelationId, u64>> {
    let files = live.volume.unlogged_files()?;
    let sizes = through_mount::alone(move || {
        let size_of = |(file, init): (String, String)| {
            let bytes = size(&root.join(&file))?.saturating_sub(size(&root.join(init))?);
            Ok((file, bytes))
        };
        files
            .into_iter()
            .map(size_of)
            .collect::<io::Result<Vec<_>>>()
    })??;
    let mut counted = HashMap::new();
    for (file, bytes) in sizes {
        if let Some(id) = relation_of(&file) {
            *counted.entry(id).or_default() += bytes;
        }
    }
    Ok(counted)
}

/// Of `base/DATABASE/RELFILENODE` or a later segment, `base/DATABASE/RELFILENODE.SEGMENT`.
fn relation_of(path: &str) -> Option<RelationId> {
    let (database, file) = path.strip_prefix("base/")?.split_once('/')?;
    Some(RelationId {
        tablespace: DEFAULT_TABLESPACE,
        database: database.parse().ok()?,
        relfilenode: file.split('.').next()?.parse().ok()?,
    })
}

/// Of a file that may have been dropped meanwhile, or that there is no init fork of.
fn size(path: &Path) -> std::io::Result<u64> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_of_a_relation_count_as_one() {
        let first = relation_of("base/16384/16390").expect("a relation");
        assert_eq!(relation_of("base/16384/16390.2"), Some(first));
        assert_eq!((first.database, first.relfilenode), (16384, 16390));
        assert_eq!(relation_of("global/1262"), None);
    }
}
