//! Two parts over real sockets, with certificates that the `openssl` program makes. What is expired, and what a whole
//! installation makes, is tried in `storage/system/test_part_tls.py`.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use part_tls::{
    Acceptor, Dialer, HttpClient, HttpListener, Identity, PartTls, Stream, TlsOptions, names,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A CA in a folder of its own.
struct Authority(tempfile::TempDir);

fn openssl(dir: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(dir)
        .output()
        .expect("the program openssl");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "openssl {arguments}: {said}");
}

impl Authority {
    fn new() -> Authority {
        let dir = tempfile::tempdir().expect("a folder");
        openssl(
            dir.path(),
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem \
             -addext keyUsage=critical,keyCertSign",
        );
        Authority(dir)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.file(name)).expect("a file")
    }

    /// Key and certificate for these names.
    fn issue(&self, names: &[&str]) -> String {
        let dir = self.0.path();
        let alternatives: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let extensions = format!(
            "subjectAltName={}\nextendedKeyUsage=serverAuth,clientAuth\nbasicConstraints=critical,CA:FALSE\n",
            alternatives.join(",")
        );
        std::fs::write(dir.join("names.ext"), extensions).expect("written");
        openssl(
            dir,
            "req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=part -keyout part.key -out part.csr",
        );
        openssl(
            dir,
            "x509 -req -days 2 -in part.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names.ext -out part.pem",
        );
        self.text("part.key") + &self.text("part.pem")
    }

    /// A file as a part has it, which trusts these CAs.
    fn part(&self, names: &[&str], trusted: &[&Authority]) -> PathBuf {
        let path = self.file(&names.join("+"));
        self.write(&path, names, trusted);
        path
    }

    fn write(&self, path: &Path, names: &[&str], trusted: &[&Authority]) {
        let mut text = self.issue(names);
        for authority in trusted {
            text += &authority.text("ca.pem");
        }
        let draft = path.with_extension("draft");
        std::fs::write(&draft, text).expect("written");
        std::fs::rename(&draft, path).expect("renamed");
    }
}

fn open(path: &Path) -> PartTls {
    let options = TlsOptions {
        tls: Some(path.to_owned()),
    };
    options.open().expect("an identity")
}

/// Answers each connection that is let in with what it sends, in upper case.
async fn echo(acceptor: Arc<Acceptor>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let stream = acceptor.accept(stream).await?;
                let (mut reader, mut writer) = stream.into_split();
                let mut bytes = vec![0; 100_000];
                loop {
                    let read = reader.read(&mut bytes).await?;
                    if read == 0 {
                        return writer.shutdown().await;
                    }
                    writer.send(&bytes[..read].to_ascii_uppercase()).await?;
                }
            });
        }
    });
    address
}

async fn ask(stream: Stream, question: &[u8]) -> io::Result<Vec<u8>> {
    let (mut reader, mut writer) = stream.into_split();
    let length = question.len();
    let question = question.to_vec();
    let sending = tokio::spawn(async move {
        writer.send(&question).await?;
        io::Result::Ok(writer)
    });
    let mut answer = vec![0; length];
    tokio::time::timeout(Duration::from_secs(20), reader.read_exact(&mut answer)).await??;
    drop(sending.await);
    Ok(answer)
}

