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
    /// `host:port` of their WAL ports.
    pub safekeepers: Vec<String>,
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
        if self.safekeepers.is_empty() {
            bail!("the timeline was created without safekeepers");
        }
        let attempts = self.safekeepers.iter().map(async |address| {
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
        for (address, attempt) in self.safekeepers.iter().zip(attempts) {
            match attempt {
                Ok((frames, commit_lsn)) => {
                    // One that has nothing new is no better than one that was tried in vain.
                    let is_fresh = commit_lsn > start && !in_vain.contains(address);
                    let rank = (is_fresh, commit_lsn);
                    if best.as_ref().is_none_or(|(best, _)| rank > *best) {
                        let place = address.clone();
                        best = Some((rank, SafekeeperStream { frames, place }));
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

    fn places(&self) -> &[String] {
        &self.safekeepers
    }

    async fn report(&self, feedback: WalFeedback) -> Lsn {
        let reports = self.safekeepers.iter().map(async |address| {
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
}

#[async_trait]
impl WalStream for SafekeeperStream {
    async fn next(&mut self) -> Result<WalChunk> {
        let frame: Bytes = self
            .frames
            .next()
            .await
            .context("the safekeeper closed the stream")??
            .freeze();
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
mod tests {
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    type Reported = mpsc::UnboundedReceiver<(FirstMessage, Vec<Feedback>)>;

    /// Speaks a safekeeper's side: answers with its commit LSN, sends a heartbeat, and reads to the end.
    async fn peer(commit_lsn: Lsn) -> (String, Reported) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("address").to_string();
        let (sender, reported) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut frames = LengthDelimitedCodec::builder().new_framed(stream);
                let first = frames.next().await.expect("a message").expect("a frame");
                let reply = ReadReply::Ok {
                    commit_lsn,
                    oldest_lsn: Lsn(8),
                    term: pg_types::Term(1),
                };
                send(&mut frames, &reply).await.expect("reply");
                let heartbeat = WalFrame {
                    start_lsn: commit_lsn,
                    commit_lsn,
                    term: pg_types::Term(1),
                    sent_at_us: 0,
                };
                send(&mut frames, &heartbeat).await.expect("heartbeat");
                let mut feedback = Vec::new();
                while let Some(Ok(frame)) = frames.next().await {
                    feedback.push(wire::wal::decode(&frame).expect("feedback"));
                }
                let first = wire::wal::decode(&first).expect("first message");
                let _ = sender.send((first, feedback));
            }
        });
        (address, reported)
    }

    fn source(safekeepers: Vec<String>) -> SafekeeperSource {
        SafekeeperSource {
            tenant: TenantId([1; 16]),
            timeline: TimelineId([2; 16]),
            safekeepers,
            reader: "pageserver".to_owned(),
        }
    }

    /// Promise: every safekeeper that can be reached learns how far the reader is, so that all of them trim,
    /// and the newest commit among them is found; one that is down or hangs is no obstacle.
    #[tokio::test]
    async fn all_safekeepers_are_told_how_far_the_reader_is() {
        let (first, mut told_first) = peer(Lsn(100)).await;
        let (second, mut told_second) = peer(Lsn(300)).await;
        let hung = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = |listener: &TcpListener| listener.local_addr().expect("address").to_string();
        let down = address(&gone);
        drop(gone);
        let source = source(vec![down, first, address(&hung), second]);
        let feedback = WalFeedback {
            ingested_lsn: Lsn(90),
            remote_consistent_lsn: Lsn(80),
        };
        assert_eq!(source.report(feedback).await, Lsn(300));
        for told in [&mut told_first, &mut told_second] {
            let (first, reported) = told.try_recv().expect("a report that was read to its end");
            let FirstMessage::Read(request) = first else {
                panic!("{first:?}")
            };
            assert!(request.holds_wal && request.reader == "pageserver");
            assert_eq!(reported, [wire_feedback(feedback)]);
        }
    }

    #[tokio::test]
    async fn the_most_advanced_safekeeper_is_read() {
        let (behind, _behind) = peer(Lsn(100)).await;
        let (ahead, _ahead) = peer(Lsn(300)).await;
        let mut stream = source(vec![behind, ahead])
            .open(Lsn(8))
            .await
            .expect("open");
        assert_eq!(stream.next().await.expect("a chunk").commit_lsn, Lsn(300));
    }

    /// Promise: whoever was tried in vain is read again only when nobody else has WAL.
    #[tokio::test]
    async fn one_that_was_tried_in_vain_comes_last() {
        let (bad, _bad) = peer(Lsn(300)).await;
        let (good, _good) = peer(Lsn(200)).await;
        let source = source(vec![bad.clone(), good.clone()]);
        let in_vain = [bad.clone()];
        let place = async |start| {
            let stream = source.open_elsewhere(start, &in_vain).await.expect("open");
            stream.place().to_owned()
        };
        assert_eq!(place(Lsn(8)).await, good);
        assert_eq!(place(Lsn(200)).await, bad);
    }
}
