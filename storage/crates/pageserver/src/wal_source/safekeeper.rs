//! Committed WAL from safekeepers (`wire::wal`).
//!
//! Every attempt asks all safekeepers of the timeline how far they are and reads from the most advanced one; a
//! safekeeper that was tried in vain at this position comes last. A safekeeper whose log was written by other terms
//! than the ingested WAL is not read from. Nor is it told how far ingest is, because it would then let go of WAL that
//! was never ingested.
//!
//! Each safekeeper keeps WAL for this pageserver until it is told that the WAL was ingested. Only one safekeeper is
//! read from, so every few seconds all are told over a short connection. Their answers also show when the one that is
//! read has fallen behind; its stream then ends with an error, and the new attempt chooses another.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use async_trait::async_trait;
use bytes::Bytes;
use consensus::TermHistory;
use futures::{SinkExt, StreamExt};
use part_tls::{Dialer, Stream, names};
use pg_types::{Lsn, TenantId, TimelineId};
use token::OwnToken;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use wire::first;
use wire::wal::{
    Feedback, FirstMessage, MAX_FRAME_BYTES, READ_VERSION, ReadReply, StreamFrame, StreamRequest,
};

use super::{Opening, Reported, Standing, WalChunk, WalFeedback, WalSource, WalStream};
use crate::term_history::{self, Ingested, OtherHistory};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);

type Frames = Framed<Stream, LengthDelimitedCodec>;

/// A connection, and what a safekeeper said of its log.
struct Connected {
    frames: Frames,
    commit_lsn: Lsn,
    history: TermHistory,
}

/// What came of a report to a safekeeper that answered: how far it has WAL committed, of which log.
enum ReportOutcome {
    /// The safekeeper's log is the one whose WAL was ingested.
    Agrees(Lsn),
    /// Unknown whether the log is the same: the safekeeper does not say enough of its log, or it is not known
    /// whose WAL was ingested.
    Unknown(Lsn),
    /// The safekeeper's log is another one, and it was not told how far ingest is.
    Other(OtherHistory),
}

/// The safekeepers of one timeline.
pub struct SafekeeperSource {
    /// Tenant of the timeline.
    pub tenant: TenantId,
    /// The timeline whose WAL is read.
    pub timeline: TimelineId,
    /// `host:port` of their WAL ports, which may change. Nothing is read from one that is no longer among them.
    pub safekeepers: watch::Receiver<Vec<String>>,
    /// Stable name of this pageserver, for which WAL is kept.
    pub reader: String,
    /// What the safekeepers are shown when a connection opens.
    pub token: OwnToken,
    /// How they are connected to.
    pub dialer: Dialer,
}

impl SafekeeperSource {
    async fn connect(&self, address: &str, start: Lsn) -> Result<Connected> {
        let stream = self
            .dialer
            .connect(address, names::SAFEKEEPER)
            .await
            .with_context(|| format!("connect to {address}"))?;
        let mut frames = LengthDelimitedCodec::builder()
            .max_frame_length(MAX_FRAME_BYTES)
            .new_framed(stream);
        if let Some(token) = self.token.current() {
            frames.send(first::token_body(&token)).await?;
        }
        let request = FirstMessage::Read(StreamRequest {
            version: READ_VERSION,
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
            ReadReply::Follows {
                commit_lsn,
                history,
                ..
            } => Ok(Connected {
                frames,
                commit_lsn,
                history,
            }),
            ReadReply::Ok { .. } => bail!("{address} does not say whose WAL it has"),
            ReadReply::Refused(failure) => bail!("{address} refused to stream: {failure}"),
        }
    }

    /// Asks everyone at once; in the order of the list.
    async fn connect_to_all(
        &self,
        safekeepers: &[String],
        start: Lsn,
    ) -> Vec<(String, Result<Connected>)> {
        let attempts = safekeepers.iter().map(async |address| {
            let attempt = tokio::time::timeout(CONNECT_TIMEOUT, self.connect(address, start));
            let result = attempt.await.unwrap_or_else(|_| {
                let seconds = CONNECT_TIMEOUT.as_secs();
                Err(anyhow!("{address} did not answer in {seconds} s"))
            });
            (address.clone(), result)
        });
        futures::future::join_all(attempts).await
    }
}

impl SafekeeperSource {
    /// Leaves a position with one safekeeper, unless its log is another one than what was ingested.
    async fn report_to(
        &self,
        address: &str,
        feedback: WalFeedback,
        ingested: Option<&Ingested>,
    ) -> Result<ReportOutcome> {
        // No WAL lies at the end of all positions, so that none is sent.
        let connected = self.connect(address, Lsn::MAX).await?;
        let (mut frames, commit_lsn) = (connected.frames, connected.commit_lsn);
        let Some(ingested) = ingested else {
            return Ok(ReportOutcome::Unknown(commit_lsn));
        };
        if let Err(other) = ingested.compare(&connected.history, commit_lsn) {
            return Ok(ReportOutcome::Other(other));
        }
        let (at, history) = (feedback.ingested_lsn, &connected.history);
        let agrees = commit_lsn <= at || ingested.compare_at(at, history, commit_lsn).is_ok();
        send(&mut frames, &wire_feedback(feedback)).await?;
        // The safekeeper closes once it has read everything. To close first, with a heartbeat of its unread,
        // would reset the connection, and the position might never be read.
        let stream = frames.get_mut();
        stream.shutdown().await.context("end the report")?;
        while frames.next().await.transpose()?.is_some() {}
        Ok(match agrees {
            true => ReportOutcome::Agrees(commit_lsn),
            false => ReportOutcome::Unknown(commit_lsn),
        })
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
        let standing = Standing {
            start,
            ..Standing::default()
        };
        self.open_for(standing).await.stream
    }