async fn talks(dialer: &Dialer, address: &str, part: &str) -> io::Result<()> {
    let stream = dialer.connect(address, part).await?;
    let answer = ask(stream, b"hello").await?;
    // An alert, say, of a port that wants TLS.
    (answer == b"HELLO")
        .then_some(())
        .ok_or_else(|| io::Error::other("something else came"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_side_takes_the_part_that_it_means_and_no_other() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let server = open(&ours.part(&["safekeeper", "safekeeper-1"], &[&ours]));
    let address = echo(server.acceptor(names::TO_WAL)).await;
    let compute = open(&ours.part(&["compute", "1.compute"], &[&ours])).dialer();
    talks(&compute, &address, "safekeeper")
        .await
        .expect("the part that was meant");
    talks(&compute, &address, "safekeeper-1")
        .await
        .expect("by its own name");
    for other in ["safekeeper-2", "pageserver", "control"] {
        let error = talks(&compute, &address, other).await.expect_err(other);
        assert!(error.to_string().contains("is not proven to be"), "{error}");
    }
    // Of a kind that has nothing to do there; of another CA, whom the caller trusts as well; and without TLS.
    let stranger = open(&ours.part(&["prometheus"], &[&ours])).dialer();
    talks(&stranger, &address, "safekeeper")
        .await
        .expect_err("prometheus");
    let forged = open(&theirs.part(&["compute", "1.compute"], &[&ours, &theirs])).dialer();
    talks(&forged, &address, "safekeeper")
        .await
        .expect_err("another CA's");
    talks(&Dialer::default(), &address, "safekeeper")
        .await
        .expect_err("plain");
    // A program of another CA, and one without TLS, in the place of the part.
    let impostor = open(&theirs.part(&["safekeeper"], &[&ours, &theirs]));
    let taken = echo(impostor.acceptor(names::TO_WAL)).await;
    talks(&compute, &taken, "safekeeper")
        .await
        .expect_err("another CA's server");
    let plain = echo(Acceptor::lets_all_in()).await;
    talks(&compute, &plain, "safekeeper")
        .await
        .expect_err("a plain server");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_changes_while_the_part_runs_and_a_ca_with_it() {
    let (old, new) = (Authority::new(), Authority::new());
    let file = old.part(&["safekeeper"], &[&old]);
    let address = echo(open(&file).acceptor(names::TO_WAL)).await;
    let before = open(&old.part(&["compute"], &[&old, &new])).dialer();
    let after = open(&new.part(&["compute"], &[&old, &new])).dialer();
    talks(&before, &address, "safekeeper")
        .await
        .expect("the CA that it trusts");
    talks(&after, &address, "safekeeper")
        .await
        .expect_err("a CA that it does not trust yet");
    let open_before = before.connect(&address, "safekeeper").await.expect("open");
    new.write(&file, &["safekeeper"], &[&new]);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while talks(&after, &address, "safekeeper").await.is_err() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the new file was not read"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    talks(&before, &address, "safekeeper")
        .await
        .expect_err("a CA that it trusts no more");
    // What is open goes on.
    assert_eq!(ask(open_before, b"still").await.expect("open"), b"STILL");
    // What makes no sense leaves all as it was.
    std::fs::write(&file, "nonsense").expect("written");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    talks(&after, &address, "safekeeper")
        .await
        .expect("as before");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_goes_from_one_runtime_to_another_with_all_that_is_under_way() {
    let ours = Authority::new();
    let tls = open(&ours.part(&["compute", "safekeeper"], &[&ours]));
    for (acceptor, dialer) in [
        (tls.acceptor(names::TO_WAL), tls.dialer()),
        (Acceptor::lets_all_in(), Dialer::default()),
    ] {
        let address = echo(acceptor).await;
        let mut stream = dialer.connect(&address, "safekeeper").await.expect("open");
        stream.write_all(b"before").await.expect("written");
        stream.flush().await.expect("flushed");
        let (reader, writer) = stream.into_split();
        let stream = Stream::reunite(reader, writer).expect("one connection");
        let detached = stream.detach().expect("detached");
        let thread = std::thread::spawn(move || {
            let own = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            own.block_on(async {
                let mut stream = detached.attach().expect("attached");
                let mut first = [0; 6];
                stream
                    .read_exact(&mut first)
                    .await
                    .expect("what came before");
                // More than buffers and records hold.
                let long: Vec<u8> = (0..3_000_000_u32)
                    .map(|at| b'a' + (at % 26) as u8)
                    .collect();
                let answer = ask(stream, &long).await.expect("all of it");
                (first, answer == long.to_ascii_uppercase())
            })
        });
        let joined = tokio::task::spawn_blocking(move || thread.join());
        let (first, same) = joined.await.expect("joined").expect("no panic");
        assert_eq!((&first, same), (b"BEFORE", true));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_http_port_serves_those_who_prove_themselves_beside_those_who_say_nothing() {
    let ours = Authority::new();
    let server = open(&ours.part(&["pageserver"], &[&ours]));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let router = Router::new().route("/healthz", get(async || "well"));
    let listener = HttpListener::new(listener, server.acceptor(names::TO_PAGESERVER_API));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(&address).await.expect("connected"));
    }
    let base = format!("http://{address}");
    let ask = async |dialer: Dialer, path: &str| {
        let client = HttpClient::new(dialer, names::PAGESERVER, &base).expect("an address");
        let timeout = Duration::from_secs(3);
        client
            .send(Method::GET, path, HeaderMap::new(), Bytes::new(), timeout)
            .await
    };
    let control = open(&ours.part(&["control"], &[&ours])).dialer();
    let answer = ask(control.clone(), "/healthz").await.expect("an answer");
    assert_eq!(answer, (StatusCode::OK, Bytes::from("well")));
    let (status, _) = ask(control, "/nothing?a=b").await.expect("an answer");
    assert_eq!(status, StatusCode::NOT_FOUND);
    let safekeeper = open(&ours.part(&["safekeeper"], &[&ours])).dialer();
    ask(safekeeper, "/healthz")
        .await
        .expect_err("a part that has nothing to do there");
    ask(Dialer::default(), "/healthz")
        .await
        .expect_err("plain HTTP");
    // Those who say nothing are let go of.
    for mut stream in silent {
        let ended = tokio::time::timeout(Duration::from_secs(15), stream.read(&mut [0; 1])).await;
        assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
    }
}

#[test]
fn an_identity_that_lacks_something_is_none() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let (own, other) = (ours.issue(&["control"]), theirs.issue(&["control"]));
    let ca = ours.text("ca.pem");
    let key_end = own.find("-----BEGIN CERTIFICATE").expect("a certificate");
    let (key, certificate) = own.split_at(key_end);
    Identity::parse(format!("{own}{ca}").as_bytes()).expect("whole");
    for (what, text) in [
        ("nothing", String::new()),
        ("no CA", own.clone()),
        ("no key", format!("{certificate}{ca}")),
        ("no certificate", key.to_owned()),
        (
            "another's key",
            format!("{}{certificate}{ca}", &other[..key_end.min(other.len())]),
        ),
        ("torn", own[..own.len() - 40].to_owned()),
    ] {
        let error = Identity::parse(text.as_bytes()).expect_err(what);
        let said = format!("{error:#}");
        let secret = key.lines().nth(1).expect("a line of the key");
        assert!(!said.contains(secret), "{what}: {said}");
    }
    assert!(HttpClient::new(Dialer::default(), names::PAGESERVER, "nowhere at all").is_err());
}
