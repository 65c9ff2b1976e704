//! What a compute is told to be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pg_types::{TenantId, TimelineId};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spec {
    pub compute_id: String,
    pub tenant_id: TenantId,
    pub timeline_id: TimelineId,
    pub pg_version: u32,
    pub pg_bin_dir: PathBuf,
    /// The user that runs Postgres when the agent is root.
    #[serde(default = "default_pg_user")]
    pub pg_user: String,
    pub listen: String,
    pub port: u16,
    /// WAL addresses.
    pub safekeepers: Vec<String>,
    pub pageserver: Pageserver,
    pub full_page_writes: bool,
    #[serde(default)]
    pub roles: Vec<Role>,
    #[serde(default)]
    pub databases: Vec<Database>,
    /// Roles to be dropped from a running compute. One that is in neither list stays as it is.
    #[serde(default)]
    pub dropped_roles: Vec<String>,
    /// Databases to be dropped likewise, with all that is in them.
    #[serde(default)]
    pub dropped_databases: Vec<String>,
    #[serde(default)]
    pub settings: BTreeMap<String, SettingValue>,
    /// What a commit waits for when its session says nothing else.
    #[serde(default)]
    pub durability: Durability,
    /// Bytes of all main forks that the branch may hold; no limit without.
    #[serde(default)]
    pub storage_quota_bytes: Option<u64>,
    #[serde(default)]
    pub audit_reads_per_second: u32,
    #[serde(default = "default_quorum_timeout_ms")]
    pub quorum_timeout_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Pageserver {
    pub pages: String,
    pub http: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Role {
    pub name: String,
    /// A SCRAM-SHA-256 verifier; a role without one cannot log in by password.
    #[serde(default)]
    pub password: Option<String>,
    /// The password in the database counts, whatever it is: nobody else knows it any more.
    #[serde(default)]
    pub keep_password: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Database {
    pub name: String,
    pub owner: String,
}

/// Settings come as JSON of any scalar kind.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum SettingValue {
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
}

impl std::fmt::Display for SettingValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SettingValue::Bool(true) => f.write_str("on"),
            SettingValue::Bool(false) => f.write_str("off"),
            SettingValue::Integer(value) => value.fmt(f),
            SettingValue::Float(value) => value.fmt(f),
            SettingValue::Text(value) => f.write_str(value),
        }
    }
}

/// What a commit waits for, from least to most; docs/durability.md says what each survives. Sessions choose another
/// one by `SET synchronous_commit`, of which these are values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing.
    Off,
    /// The memory of a majority of the safekeepers.
    Receive,
    /// The disks of a majority.
    #[default]
    Flush,
    /// Those, and that the pageserver can read it.
    Apply,
}

impl Durability {
    /// The value of `synchronous_commit`: what Postgres waits for the proposer to report as written, flushed, applied.
    pub fn synchronous_commit(self) -> &'static str {
        match self {
            Durability::Off => "off",
            Durability::Receive => "remote_write",
            Durability::Flush => "on",
            Durability::Apply => "remote_apply",
        }
    }
}

fn default_pg_user() -> String {
    "postgres".to_owned()
}

fn default_quorum_timeout_ms() -> u64 {
    10_000
}

/// The superuser below the agent; a spec can't have it.
pub const SUPERUSER: &str = "weir_admin";

/// Settings that the way Weir runs Postgres rests on, with why.
const MANAGED: [(&str, &str); 24] = [
    ("listen_addresses", "use `listen`"),
    ("port", "use `port`"),
    ("unix_socket_directories", "the agent's own socket"),
    ("data_directory", "the agent's own directory"),
    ("hba_file", "the agent writes it"),
    ("ident_file", "the agent writes it"),
    ("external_pid_file", "the agent's own directory"),
    ("fsync", "durability is the safekeepers'"),
    ("full_page_writes", "use `full_page_writes` of the spec"),
    (
        "wal_level",
        "logical replication is not supported yet: its slots would not survive a start",
    ),
    (
        "synchronous_standby_names",
        "the proposer is the one synchronous standby",
    ),
    ("max_wal_senders", "the proposer needs its connection"),
    ("max_replication_slots", "the proposer needs its slot"),
    (
        "max_slot_wal_keep_size",
        "WAL must stay until the safekeepers have it",
    ),
    ("wal_log_hints", "storage keeps its own checksums"),
    ("restart_after_crash", "a crash means a new start"),
    ("archive_mode", "WAL goes to the safekeepers"),
    ("archive_command", "WAL goes to the safekeepers"),
    ("archive_library", "WAL goes to the safekeepers"),
    ("logging_collector", "the agent keeps the log"),
    ("log_destination", "the agent keeps the log"),
    ("wal_sender_timeout", "the proposer's connection"),
    ("primary_conninfo", "a compute is never a standby"),
    ("recovery_target_timeline", "a compute never recovers"),
];

