//! The compute's client of the page service.
//!
//! A few connections carry pipelined requests. A connection that breaks is opened again with a growing pause
//! and everything unanswered is sent again: requests only read, so asking twice is harmless. A pageserver that
//! is killed and comes back is therefore nothing but latency, up to the deadline of a request.
//!
//! Holds nothing durable.

mod connection;
mod source;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use part_tls::Dialer;
use pg_types::{Lsn, RelTag, SlruKind, TenantId, Term, TimelineId};
use token::OwnToken;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use wire::page::{ErrorKind, ErrorReply, PageReply, ReadPosition, Reply, Request};

pub use crate::metrics::Reads;
pub use source::StorageSource;

use crate::source::SourceError;
use connection::Pending;

/// Pause before an answer that says "try again" is followed.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const MAX_RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How to reach the page service for one timeline, and in whose name.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port` of the page service.
    pub address: String,
    /// The tenant whose timeline is read.
    pub tenant: TenantId,
    /// The timeline that is read.
    pub timeline: TimelineId,
    /// The compute's term; the pageserver refuses one that is below the highest it knows.
    pub term: Term,
    /// TCP connections that share the requests; at least one is opened.
    pub connections: usize,
    /// For one request, everything included.
    pub deadline: Duration,
    /// W3C `traceparent` of the run, empty if there is none; each connection begins with it.
    pub traceparent: String,
    /// Counts connections opened.
    pub opened: prometheus::IntCounter,
    /// What the page service is shown when a connection opens.
    pub token: OwnToken,
    /// How the page service is connected to.
    pub dialer: Dialer,
}

/// Clones share the connections; they close when the last clone goes.
#[derive(Clone)]
pub struct PageClient {
    inner: Arc<Inner>,
}

struct Inner {
    config: ClientConfig,
    connections: Vec<mpsc::UnboundedSender<Pending>>,
    next_id: AtomicU64,
    status: watch::Sender<Status>,
    cancel: CancellationToken,
    _tasks: DropGuard,
}

/// What the connections have learnt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    /// A newer compute owns the timeline.
    fenced: Option<String>,
    /// Why there was no connection last time.
    last_error: Option<String>,
}

