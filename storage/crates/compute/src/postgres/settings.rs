//! The settings of a running Postgres, changed as a transaction.
//!
//! A change is asked of Postgres in a file beside the one in force, which a process of its own reads; then it takes
//! that one's place by a rename, Postgres reads it, and a client is tried. Where one of these says no, the settings
//! before are put back and read again. A crash at any point leaves files that the next start writes anew: what a
//! start uses is the spec, and the settings that worked last (`agent::settings`).
//!
//! Nothing here needs a session to begin with, so that settings which lock everybody out can be taken back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::trial::{Session, TrialError, knock};
use super::{DataDirectory, OsUser, PostmasterHandle, config, process};
use crate::settings::needs_restart;
use crate::spec::{SUPERUSER, SettingValue, Spec};

type Settings = BTreeMap<String, SettingValue>;

/// How long Postgres may take to read its configuration.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(10);
const RELOAD_PAUSE: Duration = Duration::from_millis(20);
/// So many of the spec's databases are tried; in each a client may fail for itself.
const TRIED_DATABASES: usize = 8;

/// Settings were not put in force.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Postgres refused the settings, or did not read them within 10 seconds; the field has the reason.
    #[error("Postgres refuses the settings, and those before stay in force: {0}")]
    Refused(String),
    /// Postgres took the settings, and then no client got a session or an answer; the field says what a client met.
    /// The previous settings are in force again.
    #[error("with these settings no client can connect, so those before are in force again: {0}")]
    LockedOut(String),
    /// The settings were refused, the previous ones were put back, and clients that could connect before cannot any
    /// more.
    #[error(
        "the settings were refused ({why}), and with those before clients cannot connect either: {now}"
    )]
    NotBack {
        /// Why the settings were refused.
        why: String,
        /// Why clients cannot connect with the previous settings.
        now: String,
    },
    /// A file with settings could not be written. Settings in force stay.
    #[error("cannot write the settings: {0}")]
    Io(#[from] std::io::Error),
}

/// What Postgres says of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// What a session begins with that says nothing itself.
    pub value: String,
    /// Whether another value waits for the next start.
    pub pending_restart: bool,
    /// Whether the value is from the file with the spec's settings.
    pub from_spec: bool,
}

/// Where the settings of a running Postgres are, and how it is reached.
pub struct SettingsFile<'a> {
    /// Where Postgres listens, its programs, and the roles and databases that a trial uses.
    pub spec: &'a Spec,
    /// The data directory that the files lie in.
    pub data: &'a DataDirectory,
    /// Directory of the private socket.
    pub socket: &'a std::path::Path,
    /// Of the Postgres that reads the files again.
    pub postmaster: &'a PostmasterHandle,
    /// The operating-system user that owns the files, and that trials run as when the agent is root.
    pub user: &'a OsUser,
    /// As Postgres has it.
    pub full_page_writes: bool,
}

