//! The page service over TCP: what it answers, what it refuses, and that terms fence.

mod common;

use std::sync::Arc;

use common::pages::PageClient;
use common::server::{Server, Wals, lsn, tenant_id, timeline_id};
use pageserver::page_service;
use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
use pg_types::{ForkNumber, Lsn, RelTag, SlruKind, TenantId, Term, TimelineId};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wire::page::{ErrorKind, Hello, MAX_PAGES_PER_REQUEST, Reply, Request, VERSION};

/// `pg_proc` of `template1`, which a fresh cluster has with its bootstrap number.
const PG_PROC: RelTag = RelTag {
    spc: DEFAULT_TABLESPACE,
    db: 1,
    rel: 1255,
    fork: ForkNumber::Main,
};

struct Project {
    server: Server,
    address: String,
    tenant: TenantId,
    timeline: TimelineId,
    start: Lsn,
    _root: tempfile::TempDir,
}

async fn project() -> Project {
    let root = tempfile::tempdir().expect("tempdir");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, timeline) = (tenant_id(), timeline_id());
    server
        .request("PUT", &format!("/v1/tenant/{tenant}"), None)
        .await;
    let body = json!({"new_timeline_id": timeline, "pg_version": 15, "safekeepers": []});
    let (status, created) = server
        .request("POST", &format!("/v1/tenant/{tenant}/timeline"), Some(body))
        .await;
    assert_eq!(status, 201, "{created}");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("address").to_string();
    tokio::spawn(page_service::serve(
        listener,
        Arc::clone(&server.manager),
        CancellationToken::new(),
    ));
    Project {
        server,
        address,
        tenant,
        timeline,
        start: lsn(&created["start_lsn"]),
        _root: root,
    }
}

