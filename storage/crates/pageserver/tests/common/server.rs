//! The pageserver under test, driven through its HTTP API, fed from a `pg_wal` directory.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use bytes::Bytes;
use pageserver::clock::MachineTime;
use pageserver::http;
use pageserver::import::PostgresInstall;
use pageserver::manager::{ManagerOptions, TenantManager, WalSources};
use pageserver::term_history::Ingested;
use pageserver::timeline::Timeline;
use pageserver::wal_source::{Reported, WalChunk, WalFeedback, WalSource, WalStream};
use pg_types::{Lsn, TenantId, Term, TimelineId, WAL_SEGMENT_BYTES};
use serde_json::Value;
use tokio::sync::watch;

pub fn bin_dir() -> PathBuf {
    std::env::var_os("WEIR_PG_BIN_DIR").map_or_else(
        || PathBuf::from("/usr/lib/postgresql/15/bin"),
        PathBuf::from,
    )
}

pub fn pg_user() -> String {
    std::env::var("WEIR_PG_USER").unwrap_or_else(|_| "postgres".to_owned())
}

/// A timeline's WAL as files, committed up to `limit`.
#[derive(Clone)]
pub struct FileWal {
    pub directory: PathBuf,
    pub limit: watch::Sender<Lsn>,
    pub term: watch::Sender<Term>,
    pub feedback: watch::Sender<WalFeedback>,
    /// Streams opened while this holds bring heartbeats only, as from a safekeeper that nobody writes to.
    pub stuck: watch::Sender<bool>,
    pub stuck_streams: watch::Sender<u32>,
}

impl FileWal {
    pub fn new(directory: &Path) -> FileWal {
        FileWal {
            directory: directory.to_owned(),
            limit: watch::Sender::new(Lsn::INVALID),
            term: watch::Sender::new(Term(1)),
            feedback: watch::Sender::new(WalFeedback::default()),
            stuck: watch::Sender::new(false),
            stuck_streams: watch::Sender::new(0),
        }
    }
}

#[async_trait]
impl WalSource for FileWal {
    async fn open(&self, start: Lsn) -> anyhow::Result<Box<dyn WalStream>> {
        let stuck = *self.stuck.borrow();
        if stuck {
            self.stuck_streams.send_modify(|streams| *streams += 1);
        }
        Ok(Box::new(FileStream {
            limit: self.limit.subscribe(),
            wal: self.clone(),
            position: start,
            segment: None,
            stuck,
        }))
    }

    async fn report(&self, _: WalFeedback, _: Option<&Ingested>) -> Reported {
        Reported {
            commit_lsn: *self.limit.borrow(),
            ..Reported::default()
        }
    }
}

struct FileStream {
    wal: FileWal,
    /// The segment that is being read, with its name.
    segment: Option<(String, std::fs::File)>,
    limit: watch::Receiver<Lsn>,
    position: Lsn,
    stuck: bool,
}

#[async_trait]
impl WalStream for FileStream {
    async fn next(&mut self) -> anyhow::Result<WalChunk> {
        let position = self.position;
        // A heartbeat after a second, as safekeepers send one.
        let stuck = self.stuck;
        let more = self.limit.wait_for(|limit| *limit > position && !stuck);
        let limit = match tokio::time::timeout(Duration::from_secs(1), more).await {
            Ok(limit) => *limit?,
            Err(_) => position,
        };
        // Odd sizes, so that records are cut everywhere.
        let in_segment = position.segment_offset(WAL_SEGMENT_BYTES);
        let length = (limit.0 - position.0)
            .min(WAL_SEGMENT_BYTES - in_segment)
            .min(100_003);
        let mut bytes = Vec::with_capacity(length as usize);
        if length > 0 {
            let name = position.segment_file_name(WAL_SEGMENT_BYTES);
            if self.segment.as_ref().is_none_or(|(of, _)| *of != name) {
                let file = std::fs::File::open(self.wal.directory.join(&name))?;
                self.segment = Some((name, file));
            }
            let (_, file) = self.segment.as_mut().context("no segment")?;
            file.seek(SeekFrom::Start(in_segment))?;
            let read = file.take(length).read_to_end(&mut bytes)?;
            anyhow::ensure!(read as u64 == length, "the WAL ends inside a segment");
        }
        self.position = position + length;
        Ok(WalChunk {
            start_lsn: position,
            bytes: Bytes::from(bytes),
            commit_lsn: limit,
            term: *self.wal.term.borrow(),
            history: None,
        })
    }

    async fn feedback(&mut self, feedback: WalFeedback) -> anyhow::Result<()> {
        self.wal.feedback.send_replace(feedback);
        Ok(())
    }
}

