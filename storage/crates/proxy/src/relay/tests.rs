use std::time::Duration;

use pg_protocol::messages::message;
use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;

use super::*;

struct Session {
    client: DuplexStream,
    compute: DuplexStream,
    drain: watch::Sender<Drain>,
    relay: JoinHandle<(End, Passed)>,
}

/// A session between two pipes that hold so many bytes.
fn session(bytes: usize) -> Session {
    session_of(bytes, Arc::default())
}

fn session_of(bytes: usize, schema: Arc<Schema>) -> Session {
    let (client, for_client) = duplex(bytes);
    let (compute, for_compute) = duplex(bytes);
    let (drain, wanted) = watch::channel(Drain::No);
    let relay = Relay::new(for_client, for_compute, Vec::new(), schema);
    Session {
        client,
        compute,
        drain,
        relay: tokio::spawn(relay.run(wanted)),
    }
}

async fn expect(stream: &mut DuplexStream, bytes: &[u8]) {
    let mut read = vec![0; bytes.len()];
    stream.read_exact(&mut read).await.expect("it comes");
    assert_eq!(read, bytes);
}

async fn still(relay: &mut JoinHandle<(End, Passed)>) -> bool {
    tokio::time::timeout(Duration::from_millis(200), relay)
        .await
        .is_err()
}

#[tokio::test]
async fn bytes_pass_both_ways_and_are_counted() {
    let mut session = session(100);
    let query = message(b'Q', b"SELECT 1\0");
    session.client.write_all(&query).await.expect("written");
    expect(&mut session.compute, &query).await;
    let ready = message(b'Z', b"I");
    session.compute.write_all(&ready).await.expect("written");
    expect(&mut session.client, &ready).await;
    session
        .client
        .write_all(&message(b'X', b""))
        .await
        .expect("written");
    drop(session.client);
    let mut rest = Vec::new();
    session
        .compute
        .read_to_end(&mut rest)
        .await
        .expect("it ends");
    assert_eq!(rest, message(b'X', b""));
    drop(session.compute);
    let (end, passed) = session.relay.await.expect("no panic");
    assert!(matches!(end, End::Client { said: true }), "{end:?}");
    let expected = Passed {
        to_compute: query.len() as u64 + 5,
        to_client: ready.len() as u64,
    };
    assert_eq!(passed, expected);
}

/// A client that reads nothing holds its compute back; it does not fill the proxy's memory.
#[tokio::test]
async fn nothing_is_read_for_a_client_that_does_not_read() {
    let mut session = session(1000);
    let flood = vec![0; 10 * MOST_BYTES];
    let written = tokio::time::timeout(Duration::from_millis(500), async {
        let mut all = 0;
        while let Ok(written) = session.compute.write(&flood[..1000]).await {
            all += written;
            FLOODED.with(|flooded| flooded.set(all));
        }
    });
    assert!(written.await.is_err(), "it is held back");
    let flooded = FLOODED.with(std::cell::Cell::get);
    assert!(flooded <= MOST_BYTES + 2000, "{flooded} bytes went in");
    assert!(still(&mut session.relay).await);
}

thread_local! {
    static FLOODED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[tokio::test]
async fn a_shutdown_ends_idle_sessions_and_waits_for_transactions() {
    let mut session = session(1000);
    let query = message(b'Q', b"BEGIN\0");
    session.client.write_all(&query).await.expect("written");
    expect(&mut session.compute, &query).await;
    session.drain.send_replace(Drain::Idle);
    assert!(still(&mut session.relay).await, "a statement runs");
    session
        .compute
        .write_all(&message(b'Z', b"T"))
        .await
        .expect("written");
    assert!(still(&mut session.relay).await, "a transaction is open");
    // Two statements at once: the first answer is not the end of it.
    let commit = [message(b'Q', b"COMMIT\0"), message(b'Q', b"SELECT 1\0")].concat();
    session.client.write_all(&commit).await.expect("written");
    expect(&mut session.compute, &commit).await;
    session
        .compute
        .write_all(&message(b'Z', b"I"))
        .await
        .expect("written");
    assert!(still(&mut session.relay).await, "another statement runs");
    session
        .compute
        .write_all(&message(b'Z', b"I"))
        .await
        .expect("written");
    let (end, _) = session.relay.await.expect("no panic");
    assert!(matches!(end, End::Shutdown), "{end:?}");
    let mut told = Vec::new();
    session
        .client
        .read_to_end(&mut told)
        .await
        .expect("it ends");
    assert!(told.windows(5).any(|code| code == b"57P01"));
    let mut told = Vec::new();
    session
        .compute
        .read_to_end(&mut told)
        .await
        .expect("it ends");
    assert_eq!(told, message(b'X', b""));
}

/// The error would be read as part of the row that is under way.
#[tokio::test]
async fn a_shutdown_at_once_writes_into_no_message() {
    let mut session = session(1000);
    let row = message(b'D', &[7; 100]);
    session
        .compute
        .write_all(&row[..50])
        .await
        .expect("written");
    expect(&mut session.client, &row[..50]).await;
    session.drain.send_replace(Drain::All);
    let (end, _) = session.relay.await.expect("no panic");
    assert!(matches!(end, End::Shutdown), "{end:?}");
    let mut told = Vec::new();
    session
        .client
        .read_to_end(&mut told)
        .await
        .expect("it ends");
    assert_eq!(told, b"");
}

#[tokio::test]
async fn a_change_of_the_schema_is_known_before_the_client_hears_of_it() {
    let schema = Arc::<Schema>::default();
    let mut session = session_of(100, schema.clone());
    let mut last = schema.generation();
    for (command, status, changes) in [
        ("INSERT 0 1", "I", false),
        ("BEGIN", "T", false),
        ("ALTER TABLE", "T", true),
        ("SELECT 1", "T", false),
        ("COMMIT", "I", true),
        ("COMMIT", "I", false),
        ("DROP VIEW", "T", true),
    ] {
        let done = message(b'C', format!("{command}\0").as_bytes());
        let bytes = [done, message(b'Z', status.as_bytes())].concat();
        session.compute.write_all(&bytes).await.expect("written");
        expect(&mut session.client, &bytes).await;
        let now = schema.generation();
        assert_eq!(now > last, changes, "{command}");
        last = now;
    }
    // A session that breaks may have changed it.
    drop((session.client, session.compute));
    session.relay.await.expect("no panic");
    assert!(schema.generation() > last);
}
