//! A client on a thread of its own, as another process would be: a reply wakes it, and nobody in between.
//!
//! The async client of the tests shares the server's runtime: whichever of its threads waits for the sockets takes a
//! reply there and then has to wake the one that asked, which on a virtual machine can take longer than the read.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use bytes::{Bytes, BytesMut};
use pg_types::{Lsn, Term};
use serde::Serialize;
use wire::page::{
    Hello, HelloReply, MAX_FRAME_BYTES, ReadPosition, Reply, Request, RequestFrame, VERSION,
};
use wire::page_frames::decode_reply;

use crate::engine::Engine;

/// Blocks the thread that asks.
pub struct BlockingClient {
    stream: TcpStream,
    /// What has come of the frames that were not handed out yet.
    received: BytesMut,
    next_id: u64,
}

impl BlockingClient {
    pub fn connect(engine: &Engine) -> Result<BlockingClient> {
        let stream = TcpStream::connect(&engine.address).context("connect to the page service")?;
        stream.set_nodelay(true)?;
        let mut client = BlockingClient {
            stream,
            received: BytesMut::new(),
            next_id: 0,
        };
        client.send(&Hello {
            version: VERSION,
            tenant: engine.timeline.tenant(),
            timeline: engine.timeline.id(),
            term: Term(0),
            traceparent: String::new(),
        })?;
        match postcard::from_bytes(&client.receive()?).context("decode the answer to hello")? {
            HelloReply::Ok => Ok(client),
            HelloReply::Refused(refusal) => bail!("refused: {refusal:?}"),
        }
    }

    /// One request and its reply, at the newest position that has `since`.
    pub fn ask(&mut self, since: Lsn, request: Request) -> Result<Reply> {
        self.next_id += 1;
        let position = ReadPosition {
            not_modified_since: since,
            at: None,
        };
        self.send(&RequestFrame {
            id: self.next_id,
            position,
            request,
        })?;
        let reply = decode_reply(&self.receive()?).context("decode a reply")?;
        ensure!(reply.id == self.next_id, "the reply to another request");
        reply
            .reply
            .map_err(|error| anyhow::anyhow!("refused: {error:?}"))
    }

    fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let body = postcard::to_stdvec(message).context("encode a request")?;
        let mut frame = Vec::with_capacity(4 + body.len());
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(&body);
        self.stream.write_all(&frame).context("send a request")
    }

    fn receive(&mut self) -> Result<Bytes> {
        self.fill(4)?;
        let length = self.received.split_to(4);
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        ensure!(
            length <= MAX_FRAME_BYTES,
            "a frame of {length} bytes, {MAX_FRAME_BYTES} are the most"
        );
        self.fill(length)?;
        Ok(self.received.split_to(length).freeze())
    }

    /// Reads until so many bytes are there.
    fn fill(&mut self, wanted: usize) -> Result<()> {
        // A reply of one page, with what stands around it, comes with one call.
        const AT_ONCE: usize = 16 << 10;
        while self.received.len() < wanted {
            let have = self.received.len();
            self.received.resize(wanted.max(have + AT_ONCE), 0);
            let read = self.stream.read(&mut self.received[have..]);
            self.received.truncate(have + *read.as_ref().unwrap_or(&0));
            ensure!(
                read.context("receive a reply")? > 0,
                "the page service closed the connection"
            );
        }
        Ok(())
    }
}