fn pages(blocks: Vec<u32>) -> Request {
    Request::Pages {
        rel: PG_PROC,
        blocks,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_answered_or_refused_with_the_documented_kind() {
    let project = project().await;
    let mut client = PageClient::connect(&project.address, project.tenant, project.timeline, 0)
        .await
        .expect("hello");
    let start = project.start;
    let size = match client
        .ask(start, None, Request::RelSize { rel: PG_PROC })
        .await
    {
        Ok(Reply::RelSize {
            blocks: Some(blocks),
        }) => blocks,
        other => panic!("{other:?}"),
    };
    assert!(size > 50, "{size}");
    match client
        .ask(start, Some(start), pages((0..size).rev().collect()))
        .await
    {
        Ok(Reply::Pages { as_of, pages }) => {
            assert_eq!((as_of, pages.len()), (start, size as usize));
            assert!(
                pages
                    .iter()
                    .all(|page| page.bytes.len() == 8192 && page.chain_length == 0)
            );
        }
        other => panic!("{other:?}"),
    }
    match client.ask(start, None, Request::ListDatabases).await {
        Ok(Reply::Databases { databases }) => {
            assert_eq!(databases, [1, 4, 5].map(|db| (DEFAULT_TABLESPACE, db)))
        }
        other => panic!("{other:?}"),
    }
    match client
        .ask(
            start,
            None,
            Request::ListRels {
                spc: GLOBAL_TABLESPACE,
                db: 0,
            },
        )
        .await
    {
        Ok(Reply::Rels { rels }) => {
            assert!(rels.len() > 30 && rels.iter().all(|(rel, _)| rel.db == 0))
        }
        other => panic!("{other:?}"),
    }
    match client
        .ask(
            start,
            None,
            Request::ListSlruSegments {
                kind: SlruKind::Clog,
            },
        )
        .await
    {
        Ok(Reply::SlruSegments { segments }) => assert_eq!(segments, [(0, 1)]),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        client.ask(start, None, Request::SlruPage { kind: SlruKind::Clog, pageno: 0 }).await,
        Ok(Reply::SlruPage { page }) if page.bytes.len() == 8192
    ));

    let too_many = vec![0; MAX_PAGES_PER_REQUEST + 1];
    let missing = PG_PROC.with_fork(ForkNumber::Init);
    let refused = [
        (pages(vec![0, size]), ErrorKind::NotFound),
        (pages(vec![1, 0, 1]), ErrorKind::BadRequest),
        (
            Request::Pages {
                rel: missing,
                blocks: vec![0],
            },
            ErrorKind::NotFound,
        ),
        (
            Request::SlruPage {
                kind: SlruKind::Clog,
                pageno: 1,
            },
            ErrorKind::NotFound,
        ),
        (pages(too_many), ErrorKind::BadRequest),
    ];
    for (request, kind) in refused {
        let error = client.ask(start, None, request).await.expect_err("refused");
        assert_eq!(error.kind, kind, "{}", error.message);
    }
    assert!(matches!(
        client
            .ask(start, None, Request::RelSize { rel: missing })
            .await,
        Ok(Reply::RelSize { blocks: None })
    ));
    let early = client
        .ask(Lsn(8), Some(Lsn(8)), pages(vec![0]))
        .await
        .expect_err("before the history");
    assert_eq!(early.kind, ErrorKind::NotFound);

    let short = json!({"wait_lsn_timeout_ms": 100});
    project.server.configure(project.tenant, short).await;
    let late = client
        .ask(start + 8, None, pages(vec![0]))
        .await
        .expect_err("not reached");
    assert_eq!(late.kind, ErrorKind::Timeout, "{}", late.message);
    client.send_garbage().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_term_fences_older_ones_at_once() {
    let project = project().await;
    let connect =
        |term| PageClient::connect(&project.address, project.tenant, project.timeline, term);
    let mut old = connect(1).await.expect("the first compute");
    old.ask(project.start, None, pages(vec![0]))
        .await
        .expect("a page");
    let bundle = format!(
        "{}/bundle?lsn={}&term=2",
        common::server::timeline_path(project.tenant, project.timeline),
        project.start
    );
    assert_eq!(project.server.get_bytes(&bundle).await.0, 200);
    let error = old
        .ask(project.start, None, pages(vec![0]))
        .await
        .expect_err("fenced");
    assert_eq!(error.kind, ErrorKind::Fenced, "{}", error.message);
    assert_eq!(
        connect(1).await.err().map(|error| error.kind),
        Some(ErrorKind::Fenced)
    );
    let mut new = connect(2).await.expect("the newer compute");
    new.ask(project.start, None, pages(vec![0]))
        .await
        .expect("a page");
    connect(0).await.expect("a read-only tool");

    let unknown = PageClient::connect(&project.address, project.tenant, timeline_id(), 1).await;
    assert_eq!(
        unknown.err().map(|error| error.kind),
        Some(ErrorKind::NotFound)
    );
    let hello = Hello {
        version: VERSION + 1,
        tenant: project.tenant,
        timeline: project.timeline,
        term: Term(2),
        traceparent: String::new(),
    };
    let version = PageClient::hello(&project.address, hello).await;
    assert_eq!(
        version.err().map(|error| error.kind),
        Some(ErrorKind::BadRequest)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_shipped_at_suspend_come_back_for_a_start_at_exactly_that_lsn() {
    let project = project().await;
    let path = common::server::timeline_path(project.tenant, project.timeline);
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_ustar();
    header.set_size(5);
    header.set_mode(0o600);
    builder
        .append_data(&mut header, "pg_stat/pgstat.stat", &b"stats"[..])
        .expect("entry");
    let archive = builder.into_inner().expect("tar");
    let put = |lsn: Lsn, body: Vec<u8>| {
        let path = format!("{path}/aux?lsn={lsn}&term=1");
        let server = &project.server;
        async move { server.put_bytes(&path, body).await }
    };
    assert_eq!(
        put(
            project.start,
            b"no tar at all, but long enough to look like one".repeat(20)
        )
        .await
        .0,
        400
    );
    assert_eq!(put(project.start, archive.clone()).await.0, 204);
    let bundle = format!("{path}/bundle?lsn={}&term=1", project.start);
    let (_, tar) = project.server.get_bytes(&bundle).await;
    assert_eq!(
        common::postgres::Bundle::parse(&tar).file("weir/aux.tar"),
        archive
    );

    // A branch cut there starts with them too.
    let branch = timeline_id();
    let body = json!({"new_timeline_id": branch, "pg_version": 15, "ancestor_timeline_id": project.timeline});
    let (status, _) = project
        .server
        .request(
            "POST",
            &format!("/v1/tenant/{}/timeline", project.tenant),
            Some(body),
        )
        .await;
    assert_eq!(status, 201);
    let branch_path = common::server::timeline_path(project.tenant, branch);
    let (_, tar) = project
        .server
        .get_bytes(&format!(
            "{branch_path}/bundle?lsn={}&term=1",
            project.start
        ))
        .await;
    assert!(common::postgres::Bundle::parse(&tar).has("weir/aux.tar"));

    assert_eq!(put(project.start + 8, archive).await.0, 204);
    let (_, tar) = project.server.get_bytes(&bundle).await;
    assert!(
        !common::postgres::Bundle::parse(&tar).has("weir/aux.tar"),
        "those of another LSN are no use"
    );
}
