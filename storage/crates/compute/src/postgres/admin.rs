//! The agent's superuser session, over the private socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pg_types::Lsn;
use tokio_postgres::{Client, Config, NoTls};

use super::config::STANDBY;
use crate::spec::SUPERUSER;

/// What the agent's sessions are like whatever the settings of the spec, of a database or of a role say: what is asked for
/// as a session starts wins over all of them. A customer chooses settings in the first two of these places, and a
/// session of the agent has the superuser's rights.
const SESSION: [(&str, &str); 20] = [
    // A name in a statement means what Postgres has under it. Other schemas are the customer's, temporary ones of other
    // sessions among them (`pg_temp_3`), and what they hold would run as the superuser.
    ("search_path", "pg_catalog,pg_temp"),
    ("role", "none"),
    // A library that is not there would keep the agent out.
    ("local_preload_libraries", ""),
    ("session_preload_libraries", ""),
    // The agent's few writes are always on disk, and nothing makes them wait for less or for more.
    ("synchronous_commit", "on"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_isolation", "read\\ committed"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_session_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
    ("standard_conforming_strings", "on"),
    ("transform_null_equals", "off"),
    // Some statements hold a verifier of a password: they are neither in the log nor in what a role sees that may
    // watch others.
    ("track_activities", "off"),
    ("log_statement", "none"),
    ("log_duration", "off"),
    ("log_min_duration_statement", "-1"),
    ("log_min_duration_sample", "-1"),
    ("log_transaction_sample_rate", "0"),
    ("log_min_error_statement", "panic"),
];

/// A statement of the agent never runs longer.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// Why the superuser's session did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Postgres gave no session: the server is still starting, has ended, or has no connection left.
    #[error("cannot connect to Postgres at {socket}: {source}")]
    Connect {
        /// Directory of the private socket.
        socket: PathBuf,
        /// What became of the attempt.
        source: tokio_postgres::Error,
    },
    /// Postgres refused a statement, or the session ended before it was answered.
    #[error("{doing}: {}", describe(source))]
    Statement {
        /// What the statement was for, in words.
        doing: String,
        /// What Postgres or the connection says.
        source: tokio_postgres::Error,
    },
    /// The statement took longer than 30 seconds. Nobody cancels the statement, so it may still be carried out.
    #[error("{doing} took longer than {} s", STATEMENT_TIMEOUT.as_secs())]
    Late {
        /// What the statement was for, in words.
        doing: String,
    },
    /// What else went wrong, in words: an answer that makes no sense, or a step that took too long.
    #[error("{0}")]
    Other(String),
}

/// What Postgres said, with its hint.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => match db.hint() {
            Some(hint) => format!("{} ({hint})", db.message()),
            None => db.message().to_owned(),
        },
        None => error.to_string(),
    }
}

/// A clock that was set back makes it negative.
fn quiet(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

/// A connection as superuser. Closes when dropped.
pub struct Admin {
    client: Client,
}

/// What clients do at the moment of one look, and did last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Sessions and workers that are at work now.
    pub busy: u64,
    /// Since a session that is idle now last did something; `None` when there is none.
    pub quiet: Option<Duration>,
    /// Sessions that ever began in the databases of clients.
    pub sessions: i64,
}

/// What the agent watches while Postgres runs.
#[derive(Clone, Debug)]
pub struct Vitals {
    /// Up to where Postgres has written WAL into its buffers (`pg_current_wal_insert_lsn`).
    pub insert_lsn: Lsn,
    /// Sessions of clients, those of the superuser left out.
    pub client_connections: i64,
    /// Base backups under way: Postgres writes page images while one is, whatever full_page_writes says.
    pub base_backups: i64,
    /// What clients do now and did last.
    pub look: Look,
    /// Sessions of whatever kind whose commit waits for the synchronous standby.
    pub commits_waiting: u64,
    /// `synchronous_standby_names` as it is in force.
    pub standbys: String,
}

