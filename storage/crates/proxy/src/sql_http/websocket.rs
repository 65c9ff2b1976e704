//! The bytes within a WebSocket's frames (RFC 6455): a stream for Postgres's protocol.
//!
//! A frame carries any piece of the stream, in both directions; where it is cut means nothing. So a frame is passed on while
//! it comes, and never held as a whole, as libraries for WebSockets do it: a stranger's frame may say that it has any
//! length. The library has the handshake and the frames' headers.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::HeaderMap;
use hyper::header::{self, HeaderValue};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

/// What is sent is cut into frames of so many bytes.
const FRAME_BYTES: usize = 64 << 10;
/// So many bytes that the other side has not taken wait for it; no more answers to pings are added then.
const MOST_WAITING: usize = 4 << 10;
/// The payload of a frame that is no data.
const MOST_CONTROL_BYTES: u64 = 125;
/// A header without the lengths and the mask that its second byte says it has, and a client's longest.
const LEAST_HEAD_BYTES: usize = 2;
const MOST_HEAD_BYTES: usize = 14;

/// The answer to a request for a WebSocket. None: the request is for something else.
pub fn accept(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name: header::HeaderName, wanted: &str| {
        let all = headers.get_all(name);
        let texts = all.iter().filter_map(|value| value.to_str().ok());
        texts
            .flat_map(|text| text.split(','))
            .any(|word| word.trim().eq_ignore_ascii_case(wanted))
    };
    let fits = has(header::UPGRADE, "websocket")
        && has(header::CONNECTION, "upgrade")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).filter(|_| fits)?;
    HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok()
}

/// The host that a request is for, without a port; nothing where it is not said.
pub fn host(headers: &HeaderMap) -> String {
    let text = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok());
    let text = text.unwrap_or_default();
    text.rsplit_once(':')
        .map_or(text, |(host, _)| host)
        .to_owned()
}

/// A stream of what comes and goes in the frames of a connection.
pub fn stream(upgraded: Upgraded) -> Frames<TokioIo<Upgraded>> {
    Frames::new(TokioIo::new(upgraded))
}

/// A WebSocket as a stream of bytes.
pub struct Frames<S> {
    inner: S,
    incoming: Incoming,
    /// Frames, or the rest of them, that the other side has not taken.
    waiting: Vec<u8>,
    is_closing: bool,
}

/// Where the next byte that comes stands.
enum Incoming {
    /// In a header, of which these bytes have come.
    Head([u8; MOST_HEAD_BYTES], usize),
    /// In a piece of the stream: bytes that are left of its frame, the mask, and how often it was used.
    Data(u64, [u8; 4], usize),
    /// In a frame for the WebSocket itself: what it says, its payload so far, its length and the mask.
    Control(Control, Vec<u8>, usize, [u8; 4]),
    /// Behind a goodbye.
    Ended,
}

const BEGIN: Incoming = Incoming::Head([0; MOST_HEAD_BYTES], 0);

fn violation(text: &str) -> io::Error {
    io::Error::other(format!("the WebSocket breaks its protocol: {text}"))
}

