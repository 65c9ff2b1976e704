//! What a compute is told to be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pg_types::{TenantId, TimelineId};
use serde::{Deserialize, Serialize};

pub use crate::settings::SettingValue;
use crate::size::ComputeSize;

/// What a compute is to be, as the control plane writes it (docs/interfaces.md, `spec.json`).
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Spec {
    /// The compute's name in the control plane; logs, metrics and safekeepers use the same name.
    pub compute_id: String,
    /// The tenant whose timeline is used.
    pub tenant_id: TenantId,
    /// The timeline that is read and written.
    pub timeline_id: TimelineId,
    /// Major version of Postgres; 15 is the only one taken.
    pub pg_version: u32,
    /// Directory with the program `postgres`; what is in it stays as it is while the process lives.
    pub pg_bin_dir: PathBuf,
    /// The user that runs Postgres when the agent is root.
    #[serde(default = "default_pg_user")]
    pub pg_user: String,
    /// Where Postgres listens for clients (`listen_addresses`).
    pub listen: String,
    /// The TCP port that Postgres listens on.
    pub port: u16,
    /// WAL addresses.
    pub safekeepers: Vec<String>,
    /// Addresses of the pageserver that has the timeline.
    pub pageserver: Pageserver,
    /// Whether Postgres is to log page images. A start begins with what the WAL says, and switches once Postgres
    /// runs.
    pub full_page_writes: bool,
    /// Roles that are to exist; docs/roles.md says what roles may do.
    #[serde(default)]
    pub roles: Vec<Role>,
    /// Databases that are to exist, with these owners.
    #[serde(default)]
    pub databases: Vec<Database>,
    /// Roles to be dropped from a running compute. One that is in neither list stays as it is.
    #[serde(default)]
    pub dropped_roles: Vec<String>,
    /// Databases to be dropped likewise, with all that is in them.
    #[serde(default)]
    pub dropped_databases: Vec<String>,
    /// Settings that the customer has chosen, by name.
    #[serde(default)]
    pub settings: BTreeMap<String, SettingValue>,
    /// The compute's size, 4 GiB of memory each: some settings are bounded by it, and some follow it ([`crate::size`]).
    #[serde(default = "default_compute_units")]
    pub compute_units: f64,
    /// What a commit waits for when its session says nothing else.
    #[serde(default)]
    pub durability: Durability,
    /// Whether pages that were in shared buffers at a suspend are loaded again behind the next start.
    #[serde(default)]
    pub prewarm: bool,
    /// Bytes of all main forks that the branch may hold; no limit without.
    #[serde(default)]
    pub storage_quota_bytes: Option<u64>,
    /// Bytes of WAL that the compute may write a second; no limit without.
    #[serde(default)]
    pub wal_bytes_per_second: Option<u64>,
    /// Written pages to read back from storage and compare, a second; 0 for none.
    #[serde(default)]
    pub audit_reads_per_second: u32,
    /// How long no majority of the safekeepers may answer before the run ends, milliseconds.
    #[serde(default = "default_quorum_timeout_ms")]
    pub quorum_timeout_ms: u64,
}

/// Where a pageserver answers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Pageserver {
    /// `host:port` of the page service.
    pub pages: String,
    /// Base URL of the management API, such as `http://127.0.0.1:7601`.
    pub http: String,
}

/// A role of the customer's.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Role {
    /// Name, unquoted, of at most 63 bytes.
    pub name: String,
    /// A SCRAM-SHA-256 verifier; a role without one cannot log in by password.
    #[serde(default)]
    pub password: Option<String>,
    /// The password in the database counts, whatever it is: nobody else knows it any more.
    #[serde(default)]
    pub keep_password: bool,
}

/// A database of the customer's.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Database {
    /// Name, unquoted, of at most 63 bytes.
    pub name: String,
    /// The role that owns the database, one of [`Spec::roles`].
    pub owner: String,
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

fn default_compute_units() -> f64 {
    1.0
}

fn default_quorum_timeout_ms() -> u64 {
    10_000
}

/// The superuser below the agent; a spec can't have it.
pub const SUPERUSER: &str = "weir_admin";

/// The spec can't be followed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    /// The major version, the field, is not one that this agent runs.
    #[error("pg_version {0} is not supported; this agent runs 15")]
    Version(u32),
    /// [`Spec::safekeepers`] is empty.
    #[error("the spec names no safekeepers")]
    NoSafekeepers,
    /// The list of settings refuses one.
    #[error(transparent)]
    Setting(#[from] crate::settings::Refused),
    /// The role's name, the field, is no identifier, or is Postgres's or Weir's own.
    #[error("role {0:?} can't be used: the name is empty, too long or reserved")]
    Role(String),
    /// The role, the field, has something else than a verifier for a password.
    #[error(
        "the password of role {0} is not a SCRAM-SHA-256 verifier; clear-text passwords are not accepted"
    )]
    Password(String),
    /// The database's name, the field, is no identifier, or is one that initdb makes.
    #[error("database {0:?} can't be used: the name is empty, too long or reserved")]
    Database(String),
    /// The owner of a database is none of the roles.
    #[error("database {database} belongs to {owner}, which is not among the roles")]
    Owner {
        /// Name of the database.
        database: String,
        /// The role that the spec names as its owner.
        owner: String,
    },
    /// A role or database is named twice; the field says which, such as `role app`.
    #[error("{0} is named twice, perhaps also as one to be dropped")]
    Twice(String),
    /// A running compute keeps this field of the spec; the name is in the error.
    #[error("{0} can't be changed in a running compute; start a new one")]
    Fixed(&'static str),
}

impl Spec {
    /// `settings` with what other fields of the spec make of them. One that has been chosen by name stays.
    pub fn postgres_settings(&self) -> BTreeMap<String, SettingValue> {
        let mut settings = self.settings.clone();
        let level = self.durability.synchronous_commit().to_owned();
        let mut made = ComputeSize::new(self.compute_units).settings();
        made.push(("synchronous_commit", SettingValue::Text(level)));
        for (name, value) in made {
            if !self
                .settings
                .keys()
                .any(|key| key.eq_ignore_ascii_case(name))
            {
                settings.insert(name.to_owned(), value);
            }
        }
        settings
    }

    /// All but the settings, of which a start leaves out what the list refuses ([`crate::settings`]).
    pub fn check(&self) -> Result<(), SpecError> {
        if self.pg_version != 15 {
            return Err(SpecError::Version(self.pg_version));
        }
        if self.safekeepers.is_empty() {
            return Err(SpecError::NoSafekeepers);
        }
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
