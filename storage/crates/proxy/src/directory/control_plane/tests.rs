//! The promises of the module's head, against a control plane that the tests play.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path, State as Of};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use tokio::net::TcpListener;

use super::*;

const VERIFIER: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
const TOKEN: &str = "a-token-of-the-test";
const LIMIT: Duration = Duration::from_secs(20);

/// Knows `ep-a`, which runs once it has been woken, and takes its time.
#[derive(Default)]
struct Played {
    questions: AtomicUsize,
    wakes: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
    runs: AtomicUsize,
    broken: AtomicUsize,
}

impl Played {
    fn answer(&self, name: &str) -> String {
        match (name, self.runs.load(Ordering::SeqCst)) {
            ("ep-a", 0) => {
                format!(r#"{{"state": "suspended", "roles": {{"app": "{VERIFIER}"}}}}"#)
            }
            ("ep-a", _) => format!(
                r#"{{"state": "running", "address": "127.0.0.1:7700", "roles": {{"app": "{VERIFIER}"}}}}"#
            ),
            ("ep-odd", _) => format!(r#"{{"state": "odd", "{VERIFIER}": 1}}"#),
            _ => "null".to_owned(),
        }
    }
}

fn may(headers: &HeaderMap) -> bool {
    headers
        .get("authorization")
        .is_some_and(|value| value == &format!("Bearer {TOKEN}"))
}

const REFUSED: (StatusCode, &str) = (StatusCode::FORBIDDEN, r#"{"message": "who are you"}"#);

async fn question(
    Of(played): Of<Arc<Played>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> (StatusCode, String) {
    if !may(&headers) {
        return (REFUSED.0, REFUSED.1.to_owned());
    }
    played.questions.fetch_add(1, Ordering::SeqCst);
    let now = played.now.fetch_add(1, Ordering::SeqCst) + 1;
    played.most.fetch_max(now, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(20)).await;
    played.now.fetch_sub(1, Ordering::SeqCst);
    match played.broken.load(Ordering::SeqCst) {
        0 => (StatusCode::OK, played.answer(&name)),
        _ => (
            StatusCode::SERVICE_UNAVAILABLE,
            r#"{"message": "no database"}"#.to_owned(),
        ),
    }
}

async fn wake(Of(played): Of<Arc<Played>>, Path(name): Path<String>) -> String {
    played.wakes.fetch_add(1, Ordering::SeqCst);
    played.runs.store(1, Ordering::SeqCst);
    played.answer(&name)
}

async fn serve(listener: TcpListener, played: Arc<Played>) {
    let router = Router::new()
        .route("/internal/proxy/endpoints/{name}", get(question))
        .route("/internal/proxy/endpoints/{name}/wake", post(wake))
        .with_state(played);
    axum::serve(listener, router).await.expect("served");
}

async fn played() -> (Arc<Played>, ControlPlane) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", listener.local_addr().expect("bound"));
    let played = Arc::new(Played::default());
    tokio::spawn(serve(listener, played.clone()));
    (
        played,
        ControlPlane::new(&url, TOKEN, LIMIT).expect("a client"),
    )
}

fn name(text: &str) -> EndpointName {
    EndpointName::new(text).expect("a name")
}

async fn ask_all(directory: &ControlPlane, names: Vec<EndpointName>) -> Vec<Found> {
    let all = names.into_iter().map(|name| {
        let directory = directory.clone();
        tokio::spawn(async move { directory.endpoint(&name).await.expect("answered") })
    });
    let all = futures::future::join_all(all).await;
    all.into_iter()
        .map(|found| found.expect("no panic"))
        .collect()
}

#[tokio::test]
async fn a_herd_asks_once_and_later_ones_again() {
    let (played, directory) = played().await;
    let found = ask_all(&directory, vec![name("ep-a"); 500]).await;
    let first = found[0].clone().expect("known");
    assert_eq!(
        (&first.state, first.roles["app"].to_text().as_str()),
        (&State::Suspended, VERIFIER)
    );
    assert!(found.iter().all(|each| each.as_ref() == Some(&first)));
    assert_eq!(played.questions.load(Ordering::SeqCst), 1);
    tokio::time::sleep(FRESH).await;
    ask_all(&directory, vec![name("ep-a")]).await;
    assert_eq!(played.questions.load(Ordering::SeqCst), 2);
    assert!(directory.asked.flights.lock().is_empty());
}

#[tokio::test]
async fn strangers_wait_among_themselves() {
    let (played, directory) = played().await;
    let names = (0..100)
        .map(|number| name(&format!("ep-none-{number}")))
        .collect();
    assert!(ask_all(&directory, names).await.iter().all(Option::is_none));
    assert_eq!(played.questions.load(Ordering::SeqCst), 100);
    assert_eq!(played.most.load(Ordering::SeqCst), STRANGE_AT_A_TIME);
}

#[tokio::test]
async fn what_was_said_holds_while_the_control_plane_says_nothing() {
    let (played, directory) = played().await;
    let before = directory.endpoint(&name("ep-a")).await.expect("answered");
    assert!(before.is_some());
    played.broken.store(1, Ordering::SeqCst);
    tokio::time::sleep(FRESH).await;
    let asked = played.questions.load(Ordering::SeqCst);
    assert_eq!(directory.endpoint(&name("ep-a")).await, Ok(before));
    assert_eq!(played.questions.load(Ordering::SeqCst), asked + 1);
    // Nothing is known of others, which is no word that they do not exist.
    let error = directory
        .endpoint(&name("ep-b"))
        .await
        .expect_err("nothing to say");
    assert!(
        error.0.contains("503") && error.0.contains("no database"),
        "{error}"
    );
}

/// A change that was acknowledged is seen by who asks for what holds now.
#[tokio::test]
async fn what_holds_now_is_asked_for() {
    let (played, directory) = played().await;
    directory.endpoint(&name("ep-a")).await.expect("answered");
    played.runs.store(1, Ordering::SeqCst);
    let now = directory.endpoint_now(&name("ep-a")).await;
    let running = State::Running("127.0.0.1:7700".to_owned());
    assert_eq!(now.expect("answered").expect("known").state, running);
}

#[tokio::test]
async fn a_wake_is_one_call_and_says_where_the_compute_runs() {
    let (played, directory) = played().await;
    assert_eq!(
        directory
            .endpoint(&name("ep-a"))
            .await
            .expect("known")
            .expect("it")
            .state,
        State::Suspended
    );
    directory.wake(&name("ep-a")).await.expect("woken");
    let now = directory
        .endpoint(&name("ep-a"))
        .await
        .expect("known")
        .expect("it");
    assert_eq!(now.state, State::Running("127.0.0.1:7700".to_owned()));
    assert_eq!(played.wakes.load(Ordering::SeqCst), 1);
    let error = directory
        .wake(&name("ep-none"))
        .await
        .expect_err("there is none");
    assert!(error.0.contains("has gone"), "{error}");
}

#[tokio::test]
async fn a_wake_waits_for_a_control_plane_that_starts() {
    let port = test_ports::free_port();
    let url = format!("http://127.0.0.1:{port}");
    let directory = ControlPlane::new(&url, TOKEN, LIMIT).expect("a client");
    let error = directory
        .endpoint(&name("ep-a"))
        .await
        .expect_err("nobody is there");
    assert!(error.0.contains("no connection"), "{error}");
    let waiting = tokio::spawn(async move { directory.wake(&name("ep-a")).await });
    tokio::time::sleep(Duration::from_millis(500)).await;
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("the port");
    tokio::spawn(serve(listener, Arc::default()));
    waiting.await.expect("no panic").expect("woken");
}

/// Errors go to the log: neither the token nor a verifier may be in one.
#[tokio::test]
async fn errors_quote_no_secret() {
    let (_played, directory) = played().await;
    let odd = directory
        .endpoint(&name("ep-odd"))
        .await
        .expect_err("it makes no sense");
    let asked = &directory.asked;
    let foreign = ControlPlane::new(
        asked.base.split("/internal").next().expect("a URL"),
        "another",
        LIMIT,
    );
    let refused = foreign
        .expect("a client")
        .endpoint(&name("ep-a"))
        .await
        .expect_err("refused");
    assert!(refused.0.contains("who are you"), "{refused}");
    for text in [odd.0, refused.0, format!("{:?}", asked.authorization)] {
        for secret in ["W22Z", "another", TOKEN] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}
