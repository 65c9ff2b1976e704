//! `weir-members`: changes the members of a log that has no compute.
//!
//! Wins a term as a compute would, writes nothing, makes one change, and prints the members that the log names then.
//! Which safekeepers count is what the log says; the addresses say where to ask.
//!
//! Invariants: at most one change of the members is made; nothing is written into the log itself; the last line of
//! standard output is the members, and it is there only when a majority of the voters has stored them.
//!
//! A crash at any point leaves the change made or not made, and repeating it is right in both cases. A compute that
//! runs is fenced by the term that this program wins; one that starts meanwhile wins a higher one, and this program
//! ends with code 3.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use compute::agent::Members;
use part_tls::{Dialer, TlsOptions};
use pg_types::{Lsn, TenantId, TimelineId};
use proposer::{ElectError, Fatal, MemberChange, MemberError, ProposerConfig, elect};
use token::OwnToken;

const EXIT_FENCED: u8 = 3;
const EXIT_REFUSED: u8 = 4;
const EXIT_NO_MAJORITY: u8 = 5;

#[derive(Parser)]
#[command(
    version,
    about = "Changes the members of a log that has no compute",
    long_about = "Changes the members of a log that has no compute: wins a term as a compute would, writes nothing, makes one \
change, and prints the members that the log names then, as JSON.\n\n\
Never run it for a branch whose compute runs: the compute would be fenced, and stop. A compute that runs changes its \
log's members itself (POST /members of its agent).\n\n\
Replacing safekeeper 1 by 4: make the timeline on 4 with \"learner\": true, then add, promote 4, remove 1. Each can be \
repeated.",
    after_help = "Exit codes: 0 the members are as asked; 1 it could not begin; 2 the arguments make no sense; 3 a compute \
has taken over the timeline, ask its agent instead; 4 the log refuses the change as things are, the message says why; \
5 no majority of the voters answered in time, and the change may or may not have been made: repeat it."
)]
struct Arguments {
    /// 32 hex digits
    #[arg(long)]
    tenant: TenantId,
    /// 32 hex digits
    #[arg(long)]
    timeline: TimelineId,
    /// WAL addresses of the safekeepers to ask, host:port, with commas between them
    #[arg(long, value_delimiter = ',', required = true)]
    safekeepers: Vec<String>,
    /// How far the pageserver has ingested, such as 0/16B3748: an election that knows less is given up
    #[arg(long)]
    ingested_lsn: Lsn,
    /// Patience with the election, with what has to come before the change, and with the majority that stores it, each
    #[arg(long, default_value_t = 20_000)]
    timeout_ms: u64,
    /// A token for the timeline comes on standard input
    #[arg(long)]
    token_on_stdin: bool,
    #[command(flatten)]
    tls: TlsOptions,
    #[command(subcommand)]
    change: ChangeArguments,
}

#[derive(Subcommand)]
enum ChangeArguments {
    /// The safekeeper at this WAL address, which has the timeline, becomes a learner
    Add { address: String },
    /// The learner on this safekeeper becomes a voter once it holds everything that is committed
    Promote { safekeeper: u64 },
    /// The member on this safekeeper goes, whether or not it answers; its log stays where it is
    Remove { safekeeper: u64 },
}

impl From<ChangeArguments> for MemberChange {
    fn from(arguments: ChangeArguments) -> MemberChange {
        match arguments {
            ChangeArguments::Add { address } => MemberChange::Add { address },
            ChangeArguments::Promote { safekeeper } => MemberChange::Promote { safekeeper },
            ChangeArguments::Remove { safekeeper } => MemberChange::Remove { safekeeper },
        }
    }
}

fn main() -> ExitCode {
    match begin(Arguments::parse()) {
        Ok(Ok(members)) => {
            println!("{members}");
            ExitCode::SUCCESS
        }
        Ok(Err((code, message))) => {
            eprintln!("weir-members: {message}");
            ExitCode::from(code)
        }
        Err(error) => {
            eprintln!("weir-members: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The members as JSON, or the exit code and why.
type Outcome = Result<String, (u8, String)>;

fn begin(arguments: Arguments) -> anyhow::Result<Outcome> {
    let telemetry = telemetry::init("weir-members")?;
    let token = match arguments.token_on_stdin {
        true => OwnToken::read_once(std::io::stdin().lock())?,
        false => OwnToken::default(),
    };
    let dialer = arguments.tls.open()?.dialer();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(run(arguments, token, dialer));
    runtime.shutdown_background();
    telemetry.shutdown();
    match outcome {
        Ok(members) => Ok(Ok(serde_json::to_string(&members)?)),
        Err(failure) => Ok(Err(failure)),
    }
}

async fn run(
    arguments: Arguments,
    token: OwnToken,
    dialer: Dialer,
) -> Result<Members, (u8, String)> {
    let timeout = Duration::from_millis(arguments.timeout_ms);
    let mut config = ProposerConfig::new(
        arguments.tenant,
        arguments.timeline,
        arguments.safekeepers,
        "weir-members",
    );
    config.election_timeout = timeout;
    config.ingested_lsn = arguments.ingested_lsn;
    config.token = token;
    config.dialer = dialer;
    let elected = elect(config).await.map_err(|error| {
        let code = match &error {
            ElectError::Fatal(Fatal::Fenced { .. }) => EXIT_FENCED,
            ElectError::Fatal(Fatal::NoQuorum { .. }) | ElectError::NoQuorum { .. } => {
                EXIT_NO_MAJORITY
            }
            ElectError::Fatal(_) | ElectError::NoSafekeepers | ElectError::Thread(_) => {
                EXIT_REFUSED
            }
        };
        (code, error.to_string())
    })?;
    let change = MemberChange::from(arguments.change);
    let mut fatal = elected.fatal();
    let changed = tokio::select! {
        changed = elected.change_members(&change, timeout) => changed,
        _ = fatal.wait_for(Option::is_some) => Err(MemberError::Stopped("its term is over".into())),
    };
    let ended = fatal.borrow().clone();
    changed
        .map(Members::from)
        .map_err(|error| match (ended, &error) {
            (Some(ended @ Fatal::Fenced { .. }), _) => (EXIT_FENCED, ended.to_string()),
            (Some(ended), _) => (EXIT_NO_MAJORITY, ended.to_string()),
            (None, MemberError::NoSuchMember(_) | MemberError::Refused(_)) => {
                (EXIT_REFUSED, error.to_string())
            }
            (None, _) => (EXIT_NO_MAJORITY, error.to_string()),
        })
}