/// Bytes of a header that begins with these two.
fn head_bytes(head: &[u8; MOST_HEAD_BYTES]) -> usize {
    let length = match head[1] & 0x7F {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    // Clients that do not mask are refused once all is there.
    let mask = if head[1] & 0x80 == 0 { 0 } else { 4 };
    LEAST_HEAD_BYTES + length + mask
}

/// What comes behind a whole header.
///
/// # Errors
/// It is no header of a client, or of a frame that cannot come here.
fn after(head: &[u8]) -> io::Result<Incoming> {
    let parsed = FrameHeader::parse(&mut Cursor::new(head));
    let parsed = parsed.map_err(|error| violation(&error.to_string()))?;
    let (header, length) = parsed.ok_or_else(|| violation("a header is cut"))?;
    let mask = header
        .mask
        .ok_or_else(|| violation("a client's frame is not masked"))?;
    if header.rsv1 || header.rsv2 || header.rsv3 {
        return Err(violation("an extension is used that was not agreed on"));
    }
    match header.opcode {
        OpCode::Data(Data::Binary | Data::Continue) => Ok(Incoming::Data(length, mask, 0)),
        OpCode::Data(_) => Err(violation("a message is text, where Postgres's are binary")),
        OpCode::Control(_) if length > MOST_CONTROL_BYTES || !header.is_final => {
            Err(violation("a frame of its own is too long, or cut"))
        }
        OpCode::Control(Control::Reserved(_)) => Err(violation("a frame is of no known kind")),
        OpCode::Control(kind) => Ok(Incoming::Control(kind, Vec::new(), length as usize, mask)),
    }
}

/// Takes the mask off bytes; `used` is how many bytes of the frame came before them.
fn unmask(bytes: &mut [u8], mask: [u8; 4], used: usize) {
    for (number, byte) in bytes.iter_mut().enumerate() {
        *byte ^= mask[(used + number) % 4];
    }
}

fn frame(out: &mut Vec<u8>, opcode: OpCode, payload: &[u8]) {
    let header = FrameHeader {
        opcode,
        ..FrameHeader::default()
    };
    // A vector takes whatever is written.
    let _ = header.format(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// A WebSocket that was agreed on.
    pub fn new(inner: S) -> Frames<S> {
        Frames {
            inner,
            incoming: BEGIN,
            waiting: Vec::new(),
            is_closing: false,
        }
    }

    /// Writes what waits.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut written = 0;
        let result = loop {
            if written == self.waiting.len() {
                break Poll::Ready(Ok(()));
            }
            match Pin::new(&mut self.inner).poll_write(cx, &self.waiting[written..]) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => written += count,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        match written == self.waiting.len() {
            // Given back: an idle session is to hold nothing.
            true => self.waiting = Vec::new(),
            false => drop(self.waiting.drain(..written)),
        }
        result
    }

    /// Reads at most `most` bytes into a buffer. None: the connection has ended.
    fn poll_some(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<Option<usize>>> {
        let mut buffer = ReadBuf::new(buffer);
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buffer))?;
        let count = buffer.filled().len();
        Poll::Ready(Ok((count > 0).then_some(count)))
    }

    /// Does what a frame for the WebSocket itself asks for.
    fn heed(&mut self, kind: Control, payload: &[u8]) {
        match kind {
            Control::Ping if self.waiting.len() < MOST_WAITING => {
                frame(&mut self.waiting, OpCode::Control(Control::Pong), payload);
            }
            Control::Close => self.incoming = Incoming::Ended,
            _ => {}
        }
    }

    /// Reads on to the next piece of the stream. False: there is none, for the WebSocket has ended.
    fn poll_to_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let mut incoming = std::mem::replace(&mut self.incoming, Incoming::Ended);
            let next = match &mut incoming {
                Incoming::Ended => return Poll::Ready(Ok(false)),
                Incoming::Data(0, ..) => BEGIN,
                Incoming::Data(..) => {
                    self.incoming = incoming;
                    return Poll::Ready(Ok(true));
                }
                Incoming::Head(head, have) => {
                    let need = match *have < LEAST_HEAD_BYTES {
                        true => LEAST_HEAD_BYTES,
                        false => head_bytes(head),
                    };
                    if *have == need {
                        after(&head[..need])?
                    } else {
                        match self.poll_some(cx, &mut head[*have..need]) {
                            Poll::Pending => {
                                self.incoming = incoming;
                                return Poll::Pending;
                            }
                            Poll::Ready(read) => match read? {
                                None => return Poll::Ready(Ok(false)),
                                Some(count) => Incoming::Head(*head, *have + count),
                            },
                        }
                    }
                }
                Incoming::Control(kind, payload, length, mask) => {
                    if payload.len() == *length {
                        let mut bytes = std::mem::take(payload);
                        unmask(&mut bytes, *mask, 0);
                        self.incoming = BEGIN;
                        self.heed(*kind, &bytes);
                        continue;
                    }
                    let mut buffer = [0; MOST_CONTROL_BYTES as usize];
                    let left = *length - payload.len();
                    match self.poll_some(cx, &mut buffer[..left]) {
                        Poll::Pending => {
                            self.incoming = incoming;
                            return Poll::Pending;
                        }
                        Poll::Ready(read) => match read? {
                            None => return Poll::Ready(Ok(false)),
                            Some(count) => payload.extend_from_slice(&buffer[..count]),
                        },
                    }
                    incoming
                }
            };
            self.incoming = next;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if out.remaining() == 0 {
            // Nothing read would look like the end.
            return Poll::Ready(Ok(()));
        }
        let found = this.poll_to_data(cx);
        if !this.waiting.is_empty() {
            // Answers to pings; whoever writes next tries again.
            if let Poll::Ready(Ok(())) = this.poll_waiting(cx) {
                let _ = Pin::new(&mut this.inner).poll_flush(cx);
            }
        }
        if !ready!(found)? {
            return Poll::Ready(Ok(()));
        }
        let Incoming::Data(left, mask, used) = &mut this.incoming else {
            return Poll::Ready(Ok(()));
        };
        let most = usize::try_from(*left).unwrap_or(usize::MAX);
        let buffer = out.initialize_unfilled_to(most.min(out.remaining()));
        let mut piece = ReadBuf::new(buffer);
        ready!(Pin::new(&mut this.inner).poll_read(cx, &mut piece))?;
        let count = piece.filled().len();
        if count == 0 {
            this.incoming = Incoming::Ended;
            return Poll::Ready(Ok(()));
        }
        unmask(piece.filled_mut(), *mask, *used);
        *left -= count as u64;
        *used = (*used + count) % 4;
        out.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_waiting(cx))?;
        let piece = &bytes[..bytes.len().min(FRAME_BYTES)];
        frame(&mut self.waiting, OpCode::Data(Data::Binary), piece);
        // What is not taken now waits, and counts as written.
        match self.poll_waiting(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(piece.len())),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_waiting(cx))?;
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.is_closing, true) {
            // 1000: all is done.
            let normal = 1000_u16.to_be_bytes();
            frame(&mut self.waiting, OpCode::Control(Control::Close), &normal);
        }
        ready!(self.poll_waiting(cx))?;
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
