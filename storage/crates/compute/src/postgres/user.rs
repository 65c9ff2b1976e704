//! Users of the operating system that Postgres runs as.

use anyhow::Context as _;

/// The user and group that own the files of Postgres.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsUser {
    /// The user's name.
    pub name: String,
    /// The user's number.
    pub uid: u32,
    /// The number of the user's first group.
    pub gid: u32,
}

impl OsUser {
    /// `name` when the agent is root, the agent's own user otherwise.
    pub fn for_postgres(name: &str) -> anyhow::Result<OsUser> {
        if !nix::unistd::geteuid().is_root() {
            return OsUser::current();
        }
        let user = nix::unistd::User::from_name(name)
            .with_context(|| format!("look up the user {name}"))?
            .with_context(|| format!("the user {name} does not exist; Postgres must run unprivileged, so create it or name another in pg_user"))?;
        anyhow::ensure!(
            !user.uid.is_root(),
            "pg_user is {name}, which is root; Postgres must run unprivileged"
        );
        Ok(OsUser {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })
    }

    /// The user with number `uid`, which is this compute's alone; its group has the same number. No file of the system
    /// names such a user.
    pub fn of_compute(uid: u32) -> anyhow::Result<OsUser> {
        anyhow::ensure!(
            nix::unistd::geteuid().is_root(),
            "only root can run Postgres as user {uid}; leave --user out to run it as the agent's own user"
        );
        anyhow::ensure!(uid != 0, "--user is root; Postgres must run unprivileged");
        Ok(OsUser {
            name: uid.to_string(),
            uid,
            gid: uid,
        })
    }

    /// The agent's own user.
    pub fn current() -> anyhow::Result<OsUser> {
        let uid = nix::unistd::geteuid();
        let user = nix::unistd::User::from_uid(uid)?
            .with_context(|| format!("the user with number {uid} has no name"))?;
        Ok(OsUser {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })
    }
}
