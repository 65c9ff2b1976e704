//! Roles and databases of a spec, applied to a running Postgres.
//!
//! Idempotent, and silent when nothing is to be done: a start that changes nothing writes no WAL. Dropped is what the
//! spec names for it, and nothing for not being listed: a branch of a past state holds what has been dropped since. What
//! the agent has made carries a comment. Interrupted anywhere, the next run finishes.

use std::path::Path;

use super::admin::{Admin, AdminError, identifier, literal};
use crate::spec::{Database, Role, Spec};

/// Marks what the agent has made.
const MARK: &str = "managed by Weir";

/// Postgres's own roles that the owner of a database is a member of, in alphabetical order.
const OWNERS_MEMBERSHIPS: [&str; 2] = ["pg_monitor", "pg_signal_backend"];

/// Where to reach the superuser.
#[derive(Clone, Copy)]
struct Reach<'a> {
    socket: &'a Path,
    port: u16,
}

/// Makes roles and databases what the spec says. What is to be dropped stays for `drop_named`, so that nothing a user
/// has done to it keeps the database from starting; but roles among it cannot log in any more.
pub async fn apply(admin: &Admin, spec: &Spec) -> Result<(), AdminError> {
    for role in &spec.roles {
        ensure_role(admin, role).await?;
        let owns = spec.databases.iter().any(|row| row.owner == role.name);
        ensure_memberships(admin, &role.name, owns).await?;
    }
    for database in &spec.databases {
        ensure_database(admin, database).await?;
    }
    for name in &spec.dropped_roles {
        shut_role(admin, name).await?;
    }
    Ok(())
}

/// Drops what the spec names for it: databases with all that is in them, and roles that the agent has made, whose
/// objects go to others. What is not there any more is no error.
pub async fn drop_named(admin: &Admin, socket: &Path, spec: &Spec) -> Result<(), AdminError> {
    let reach = Reach {
        socket,
        port: spec.port,
    };
    for name in &spec.dropped_databases {
        drop_database(admin, reach, name).await?;
    }
    for name in &spec.dropped_roles {
        drop_role(admin, reach, spec, name).await?;
    }
    Ok(())
}

async fn ensure_role(admin: &Admin, role: &Role) -> Result<(), AdminError> {
    let (name, text) = (identifier(&role.name), literal(&role.name));
    let found = admin
        .rows(
            "look up a role",
            &format!(
                "SELECT rolpassword, rolcanlogin AND rolcreatedb AND NOT (rolcreaterole OR rolsuper OR rolreplication OR rolbypassrls),
                        shobj_description(oid, 'pg_authid')
                 FROM pg_authid WHERE rolname = {text}"
            ),
        )
        .await?;
    let password = match &role.password {
        _ if role.keep_password => String::new(),
        Some(verifier) => format!("PASSWORD {}", literal(verifier)),
        None => "PASSWORD NULL".to_owned(),
    };
    // No CREATEROLE: before Postgres 16 it lets a role grant itself pg_execute_server_program, and so run programs
    // on the host. Roles come from the API.
    let rights = "LOGIN CREATEDB NOCREATEROLE NOSUPERUSER NOREPLICATION NOBYPASSRLS";
    let statement = match found.first().map(Vec::as_slice) {
        None => Some(format!("CREATE ROLE {name} {rights} {password}")),
        Some([stored, Some(as_wanted), ..])
            if as_wanted == "t" && (role.keep_password || *stored == role.password) =>
        {
            None
        }
        Some(_) => Some(format!("ALTER ROLE {name} {rights} {password}")),
    };
    let marked = found
        .first()
        .is_some_and(|row| row.get(2).is_some_and(|mark| mark.as_deref() == Some(MARK)));
    let doing = format!("apply role {}", role.name);
    let mut script = statement.into_iter().collect::<Vec<_>>();
    if !marked {
        script.push(format!("COMMENT ON ROLE {name} IS '{MARK}'"));
    }
    match script.is_empty() {
        true => Ok(()),
        // One transaction: a role without its mark would never be removed.
        false => admin.run(&doing, &script.join(";\n")).await,
    }
}

