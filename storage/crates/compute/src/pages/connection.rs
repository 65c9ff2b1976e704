//! One connection to the page service, opened again whenever it breaks.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use parking_lot::Mutex;
use part_tls::{Stream, names};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use wire::first;
use wire::page::{
    ErrorKind, ErrorReply, Hello, HelloReply, MAX_FRAME_BYTES, ReadPosition, Reply, Request,
    RequestFrame, VERSION,
};
use wire::page_frames::decode_reply;

use super::{ClientConfig, Status};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

type Frames = Framed<Stream, LengthDelimitedCodec>;

/// A request on its way, and who waits for it.
pub(crate) struct Pending {
    /// Number of the request, unique in its client, by which the answer is matched.
    pub id: u64,
    /// As of when the read must hold.
    pub position: ReadPosition,
    /// What is asked for.
    pub request: Request,
    /// Where the answer goes; closed when the caller has given up.
    pub reply: oneshot::Sender<Result<Reply, ErrorReply>>,
}

/// One connection, and the requests that go over it.
pub(super) struct Connection {
    config: ClientConfig,
    status: watch::Sender<Status>,
    queue: mpsc::UnboundedReceiver<Pending>,
    /// Sent and not answered, by id; sent again on the next connection.
    unanswered: Mutex<BTreeMap<u64, Pending>>,
}

enum Refused {
    Fenced(String),
    Broken(anyhow::Error),
}

impl From<anyhow::Error> for Refused {
    fn from(error: anyhow::Error) -> Refused {
        Refused::Broken(error)
    }
}

impl Connection {
    /// A connection that is not open yet. `queue` brings its requests, and what it learns goes to `status`.
    pub fn new(
        config: ClientConfig,
        status: watch::Sender<Status>,
        queue: mpsc::UnboundedReceiver<Pending>,
    ) -> Connection {
        Connection {
            config,
            status,
            queue,
            unanswered: Mutex::default(),
        }
    }

    /// Ends when the client is gone, or fenced: then nobody will get an answer any more.
    pub async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            // A connection nobody needs is not opened.
            if self.unanswered.lock().is_empty() {
                match self.queue.recv().await {
                    Some(pending) => drop(self.unanswered.lock().insert(pending.id, pending)),
                    None => return,
                }
            }
            let error = match self.open().await {
                Ok(frames) => {
                    pause = FIRST_PAUSE;
                    match self.serve(frames).await {
                        Ok(()) => return,
                        Err(error) => error,
                    }
                }
                Err(Refused::Fenced(message)) => {
                    self.status
                        .send_modify(|status| status.fenced = Some(message));
                    return;
                }
                Err(Refused::Broken(error)) => error,
            };
            let text = format!("{error:#}");
            tracing::debug!(address = %self.config.address, "page connection: {text}");
            self.status
                .send_modify(|status| status.last_error = Some(text));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
            self.unanswered
                .lock()
                .retain(|_, pending| !pending.reply.is_closed());
        }
    }

    async fn open(&self) -> Result<Frames, Refused> {
        tokio::time::timeout(CONNECT_TIMEOUT, self.greet())
            .await
            .context("the pageserver did not say hello in time")?
    }

    async fn greet(&self) -> Result<Frames, Refused> {
        let config = &self.config;
        let stream = config
            .dialer
            .connect(&config.address, names::PAGESERVER)
            .await
            .context("connect")?;
        let mut frames: Frames = LengthDelimitedCodec::builder()
            .max_frame_length(MAX_FRAME_BYTES)
            .new_framed(stream);
        if let Some(token) = config.token.current() {
            let token = first::token_body(&token);
            frames.feed(token).await.context("show the token")?;
        }
        let hello = Hello {
            version: VERSION,
            tenant: config.tenant,
            timeline: config.timeline,
            term: config.term,
            traceparent: config.traceparent.clone(),
        };
        frames.send(encode(&hello)?).await.context("say hello")?;
        let answer = frames
            .next()
            .await
            .context("closed before hello")?
            .context("read hello")?;
        match postcard::from_bytes(&answer).context("decode hello")? {
            HelloReply::Ok => {
                config.opened.inc();
                Ok(frames)
            }
            HelloReply::Refused(error) if error.kind == ErrorKind::Fenced => {
                Err(Refused::Fenced(error.message))
            }
            HelloReply::Refused(error) => Err(Refused::Broken(anyhow::anyhow!(
                "refused: {}",
                error.message
            ))),
        }
    }

    /// Until the connection breaks (an error) or the client is gone.
    async fn serve(&mut self, frames: Frames) -> anyhow::Result<()> {
        let (mut sink, stream) = frames.split();
        let again: Vec<Bytes> = {
            let unanswered = self.unanswered.lock();
            unanswered
                .values()
                .map(request_frame)
                .collect::<anyhow::Result<_>>()?
        };
        for frame in again {
            sink.feed(frame).await.context("send")?;
        }
        sink.flush().await.context("send")?;
        // Apart, so that a full socket in one direction never stops the other.
        tokio::select! {
            sent = send(&mut self.queue, &self.unanswered, sink) => sent,
            received = receive(&self.unanswered, stream) => received,
        }
    }
}

async fn send(
    queue: &mut mpsc::UnboundedReceiver<Pending>,
    unanswered: &Mutex<BTreeMap<u64, Pending>>,
    mut sink: SplitSink<Frames, Bytes>,
) -> anyhow::Result<()> {
    while let Some(pending) = queue.recv().await {
        let mut next = Some(pending);
        while let Some(pending) = next {
            let frame = request_frame(&pending)?;
            // Kept before it is sent: if the connection breaks now, it goes out on the next one.
            unanswered.lock().insert(pending.id, pending);
            sink.feed(frame).await.context("send")?;
            next = queue.try_recv().ok();
        }
        sink.flush().await.context("send")?;
    }
    Ok(())
}

async fn receive(
    unanswered: &Mutex<BTreeMap<u64, Pending>>,
    mut stream: SplitStream<Frames>,
) -> anyhow::Result<()> {
    while let Some(frame) = stream.next().await {
        let frame = decode_reply(&frame.context("receive")?.freeze()).context("decode a reply")?;
        // Whoever asked may have given up.
        if let Some(pending) = unanswered.lock().remove(&frame.id) {
            pending.reply.send(frame.reply).ok();
        }
    }
    bail!("the pageserver closed the connection")
}

fn request_frame(pending: &Pending) -> anyhow::Result<Bytes> {
    encode(&RequestFrame {
        id: pending.id,
        position: pending.position,
        request: pending.request.clone(),
    })
}

fn encode<T: serde::Serialize>(message: &T) -> anyhow::Result<Bytes> {
    Ok(postcard::to_stdvec(message).context("encode")?.into())
}
