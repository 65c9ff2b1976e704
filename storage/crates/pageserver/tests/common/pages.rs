//! A client of the page service.

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use pg_types::{Lsn, TenantId, Term, TimelineId};
use tokio::net::TcpStream;
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use wire::page::{
    ErrorReply, Hello, HelloReply, MAX_FRAME_BYTES, ReadPosition, Reply, ReplyFrame, Request,
    RequestFrame, VERSION,
};

pub struct PageClient {
    frames: Framed<TcpStream, LengthDelimitedCodec>,
    next_id: u64,
}

impl PageClient {
    pub async fn connect(
        address: &str,
        tenant: TenantId,
        timeline: TimelineId,
        term: u64,
    ) -> Result<PageClient, ErrorReply> {
        let hello = Hello {
            version: VERSION,
            tenant,
            timeline,
            term: Term(term),
            traceparent: String::new(),
        };
        PageClient::hello(address, hello).await
    }

    pub async fn hello(address: &str, hello: Hello) -> Result<PageClient, ErrorReply> {
        let stream = TcpStream::connect(address).await.expect("connect");
        let mut frames = LengthDelimitedCodec::builder()
            .max_frame_length(MAX_FRAME_BYTES)
            .new_framed(stream);
        frames
            .send(Bytes::from(postcard::to_stdvec(&hello).expect("encode")))
            .await
            .expect("send");
        let reply = frames.next().await.expect("a reply").expect("a frame");
        match postcard::from_bytes(&reply).expect("decode") {
            HelloReply::Ok => Ok(PageClient { frames, next_id: 0 }),
            HelloReply::Refused(error) => Err(error),
        }
    }

    pub async fn ask(
        &mut self,
        since: Lsn,
        at: Option<Lsn>,
        request: Request,
    ) -> Result<Reply, ErrorReply> {
        self.next_id += 1;
        let position = ReadPosition {
            not_modified_since: since,
            at,
        };
        let frame = RequestFrame {
            id: self.next_id,
            position,
            request,
        };
        self.frames
            .send(Bytes::from(postcard::to_stdvec(&frame).expect("encode")))
            .await
            .expect("send");
        let reply = self.frames.next().await.expect("a reply").expect("a frame");
        let reply: ReplyFrame = postcard::from_bytes(&reply).expect("decode");
        assert_eq!(reply.id, self.next_id);
        reply.reply
    }

    /// Sends bytes that are no request and expects to be cut off.
    pub async fn send_garbage(mut self) {
        self.frames
            .send(Bytes::from_static(&[0xff; 40]))
            .await
            .expect("send");
        assert!(
            self.frames.next().await.is_none_or(|frame| frame.is_err()),
            "a reply to garbage"
        );
    }
}