impl PageClient {
    /// Connects in the background. Needs a tokio runtime.
    pub fn new(config: ClientConfig) -> PageClient {
        let cancel = CancellationToken::new();
        let (status, _) = watch::channel(Status::default());
        let connections = (0..config.connections.max(1))
            .map(|_| {
                let (requests, queue) = mpsc::unbounded_channel();
                let task = connection::Connection::new(config.clone(), status.clone(), queue);
                let cancel = cancel.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = task.run() => {}
                        () = cancel.cancelled() => {}
                    }
                });
                requests
            })
            .collect();
        PageClient {
            inner: Arc::new(Inner {
                config,
                connections,
                next_id: AtomicU64::new(1),
                status,
                _tasks: cancel.clone().drop_guard(),
                cancel,
            }),
        }
    }

    /// Ends the connections; whatever waits for an answer fails at once.
    pub fn close(&self) {
        self.inner.cancel.cancel();
    }

    /// Resolves when the pageserver says that a newer compute owns the timeline, with what it said.
    pub async fn fenced(&self) -> String {
        let mut status = self.inner.status.subscribe();
        match status.wait_for(|status| status.fenced.is_some()).await {
            Ok(status) => status.fenced.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }

    async fn ask(&self, position: ReadPosition, request: Request) -> Result<Reply, SourceError> {
        let deadline = Instant::now() + self.inner.config.deadline;
        let mut pause = RETRY_PAUSE;
        let mut said = None;
        loop {
            let (reply, answer) = oneshot::channel();
            let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
            let connection = &self.inner.connections[id as usize % self.inner.connections.len()];
            let pending = Pending {
                id,
                position,
                request: request.clone(),
                reply,
            };
            if connection.send(pending).is_err() {
                return Err(SourceError::Failed("the page client is closed".into()));
            }
            match tokio::time::timeout_at(deadline, answer).await {
                Ok(Ok(Ok(reply))) => return Ok(reply),
                Ok(Ok(Err(error))) => match error.kind {
                    ErrorKind::Timeout | ErrorKind::Internal => said = Some(error.message),
                    _ => return Err(self.refused(error)),
                },
                Ok(Err(_)) => return Err(self.gone()),
                Err(_) => return Err(self.late(said)),
            }
            if Instant::now() + pause >= deadline {
                return Err(self.late(said));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_RETRY_PAUSE);
        }
    }

    fn refused(&self, error: ErrorReply) -> SourceError {
        match error.kind {
            ErrorKind::Fenced => {
                self.inner
                    .status
                    .send_modify(|status| status.fenced = Some(error.message.clone()));
                SourceError::Fenced(error.message)
            }
            ErrorKind::NotFound => SourceError::NotFound(error.message),
            _ => SourceError::Failed(error.message),
        }
    }

    /// A connection drops its requests only when it ends for good.
    fn gone(&self) -> SourceError {
        match &self.inner.status.borrow().fenced {
            Some(message) => SourceError::Fenced(message.clone()),
            None => SourceError::Failed("the page client is closed".into()),
        }
    }

    fn late(&self, said: Option<String>) -> SourceError {
        let config = &self.inner.config;
        let why = said
            .or_else(|| self.inner.status.borrow().last_error.clone())
            .unwrap_or_else(|| "it did not answer".into());
        SourceError::Failed(format!(
            "the pageserver at {} gave no answer within {} s: {why}",
            config.address,
            config.deadline.as_secs()
        ))
    }

    /// Pages of a relation, and the LSN they were read at.
    pub async fn pages(
        &self,
        position: ReadPosition,
        rel: RelTag,
        blocks: Vec<u32>,
    ) -> Result<(Lsn, Vec<PageReply>), SourceError> {
        match self.ask(position, Request::Pages { rel, blocks }).await? {
            Reply::Pages { as_of, pages } => Ok((as_of, pages)),
            other => Err(unexpected(&other)),
        }
    }

    /// A page of an SLRU; `pageno` counts from the SLRU's first page, across segments.
    ///
    /// # Errors
    ///
    /// [`SourceError`]: the page does not exist, no usable answer came by the deadline, or a newer compute has come.
    pub async fn slru_page(
        &self,
        position: ReadPosition,
        kind: SlruKind,
        pageno: u32,
    ) -> Result<PageReply, SourceError> {
        match self
            .ask(position, Request::SlruPage { kind, pageno })
            .await?
        {
            Reply::SlruPage { page } => Ok(page),
            other => Err(unexpected(&other)),
        }
    }

    /// Every fork below a database directory, with its blocks. Database 0 in the global tablespace lists the shared
    /// relations.
    ///
    /// # Errors
    ///
    /// [`SourceError`]: no usable answer came by the deadline, or a newer compute has come.
    pub async fn relations(
        &self,
        position: ReadPosition,
        spc: u32,
        db: u32,
    ) -> Result<Vec<(RelTag, u32)>, SourceError> {
        match self.ask(position, Request::ListRels { spc, db }).await? {
            Reply::Rels { rels } => Ok(rels),
            other => Err(unexpected(&other)),
        }
    }

    /// Database directories as `(tablespace, database)`.
    ///
    /// # Errors
    ///
    /// [`SourceError`]: no usable answer came by the deadline, or a newer compute has come.
    pub async fn databases(&self, position: ReadPosition) -> Result<Vec<(u32, u32)>, SourceError> {
        match self.ask(position, Request::ListDatabases).await? {
            Reply::Databases { databases } => Ok(databases),
            other => Err(unexpected(&other)),
        }
    }

    /// Segments of an SLRU as `(segment number, pages)`.
    ///
    /// # Errors
    ///
    /// [`SourceError`]: no usable answer came by the deadline, or a newer compute has come.
    pub async fn slru_segments(
        &self,
        position: ReadPosition,
        kind: SlruKind,
    ) -> Result<Vec<(u32, u32)>, SourceError> {
        match self
            .ask(position, Request::ListSlruSegments { kind })
            .await?
        {
            Reply::SlruSegments { segments } => Ok(segments),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(reply: &Reply) -> SourceError {
    let what = match reply {
        Reply::Pages { .. } => "Pages",
        Reply::SlruPage { .. } => "SlruPage",
        Reply::RelSize { .. } => "RelSize",
        Reply::Rels { .. } => "Rels",
        Reply::Databases { .. } => "Databases",
        Reply::SlruSegments { .. } => "SlruSegments",
    };
    SourceError::Failed(format!("the pageserver answered another question ({what})"))
}
