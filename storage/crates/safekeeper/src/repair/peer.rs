//! WAL of another safekeeper, read as a pageserver reads it (`wire::wal`): what is committed there, and the history it is
//! of. The reader is none for which WAL is kept.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use consensus::TermHistory;
use futures::StreamExt as _;
use part_tls::{ReadHalf, WriteHalf, names};
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use wire::first;
use wire::wal::{self, FirstMessage, READ_VERSION, ReadReply, StreamFrame, StreamRequest};

use super::gathering::Gathering;
use super::{Sources, agrees, pace};
use crate::timeline::{RepairView, Timeline};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// One that sends no WAL for so long has none, or is no help.
const SILENCE: Duration = Duration::from_secs(10);

struct Peer {
    frames: FramedRead<ReadHalf, LengthDelimitedCodec>,
    /// Open as long as the connection is to be.
    _writer: WriteHalf,
}

/// Fills `gathering` from the safekeeper at `address`; `None` when that is this one.
pub async fn take(
    address: &str,
    timeline: &Arc<Timeline>,
    view: &RepairView,
    sources: &Sources,
    mut gathering: Gathering,
) -> anyhow::Result<Option<Gathering>> {
    let connected = timeout(
        CONNECT_TIMEOUT,
        connect(address, timeline, sources, &gathering),
    );
    let (mut peer, commit, history) = connected.await.context("it does not answer")??;
    let both = view.commit.min(commit);
    let check = |history: &TermHistory| {
        ensure!(
            agrees(&view.history, history, both),
            "it has another history of this timeline ({history:?}, here it is {:?}); `weir log show` compares them",
            view.history
        );
        Ok(())
    };
    check(&history)?;
    loop {
        let wal = timeout(SILENCE, peer.next_wal(&gathering, &check))
            .await
            .with_context(|| {
                format!(
                    "it has committed {commit}, and sends nothing behind {}",
                    gathering.next()
                )
            })??;
        let length = wal.len();
        ensure!(
            gathering.next() + length as u64 <= both.max(gathering.commit()),
            "it sent more than it has committed"
        );
        if stalls::off_worker(|| gathering.feed(&wal))? {
            return Ok(Some(gathering));
        }
        pace(length, sources).await;
    }
}

async fn connect(
    address: &str,
    timeline: &Timeline,
    sources: &Sources,
    gathering: &Gathering,
) -> anyhow::Result<(Peer, pg_types::Lsn, TermHistory)> {
    let stream = sources.dialer.connect(address, names::SAFEKEEPER).await;
    let stream = stream.context("connect")?;
    let (reader, mut writer) = stream.into_split();
    let mut frames = FramedRead::new(reader, wal::codec());
    let request = FirstMessage::Read(StreamRequest {
        version: READ_VERSION,
        tenant: timeline.identity.tenant,
        timeline: timeline.identity.timeline,
        start_lsn: gathering.next(),
        reader: sources.name.clone(),
        holds_wal: false,
        traceparent: String::new(),
    });
    if let Some(token) = sources.token.current() {
        writer.send(&first::token_frame(&token)).await?;
    }
    writer.send(&wal::encode(&request)).await?;
    let reply = frames.next().await.transpose()?;
    match wal::decode::<ReadReply>(&reply.context("it closed the connection")?)? {
        ReadReply::Follows {
            commit_lsn,
            history,
            ..
        } => {
            let _writer = writer;
            Ok((Peer { frames, _writer }, commit_lsn, history))
        }
        ReadReply::Refused(failure) => bail!("{failure}"),
        ReadReply::Ok { .. } => bail!("it does not say whose WAL it has"),
    }
}

impl Peer {
    /// The next piece of WAL, cut to what may be needed.
    async fn next_wal(
        &mut self,
        gathering: &Gathering,
        check: &impl Fn(&TermHistory) -> anyhow::Result<()>,
    ) -> anyhow::Result<Bytes> {
        loop {
            let frame = self.frames.next().await.transpose()?;
            let frame = frame.context("it closed the connection")?;
            match wal::decode_with_wal::<StreamFrame>(frame.freeze())? {
                (StreamFrame::History(history), _) => check(&history)?,
                (StreamFrame::Wal(_), wal) if wal.is_empty() => {}
                (StreamFrame::Wal(frame), wal) => {
                    ensure!(
                        frame.start_lsn == gathering.next(),
                        "it sent WAL of {} instead of {}",
                        frame.start_lsn,
                        gathering.next()
                    );
                    let needed = gathering.commit().0 - frame.start_lsn.0;
                    let length = (wal.len() as u64).min(needed) as usize;
                    return Ok(wal.slice(..length));
                }
            }
        }
    }
}
