//! What server connections have to have in common for clients to share them.

use std::sync::Arc;

use pg_protocol::endpoint::EndpointName;
use pg_protocol::messages::Fatal;
use pg_protocol::startup::Startup;

use super::parameters::{self, Tracked};

/// Startup parameters that choose the group or are taken out, and never belong to a class.
const APART: [&str; 3] = ["user", "database", "replication"];
/// What `replication` can say for a client that wants no replication.
const NO: [&str; 6] = ["0", "f", "false", "n", "no", "off"];

/// The connections of one role to one database. `pool_size` limits them together.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Group {
    /// The endpoint, without `-pooler`.
    pub endpoint: EndpointName,
    /// The role that logs in.
    pub role: Arc<str>,
    /// The database.
    pub database: Arc<str>,
}

/// Startup parameters that a server connection was begun with, by name, those left out that are set for each client.
pub type Class = Arc<[(String, String)]>;

/// A pool: its connections differ in nothing that a client could notice at its begin.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Key {
    /// Endpoint, role and database.
    pub group: Group,
    /// The other startup parameters.
    pub class: Class,
}

/// What a client's startup packet means for pooling.
#[derive(Debug)]
pub struct PooledStartup {
    /// The pool that serves it.
    pub key: Key,
    /// The settings it asks for that follow it from connection to connection, as it wrote them.
    pub tracked: Tracked,
    /// The startup packet of server connections.
    pub server: Startup,
}

/// The database that a client asks for: that of its role's name where it names none.
pub fn database_of(startup: &Startup) -> &str {
    let named = startup.get("database").filter(|name| !name.is_empty());
    named.unwrap_or(startup.user())
}

/// Sorts a startup packet, from which the endpoint has been taken out, into pool and settings.
///
/// # Errors
/// 0A000 for a client that wants replication, which needs a server connection of its own; 22023 for a setting that no
/// server takes.
pub fn pooled_startup(endpoint: &EndpointName, startup: &Startup) -> Result<PooledStartup, Fatal> {
    if let Some(value) = startup.get("replication")
        && !NO.contains(&value.to_ascii_lowercase().as_str())
    {
        let text = "replication is not possible through a pooler's host";
        let hint = "Connect to the endpoint's own host, or name the endpoint without -pooler.";
        return Err(Fatal::new("0A000", text).with_hint(hint));
    }
    let mut server = startup.clone();
    let mut tracked = Tracked::default();
    let mut class: Vec<(String, String)> = Vec::new();
    for (name, value) in startup.parameters() {
        if let Some(index) = parameters::index_of(name) {
            parameters::check(index, value)?;
            tracked.set(index, value);
            server.set(name, None);
        } else if !APART.contains(&name) {
            // Of one that is given twice the last counts, as Postgres has it.
            class.retain(|(known, _)| known != name);
            class.push((name.to_owned(), value.to_owned()));
        }
    }
    server.set("replication", None);
    class.sort();
    let group = Group {
        endpoint: endpoint.clone(),
        role: startup.user().into(),
        database: database_of(startup).into(),
    };
    Ok(PooledStartup {
        key: Key {
            group,
            class: class.into(),
        },
        tracked,
        server,
    })
}

#[cfg(test)]
mod tests {
    use pg_protocol::startup::{FirstPacket, parse};

    use super::*;

    fn pooled(text: &str) -> Result<PooledStartup, Fatal> {
        let body = [&[0, 3, 0, 0][..], text.as_bytes()].concat();
        let Ok(FirstPacket::Startup(startup)) = parse(&body) else {
            panic!("{text:?} is well formed");
        };
        pooled_startup(&EndpointName::new("ep-a").expect("a name"), &startup)
    }

    fn key(text: &str) -> Key {
        pooled(text).expect("it can be pooled").key
    }

    #[test]
    fn clients_that_differ_in_tracked_settings_share_a_pool_and_others_do_not() {
        let plain = key("user\0app\0database\0d\0\0");
        for same in [
            "user\0app\0database\0d\0application_name\0x\0\0",
            "database\0d\0user\0app\0timezone\0UTC\0client_encoding\0UTF8\0replication\0off\0\0",
        ] {
            assert_eq!(key(same), plain, "{same:?}");
        }
        for other in [
            "user\0app\0database\0e\0\0",
            "user\0apq\0database\0d\0\0",
            "user\0app\0database\0d\0options\0-c work_mem=7MB\0\0",
            "user\0app\0database\0d\0search_path\0a\0\0",
        ] {
            assert_ne!(key(other), plain, "{other:?}");
        }
        let ordered = "user\0app\0a.b\x001\0c.d\x002\0\0";
        assert_eq!(key("c.d\x002\0user\0app\0a.b\x001\0\0"), key(ordered));
        assert_eq!(key("user\0app\0\0").group.database, "app".into());
    }

    #[test]
    fn the_server_is_begun_without_what_is_set_for_each_client() {
        let pooled =
            pooled("user\0app\0DateStyle\0ISO\0options\0-c a.b=1\0\0").expect("it can be pooled");
        let names: Vec<_> = pooled.server.parameters().map(|(name, _)| name).collect();
        assert_eq!(names, ["user", "options"]);
        assert_eq!(pooled.tracked.get(1), Some("ISO"));
    }

    #[test]
    fn replication_is_refused_in_all_its_spellings() {
        for value in ["database", "true", "on", "1", "yes", ""] {
            let refused = pooled(&format!("user\0app\0replication\0{value}\0\0"));
            assert_eq!(
                refused.err().map(|fatal| fatal.sqlstate),
                Some("0A000"),
                "{value:?}"
            );
        }
        for value in ["false", "OFF", "no", "0"] {
            assert!(pooled(&format!("user\0app\0replication\0{value}\0\0")).is_ok());
        }
    }
}
