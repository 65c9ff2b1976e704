//! Roles and databases of a spec, applied to a running Postgres.
//!
//! Idempotent, and silent when nothing is to be done: a start that changes nothing writes no WAL. What the agent
//! has made carries a comment, so that a name that leaves the spec is removed, and a role that a user made by
//! SQL never is. Interrupted anywhere, the next run finishes.

use std::path::Path;

use super::admin::{Admin, AdminError, identifier, literal};
use crate::spec::{Database, Role, Spec};

/// Marks what the agent has made.
const MARK: &str = "managed by Weir";

/// Where to reach the superuser.
#[derive(Clone, Copy)]
struct Reach<'a> {
    socket: &'a Path,
    port: u16,
}

/// Makes roles and databases what the spec says.
pub async fn apply(admin: &Admin, socket: &Path, spec: &Spec) -> Result<(), AdminError> {
    let reach = Reach {
        socket,
        port: spec.port,
    };
    for role in &spec.roles {
        ensure_role(admin, role).await?;
    }
    for database in &spec.databases {
        ensure_database(admin, database).await?;
    }
    if spec.keep_unlisted {
        return Ok(());
    }
    drop_databases(admin, spec).await?;
    drop_roles(admin, reach, spec).await
}

async fn ensure_role(admin: &Admin, role: &Role) -> Result<(), AdminError> {
    let (name, text) = (identifier(&role.name), literal(&role.name));
    let found = admin
        .rows(
            "look up a role",
            &format!(
                "SELECT rolpassword, rolcanlogin AND rolcreatedb AND NOT rolcreaterole AND NOT rolsuper, shobj_description(oid, 'pg_authid')
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
            admin
                .run(&doing, &format!("CREATE DATABASE {name} OWNER {owner}"))
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

async fn drop_databases(admin: &Admin, spec: &Spec) -> Result<(), AdminError> {
    let managed = admin
        .texts(
            "list the databases",
            &format!("SELECT datname FROM pg_database WHERE shobj_description(oid, 'pg_database') = '{MARK}'"),
        )
        .await?;
    for name in managed {
        if !spec.databases.iter().any(|database| database.name == name) {
            let statement = format!("DROP DATABASE {} WITH (FORCE)", identifier(&name));
            admin
                .run(&format!("drop database {name}"), &statement)
                .await?;
        }
    }
    Ok(())
}

async fn drop_roles(admin: &Admin, reach: Reach<'_>, spec: &Spec) -> Result<(), AdminError> {
    let managed = admin
        .texts(
            "list the roles",
            &format!(
                "SELECT rolname FROM pg_authid WHERE shobj_description(oid, 'pg_authid') = '{MARK}'"
            ),
        )
        .await?;
    for name in managed {
        if !spec.roles.iter().any(|role| role.name == name) {
            drop_role(admin, reach, &name).await?;
        }
    }
    Ok(())
}

/// What the role owns goes to the owner of the database it is in.
async fn drop_role(admin: &Admin, reach: Reach<'_>, name: &str) -> Result<(), AdminError> {
    let role = identifier(name);
    let doing = format!("drop role {name}");
    let databases = admin
        .rows(
            "list the databases",
            "SELECT datname, pg_get_userbyid(datdba) FROM pg_database WHERE datallowconn",
        )
        .await?;
    for row in databases {
        let [Some(database), Some(owner)] = row.as_slice() else {
            continue;
        };
        let there = Admin::connect(reach.socket, reach.port, database).await?;
        let heir = if owner == name {
            crate::spec::SUPERUSER
        } else {
            owner
        };
        let script = format!(
            "REASSIGN OWNED BY {role} TO {}; DROP OWNED BY {role}",
            identifier(heir)
        );
        there.run(&doing, &script).await?;
    }
    admin.run(&doing, &format!("DROP ROLE {role}")).await
}
