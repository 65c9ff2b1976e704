//! Making a fresh Postgres cluster to import, once per major version.
//!
//! `initdb` takes seconds, so its result is kept below the data directory and serves every new tenant.
//! The template directory appears by rename: a crash leaves either no template or a whole one, and
//! leftovers of an unfinished run are removed by the next.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The superuser that `initdb` makes; only Weir's own agent logs in as it.
pub const SUPERUSER: &str = "weir_admin";

/// Where `initdb` is and who runs it.
#[derive(Clone, Debug)]
pub struct PostgresInstall {
    /// Directory of the `initdb` program, such as `/usr/lib/postgresql/15/bin`.
    pub bin_dir: PathBuf,
    /// The user `initdb` runs as when this process is root, which Postgres refuses to be.
    pub user: String,
}

/// The template cluster of a major version: a directory below `templates` named after the version, made now if there
/// is none. Blocking, for seconds when it has to be made. Fails when `initdb` is missing, of another version or
/// fails, when its user does not exist, and when a directory can't be written.
pub fn template(install: &PostgresInstall, templates: &Path, pg_version: u32) -> Result<PathBuf> {
    let target = templates.join(pg_version.to_string());
    if target.join("global/pg_control").exists() {
        return Ok(target);
    }
    let started = Instant::now();
    std::fs::create_dir_all(templates)
        .with_context(|| format!("create {}", templates.display()))?;
    check_version(install, pg_version)?;
    // The data directory may be closed to other users, so the run happens where they can go.
    let scratch = tempfile::Builder::new()
        .prefix("weir-initdb-")
        .tempdir()
        .context("create a scratch directory")?;
    let pgdata = scratch.path().join("pgdata");
    run_initdb(install, scratch.path(), &pgdata)?;

    let unfinished = templates.join(format!("{pg_version}.unfinished"));
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished)
            .with_context(|| format!("remove {}", unfinished.display()))?;
    }
    copy_tree(&pgdata, &unfinished)?;
    std::fs::rename(&unfinished, &target)
        .with_context(|| format!("rename {} to {}", unfinished.display(), target.display()))?;
    tracing::info!(
        pg_version,
        elapsed_ms = started.elapsed().as_millis() as u64,
        "made a template cluster"
    );
    Ok(target)
}

fn check_version(install: &PostgresInstall, pg_version: u32) -> Result<()> {
    let initdb = install.bin_dir.join("initdb");
    let output = Command::new(&initdb)
        .arg("--version")
        .output()
        .with_context(|| {
            format!(
                "run {} --version; is --pg-bin-dir right and Postgres {pg_version} installed?",
                initdb.display()
            )
        })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "initdb (PostgreSQL) 15.18 (Debian ...)"
    let major = text
        .split_whitespace()
        .nth(2)
        .and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    if major != Some(pg_version) {
        bail!(
            "{} is {:?}, but Postgres {pg_version} is needed",
            initdb.display(),
            text.trim()
        );
    }
    Ok(())
}

fn run_initdb(install: &PostgresInstall, scratch: &Path, pgdata: &Path) -> Result<()> {
    let mut command = Command::new(install.bin_dir.join("initdb"));
    command
        .arg("--pgdata")
        .arg(pgdata)
        .args([
            "--username",
            SUPERUSER,
            "--auth",
            "trust",
            "--encoding",
            "UTF8",
            "--locale",
            "C.UTF-8",
            "--no-sync",
        ])
        .env("TZ", "UTC")
        .env_remove("PGDATA")
        .current_dir(scratch)
        .stdin(Stdio::null());
    if nix::unistd::geteuid().is_root() {
        let user = nix::unistd::User::from_name(&install.user)
            .with_context(|| format!("look up user {}", install.user))?
            .with_context(|| {
                format!(
                    "user {} does not exist; create it or give --pg-user",
                    install.user
                )
            })?;
        nix::unistd::chown(scratch, Some(user.uid), Some(user.gid))
            .with_context(|| format!("give {} to {}", scratch.display(), install.user))?;
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    }
    let output = command.output().context("start initdb")?;
    if !output.status.success() {
        bail!(
            "initdb failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

/// Copies directories and regular files; a cluster fresh from `initdb` has nothing else.
fn copy_tree(source: &Path, target: &Path) -> Result<()> {
    std::fs::create_dir(target).with_context(|| format!("create {}", target.display()))?;
    for entry in std::fs::read_dir(source).with_context(|| format!("list {}", source.display()))? {
        let entry = entry?;
        let to = target.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &to)?;
        } else {
            std::fs::copy(entry.path(), &to)
                .with_context(|| format!("copy {} to {}", entry.path().display(), to.display()))?;
        }
    }
    Ok(())
}
