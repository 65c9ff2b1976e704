//! Promise: a router behind the gate answers nobody without a token that fits, whatever the route; keys change while it
//! runs, and a key set that can't be used changes nothing.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use common::*;
use serde_json::{Value, json};
use tempfile::TempDir;
use token::http::{About, Access, protect};
use token::watched::Watched;
use token::{Gate, KeySet, OwnToken, Rights, Scope};

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_secs()
}

fn put(path: &Path, bytes: &[u8]) {
    let draft = path.with_extension("new");
    std::fs::write(&draft, bytes).expect("written");
    std::fs::rename(draft, path).expect("renamed");
}

fn rule(method: &Method, route: Option<&str>) -> Access {
    match (method.as_str(), route) {
        (_, Some("/healthz")) => Access::Open,
        (_, Some("/metrics")) => Access::METRICS,
        ("GET", Some("/v1/tenant/{tenant}/timeline/{timeline}")) => {
            Access::Any(&[Rights::MANAGE, Rights::READ_PAGES])
        }
        _ => Access::MANAGE,
    }
}

struct Served {
    url: String,
    client: reqwest::Client,
}

impl Served {
    async fn start(gate: Arc<Gate>, about: About) -> Served {
        let word = || get(async || "served").post(async || "served");
        let router = Router::new()
            .route("/healthz", word())
            .route("/metrics", word())
            .route("/v1/tenant", word())
            .route("/v1/tenant/{tenant}", word())
            .route("/v1/tenant/{tenant}/timeline/{timeline}", word());
        let router = protect(router, gate, about, rule);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let client = reqwest::Client::builder().no_proxy().build();
        let client = client.expect("a client");
        Served { url, client }
    }

    async fn status(&self, method: Method, path: &str, token: Option<&str>) -> u16 {
        let request = self.client.request(method, format!("{}{path}", self.url));
        let request = match token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        };
        request.send().await.expect("an answer").status().as_u16()
    }

    async fn get(&self, path: &str, token: Option<&str>) -> u16 {
        self.status(Method::GET, path, token).await
    }
}

fn with_keys(folder: &TempDir, keys: &[Value]) -> Arc<Gate> {
    let path = folder.path().join("keys.json");
    put(&path, &key_set(keys));
    Gate::open(Some(&path), vec!["pageserver".to_owned()]).expect("a gate")
}

fn timeline_path(tenant: &str, timeline: &str) -> String {
    format!("/v1/tenant/{tenant}/timeline/{timeline}")
}

#[tokio::test]
async fn each_route_wants_a_token_that_fits() {
    let folder = TempDir::new().expect("a folder");
    let signer = Signer::new("k1", 1);
    let served = Served::start(with_keys(&folder, &[signer.public()]), About::Path).await;
    let all = [
        "/metrics",
        "/v1/tenant",
        "/nowhere",
        "/healthz/",
        "/v1//tenant",
        &timeline_path(TENANT, TIMELINE),
    ];
    for path in all {
        for method in [Method::GET, Method::POST, Method::DELETE, Method::HEAD] {
            assert_eq!(
                served.status(method.clone(), path, None).await,
                401,
                "{method} {path}"
            );
        }
        assert_eq!(served.get(path, Some("a.b.c")).await, 401, "{path}");
    }
    assert_eq!(served.get("/healthz", None).await, 200);

    let sign = |changes: Value| signer.sign(&claims_with(now(), &changes));
    let reads = sign(json!({}));
    let own = timeline_path(TENANT, TIMELINE);
    assert_eq!(served.get(&own, Some(&reads)).await, 200);
    // The same id in other letters is the same id.
    assert_eq!(served.status(Method::POST, &own, Some(&reads)).await, 403);
    for path in [
        "/metrics".to_owned(),
        "/v1/tenant".to_owned(),
        format!("/v1/tenant/{TENANT}"),
        timeline_path(TENANT, OTHER_TIMELINE),
        timeline_path(OTHER_TENANT, TIMELINE),
        timeline_path("nonsense", TIMELINE),
        timeline_path(TENANT, "%ff"),
        "/nowhere".to_owned(),
    ] {
        assert_eq!(served.get(&path, Some(&reads)).await, 403, "{path}");
    }

    let tenant = sign(json!({"timeline": null, "rights": ["manage"]}));
    assert_eq!(served.get(&own, Some(&tenant)).await, 200);
    let path = format!("/v1/tenant/{TENANT}");
    assert_eq!(served.get(&path, Some(&tenant)).await, 200);
    assert_eq!(served.get("/v1/tenant", Some(&tenant)).await, 403);
    let path = format!("/v1/tenant/{OTHER_TENANT}");
    assert_eq!(served.get(&path, Some(&tenant)).await, 403);

    let service = sign(json!({"tenant": null, "timeline": null, "rights": ["manage"]}));
    assert_eq!(served.get("/v1/tenant", Some(&service)).await, 200);
    assert_eq!(served.get(&path, Some(&service)).await, 200);
    assert_eq!(served.get("/nowhere", Some(&service)).await, 404);
    assert_eq!(served.get("/metrics", Some(&service)).await, 403);
    let metrics = sign(json!({"tenant": null, "timeline": null, "rights": ["metrics"]}));
    assert_eq!(served.get("/metrics", Some(&metrics)).await, 200);
    assert_eq!(served.get("/v1/tenant", Some(&metrics)).await, 403);
}