impl SettingsFile<'_> {
    /// Puts `wanted` in force in place of `before`; returns names of those that wait for the next start.
    pub async fn change(
        &self,
        before: &Settings,
        wanted: &Settings,
    ) -> Result<Vec<String>, SettingsError> {
        self.ask(wanted).await?;
        let worked = self.try_clients().await;
        let fault = match self.put(wanted).await {
            Ok(()) => match self.try_clients().await {
                Ok(()) => return Ok(self.pending().await),
                Err(fault) => SettingsError::LockedOut(fault),
            },
            Err(fault) => fault,
        };
        if let (SettingsError::LockedOut(_), Err(already)) = (&fault, &worked) {
            // The settings before lock clients out as well: there is nothing to go back to.
            tracing::error!(
                "no client can connect, as before the settings were changed: {already}"
            );
            return Ok(self.pending().await);
        }
        tracing::error!("taking settings back: {fault}");
        let back = self.put(before).await.map_err(|error| error.to_string());
        let back = match back {
            Ok(()) => self.try_clients().await,
            Err(error) => Err(error),
        };
        match (back, worked) {
            (Err(now), Ok(())) => Err(SettingsError::NotBack {
                why: fault.to_string(),
                now,
            }),
            _ => Err(fault),
        }
    }

    /// Whether Postgres would start with these settings, asked without touching those in force.
    async fn ask(&self, wanted: &Settings) -> Result<(), SettingsError> {
        let text = config::settings_file(wanted);
        self.data
            .replace(config::TRIAL_SETTINGS_FILE, text.as_bytes())?;
        let main = config::main_file(
            self.spec,
            self.socket,
            self.full_page_writes,
            config::TRIAL_SETTINGS_FILE,
        );
        self.data.replace(config::TRIAL_FILE, main.as_bytes())?;
        let (program, data) = (
            self.spec.pg_bin_dir.join("postgres"),
            self.data.path.clone(),
        );
        let user = self.user.clone();
        let asked = tokio::task::spawn_blocking(move || {
            process::check_configuration(&program, &data, config::TRIAL_FILE, &user)
        });
        let answer = asked.await.unwrap_or_else(|error| Err(error.to_string()));
        // Messages name the file, which nobody but the agent knows.
        answer.map_err(|fault| {
            SettingsError::Refused(fault.replace(&format!("{}/", self.data.path.display()), ""))
        })
    }

    /// Makes the running Postgres read these settings.
    async fn put(&self, settings: &Settings) -> Result<(), SettingsError> {
        let before = self.loaded().await.ok();
        let text = config::settings_file(settings);
        self.data.replace(config::SETTINGS_FILE, text.as_bytes())?;
        self.postmaster.reload();
        let deadline = Instant::now() + RELOAD_TIMEOUT;
        // Without a session before there is nothing to compare with, and the trial that follows is the judge: give
        // Postgres a moment.
        let mut read = false;
        while !read && Instant::now() < deadline {
            tokio::time::sleep(RELOAD_PAUSE).await;
            read = match (&before, self.loaded().await) {
                (Some(before), Ok(now)) => now != *before,
                (None, Ok(_)) => true,
                (_, Err(error)) if error.is_busy() => false,
                // It let sessions begin, and does no longer.
                (Some(_), Err(TrialError::Said { .. })) => true,
                // Nobody could connect, and still nobody can.
                (_, Err(_)) => Instant::now() + RELOAD_TIMEOUT / 2 > deadline,
            };
        }
        let faults = self.faults().await;
        match (faults.is_empty(), read) {
            (true, true) => Ok(()),
            (true, false) => Err(SettingsError::Refused(format!(
                "Postgres has not read its configuration within {} s",
                RELOAD_TIMEOUT.as_secs()
            ))),
            (false, _) => Err(SettingsError::Refused(faults.join("; "))),
        }
    }

    /// A session of the superuser's that has asked for nothing, so that it has what a client has: `search_path` too, which
    /// may lead to what a customer has made, temporary schemas of other sessions included.
    async fn begin(&self, database: &str) -> Result<Session, TrialError> {
        Session::begin(self.socket, self.spec.port, SUPERUSER, database).await
    }

    /// One that begins like that, and in which from then on a name means what Postgres has under it.
    async fn session(&self, database: &str) -> Result<Session, TrialError> {
        let mut session = self.begin(database).await?;
        session
            .rows("SET search_path = pg_catalog, pg_temp")
            .await?;
        Ok(session)
    }

    /// When Postgres has read its configuration last, as it says to a new session.
    async fn loaded(&self) -> Result<String, TrialError> {
        let mut session = self.session("postgres").await?;
        let rows = session
            .rows("SELECT pg_catalog.pg_conf_load_time()")
            .await?;
        let column = rows.into_iter().flatten().next().flatten();
        column.ok_or(TrialError::Unknown)
    }

    /// What Postgres finds wrong in its files, but for what waits for a start.
    async fn faults(&self) -> Vec<String> {
        let sql = "SELECT name, error FROM pg_catalog.pg_file_settings WHERE error IS NOT NULL";
        let found = async { self.session("postgres").await?.rows(sql).await }.await;
        let waits = |name: &Option<String>| {
            let name = name.as_deref().unwrap_or_default();
            needs_restart(name, self.spec.pg_version)
        };
        // Where no session is to be had, the trial of a client says why.
        found
            .unwrap_or_default()
            .into_iter()
            .filter(|row| row.first().is_none_or(|name| !waits(name)))
            .map(|row| row.into_iter().flatten().collect::<Vec<_>>().join(": "))
            .collect()
    }

    /// Settings whose new values wait for the next start; none where no session is to be had.
    pub async fn pending(&self) -> Vec<String> {
        let sql = "SELECT name FROM pg_catalog.pg_settings WHERE pending_restart ORDER BY 1";
        let found = async { self.session("postgres").await?.rows(sql).await }.await;
        found
            .unwrap_or_default()
            .into_iter()
            .flatten()
            .flatten()
            .collect()
    }

    /// Whether clients get a session and an answer: by TCP as far as the password, which only they know, and from
    /// there on by the private socket, in the databases that the spec names. Says why not.
    pub async fn try_clients(&self) -> Result<(), String> {
        let spec = self.spec;
        let role = spec.roles.first().map_or(SUPERUSER, |role| &role.name);
        let database = spec.databases.first();
        let database = database.map_or("postgres", |database| &database.name);
        let fault = |error: TrialError| match error.is_busy() {
            true => None,
            false => Some(error.to_string()),
        };
        // The superuser is rejected by TCP, which would look like a fault.
        if role != SUPERUSER
            && let Err(error) = knock(&spec.listen, spec.port, role, database).await
            && let Some(why) = fault(error)
        {
            return Err(format!("a client that comes by TCP: {why}"));
        }
        let databases = spec.databases.iter().map(|database| database.name.as_str());
        for database in ["postgres"]
            .into_iter()
            .chain(databases.take(TRIED_DATABASES))
        {
            let answered = async {
                let mut session = self.session(database).await?;
                session.rows("SELECT 1").await
            };
            if let Err(error) = answered.await
                && let Some(why) = fault(error)
            {
                return Err(format!("a client of database {database}: {why}"));
            }
        }
        Ok(())
    }

    /// What is in force of these settings, as a session has it that says nothing itself; those Postgres does not know
    /// are left out.
    pub async fn in_force(
        &self,
        names: impl Iterator<Item = &String>,
    ) -> Result<BTreeMap<String, InForce>, TrialError> {
        let names: Vec<String> = names
            .map(|name| super::admin::literal(&name.to_ascii_lowercase()))
            .collect();
        // What `search_path` is for clients is asked too, so that it is as they have it, and each name, each operator and
        // each type says itself where it is.
        let mut session = self.begin("postgres").await?;
        // Parameters of the customer's own are in no catalog.
        let sql = format!(
            "SELECT asked.name, pg_catalog.current_setting(asked.name, true), coalesce(pending_restart, false),
                    CASE WHEN sourcefile IS NULL THEN asked.name OPERATOR(pg_catalog.~~) '%.%'
                         ELSE sourcefile OPERATOR(pg_catalog.~~) '%/{file}' END
             FROM pg_catalog.unnest(ARRAY[{names}]::pg_catalog.text[]) AS asked (name)
                  LEFT JOIN pg_catalog.pg_settings
                       ON pg_catalog.lower(pg_settings.name) OPERATOR(pg_catalog.=) asked.name",
            file = config::SETTINGS_FILE,
            names = names.join(", ")
        );
        let rows = session.rows(&sql).await?;
        Ok(rows.into_iter().filter_map(in_force).collect())
    }
}

fn in_force(row: Vec<Option<String>>) -> Option<(String, InForce)> {
    let [name, value, pending, from_spec] = <[Option<String>; 4]>::try_from(row).ok()?;
    let found = InForce {
        value: value?,
        pending_restart: pending.as_deref() == Some("t"),
        from_spec: from_spec.as_deref() == Some("t"),
    };
    Some((name?, found))
}
