//! An S3 server on a directory of its own, for one test.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use blob::Store;
use tempfile::TempDir;

pub const SECRET: &str = "not-a-secret-of-anybody";
const KEY_ID: &str = "weir-test";

pub struct S3Server {
    child: Child,
    port: u16,
    root: TempDir,
}

fn program() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    let cache =
        std::env::var_os("WEIR_CACHE").map_or_else(|| home().join(".cache/weir"), PathBuf::from);
    let tools = std::env::var_os("WEIR_TOOLS_DIR").map_or_else(|| cache.join("bin"), PathBuf::from);
    tools.join("versitygw")
}

/// Answers once the server takes connections.
fn launch(port: u16, root: &Path) -> Child {
    let child = Command::new(program())
        .args(["--quiet", "--keep-alive", "--port"])
        .arg(format!("127.0.0.1:{port}"))
        .arg("posix")
        .arg(root)
        .env("ROOT_ACCESS_KEY", KEY_ID)
        .env("ROOT_SECRET_KEY", SECRET)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| {
            let program = program();
            panic!(
                "{}: {error}; `scripts/setup --only s3-server` builds it",
                program.display()
            )
        });
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the S3 server does not start"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

impl S3Server {
    /// With an empty bucket `weir`.
    pub fn start() -> S3Server {
        let root = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir(root.path().join("weir")).expect("bucket");
        let port = test_ports::free_port();
        let child = launch(port, root.path());
        S3Server { child, port, root }
    }

    pub fn start_again(&mut self) {
        self.stop();
        self.child = launch(self.port, self.root.path());
    }

    pub fn store(&self) -> Store {
        self.store_at("s3://weir/some/prefix", SECRET)
    }

    pub fn store_at(&self, address: &str, secret: &str) -> Store {
        let variables = [
            (
                "AWS_ENDPOINT_URL",
                format!("http://127.0.0.1:{}", self.port),
            ),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", KEY_ID.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        Store::from_address_with(address, variables).expect("store")
    }

    /// Where the objects of `store` lie.
    pub fn directory(&self) -> PathBuf {
        self.root.path().join("weir/some/prefix")
    }

    pub fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.stop();
    }
}