/// What a role may do as a member of Postgres's own roles: one that owns a database of the spec sees what all sessions
/// do and ends those of others, and no role has more. Neither reaches the superuser's sessions. All that is not
/// listed here and that Postgres has made is taken away, however the role came to it.
async fn ensure_memberships(admin: &Admin, role: &str, owns: bool) -> Result<(), AdminError> {
    let wanted: &[&str] = if owns { &OWNERS_MEMBERSHIPS } else { &[] };
    let found = admin
        .texts(
            "look up what a role is a member of",
            &format!(
                "SELECT g.rolname FROM pg_auth_members m JOIN pg_authid g ON g.oid = m.roleid
                 JOIN pg_authid r ON r.oid = m.member
                 WHERE r.rolname = {} AND (g.rolsuper OR left(g.rolname, 3) = 'pg_') ORDER BY 1",
                literal(role)
            ),
        )
        .await?;
    let name = identifier(role);
    let gone = found.iter().filter(|has| !wanted.contains(&has.as_str()));
    let gone = gone.map(|has| format!("REVOKE {} FROM {name} CASCADE", identifier(has)));
    let new = wanted
        .iter()
        .filter(|want| !found.iter().any(|has| has == *want));
    let new = new.map(|want| format!("GRANT {want} TO {name}"));
    let script: Vec<String> = gone.chain(new).collect();
    match script.is_empty() {
        true => Ok(()),
        false => {
            let doing = format!("apply what role {role} is a member of");
            admin.run(&doing, &script.join(";\n")).await
        }
    }
}

async fn ensure_database(admin: &Admin, database: &Database) -> Result<(), AdminError> {
    let (name, owner) = (identifier(&database.name), identifier(&database.owner));
    let found = admin
        .rows(
            "look up a database",
            &format!(
                "SELECT pg_get_userbyid(datdba), shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = {}",
                literal(&database.name)
            ),
        )
        .await?;
    let doing = format!("apply database {}", database.name);
    let row = found.first().map(Vec::as_slice);
    match row {
        None => {
            // From the template that nobody can enter: a session in the other one would hold this up, and roles can leave
            // large objects there.
            admin
                .run(
                    &doing,
                    &format!("CREATE DATABASE {name} OWNER {owner} TEMPLATE template0"),
                )
                .await?
        }
        Some([Some(stored), ..]) if *stored == database.owner => {}
        Some(_) => {
            admin
                .run(&doing, &format!("ALTER DATABASE {name} OWNER TO {owner}"))
                .await?
        }
    }
    let marked =
        row.is_some_and(|row| row.get(1).is_some_and(|mark| mark.as_deref() == Some(MARK)));
    if !marked {
        admin
            .run(&doing, &format!("COMMENT ON DATABASE {name} IS '{MARK}'"))
            .await?;
    }
    Ok(())
}

/// By its name, whatever its comment says now: its owner may have written another one. The superuser's are no user's.
async fn drop_database(admin: &Admin, reach: Reach<'_>, name: &str) -> Result<(), AdminError> {
    let (database, text) = (identifier(name), literal(name));
    let doing = format!("drop database {name}");
    let found = admin
        .rows(
            "look up a database",
            &format!(
                "SELECT datistemplate FROM pg_database d JOIN pg_authid o ON o.oid = datdba
                 WHERE datname = {text} AND NOT rolsuper"
            ),
        )
        .await?;
    let Some([Some(template)]) = found.first().map(Vec::as_slice) else {
        return Ok(());
    };
    if template == "t" {
        let statement = format!("ALTER DATABASE {database} IS_TEMPLATE false");
        admin.run(&doing, &statement).await?;
    }
    end_prepared(admin, reach, &doing, &format!("database = {text}")).await?;
    let statement = format!("DROP DATABASE IF EXISTS {database} WITH (FORCE)");
    admin.run(&doing, &statement).await
}