/// The spec can't be followed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    #[error("pg_version {0} is not supported; this agent runs 15")]
    Version(u32),
    #[error("the spec names no safekeepers")]
    NoSafekeepers,
    #[error("setting {name} is managed by Weir ({why}); remove it from settings")]
    Managed { name: String, why: &'static str },
    #[error("{0:?} is not the name of a setting")]
    SettingName(String),
    #[error("the value of setting {0} has a line break or a NUL in it")]
    SettingValue(String),
    #[error(
        "log_min_messages can't be {0:?}: Postgres logs a warning for each commit it lets go unconfirmed; choose warning or a lower level"
    )]
    Silent(String),
    #[error("role {0:?} can't be used: the name is empty, too long or reserved")]
    Role(String),
    #[error(
        "the password of role {0} is not a SCRAM-SHA-256 verifier; clear-text passwords are not accepted"
    )]
    Password(String),
    #[error("database {0:?} can't be used: the name is empty, too long or reserved")]
    Database(String),
    #[error("database {database} belongs to {owner}, which is not among the roles")]
    Owner { database: String, owner: String },
    #[error("{0} is named twice, perhaps also as one to be dropped")]
    Twice(String),
    #[error("{0} can't be changed in a running compute; start a new one")]
    Fixed(&'static str),
}

impl Spec {
    /// `settings` with what other fields of the spec make of them. A `synchronous_commit` among them has been chosen
    /// by name and stays.
    pub fn postgres_settings(&self) -> BTreeMap<String, SettingValue> {
        let mut settings = self.settings.clone();
        if !settings
            .keys()
            .any(|name| name.eq_ignore_ascii_case("synchronous_commit"))
        {
            let value = self.durability.synchronous_commit().to_owned();
            settings.insert("synchronous_commit".to_owned(), SettingValue::Text(value));
        }
        settings
    }

    /// What sessions begin with: a value of the setting.
    pub fn synchronous_commit(&self) -> String {
        let by_name = self
            .settings
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case("synchronous_commit"));
        by_name.map_or_else(
            || self.durability.synchronous_commit().to_owned(),
            |(_, value)| value.to_string(),
        )
    }

    pub fn check(&self) -> Result<(), SpecError> {
        if self.pg_version != 15 {
            return Err(SpecError::Version(self.pg_version));
        }
        if self.safekeepers.is_empty() {
            return Err(SpecError::NoSafekeepers);
        }
        self.settings
            .iter()
            .try_for_each(|(name, value)| check_setting(name, value))?;
        self.check_roles()?;
        self.check_databases()
    }

    fn check_roles(&self) -> Result<(), SpecError> {
        for (i, role) in self.roles.iter().enumerate() {
            let reserved = role.name == SUPERUSER
                || role.name.starts_with("pg_")
                || ["public", "none"].contains(&role.name.as_str());
            if !is_name(&role.name) || reserved {
                return Err(SpecError::Role(role.name.clone()));
            }
            let mut before = self.roles[..i].iter();
            if before.any(|other| other.name == role.name)
                || self.dropped_roles.contains(&role.name)
            {
                return Err(SpecError::Twice(format!("role {}", role.name)));
            }
            if role
                .password
                .as_ref()
                .is_some_and(|verifier| !verifier.starts_with("SCRAM-SHA-256$"))
            {
                return Err(SpecError::Password(role.name.clone()));
            }
        }
        Ok(())
    }

    fn check_databases(&self) -> Result<(), SpecError> {
        for (i, database) in self.databases.iter().enumerate() {
            let reserved = ["postgres", "template0", "template1"].contains(&database.name.as_str());
            if !is_name(&database.name) || reserved {
                return Err(SpecError::Database(database.name.clone()));
            }
            let mut before = self.databases[..i].iter();
            if before.any(|other| other.name == database.name)
                || self.dropped_databases.contains(&database.name)
            {
                return Err(SpecError::Twice(format!("database {}", database.name)));
            }
            if !self.roles.iter().any(|role| role.name == database.owner) {
                return Err(SpecError::Owner {
                    database: database.name.clone(),
                    owner: database.owner.clone(),
                });
            }
        }
        Ok(())
    }

    /// Whether a running compute can become what `next` says. Other safekeepers are asked from its next election on; until
    /// then it writes to those that the log names.
    pub fn check_change(&self, next: &Spec) -> Result<(), SpecError> {
        next.check()?;
        let fixed = [
            ("compute_id", self.compute_id == next.compute_id),
            ("tenant_id", self.tenant_id == next.tenant_id),
            ("timeline_id", self.timeline_id == next.timeline_id),
            ("pg_version", self.pg_version == next.pg_version),
            ("pg_bin_dir", self.pg_bin_dir == next.pg_bin_dir),
            ("listen", self.listen == next.listen),
            ("port", self.port == next.port),
            ("pageserver", self.pageserver == next.pageserver),
        ];
        match fixed.into_iter().find(|(_, same)| !same) {
            Some((name, _)) => Err(SpecError::Fixed(name)),
            None => Ok(()),
        }
    }
}

/// What Postgres takes for an identifier when quoted.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 63 && !name.contains(['\0', '\n', '\r'])
}

