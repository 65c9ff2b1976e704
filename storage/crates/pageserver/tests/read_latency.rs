//! How long reads take; prints figures, promises little: the machine decides. Run with `--ignored`.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use common::compare::materialize;
use common::pages::PageClient;
use common::postgres::{Bundle, Postgres};
use common::server::{Server, Wals, lsn, tenant_id, timeline_id, timeline_path};
use pageserver::page_service;
use pg_types::{ForkNumber, RelTag};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wire::page::{Reply, Request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "prints figures"]
async fn read_latency() {
    let root = tempfile::tempdir().expect("tempdir");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755)).expect("mode");
    let server = Server::start(root.path(), Wals::default()).await;
    let (tenant, timeline) = (tenant_id(), timeline_id());
    let pgdata = root.path().join("pgdata");
    let wal = server.wals.add(timeline, &pgdata.join("pg_wal"));
    server
        .request("PUT", &format!("/v1/tenant/{tenant}"), None)
        .await;
    let body = json!({"new_timeline_id": timeline});
    let (_, created) = server
        .request("POST", &format!("/v1/tenant/{tenant}/timeline"), Some(body))
        .await;
    let start = lsn(&created["start_lsn"]);
    let (_, tar) = server
        .get_bytes(&format!(
            "{}/bundle?lsn={start}&term=1",
            timeline_path(tenant, timeline)
        ))
        .await;
    let bundle = Bundle::parse(&tar);
    let store = server.timeline(tenant, timeline);
    materialize(
        Path::new(&server.data_dir.join("templates/15")),
        &store,
        &bundle,
        &pgdata,
    )
    .await;
    Postgres::prepare(&pgdata, &bundle, false);
    let settings = [
        "full_page_writes=off",
        "wal_keep_size=4GB",
        "wal_recycle=off",
        "autovacuum=off",
    ];
    let mut postgres = Postgres::start(&pgdata, &settings);
    postgres.pgbench(&["-i", "-q", "-s", "10", "postgres"]);
    postgres.pgbench(&["-n", "-c", "4", "-t", "5000", "postgres"]);
    let file: u32 = postgres
        .sql(
            "postgres",
            "SELECT pg_relation_filenode('pgbench_accounts')",
        )
        .parse()
        .expect("a number");
    let end = postgres.stop();
    let started = Instant::now();
    wal.limit.send_replace(end);
    store
        .wait_lsn(end, std::time::Duration::from_secs(120))
        .await
        .expect("ingest");
    let mib = (end.0 - start.0) as f64 / f64::from(1 << 20);
    println!("ingest: {mib:.0} MiB in {:?}", started.elapsed());

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("address").to_string();
    tokio::spawn(page_service::serve(
        listener,
        Arc::clone(&server.manager),
        CancellationToken::new(),
    ));
    let mut client = PageClient::connect(&address, tenant, timeline, 1)
        .await
        .expect("hello");
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: file,
        fork: ForkNumber::Main,
    };
    let Ok(Reply::RelSize {
        blocks: Some(blocks),
    }) = client.ask(end, None, Request::RelSize { rel }).await
    else {
        panic!("no size")
    };
    for label in ["from memory", "from layers"] {
        for batch in [1, 32] {
            let mut times = Vec::new();
            let mut chains = Vec::new();
            let mut block = 0_u32;
            for _ in 0..2000 {
                let wanted: Vec<u32> = (0..batch)
                    .map(|_| {
                        block = (block.wrapping_mul(1_103_515_245).wrapping_add(12_345)) % blocks;
                        block
                    })
                    .collect();
                let started = Instant::now();
                let reply = client
                    .ask(
                        end,
                        None,
                        Request::Pages {
                            rel,
                            blocks: wanted,
                        },
                    )
                    .await;
                times.push(started.elapsed());
                if let Ok(Reply::Pages { pages, .. }) = reply {
                    chains.extend(pages.iter().map(|page| page.chain_length));
                }
            }
            times.sort();
            chains.sort();
            println!(
                "{label}, {batch} pages: p50 {:?}, p99 {:?}; chain p50 {}, p99 {}",
                times[times.len() / 2],
                times[times.len() * 99 / 100],
                chains[chains.len() / 2],
                chains[chains.len() * 99 / 100]
            );
        }
        let started = Instant::now();
        store.checkpoint().await.expect("checkpoint");
        println!("checkpoint: {:?}", started.elapsed());
    }
    println!("{:?}", store.chains());
    server.stop().await;
}