#[tokio::test]
async fn a_request_has_one_token_by_the_one_scheme() {
    let folder = TempDir::new().expect("a folder");
    let signer = Signer::new("k1", 1);
    let served = Served::start(with_keys(&folder, &[signer.public()]), About::Path).await;
    let good = signer.sign(&claims(now()));
    let url = format!("{}{}", served.url, timeline_path(TENANT, TIMELINE));
    for values in [
        vec![format!("Bearer {good}"), format!("Bearer {good}")],
        vec![format!("Basic {good}")],
        vec![good.clone()],
        vec![format!("Bearer  {good}")],
        vec!["Bearer ".to_owned()],
    ] {
        let mut request = served.client.get(&url);
        for value in &values {
            request = request.header("Authorization", value);
        }
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 401, "{}", values.len());
        assert_eq!(answer.headers()["www-authenticate"], "Bearer");
        let body = answer.text().await.expect("a body");
        assert!(!body.contains(&good));
    }
    let request = served
        .client
        .get(&url)
        .header("Authorization", format!("bearer {good}"));
    assert_eq!(request.send().await.expect("an answer").status(), 200);
}

#[tokio::test]
async fn what_serves_one_timeline_asks_for_its_token_on_each_path() {
    let folder = TempDir::new().expect("a folder");
    let signer = Signer::new("k1", 1);
    let scope = Scope::timeline(
        TENANT.parse().expect("an id"),
        TIMELINE.parse().expect("an id"),
    );
    let gate = with_keys(&folder, &[signer.public()]);
    let served = Served::start(gate, About::Own(scope)).await;
    let sign = |tenant: &str, timeline: &str| {
        let changes = json!({"tenant": tenant, "timeline": timeline, "rights": ["manage"]});
        signer.sign(&claims_with(now(), &changes))
    };
    let own = sign(TENANT, TIMELINE);
    assert_eq!(served.get("/v1/tenant", Some(&own)).await, 200);
    let other = sign(OTHER_TENANT, OTHER_TIMELINE);
    // Not by a path that names the other one either.
    let path = timeline_path(OTHER_TENANT, OTHER_TIMELINE);
    for path in ["/v1/tenant", &path] {
        assert_eq!(served.get(path, Some(&other)).await, 403);
    }
}

#[tokio::test]
async fn without_keys_everybody_comes_in_and_without_a_file_nothing_starts() {
    let gate = Gate::open(None, vec!["pageserver".to_owned()]).expect("a gate");
    assert!(!gate.authenticates());
    let served = Served::start(gate, About::Path).await;
    assert_eq!(served.get("/v1/tenant", None).await, 200);
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("keys.json");
    assert!(Gate::open(Some(&path), Vec::new()).is_err());
    put(&path, b"{\"keys\": []}");
    assert!(Gate::open(Some(&path), Vec::new()).is_err());
}

#[test]
fn keys_change_while_they_are_used_and_nonsense_changes_nothing() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("keys.json");
    let (old, new) = (Signer::new("k1", 1), Signer::new("k2", 2));
    put(&path, &key_set(&[old.public()]));
    let keys = Watched::open(&path, |bytes| Ok(KeySet::parse(bytes)?)).expect("keys");
    let names = || {
        keys.refresh();
        let current = keys.current();
        let names: Vec<String> = current.names().into_iter().map(str::to_owned).collect();
        names.join(" ")
    };
    // The overlap: both count.
    put(&path, &key_set(&[old.public(), new.public()]));
    assert_eq!(names(), "k1 k2");
    for nonsense in [&b""[..], b"{", b"{\"keys\":[]}"] {
        put(&path, nonsense);
        assert_eq!(names(), "k1 k2");
    }
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(names(), "k1 k2");
    std::fs::create_dir(&path).expect("a folder in its place");
    assert_eq!(names(), "k1 k2");
    std::fs::remove_dir(&path).expect("removed");
    put(&path, &key_set(&[new.public()]));
    assert_eq!(names(), "k2");
}

#[test]
fn the_thread_sees_a_new_file_by_itself() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("token");
    put(&path, b"first.token.here\n");
    let own = OwnToken::open(Some(&path)).expect("a token");
    assert_eq!(own.current().as_deref(), Some("first.token.here"));
    put(&path, b"second.token.here\n");
    let begun = std::time::Instant::now();
    while own.current().as_deref() != Some("second.token.here") {
        assert!(begun.elapsed().as_secs() < 20, "not read again");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
fn a_partys_own_token_is_followed_through_no_link_and_shown_to_nobody() {
    let folder = TempDir::new().expect("a folder");
    let (secret, link) = (folder.path().join("other"), folder.path().join("token"));
    put(&secret, b"the.others.token\n");
    std::os::unix::fs::symlink(&secret, &link).expect("a link");
    assert!(OwnToken::open(Some(&link)).is_err());
    let own = OwnToken::open(Some(&secret)).expect("a token");
    let header = own.authorization().expect("a header");
    let shown = format!("{own:?} {header:?}");
    assert!(!shown.contains("others"), "{shown}");
    for nonsense in [
        &b""[..],
        b" \n",
        b"two words",
        b"a\r\nInjected: header",
        &[0xff; 20],
    ] {
        put(&secret, nonsense);
        assert!(OwnToken::open(Some(&secret)).is_err());
    }
    assert!(OwnToken::open(None).expect("none").current().is_none());
}
