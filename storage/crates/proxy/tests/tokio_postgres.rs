//! The proxy within the test's process, a stock Postgres that a wake starts, and tokio-postgres as the client.

mod support;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pg_protocol::endpoint::EndpointName;
use pg_protocol::scram::MockSecret;
use proxy::cancel::Cancels;
use proxy::crowd::{self, Crowd};
use proxy::directory::{Directory, DirectoryError, Endpoint, State};
use proxy::memory::Memory;
use proxy::password::Passwords;
use proxy::pooled::pools::{Pools, Settings};
use proxy::server::{self, Door, Limits};
use proxy::shared::Shared;
use proxy::throttle::Throttle;
use proxy::tls::Certificate;
use proxy::wake::Wakes;
use support::{DOMAIN, PASSWORD, Stock, Tls, certificates};
use tokio::net::{TcpListener, TcpStream};
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::{Client, Config, Error};

/// A control plane whose only compute sleeps until it is woken, and takes its time.
struct Sleeper {
    stock: Stock,
    running: AtomicBool,
    wakes: AtomicUsize,
}

#[async_trait]
impl Directory for Sleeper {
    async fn endpoint(&self, name: &EndpointName) -> Result<Option<Arc<Endpoint>>, DirectoryError> {
        let state = match self.running.load(Ordering::SeqCst) {
            true => State::Running(format!("127.0.0.1:{}", self.stock.port)),
            false => State::Suspended,
        };
        let roles = HashMap::from([("app".to_owned(), Stock::verifier())]);
        let allowed = None;
        let endpoint = Endpoint {
            state,
            roles,
            allowed,
        };
        Ok((name.as_str() == "ep-a").then(|| Arc::new(endpoint)))
    }

    async fn wake(&self, _: &EndpointName) -> Result<(), DirectoryError> {
        self.wakes.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
        tokio::task::block_in_place(|| self.stock.start());
        self.running.store(true, Ordering::SeqCst);
        Ok(())
    }
}

async fn connect(address: SocketAddr, tls: &Tls, password: &str) -> Result<Client, Error> {
    let mut config = Config::new();
    config
        .user("app")
        .password(password)
        .dbname("postgres")
        .ssl_mode(SslMode::Require)
        .channel_binding(ChannelBinding::Require);
    let stream = TcpStream::connect(address)
        .await
        .expect("the proxy listens");
    let (client, connection) = config.connect_raw(stream, tls.clone()).await?;
    tokio::spawn(connection);
    Ok(client)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_herd_wakes_its_compute_once_and_all_get_their_rows() {
    let dir = tempfile::tempdir().expect("a directory");
    certificates(dir.path());
    let [chain, key] = ["server.pem", "server.key"].map(|name| dir.path().join(name));
    let sleeper = Arc::new(Sleeper {
        stock: Stock::new(),
        running: AtomicBool::new(false),
        wakes: AtomicUsize::new(0),
    });
    let shared = Arc::new(Shared {
        directory: sleeper.clone(),
        certificate: Arc::new(Certificate::open(&chain, &key).expect("a certificate")),
        domains: vec![DOMAIN.to_owned()],
        mock: MockSecret::new(&[7; 32]),
        throttle: Throttle::default(),
        wakes: Wakes::default(),
        cancels: Cancels::default(),
        crowd: Crowd::new(crowd::Limits {
            endpoint: 1000,
            role: 1000,
        }),
        pools: Pools::new(Settings::default()),
        passwords: Passwords::new(1),
        memory: Memory::new(64 << 20),
        request_limit: Duration::from_secs(60),
        login_limit: Duration::from_secs(60),
        wake_limit: Duration::from_secs(60),
    });
    let limits = Limits {
        connections: 1000,
        drain: Duration::from_secs(5),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let door = Door {
        listener,
        senders: None,
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(server::serve(vec![door], shared, limits, async {
        let _ = stopped.await;
    }));
    let tls = Tls::new(dir.path(), &format!("ep-a.{DOMAIN}"));

    // Who has not logged in wakes nobody.
    for (tls, password) in [
        (&tls, "wrong"),
        (&Tls::new(dir.path(), &format!("ep-b.{DOMAIN}")), PASSWORD),
    ] {
        let error = connect(address, tls, password).await.expect_err("refused");
        assert_eq!(error.code().map(|code| code.code()), Some("28P01"));
    }
    assert_eq!(sleeper.wakes.load(Ordering::SeqCst), 0);

    let clients = (0..200).map(|_| connect(address, &tls, PASSWORD));
    let clients = futures::future::try_join_all(clients)
        .await
        .expect("all get in");
    assert_eq!(sleeper.wakes.load(Ordering::SeqCst), 1);
    for client in &clients {
        let row = client
            .query_one("SELECT $1::text", &[&"here"])
            .await
            .expect("a row");
        assert_eq!(row.get::<_, &str>(0), "here");
    }

    // Idle sessions do not keep the process from ending.
    stop.send(()).expect("it serves");
    tokio::time::timeout(Duration::from_secs(5), serving)
        .await
        .expect("it ends at once")
        .expect("no panic");
    assert!(clients[0].query_one("SELECT 1", &[]).await.is_err());
}