impl Admin {
    /// A session of the superuser in a database, over the private socket in directory `socket`. Settings of the spec,
    /// of a database or of a role do not decide what names mean in it, which rights it has, or what is logged of it.
    ///
    /// # Errors
    ///
    /// [`AdminError::Connect`] when Postgres gives no session. Reaching it may take 5 seconds; what comes then has no
    /// bound, because a session may have to wait for a lock on its database.
    pub async fn connect(socket: &Path, port: u16, database: &str) -> Result<Admin, AdminError> {
        let mut config = Config::new();
        config
            .host_path(socket)
            .port(port)
            .user(SUPERUSER)
            .dbname(database)
            .application_name("weir-compute")
            .options(session_options())
            .connect_timeout(Duration::from_secs(5));
        let (client, connection) =
            config
                .connect(NoTls)
                .await
                .map_err(|source| AdminError::Connect {
                    socket: socket.to_owned(),
                    source,
                })?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "superuser session ended");
            }
        });
        Ok(Admin { client })
    }

    /// Whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Runs statements that return nothing; `doing` says what for.
    pub async fn run(&self, doing: &str, sql: &str) -> Result<(), AdminError> {
        self.bounded(doing, self.client.batch_execute(sql)).await
    }

    /// The first column of the rows, as text.
    pub async fn texts(&self, doing: &str, sql: &str) -> Result<Vec<String>, AdminError> {
        let messages = self.bounded(doing, self.client.simple_query(sql)).await?;
        Ok(messages
            .iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => {
                    // A name that is not UTF-8 is somebody else's, in an encoding of their own.
                    Some(row.try_get(0).ok().flatten().unwrap_or_default().to_owned())
                }
                _ => None,
            })
            .collect())
    }

    /// All columns of the rows as text; null, and what is not UTF-8, as `None`.
    pub async fn rows(
        &self,
        doing: &str,
        sql: &str,
    ) -> Result<Vec<Vec<Option<String>>>, AdminError> {
        let messages = self.bounded(doing, self.client.simple_query(sql)).await?;
        Ok(messages
            .iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(
                    (0..row.len())
                        .map(|i| row.try_get(i).ok().flatten().map(str::to_owned))
                        .collect(),
                ),
                _ => None,
            })
            .collect())
    }

    async fn bounded<T>(
        &self,
        doing: &str,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, AdminError> {
        match tokio::time::timeout(STATEMENT_TIMEOUT, work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(source)) => Err(AdminError::Statement {
                doing: doing.to_owned(),
                source,
            }),
            Err(_) => Err(AdminError::Late {
                doing: doing.to_owned(),
            }),
        }
    }

    /// How Postgres is right now.
    ///
    /// # Errors
    ///
    /// [`AdminError`] when the session has ended or gives no answer within 30 seconds.
    pub async fn vitals(&self) -> Result<Vitals, AdminError> {
        let rows = self
            .rows(
                "look at Postgres",
                &format!(
                    "SELECT pg_current_wal_insert_lsn(), count(*),
                            (SELECT count(*) FROM pg_stat_progress_basebackup),
                            (SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'),
                            current_setting('synchronous_standby_names'),
                            count(*) FILTER (WHERE state <> 'idle')
                              + (SELECT count(*) FROM pg_stat_activity
                                 WHERE backend_type LIKE 'logical replication%worker'
                                    OR backend_type = 'walsender' AND application_name <> '{STANDBY}')
                              + (SELECT count(*) FROM pg_stat_progress_vacuum),
                            extract(epoch FROM clock_timestamp() - max(state_change)),
                            (SELECT coalesce(sum(sessions), 0) FROM pg_stat_database WHERE datname <> 'postgres')
                     FROM pg_stat_activity
                     WHERE backend_type = 'client backend' AND usename <> '{SUPERUSER}'"
                ),
            )
            .await?;
        let parse = || {
            let row = rows.first()?;
            Some(Vitals {
                insert_lsn: row.first()?.as_ref()?.parse().ok()?,
                client_connections: row.get(1)?.as_ref()?.parse().ok()?,
                base_backups: row.get(2)?.as_ref()?.parse().ok()?,
                commits_waiting: row.get(3)?.as_ref()?.parse().ok()?,
                standbys: row.get(4)?.clone()?,
                look: Look {
                    busy: row.get(5)?.as_ref()?.parse().ok()?,
                    quiet: match row.get(6)? {
                        Some(seconds) => Some(quiet(seconds.parse().ok()?)),
                        None => None,
                    },
                    sessions: row.get(7)?.as_ref()?.parse().ok()?,
                },
            })
        };
        parse()
            .ok_or_else(|| AdminError::Other("Postgres describes itself in an unknown way".into()))
    }

    /// The minor of the server, such as 15.20, without what its packager added.
    pub async fn version(&self) -> Result<String, AdminError> {
        let told = self
            .texts("ask Postgres for its version", "SHOW server_version")
            .await?;
        told.first()
            .and_then(|text| text.split_whitespace().next())
            .map(str::to_owned)
            .ok_or_else(|| AdminError::Other("Postgres does not say which version it is".into()))
    }

    /// Changes one setting for good and makes Postgres take it.
    pub async fn alter_system(&self, name: &str, value: Option<&str>) -> Result<(), AdminError> {
        let statement = match value {
            Some(value) => format!("ALTER SYSTEM SET {name} = {value}"),
            None => format!("ALTER SYSTEM RESET {name}"),
        };
        self.run(&format!("set {name}"), &statement).await?;
        self.run("reload the configuration", "SELECT pg_reload_conf()")
            .await
    }
}

/// [`SESSION`] as options of a connection.
fn session_options() -> String {
    SESSION
        .map(|(name, value)| format!("-c {name}={value}"))
        .join(" ")
}

/// An identifier as SQL.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string as SQL; settings of the session don't change its meaning.
pub fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
