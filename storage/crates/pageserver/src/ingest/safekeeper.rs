//! Committed WAL from safekeepers (`wire::wal`).
//!
//! Every attempt asks all safekeepers of the timeline how far they are and reads from the most advanced, one that was
//! tried in vain at this place last.
//! Each of them keeps WAL for this reader until it is told how far that has come. Only one is read from, so
//! every few seconds all are told over a short connection; their answers also show when the one that is read
//! has fallen behind, and it is then left for another by way of an error and a new attempt.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use pg_types::{Lsn, TenantId, TimelineId};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use wire::wal::{
    Feedback, FirstMessage, MAX_FRAME_BYTES, ReadReply, StreamRequest, VERSION, WalFrame,
};

use crate::wal_source::{WalChunk, WalFeedback, WalSource, WalStream};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);

type Frames = Framed<TcpStream, LengthDelimitedCodec>;

/// The safekeepers of one timeline.
pub struct SafekeeperSource {
    pub tenant: TenantId,
    pub timeline: TimelineId,
    /// `host:port` of their WAL ports, which may change. Nothing is read from one that is no longer among them.
    pub safekeepers: watch::Receiver<Vec<String>>,
    /// Stable name of this pageserver, for which WAL is kept.
    pub reader: String,
}

impl SafekeeperSource {
    async fn connect(&self, address: &str, start: Lsn) -> Result<(Frames, Lsn)> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true).context("set TCP_NODELAY")?;
        let mut frames = LengthDelimitedCodec::builder()
            .max_frame_length(MAX_FRAME_BYTES)
            .new_framed(stream);
        let request = FirstMessage::Read(StreamRequest {
            version: VERSION,
            tenant: self.tenant,
            timeline: self.timeline,
            start_lsn: start,
            reader: self.reader.clone(),
            holds_wal: true,
            traceparent: telemetry::current_traceparent(),
        });
        send(&mut frames, &request).await?;
        let reply = frames
            .next()
            .await
            .with_context(|| format!("{address} closed the connection"))??;
        match wire::wal::decode(&reply)? {
            ReadReply::Ok { commit_lsn, .. } => Ok((frames, commit_lsn)),
            ReadReply::Refused(failure) => bail!("{address} refused to stream: {failure}"),
        }
    }
}

impl SafekeeperSource {
    /// Leaves a position with one safekeeper and returns how far it has WAL committed.
    async fn report_to(&self, address: &str, feedback: WalFeedback) -> Result<Lsn> {
        // No WAL lies at the end of all positions, so that none is sent.
        let (mut frames, commit_lsn) = self.connect(address, Lsn::MAX).await?;
        send(&mut frames, &wire_feedback(feedback)).await?;
        // The safekeeper closes once it has read everything. To close first, with a heartbeat of its unread,
        // would reset the connection, and the position might never be read.
        let stream = frames.get_mut();
        stream.shutdown().await.context("end the report")?;
        while frames.next().await.transpose()?.is_some() {}
        Ok(commit_lsn)
    }
}

fn wire_feedback(feedback: WalFeedback) -> Feedback {
    Feedback {
        ingested_lsn: feedback.ingested_lsn,
        remote_consistent_lsn: feedback.remote_consistent_lsn,
    }
}

/// The codec adds the length that `wire::wal` messages are framed with.
async fn send<T: serde::Serialize>(frames: &mut Frames, message: &T) -> Result<()> {
    let frame = wire::wal::encode(message).freeze();
    Ok(frames.send(frame.slice(4..)).await?)
}

#[async_trait]
impl WalSource for SafekeeperSource {
    async fn open(&self, start: Lsn) -> Result<Box<dyn WalStream>> {
        self.open_elsewhere(start, &[]).await
    }