/// Rolls prepared transactions back. Postgres drops no database with one in it; those of a role that is dropped would
/// keep their locks for ever, since nobody but that role and the superuser can end them.
async fn end_prepared(
    admin: &Admin,
    reach: Reach<'_>,
    doing: &str,
    which: &str,
) -> Result<(), AdminError> {
    let prepared = admin
        .rows(
            "list prepared transactions",
            &format!(
                "SELECT gid, database, datallowconn FROM pg_prepared_xacts JOIN pg_database ON datname = database
                 WHERE {which}"
            ),
        )
        .await?;
    for row in prepared {
        let [Some(gid), Some(database), Some(open)] = row.as_slice() else {
            continue;
        };
        if open != "t" {
            return Err(closed(doing, database));
        }
        // Only from within.
        let there = Admin::connect(reach.socket, reach.port, database).await?;
        let statement = format!("ROLLBACK PREPARED {}", literal(gid));
        there.run(doing, &statement).await?;
    }
    Ok(())
}

fn closed(doing: &str, database: &str) -> AdminError {
    AdminError::Other(format!(
        "{doing}: database {database} has to be entered for it and allows no connections; allow them: \
         ALTER DATABASE {} ALLOW_CONNECTIONS true",
        identifier(database)
    ))
}

/// Whether the role is there and the agent has made it.
async fn is_managed(admin: &Admin, name: &str) -> Result<bool, AdminError> {
    let found = admin
        .texts(
            "look up a role",
            &format!(
                "SELECT 1 FROM pg_authid WHERE rolname = {} AND shobj_description(oid, 'pg_authid') = '{MARK}'",
                literal(name)
            ),
        )
        .await?;
    Ok(!found.is_empty())
}

async fn shut_role(admin: &Admin, name: &str) -> Result<(), AdminError> {
    if !is_managed(admin, name).await? {
        return Ok(());
    }
    let statement = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = {}",
        literal(name)
    );
    let doing = format!("shut role {name}");
    let shut = format!("ALTER ROLE {} NOLOGIN", identifier(name));
    admin.run(&doing, &shut).await?;
    admin.run(&doing, &statement).await
}

/// What the role owns goes to the owner of the database it is in, and what no user owns the database of, to the first
/// role of the spec. Never to the superuser: a function with the rights of its owner would then have the superuser's.
async fn drop_role(
    admin: &Admin,
    reach: Reach<'_>,
    spec: &Spec,
    name: &str,
) -> Result<(), AdminError> {
    if !is_managed(admin, name).await? {
        return Ok(());
    }
    shut_role(admin, name).await?;
    let doing = format!("drop role {name}");
    let (role, text) = (identifier(name), literal(name));
    let Some(first) = spec.roles.first() else {
        return Err(AdminError::Other(format!(
            "{doing}: no role is left that what it owns could go to; create one first"
        )));
    };
    end_prepared(admin, reach, &doing, &format!("owner = {text}")).await?;
    let hand_over = |heir: &str| {
        format!(
            "SET LOCAL lock_timeout = '10s'; REASSIGN OWNED BY {role} TO {}; DROP OWNED BY {role}",
            identifier(heir)
        )
    };
    // With what belongs to no database: databases of its own, and rights on others.
    admin.run(&doing, &hand_over(&first.name)).await?;
    let databases = admin
        .rows(
            "list the databases a role has a part in",
            &format!(
                "SELECT DISTINCT d.datname, d.datallowconn, o.rolname, o.rolsuper OR left(o.rolname, 3) = 'pg_'
                 FROM pg_shdepend s JOIN pg_database d ON d.oid = s.dbid JOIN pg_authid o ON o.oid = d.datdba
                 WHERE s.refclassid = 'pg_authid'::regclass
                   AND s.refobjid = (SELECT oid FROM pg_authid WHERE rolname = {text})"
            ),
        )
        .await?;
    for row in databases {
        let [Some(database), Some(open), Some(owner), Some(no_users)] = row.as_slice() else {
            continue;
        };
        if open != "t" {
            return Err(closed(&doing, database));
        }
        let there = Admin::connect(reach.socket, reach.port, database).await?;
        let heir = if no_users == "t" { &first.name } else { owner };
        there.run(&doing, &hand_over(heir)).await?;
    }
    admin.run(&doing, &format!("DROP ROLE {role}")).await
}
