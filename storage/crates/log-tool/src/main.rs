//! `weir-log`: looks into the logs that safekeepers hold, without any of them running.

#![warn(missing_docs)]

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use log_tool::folder;
use log_tool::member::Outside;
use log_tool::report::{Directory, inspect};
use log_tool::text::bytes;
use pg_types::{TenantId, TimelineId};
use serde_json::json;

/// Exit code: the logs were looked at, and something is wrong with them.
const FINDING: u8 = 1;
/// Exit code: what was asked for could not be looked at.
const COULD_NOT_LOOK: u8 = 2;
/// Silence for so long, then a line at these intervals.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a safekeeper that writes meanwhile gets before its log is read again.
const WRITER_PAUSE: Duration = Duration::from_millis(50);

/// Looks into the logs that safekeepers hold, whatever else is down.
///
/// Only reads: nothing is written, locked or removed, and safekeepers may run meanwhile. Directories are those that
/// safekeepers were given as --data-dir; the last part of a directory's name is what the member is called.
///
/// Exit code: 0 nothing is wrong, 1 something is, as the verdict says, 2 it could not be looked at.
#[derive(Parser)]
#[command(name = "weir-log", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the timelines that the directories hold, and who holds each.
    List {
        /// As JSON, for programs
        #[arg(long)]
        json: bool,
        #[arg(required = true, value_name = "DIRECTORY")]
        directories: Vec<PathBuf>,
    },
    /// Show what each member has promised, which segments it has, and which ranges of its log are provably complete.
    ///
    /// Example: weir-log show --timeline 8f14e45fceea167a5a36dedd4bea2543 /var/lib/weir/safekeeper-*
    Show(Place),
    /// Show, and compare the members' bytes as well. Reads each log twice.
    ///
    /// Example: weir-log verify --timeline 8f14e45fceea167a5a36dedd4bea2543 /var/lib/weir/safekeeper-*
    Verify(Place),
}

#[derive(Args)]
struct Place {
    /// 32 hex digits
    #[arg(long)]
    timeline: TimelineId,
    /// Needed only when two tenants have a timeline with this id
    #[arg(long)]
    tenant: Option<TenantId>,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
    #[arg(required = true, value_name = "DIRECTORY")]
    directories: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::List { json, directories } => list(&directories, json),
        Command::Show(place) => show(&place, false),
        Command::Verify(place) => show(&place, true),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir-log: {error:#}");
            ExitCode::from(COULD_NOT_LOOK)
        }
    }
}

/// What was found goes to whoever reads it; that nobody does any more is no finding.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Names for directories: their last parts, or their whole paths where these are not enough to tell them apart.
fn named(directories: &[PathBuf]) -> Vec<Directory> {
    let short = |dir: &PathBuf| dir.file_name().map(|name| name.display().to_string());
    directories
        .iter()
        .map(|dir| {
            let is_unique = directories
                .iter()
                .filter(|other| short(other) == short(dir))
                .count()
                == 1;
            let name = short(dir).filter(|_| is_unique);
            (
                name.unwrap_or_else(|| dir.display().to_string()),
                dir.clone(),
            )
        })
        .collect()
}

/// Prints who holds which timelines. Fails, by the exit code, only when no directory can be read.
fn list(directories: &[PathBuf], as_json: bool) -> Result<ExitCode> {
    let mut held: Vec<(TenantId, TimelineId, Vec<String>)> = Vec::new();
    let mut unread = Vec::new();
    for (name, dir) in named(directories) {
        match folder::timelines(&dir) {
            Ok(timelines) => {
                for (tenant, timeline) in timelines {
                    match held
                        .iter_mut()
                        .find(|it| (it.0, it.1) == (tenant, timeline))
                    {
                        Some(known) => known.2.push(name.clone()),
                        None => held.push((tenant, timeline, vec![name.clone()])),
                    }
                }
            }
            Err(error) => unread.push(format!("cannot read {}: {error}", dir.display())),
        }
    }
    held.sort();
    unread
        .iter()
        .for_each(|reason| eprintln!("weir-log: {reason}"));
    if unread.len() == directories.len() {
        return Ok(ExitCode::from(COULD_NOT_LOOK));
    }
    let mut text = String::new();
    if as_json {
        let rows = held.iter().map(|(tenant, timeline, members)| {
            json!({"tenant": tenant, "timeline": timeline, "members": members})
        });
        text = serde_json::to_string_pretty(&rows.collect::<Vec<_>>())? + "\n";
    } else {
        for (tenant, timeline, members) in &held {
            text += &format!("{timeline}  tenant {tenant}  {}\n", members.join(", "));
        }
    }
    print(&text);
    Ok(ExitCode::SUCCESS)
}

/// The tenant that has this timeline in any of the directories.
fn tenant_of(timeline: TimelineId, directories: &[Directory]) -> Result<TenantId> {
    let mut tenants = Vec::new();
    let mut unread = Vec::new();
    for (_, dir) in directories {
        match folder::timelines(dir) {
            Ok(timelines) => {
                let of = timelines.into_iter().filter(|(_, id)| *id == timeline);
                tenants.extend(of.map(|(tenant, _)| tenant));
            }
            Err(error) => unread.push(format!("; {} cannot be read: {error}", dir.display())),
        }
    }
    tenants.sort();
    tenants.dedup();
    match tenants[..] {
        [tenant] => Ok(tenant),
        [] => bail!(
            "no directory has timeline {timeline}; `weir-log list` shows what they have{}",
            unread.concat()
        ),
        _ => bail!("several tenants have timeline {timeline}: say which with --tenant"),
    }
}

/// Prints the report on a timeline, with the comparison of bytes if `with_bytes`. The exit code says whether all is
/// sound.
fn show(place: &Place, with_bytes: bool) -> Result<ExitCode> {
    let directories = named(&place.directories);
    let tenant = match place.tenant {
        Some(tenant) => tenant,
        None => tenant_of(place.timeline, &directories)?,
    };
    let mut progress = Progress::new();
    let report = {
        let mut outside = Outside {
            progress: &mut |what, bytes| progress.advance(what, bytes),
            pause: &|| std::thread::sleep(WRITER_PAUSE),
        };
        inspect(
            &directories,
            tenant,
            place.timeline,
            with_bytes,
            &mut outside,
        )
    };
    progress.end();
    let report = report.with_context(|| {
        format!(
            "no directory has a folder of timeline {} of tenant {tenant} that can be read; `weir-log list` shows what they have",
            place.timeline
        )
    })?;
    print(&if place.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        report.to_string()
    });
    Ok(if report.sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FINDING)
    })
}

/// Says on stderr how far it is, once it takes long.
struct Progress {
    /// When something was said last, or the work began.
    said: Instant,
    /// Bytes read so far.
    done: u64,
    has_said: bool,
    on_terminal: bool,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            said: Instant::now(),
            done: 0,
            has_said: false,
            on_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Counts `read` more bytes, and says so when nothing was said for [`PATIENCE`]; `what` is being read.
    fn advance(&mut self, what: &str, read: u64) {
        self.done += read;
        if self.said.elapsed() < PATIENCE {
            return;
        }
        self.said = Instant::now();
        self.has_said = true;
        let text = format!("weir-log: {what}; {} read", bytes(self.done));
        if self.on_terminal {
            eprint!("\r\x1b[K{text}");
        } else {
            eprintln!("{text}");
        }
    }

    /// Takes the line off a terminal.
    fn end(&mut self) {
        if self.has_said && self.on_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