    async fn open_elsewhere(&self, start: Lsn, in_vain: &[String]) -> Result<Box<dyn WalStream>> {
        let mut list = self.safekeepers.clone();
        // One that was created without any has nothing to follow until it is given some.
        let safekeepers = list.wait_for(|list| !list.is_empty()).await;
        let safekeepers = safekeepers.context("the timeline is closed")?.clone();
        let attempts = safekeepers.iter().map(async |address| {
            match tokio::time::timeout(CONNECT_TIMEOUT, self.connect(address, start)).await {
                Ok(result) => result,
                Err(_) => Err(anyhow::anyhow!(
                    "{address} did not answer in {} s",
                    CONNECT_TIMEOUT.as_secs()
                )),
            }
        });
        let mut best: Option<((bool, Lsn), SafekeeperStream)> = None;
        let mut errors = Vec::new();
        let attempts = futures::future::join_all(attempts).await;
        for (address, attempt) in safekeepers.iter().zip(attempts) {
            match attempt {
                Ok((frames, commit_lsn)) => {
                    // One that has nothing new is no better than one that was tried in vain.
                    let is_fresh = commit_lsn > start && !in_vain.contains(address);
                    let rank = (is_fresh, commit_lsn);
                    if best.as_ref().is_none_or(|(best, _)| rank > *best) {
                        let stream = SafekeeperStream {
                            frames,
                            place: address.clone(),
                            list: list.clone(),
                        };
                        best = Some((rank, stream));
                    }
                }
                Err(error) => errors.push(format!("{error:#}")),
            }
        }
        match best {
            Some((_, stream)) => Ok(Box::new(stream)),
            None => bail!("no safekeeper streams: {}", errors.join("; ")),
        }
    }

    fn places(&self) -> Vec<String> {
        self.safekeepers.borrow().clone()
    }

    async fn report(&self, feedback: WalFeedback) -> Lsn {
        let safekeepers = self.places();
        let reports = safekeepers.iter().map(async |address| {
            let report = self.report_to(address, feedback);
            match tokio::time::timeout(REPORT_TIMEOUT, report).await {
                Ok(Ok(commit_lsn)) => return commit_lsn,
                Ok(Err(error)) => {
                    tracing::debug!(timeline = %self.timeline, "cannot report to {address}: {error:#}");
                }
                Err(_) => {
                    tracing::debug!(timeline = %self.timeline, "{address} did not take a report in time");
                }
            }
            Lsn::INVALID
        });
        let commit_lsns = futures::future::join_all(reports).await;
        commit_lsns.into_iter().max().unwrap_or(Lsn::INVALID)
    }
}

struct SafekeeperStream {
    frames: Frames,
    place: String,
    list: watch::Receiver<Vec<String>>,
}

impl SafekeeperStream {
    /// Ready when this safekeeper is no longer one of the timeline's.
    async fn removed(list: &mut watch::Receiver<Vec<String>>, place: &str) {
        let gone = |list: &Vec<String>| !list.iter().any(|it| it == place);
        if list.wait_for(gone).await.is_err() {
            // The timeline is being closed, and ends this as well.
            std::future::pending().await
        }
    }
}

#[async_trait]
impl WalStream for SafekeeperStream {
    async fn next(&mut self) -> Result<WalChunk> {
        let frame: Bytes = tokio::select! {
            biased;
            () = Self::removed(&mut self.list, &self.place) => {
                bail!("{} is no longer a safekeeper of the timeline", self.place)
            }
            frame = self.frames.next() => frame.context("the safekeeper closed the stream")??.freeze(),
        };
        let (head, bytes) = wire::wal::decode_with_wal::<WalFrame>(frame)?;
        Ok(WalChunk {
            start_lsn: head.start_lsn,
            bytes,
            commit_lsn: head.commit_lsn,
            term: head.term,
        })
    }

    async fn feedback(&mut self, feedback: WalFeedback) -> Result<()> {
        send(&mut self.frames, &wire_feedback(feedback)).await
    }

    fn place(&self) -> &str {
        &self.place
    }
}

#[cfg(test)]
mod tests;