/// Finds each timeline's WAL; a timeline without has nothing to follow.
#[derive(Clone, Default)]
pub struct Wals(pub Arc<Mutex<HashMap<TimelineId, FileWal>>>);

impl WalSources for Wals {
    fn source(
        &self,
        _: TenantId,
        timeline: TimelineId,
        _: watch::Receiver<Vec<String>>,
    ) -> Option<Arc<dyn WalSource>> {
        let found = self.0.lock().expect("wals").get(&timeline).cloned()?;
        Some(Arc::new(found))
    }
}

impl Wals {
    /// Says where a timeline's WAL will be; before the timeline is created.
    pub fn add(&self, timeline: TimelineId, directory: &Path) -> FileWal {
        let wal = FileWal::new(directory);
        self.0.lock().expect("wals").insert(timeline, wal.clone());
        wal
    }
}

/// A pageserver with its HTTP API on a port of its own.
pub struct Server {
    pub manager: Arc<TenantManager>,
    pub url: String,
    pub wals: Wals,
    pub data_dir: PathBuf,
    client: reqwest::Client,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start(root: &Path, wals: Wals) -> Server {
        let objects = blob::Store::local(&root.join("objects")).expect("object store");
        Server::start_on(root, wals, objects, 1 << 30).await
    }

    /// On an object store of the test's choice, with so much local disk for copies of layers.
    pub async fn start_on(
        root: &Path,
        wals: Wals,
        objects: blob::Store,
        layer_cache_bytes: u64,
    ) -> Server {
        let data_dir = root.join("pageserver");
        std::fs::create_dir_all(&data_dir).expect("data directory");
        let options = ManagerOptions {
            data_dir: data_dir.clone(),
            objects,
            postgres: PostgresInstall {
                bin_dir: bin_dir(),
                user: pg_user(),
            },
            block_cache_bytes: 64 << 20,
            page_cache_bytes: 16 << 20,
            memory_bytes: 256 << 20,
            recent_layers_bytes: 4 << 20,
            layer_cache_bytes,
            tombstones: std::time::Duration::from_secs(3600),
            wal: Arc::new(wals.clone()),
            time: Arc::new(MachineTime::new().expect("clocks")),
        };
        let manager = TenantManager::open(options)
            .await
            .expect("open the pageserver");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("address"));
        let app = http::router(manager.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.expect("serve") });
        Server {
            manager,
            url,
            wals,
            data_dir,
            client: reqwest::Client::new(),
            task,
        }
    }

    /// Ends without flushing, as a crash would.
    pub async fn stop(self) -> Wals {
        self.task.abort();
        self.manager.shutdown().await;
        self.wals
    }

    /// Changes settings of a tenant.
    pub async fn configure(&self, tenant: TenantId, change: Value) {
        let path = format!("/v1/tenant/{tenant}/config");
        let (status, answer) = self.request("PATCH", &path, Some(change)).await;
        assert_eq!(status, 200, "{answer}");
    }

    pub async fn request(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("method");
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.expect("response");
        let status = response.status().as_u16();
        let text = response.text().await.expect("body");
        (
            status,
            serde_json::from_str(&text).unwrap_or(Value::String(text)),
        )
    }

    pub async fn get_bytes(&self, path: &str) -> (u16, Bytes) {
        let response = self
            .client
            .get(format!("{}{path}", self.url))
            .send()
            .await
            .expect("response");
        (
            response.status().as_u16(),
            response.bytes().await.expect("body"),
        )
    }

    pub async fn put_bytes(&self, path: &str, body: Vec<u8>) -> (u16, String) {
        let response = self
            .client
            .put(format!("{}{path}", self.url))
            .body(body)
            .send()
            .await
            .expect("response");
        (
            response.status().as_u16(),
            response.text().await.expect("body"),
        )
    }

    pub fn timeline(&self, tenant: TenantId, timeline: TimelineId) -> Arc<Timeline> {
        self.manager.timeline(tenant, timeline).expect("timeline")
    }
}

pub fn tenant_id() -> TenantId {
    TenantId(*uuid::Uuid::new_v4().as_bytes())
}

pub fn timeline_id() -> TimelineId {
    TimelineId(*uuid::Uuid::new_v4().as_bytes())
}

pub fn timeline_path(tenant: TenantId, timeline: TimelineId) -> String {
    format!("/v1/tenant/{tenant}/timeline/{timeline}")
}

pub fn lsn(value: &Value) -> Lsn {
    value.as_str().expect("an LSN").parse().expect("an LSN")
}