    async fn open_for(&self, standing: Standing<'_>) -> Opening {
        let mut list = self.safekeepers.clone();
        // A timeline that was created without safekeepers waits here until it is given some.
        let safekeepers = list.wait_for(|list| !list.is_empty()).await;
        let Ok(safekeepers) = safekeepers.map(|list| list.clone()) else {
            return failed(anyhow!("the timeline is closed"));
        };
        let answers = self.connect_to_all(&safekeepers, standing.start).await;
        choose(answers, standing, &list)
    }

    fn places(&self) -> Vec<String> {
        self.safekeepers.borrow().clone()
    }

    async fn report(&self, feedback: WalFeedback, ingested: Option<&Ingested>) -> Reported {
        let safekeepers = self.places();
        let reports = safekeepers.iter().map(async |address| {
            let report = self.report_to(address, feedback, ingested);
            match tokio::time::timeout(REPORT_TIMEOUT, report).await {
                Ok(Ok(told)) => return Some((address, told)),
                Ok(Err(error)) => {
                    tracing::debug!(timeline = %self.timeline, "cannot report to {address}: {error:#}");
                }
                Err(_) => {
                    tracing::debug!(timeline = %self.timeline, "{address} did not take a report in time");
                }
            }
            None
        });
        let reports = futures::future::join_all(reports).await;
        let mut reported = Reported::default();
        for (address, told) in reports.into_iter().flatten() {
            let commit_lsn = match told {
                ReportOutcome::Agrees(commit_lsn) => {
                    reported.agreeing.push(address.clone());
                    commit_lsn
                }
                ReportOutcome::Unknown(commit_lsn) => commit_lsn,
                ReportOutcome::Other(other) => {
                    reported.others.push((address.clone(), other.to_string()));
                    continue;
                }
            };
            reported.commit_lsn = reported.commit_lsn.max(commit_lsn);
        }
        reported
    }
}

fn failed(error: anyhow::Error) -> Opening {
    Opening {
        stream: Err(error),
        others: Vec::new(),
        found: None,
    }
}

/// Chooses the safekeeper to read from: of those that answered, one whose log is the log that was ingested.
fn choose(
    answers: Vec<(String, Result<Connected>)>,
    standing: Standing<'_>,
    list: &watch::Receiver<Vec<String>>,
) -> Opening {
    let Standing { start, in_vain, .. } = standing;
    let asked = answers.len();
    let (mut connected, mut errors) = (Vec::new(), Vec::new());
    for (address, answer) in answers {
        match answer {
            Ok(answer) => connected.push((address, answer)),
            Err(error) => errors.push(format!("{error:#}")),
        }
    }
    let found = standing.ingested.is_none().then(|| {
        let said = connected.iter().map(|(_, it)| (it.commit_lsn, &it.history));
        term_history::of_majority(&said.collect::<Vec<_>>(), start, asked)
    });
    let found = found.flatten();
    let Some(ours) = standing.ingested.or(found.as_ref()) else {
        return failed(anyhow!(
            "it is not known whose WAL was ingested up to {start}, and no majority of {asked} safekeepers has that \
             committed under one history: {}",
            errors.join("; ")
        ));
    };
    let (mut best, mut others) = (None, Vec::new());
    for (place, answer) in connected {
        let (commit_lsn, theirs) = (answer.commit_lsn, &answer.history);
        let compared = match commit_lsn > start {
            true => ours.compare_at(start, theirs, commit_lsn),
            false => ours.compare(theirs, commit_lsn),
        };
        if let Err(other) = compared {
            others.push((place, other.to_string()));
            continue;
        }
        // A safekeeper without WAL behind `start` ranks no better than one that was tried in vain.
        let is_fresh = commit_lsn > start && !in_vain.contains(&place);
        let rank = (is_fresh, commit_lsn);
        if best.as_ref().is_none_or(|(best, _)| rank > *best) {
            let stream = SafekeeperStream {
                frames: answer.frames,
                place,
                list: list.clone(),
                news: Some(Arc::new(answer.history)),
            };
            best = Some((rank, stream));
        }
    }
    let stream = match best {
        Some((_, stream)) => Ok(Box::new(stream) as Box<dyn WalStream>),
        None => {
            let refused = others.iter().map(|(place, why)| format!("{place}: {why}"));
            errors.extend(refused);
            Err(anyhow!("no safekeeper streams: {}", errors.join("; ")))
        }
    };
    Opening {
        stream,
        others,
        found,
    }
}

struct SafekeeperStream {
    frames: Frames,
    place: String,
    list: watch::Receiver<Vec<String>>,
    /// The log's history, until it is told.
    news: Option<Arc<TermHistory>>,
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
        loop {
            let frame: Bytes = tokio::select! {
                biased;
                () = Self::removed(&mut self.list, &self.place) => {
                    bail!("{} is no longer a safekeeper of the timeline", self.place)
                }
                frame = self.frames.next() => frame.context("the safekeeper closed the stream")??.freeze(),
            };
            match wire::wal::decode_with_wal(frame)? {
                (StreamFrame::History(history), _) => self.news = Some(Arc::new(history)),
                (StreamFrame::Wal(head), bytes) => {
                    return Ok(WalChunk {
                        start_lsn: head.start_lsn,
                        bytes,
                        commit_lsn: head.commit_lsn,
                        term: head.term,
                        history: self.news.take(),
                    });
                }
            }
        }
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
