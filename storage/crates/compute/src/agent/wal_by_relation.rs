//! The WAL of the last minutes by relation, with the names relations have now.
//!
//! WAL names relations by tablespace, database and relfilenode; only their own database knows what those are
//! called. One that was dropped or rewritten since has no name any more and is told by its numbers.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use wal_decode::{RelationBytes, RelationId};

use super::live::Live;
use super::{Agent, State};
use crate::postgres::{Admin, AdminError};

/// Relations told one by one; the others are summed.
const MOST_RELATIONS: usize = 100;
/// Databases asked for names, those with the most WAL first.
const MOST_DATABASES: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Why the WAL cannot be told by relation.
#[derive(Debug, thiserror::Error)]
pub enum WalByRelationError {
    /// No Postgres runs in the state of the field.
    #[error("the compute is {0:?}; its relations have names only while it runs")]
    NotRunning(State),
    /// The database `postgres` gave no session or no answer. A database that does not answer only leaves its
    /// relations without names.
    #[error("Postgres could not be asked for names: {0}")]
    Postgres(#[from] AdminError),
}

/// The answer of `GET /wal_by_relation`.
#[derive(Debug, Serialize)]
pub struct WalByRelation {
    window_seconds: f64,
    relations: Vec<Relation>,
    without_relation: Bytes,
    other: Bytes,
    undercounted_by_at_most_bytes: u64,
    settings: Settings,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Bytes {
    image_bytes: u64,
    rest_bytes: u64,
    records: u64,
}

#[derive(Debug, Serialize)]
struct Relation {
    tablespace_oid: u32,
    database_oid: u32,
    relfilenode: u32,
    #[serde(flatten)]
    bytes: Bytes,
    /// Null for relations that all databases share.
    database: Option<String>,
    #[serde(flatten)]
    name: Name,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Name {
    schema: Option<String>,
    relation: Option<String>,
    /// `table`, `index`, `toast`, `sequence`, `materialized view` or `other`.
    kind: Option<&'static str>,
    /// The table that an index or a TOAST table belongs to.
    table: Option<String>,
}

/// What decides how much of the WAL is page images.
#[derive(Debug, Default, Serialize)]
struct Settings {
    max_wal_size_bytes: Option<u64>,
    checkpoint_timeout_seconds: Option<u64>,
    wal_compression: Option<String>,
}

impl From<RelationBytes> for Bytes {
    fn from(counted: RelationBytes) -> Bytes {
        Bytes {
            image_bytes: counted.image_bytes,
            rest_bytes: counted.rest_bytes,
            records: counted.records,
        }
    }
}

impl Agent {
    /// The WAL of the last minutes, the 100 relations with most of it first, under the names they have now.
    ///
    /// # Errors
    ///
    /// [`WalByRelationError`] when no Postgres runs, or Postgres does not answer.
    pub async fn wal_by_relation(&self) -> Result<WalByRelation, WalByRelationError> {
        let live = self
            .running()
            .ok_or_else(|| WalByRelationError::NotRunning(self.status.lock().state))?;
        let (counted, window) = self.relations.recent();
        let (largest, other) = counted.largest(MOST_RELATIONS);
        let admin = connect(&live.socket, live.port, "postgres").await?;
        let databases = databases(&admin).await?;
        let ids: Vec<RelationId> = largest.iter().map(|(id, _)| *id).collect();
        let names = names(&live, &databases, &ids).await;
        let relations = largest
            .into_iter()
            .map(|(id, bytes)| Relation {
                tablespace_oid: id.tablespace,
                database_oid: id.database,
                relfilenode: id.relfilenode,
                bytes: bytes.into(),
                database: databases.get(&id.database).cloned(),
                name: names.get(&id).cloned().unwrap_or_default(),
            })
            .collect();
        Ok(WalByRelation {
            window_seconds: window.as_secs_f64(),
            relations,
            without_relation: counted.without_relation().into(),
            other: other.into(),
            undercounted_by_at_most_bytes: counted.undercount(),
            settings: settings(&admin).await?,
        })
    }
}

/// A superuser's session in a database.
pub(super) async fn connect(socket: &Path, port: u16, database: &str) -> Result<Admin, AdminError> {
    // The owner may hold a lock on the database that a session waits for while it starts.
    tokio::time::timeout(CONNECT_TIMEOUT, Admin::connect(socket, port, database))
        .await
        .map_err(|_| {
            let seconds = CONNECT_TIMEOUT.as_secs();
            AdminError::Other(format!("no session in {database} within {seconds} s"))
        })?
}

pub(super) async fn databases(admin: &Admin) -> Result<HashMap<u32, String>, AdminError> {
    let rows = admin
        .rows(
            "list databases",
            "SELECT oid, datname FROM pg_database WHERE datallowconn",
        )
        .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| match <[Option<String>; 2]>::try_from(row) {
            Ok([Some(oid), Some(name)]) => Some((oid.parse().ok()?, name)),
            _ => None,
        })
        .collect())
}

async fn settings(admin: &Admin) -> Result<Settings, AdminError> {
    let rows = admin
        .rows(
            "read settings",
            "SELECT pg_size_bytes(current_setting('max_wal_size')),
                    (SELECT setting FROM pg_settings WHERE name = 'checkpoint_timeout'),
                    current_setting('wal_compression')",
        )
        .await?;
    let mut columns = rows.into_iter().flatten();
    let mut next = || columns.next().flatten();
    Ok(Settings {
        max_wal_size_bytes: next().and_then(|value| value.parse().ok()),
        checkpoint_timeout_seconds: next().and_then(|value| value.parse().ok()),
        wal_compression: next(),
    })
}

/// What is known; a database that can't be asked leaves its relations without names.
pub(super) async fn names(
    live: &Live,
    databases: &HashMap<u32, String>,
    relations: &[RelationId],
) -> HashMap<RelationId, Name> {
    let mut by_database: Vec<(u32, Vec<RelationId>)> = Vec::new();
    for id in relations {
        match by_database.iter_mut().find(|(oid, _)| *oid == id.database) {
            Some((_, ids)) => ids.push(*id),
            None => by_database.push((id.database, vec![*id])),
        }
    }
    let mut names = HashMap::new();
    for (oid, ids) in by_database.into_iter().take(MOST_DATABASES) {
        // Shared relations are known everywhere.
        let database = match oid {
            0 => Some("postgres"),
            oid => databases.get(&oid).map(String::as_str),
        };
        let Some(database) = database else { continue };
        match names_in(live, database, &ids).await {
            Ok(found) => names.extend(found),
            Err(error) => tracing::warn!(database, %error, "relations stay without names"),
        }
    }
    names
}

async fn names_in(
    live: &Live,
    database: &str,
    ids: &[RelationId],
) -> Result<Vec<(RelationId, Name)>, AdminError> {
    let admin = connect(&live.socket, live.port, database).await?;
    let values: Vec<String> = ids
        .iter()
        .enumerate()
        .map(|(at, id)| format!("({at}, {}::oid, {}::oid)", id.tablespace, id.relfilenode))
        .collect();
    let rows = admin
        .rows(
            "name relations",
            &format!(
                "SELECT asked.at, n.nspname, c.relname, c.relkind, coalesce(t.relname, u.relname)
                 FROM (VALUES {}) AS asked(at, tablespace, relfilenode)
                 JOIN pg_class c ON c.oid = pg_filenode_relation(asked.tablespace, asked.relfilenode)
                 JOIN pg_namespace n ON n.oid = c.relnamespace
                 LEFT JOIN pg_index i ON i.indexrelid = c.oid
                 LEFT JOIN pg_class t ON t.oid = i.indrelid
                 LEFT JOIN pg_class u ON u.reltoastrelid = c.oid AND c.relkind = 't'",
                values.join(", ")
            ),
        )
        .await?;
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let [at, schema, relation, kind, table] = <[Option<String>; 5]>::try_from(row).ok()?;
            let id = ids.get(at?.parse::<usize>().ok()?)?;
            Some((
                *id,
                Name {
                    schema,
                    relation,
                    kind: kind.as_deref().map(kind_name),
                    table,
                },
            ))
        })
        .collect())
}

/// In words, what `pg_class.relkind` says.
fn kind_name(relkind: &str) -> &'static str {
    match relkind {
        "r" => "table",
        "i" => "index",
        "t" => "toast",
        "S" => "sequence",
        "m" => "materialized view",
        _ => "other",
    }
}
