//! A stock Postgres, certificates, and TLS for tokio-postgres.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll};

use part_tls::certificate::end_point;
use pg_protocol::scram::Verifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use test_ports::free_port;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

const PG_BIN: &str = "/usr/lib/postgresql/15/bin";
pub const PASSWORD: &str = "correct horse";
pub const DOMAIN: &str = "db.test";

fn run(command: &mut Command) {
    let output = command
        .current_dir("/")
        .output()
        .expect("the program is there");
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A program of Postgres, which refuses to be root.
fn postgres(program: &str) -> Command {
    let path = format!("{PG_BIN}/{program}");
    if !nix::unistd::geteuid().is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=postgres",
        "--regid=postgres",
        "--clear-groups",
        &path,
    ]);
    command
}

/// A stock Postgres with the role `app`; stopped when it goes.
pub struct Stock {
    dir: TempDir,
    pub port: u16,
}

impl Stock {
    /// Prepared, not started.
    pub fn new() -> Stock {
        let dir = tempfile::tempdir_in("/tmp").expect("a directory");
        if nix::unistd::geteuid().is_root() {
            run(Command::new("chown").arg("postgres").arg(dir.path()));
        }
        let stock = Stock {
            dir,
            port: free_port(),
        };
        run(postgres("initdb")
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=postgres",
                "-E",
                "UTF8",
                "-D",
            ])
            .arg(stock.data()));
        let hba = "local all postgres trust\nhost all all all scram-sha-256\n";
        fs::write(stock.data().join("pg_hba.conf"), hba).expect("written");
        stock
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub fn verifier() -> Verifier {
        Verifier::of_password(PASSWORD.as_bytes(), 4096, b"salt of the test").expect("iterations")
    }

    pub fn start(&self) {
        let socket = self.dir.path().display();
        let options = format!(
            "-p {} -k {socket} -c listen_addresses=127.0.0.1 -c fsync=off -c max_connections=300",
            self.port
        );
        run(postgres("pg_ctl")
            .args(["-w", "-o", &options, "-l"])
            .arg(self.dir.path().join("log"))
            .arg("-D")
            .arg(self.data())
            .arg("start"));
        let script = format!(
            "CREATE ROLE app LOGIN PASSWORD '{}'; GRANT ALL ON DATABASE postgres TO app",
            Stock::verifier().to_text()
        );
        run(postgres("psql")
            .args([
                "-qX",
                "-U",
                "postgres",
                "-p",
                &self.port.to_string(),
                "-c",
                &script,
                "-h",
            ])
            .arg(self.dir.path()));
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        let _ = postgres("pg_ctl")
            .args(["-m", "immediate", "stop", "-D"])
            .arg(self.data())
            .current_dir("/")
            .output();
    }
}

/// A CA, and a certificate of it for all names below the domain; both of RSA with SHA-384.
pub fn certificates(dir: &Path) {
    let extension = format!("subjectAltName=DNS:*.{DOMAIN}\nbasicConstraints=CA:FALSE\n");
    fs::write(dir.join("extension"), extension).expect("written");
    let openssl = |arguments: &str| {
        let arguments = arguments.split(' ').map(|word| match word.contains('.') {
            true => dir.join(word).display().to_string(),
            false => word.to_owned(),
        });
        run(Command::new("openssl").args(arguments));
    };
    fs::rename(dir.join("extension"), dir.join("names.ext")).expect("renamed");
    openssl(
        "req -x509 -newkey rsa:2048 -nodes -sha384 -days 2 -subj /CN=ca -keyout ca.key -out ca.pem",
    );
    openssl("req -new -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr");
    openssl(
        "x509 -req -sha384 -days 2 -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names.ext -out server.pem",
    );
}

/// A client's TLS that believes the CA.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    host: String,
}

impl Tls {
    pub fn new(dir: &Path, host: &str) -> Tls {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(dir.join("ca.pem")).expect("a certificate");
        roots.add(authority).expect("a CA");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Tls {
            config: Arc::new(config),
            host: host.to_owned(),
        }
    }
}

pub struct Stream(tokio_rustls::client::TlsStream<TcpStream>);

impl TlsConnect<TcpStream> for Tls {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        let name = ServerName::try_from(self.host).expect("a host name");
        Box::pin(async move {
            TlsConnector::from(self.config)
                .connect(name, stream)
                .await
                .map(Stream)
        })
    }
}

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        let certificates = self.0.get_ref().1.peer_certificates();
        let hash = certificates.and_then(|all| end_point(&all[0]));
        ChannelBinding::tls_server_end_point(hash.expect("a hash of RSA"))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
