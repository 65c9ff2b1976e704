//! What roles and databases have chosen for the commits of their sessions, in place of the compute's level.
//!
//! Both stand in a catalog that all databases share, so that one session sees them all. What a session has chosen for
//! itself only that session knows.

use serde::Serialize;

use super::{Agent, State};
use crate::postgres::AdminError;

/// Of more, the weak ones come first.
const MOST: usize = 200;

/// Why it is not known what roles and databases have chosen.
#[derive(Debug, thiserror::Error)]
pub enum ChosenError {
    /// No Postgres runs in the state of the field.
    #[error("the compute is {0:?}; what its roles have chosen is known while it runs")]
    NotRunning(State),
    /// Postgres gave no session or no answer. Ask again.
    #[error(transparent)]
    Postgres(#[from] AdminError),
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Choice {
    /// Null: of all roles.
    role: Option<String>,
    /// Null: in all databases.
    database: Option<String>,
    synchronous_commit: String,
}

/// The answer of `GET /synchronous_commit`.
#[derive(Debug, Serialize)]
pub struct Chosen {
    chosen: Vec<Choice>,
    /// There are more than are listed.
    more: bool,
}

impl Agent {
    /// What roles and databases have chosen for the commits of their sessions: at most 200 entries, weak ones first.
    ///
    /// # Errors
    ///
    /// [`ChosenError`] when no Postgres runs, or Postgres does not answer.
    pub async fn chosen_synchronous_commit(&self) -> Result<Chosen, ChosenError> {
        let live = self
            .running()
            .ok_or_else(|| ChosenError::NotRunning(self.status.lock().state))?;
        let admin = live.admin().await?;
        let rows = admin
            .rows("read what roles have chosen", &query(MOST + 1))
            .await?;
        let mut chosen: Vec<_> = rows.into_iter().filter_map(choice).collect();
        let more = chosen.len() > MOST;
        chosen.truncate(MOST);
        Ok(Chosen { chosen, more })
    }
}

fn query(limit: usize) -> String {
    format!(
        "SELECT rolname, datname, split_part(entry, '=', 2)
         FROM pg_db_role_setting
              CROSS JOIN unnest(setconfig) AS entry
              LEFT JOIN pg_roles ON pg_roles.oid = setrole
              LEFT JOIN pg_database ON pg_database.oid = setdatabase
         WHERE lower(split_part(entry, '=', 1)) = 'synchronous_commit'
         ORDER BY lower(split_part(entry, '=', 2)) IN ('on', 'true', 'yes', '1', 'remote_apply'),
                  rolname NULLS FIRST, datname NULLS FIRST
         LIMIT {limit}"
    )
}

fn choice(row: Vec<Option<String>>) -> Option<Choice> {
    let [role, database, value] = <[Option<String>; 3]>::try_from(row).ok()?;
    Some(Choice {
        role,
        database,
        synchronous_commit: value?,
    })
}