fn check_setting(name: &str, value: &SettingValue) -> Result<(), SpecError> {
    let lower = name.to_ascii_lowercase();
    let part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
    };
    if !lower.split('.').all(part) || lower.split('.').count() > 2 {
        return Err(SpecError::SettingName(name.to_owned()));
    }
    if let Some((_, why)) = MANAGED.iter().find(|(managed, _)| *managed == lower) {
        return Err(SpecError::Managed {
            name: name.to_owned(),
            why,
        });
    }
    let value = value.to_string();
    if value.contains(['\n', '\r', '\0']) {
        return Err(SpecError::SettingValue(name.to_owned()));
    }
    let hides_warnings = ["error", "log", "fatal", "panic"];
    if lower == "log_min_messages" && hides_warnings.contains(&value.to_ascii_lowercase().as_str())
    {
        return Err(SpecError::Silent(value));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(change: impl FnOnce(&mut serde_json::Value)) -> Spec {
        let mut json = serde_json::json!({
            "compute_id": "ep-a", "tenant_id": "0".repeat(32), "timeline_id": "1".repeat(32), "pg_version": 15,
            "pg_bin_dir": "/usr/lib/postgresql/15/bin", "listen": "127.0.0.1", "port": 7700,
            "safekeepers": ["127.0.0.1:7501"], "pageserver": {"pages": "127.0.0.1:7600", "http": "http://127.0.0.1:7601"},
            "full_page_writes": true,
            "roles": [{"name": "app", "password": "SCRAM-SHA-256$4096:x$y:z"}],
            "databases": [{"name": "appdb", "owner": "app"}],
            "settings": {"max_wal_size": "64MB", "jit": false, "work_mem": 4096},
        });
        change(&mut json);
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn settings_that_would_undo_durability_are_refused_by_name() {
        assert_eq!(spec(|_| {}).check(), Ok(()));
        for name in [
            "fsync",
            "FSYNC",
            "wal_level",
            "synchronous_standby_names",
            "port",
        ] {
            let refused = spec(|json| json["settings"] = serde_json::json!({name: "off"})).check();
            assert!(
                matches!(&refused, Err(SpecError::Managed { name: n, .. }) if n == name),
                "{refused:?}"
            );
        }
        for name in ["", "a b", "x;y", "1x", "a.b.c", "a\nb"] {
            let refused = spec(|json| json["settings"] = serde_json::json!({name: 1})).check();
            assert_eq!(refused, Err(SpecError::SettingName(name.to_owned())));
        }
        let refused =
            spec(|json| json["settings"] = serde_json::json!({"work_mem": "1\nfsync=off"})).check();
        assert_eq!(refused, Err(SpecError::SettingValue("work_mem".into())));
        let level =
            |level| spec(|json| json["settings"] = serde_json::json!({"Log_Min_Messages": level}));
        assert_eq!(level("debug1").check(), Ok(()));
        assert_eq!(
            level("FATAL").check(),
            Err(SpecError::Silent("FATAL".into()))
        );
    }

    #[test]
    fn nobody_becomes_superuser_and_no_password_is_in_the_clear() {
        for name in ["weir_admin", "pg_monitor", "", "public"] {
            let refused = spec(|json| json["roles"][0]["name"] = name.into()).check();
            assert_eq!(refused, Err(SpecError::Role(name.to_owned())));
        }
        let refused = spec(|json| json["roles"][0]["password"] = "secret".into()).check();
        assert_eq!(refused, Err(SpecError::Password("app".into())));
        let refused = spec(|json| json["databases"][0]["owner"] = "other".into()).check();
        assert!(matches!(refused, Err(SpecError::Owner { .. })));
    }

    #[test]
    fn commits_wait_for_disks_unless_the_spec_says_otherwise_and_a_setting_by_name_wins() {
        let of = |spec: Spec| {
            let settings = spec.postgres_settings();
            settings.iter().find_map(|(name, value)| {
                name.eq_ignore_ascii_case("synchronous_commit")
                    .then(|| value.to_string())
            })
        };
        assert_eq!(of(spec(|_| {})).as_deref(), Some("on"));
        for (level, value) in [
            ("off", "off"),
            ("receive", "remote_write"),
            ("flush", "on"),
            ("apply", "remote_apply"),
        ] {
            let spec = spec(|json| json["durability"] = level.into());
            assert_eq!(of(spec).as_deref(), Some(value));
        }
        let named =
            spec(|json| json["settings"] = serde_json::json!({"Synchronous_Commit": "off"}));
        assert_eq!(of(named.clone()).as_deref(), Some("off"));
        assert_eq!(named.postgres_settings().len(), 1);
    }

    #[test]
    fn a_running_compute_keeps_its_identity() {
        let now = spec(|_| {});
        assert_eq!(
            now.check_change(&spec(|json| json["settings"] = serde_json::json!({}))),
            Ok(())
        );
        let moved = now.check_change(&spec(|json| json["port"] = 7702.into()));
        assert_eq!(moved, Err(SpecError::Fixed("port")));
        let others = spec(|json| json["safekeepers"] = serde_json::json!(["127.0.0.1:7504"]));
        assert_eq!(now.check_change(&others), Ok(()), "a log's members change");
    }
}
