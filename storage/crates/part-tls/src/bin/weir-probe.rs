//! `weir-probe`: asks a part with TLS whether it is well, for a supervisor.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use clap::Parser;
use http::{HeaderMap, Method};
use part_tls::{HttpClient, TlsOptions, names};

const PATIENCE: Duration = Duration::from_secs(4);

/// Exit code 0: the part at this address has proven itself and answers that it is well.
#[derive(Parser)]
#[command(
    version,
    about = "Asks a part of an installation with TLS whether it is well"
)]
struct Arguments {
    /// Which part it is to be: the name in its certificate
    #[arg(value_parser = [names::PAGESERVER, names::SAFEKEEPER, names::PROMETHEUS])]
    part: String,
    /// HOST:PORT of the HTTP API
    address: String,
    /// PEM of a private key and certificate that the part admits, and of the CAs that it may be of
    #[arg(long, value_name = "FILE")]
    tls: PathBuf,
}

fn main() -> ExitCode {
    match ask(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir-probe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn ask(arguments: Arguments) -> anyhow::Result<()> {
    let (part, path) = match arguments.part.as_str() {
        names::PAGESERVER => (names::PAGESERVER, "/healthz"),
        names::PROMETHEUS => (names::PROMETHEUS, "/-/ready"),
        _ => (names::SAFEKEEPER, "/healthz"),
    };
    let options = TlsOptions {
        tls: Some(arguments.tls),
    };
    let base = format!("http://{}", arguments.address);
    let client = HttpClient::new(options.open()?.dialer(), part, &base)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let request = client.send(Method::GET, path, HeaderMap::new(), Bytes::new(), PATIENCE);
    let (status, _) = runtime.block_on(request)?;
    anyhow::ensure!(status.is_success(), "{part} answers {status}");
    Ok(())
}
