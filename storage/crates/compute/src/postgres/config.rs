//! The configuration files of a compute's Postgres.
//!
//! `postgresql.conf` is defaults, then an include of the spec's settings, then what Weir rests on, so that the
//! last always wins. `full_page_writes` starts as the WAL says and is changed by `ALTER SYSTEM` only, because
//! Postgres logs the change only then.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::spec::{SUPERUSER, SettingValue, Spec};

/// Name of the file with the spec's settings.
pub const SETTINGS_FILE: &str = "weir.settings.conf";
/// A configuration with settings that are not in force yet, for asking whether Postgres would take them.
pub const TRIAL_FILE: &str = "weir.trial.conf";
/// The settings of [`TRIAL_FILE`].
pub const TRIAL_SETTINGS_FILE: &str = "weir.trial.settings.conf";
/// Name of the map in `pg_ident.conf`.
const IDENT_MAP: &str = "weir";
/// The proposer's slot.
pub const SLOT: &str = "weir";
/// The proposer's name as a standby.
pub const STANDBY: &str = "weir_proposer";

/// What a spec may change; chosen for a disposable local disk and storage over a network.
const DEFAULTS: [(&str, &str); 17] = [
    ("max_connections", "100"),
    ("shared_buffers", "128MB"),
    ("max_prepared_transactions", "64"),
    // Of one unit; other sizes have it among the settings that are included (`crate::size`).
    ("temp_file_limit", "10GB"),
    ("password_encryption", "scram-sha-256"),
    ("effective_io_concurrency", "32"),
    ("random_page_cost", "1.5"),
    ("checkpoint_completion_target", "0.9"),
    ("min_wal_size", "32MB"),
    ("timezone", "UTC"),
    ("log_timezone", "UTC"),
    // What initdb writes for the locale of the databases, where the server's own defaults are C and `simple`.
    ("lc_monetary", "C.UTF-8"),
    ("lc_numeric", "C.UTF-8"),
    ("lc_time", "C.UTF-8"),
    ("default_text_search_config", "pg_catalog.english"),
    ("log_line_prefix", "%m [%p] %q%u@%d "),
    ("idle_session_timeout", "0"),
];

/// The files' contents by name below PGDATA.
pub struct Files(pub Vec<(&'static str, String)>);

impl Files {
    /// `full_page_writes` is the state at the start LSN; `os_users` may log in as superuser on the socket.
    pub fn new(spec: &Spec, socket: &Path, full_page_writes: bool, os_users: &[String]) -> Files {
        Files(vec![
            (
                "postgresql.conf",
                main_file(spec, socket, full_page_writes, SETTINGS_FILE),
            ),
            (SETTINGS_FILE, settings_file(&spec.postgres_settings())),
            ("postgresql.auto.conf", String::new()),
            ("pg_hba.conf", hba_file()),
            ("pg_ident.conf", ident_file(os_users)),
        ])
    }
}

fn line(text: &mut String, name: &str, value: &str) {
    let value = value.replace('\\', "\\\\").replace('\'', "''");
    // Writing to a string does not fail.
    let _ = writeln!(text, "{name} = '{value}'");
}

/// Libraries that Postgres loads as it starts, and their settings. The pages in its buffers are listed as it shuts down,
/// and only then: a list of another moment is kept by nobody.
fn preloads(prewarm: bool) -> &'static [(&'static str, &'static str)] {
    match prewarm {
        true => &[
            ("shared_preload_libraries", "pg_prewarm"),
            ("pg_prewarm.autoprewarm", "on"),
            ("pg_prewarm.autoprewarm_interval", "0"),
        ],
        false => &[("shared_preload_libraries", "")],
    }
}

/// `settings` is the name of the file with the spec's settings.
pub fn main_file(spec: &Spec, socket: &Path, full_page_writes: bool, settings: &str) -> String {
    let mut text = String::from("# Written by weir-compute at each start.\n");
    for (name, value) in DEFAULTS {
        line(&mut text, name, value);
    }
    let _ = writeln!(text, "include '{settings}'");
    let port = spec.port.to_string();
    let socket = socket.to_string_lossy();
    let managed = [
        ("listen_addresses", spec.listen.as_str()),
        ("port", &port),
        ("unix_socket_directories", &socket),
        ("unix_socket_permissions", "0700"),
        // Nothing local has to survive: what counts is on the safekeepers before a commit returns.
        ("fsync", "off"),
        (
            "full_page_writes",
            if full_page_writes { "on" } else { "off" },
        ),
        ("wal_level", "replica"),
        ("synchronous_standby_names", STANDBY),
        ("max_wal_senders", "10"),
        ("max_replication_slots", "10"),
        ("max_slot_wal_keep_size", "-1"),
        ("wal_keep_size", "0"),
        ("wal_log_hints", "off"),
        // Storage redoes every kind of record. Images to compare with would only be ballast in the WAL, which
        // once was how some index kinds came to storage (docs/adr/0011).
        ("wal_consistency_checking", ""),
        ("wal_init_zero", "off"),
        ("wal_recycle", "off"),
        ("restart_after_crash", "off"),
        ("archive_mode", "off"),
        ("logging_collector", "off"),
        ("log_destination", "stderr"),
        // The agent counts commits that were let go by the warning that is logged for each.
        ("lc_messages", "C"),
    ];
    for (name, value) in managed.iter().chain(preloads(spec.prewarm)) {
        line(&mut text, name, value);
    }
    text
}

/// The include file with the spec's settings.
pub fn settings_file(settings: &BTreeMap<String, SettingValue>) -> String {
    let mut text = String::from("# The spec's settings; written by weir-compute.\n");
    for (name, value) in settings {
        line(&mut text, name, &value.to_string());
    }
    text
}

fn hba_file() -> String {
    format!(
        "# Written by weir-compute. The superuser comes only through the private socket, and only as an\n\
         # operating-system user that the map lets in.\n\
         local   all          {SUPERUSER}  peer map={IDENT_MAP}\n\
         local   replication  {SUPERUSER}  peer map={IDENT_MAP}\n\
         host    all          {SUPERUSER}  all  reject\n\
         host    replication  all          all  reject\n\
         local   all          all               scram-sha-256\n\
         host    all          all          all  scram-sha-256\n"
    )
}

fn ident_file(os_users: &[String]) -> String {
    os_users
        .iter()
        .map(|user| format!("{IDENT_MAP}  \"{user}\"  {SUPERUSER}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_cannot_break_out_of_their_line() {
        let mut settings = BTreeMap::new();
        settings.insert(
            "search_path".to_owned(),
            SettingValue::Text(r"it's \ here".to_owned()),
        );
        settings.insert("jit".to_owned(), SettingValue::Bool(false));
        let text = settings_file(&settings);
        assert!(text.contains("jit = 'off'\n"));
        assert!(text.contains(r"search_path = 'it''s \\ here'"));
    }
}
