//! What the pageserver costs: `bench/pageserver.py` makes the WAL and runs this on it.
//!
//! `bench prepare DIR` makes a project in `DIR/objects` and, from its pages, a data directory in `DIR/pgdata`
//! that a stock Postgres starts from at exactly the project's first LSN.
//! `bench end DIR` says where the WAL of that data directory, stopped, ends.
//! `bench ingest ...` has a pageserver take in the WAL which that Postgres wrote, in stretches.
//! `bench grow ...` does so piece by piece, and takes the figures of a database that grows.
//! `bench stages ...` says where the time of that goes, record by record.
//! `bench read ...` reads pages from several pageservers in turn, over loopback.
//! `bench scan ...` reads a relation from its first to its last page from the disk; `bench serve ...` lets another
//! program do so.
//! `bench settle ...` and `bench mixed ...` read while WAL comes in.
//!
//! Everything runs in this one process, so that its CPU time is what the work cost. Prints one line of JSON.

#[path = "../../tests/common/mod.rs"]
mod common;

mod accesses;
mod client;
mod engine;
mod grow;
mod ingest;
mod mixed;
mod prepare;
mod read;
mod records;
mod serve;
mod stages;
mod steady;
mod touched;

use anyhow::Result;
use clap::Parser;

#[derive(Parser)]
enum Command {
    Prepare(prepare::Arguments),
    End(prepare::EndArguments),
    Grow(grow::Arguments),
    Ingest(ingest::Arguments),
    Read(read::Arguments),
    Scan(read::ScanArguments),
    Serve(serve::Arguments),
    Stages(stages::Arguments),
    Settle(mixed::SettleArguments),
    Mixed(mixed::Arguments),
}

#[tokio::main]
async fn main() -> Result<()> {
    let result = match Command::parse() {
        Command::Prepare(arguments) => prepare::run(arguments).await?,
        Command::End(arguments) => prepare::end(arguments)?,
        Command::Grow(arguments) => grow::run(arguments).await?,
        Command::Ingest(arguments) => ingest::run(arguments).await?,
        Command::Read(arguments) => read::run(arguments).await?,
        Command::Scan(arguments) => read::scan(arguments).await?,
        Command::Serve(arguments) => serve::run(arguments).await?,
        Command::Stages(arguments) => stages::run(arguments)?,
        Command::Settle(arguments) => mixed::wait_until_settled(arguments).await?,
        Command::Mixed(arguments) => mixed::run(arguments).await?,
    };
    println!("{result}");
    Ok(())
}
