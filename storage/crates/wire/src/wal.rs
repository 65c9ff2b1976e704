//! The WAL service of a safekeeper: how a proposer writes, how a proposer fetches for a lagging peer, and how a
//! pageserver reads.
//!
//! A frame is a 4-byte big-endian length, then a `postcard` message, then, for messages that carry WAL, the bytes of
//! WAL up to the end of the frame. The first frame of a connection is a [`FirstMessage`] and decides what the
//! connection is for:
//!
//! - `Propose`: answered by [`AcceptorMessage::Greeting`]; then [`ProposerMessage`]s are pipelined and
//!   [`AcceptorMessage`]s come back. After an `Append` one reply may cover several.
//! - `Fetch`: answered by [`FetchReply`]s until the range is complete.
//! - `Read`: answered by one [`ReadReply`], then [`StreamFrame`]s for as long as the connection lives, with a
//!   heartbeat (no WAL) every second; the reader sends [`Feedback`] whenever it has news. A reader of version 2 is
//!   answered `Ok` and gets bare [`WalFrame`]s, which do not say which terms wrote the WAL.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use consensus::{
    AppendHeader, AppendReply, ConfigureRequest, ElectedReply, ElectedRequest, LogPosition,
    Refusal, ResetRequest, TermHistory, VoteReply, VoteRequest,
};
use pg_types::{Lsn, TenantId, Term, TimelineId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Current version of what peers speak, and of the proposers that are not told how much room there is.
pub const VERSION: u16 = 2;
/// From this version of the proposer on, [`AcceptorMessage::Room`] is sent.
pub const ROOM_VERSION: u16 = 3;
/// Current version of what proposers speak, the first with [`ProposerMessage::Renew`]; safekeepers answer those of
/// [`VERSION`] and [`ROOM_VERSION`] as well.
pub const PROPOSE_VERSION: u16 = 4;
/// Current version of what readers speak; safekeepers answer those of version 2 as well.
pub const READ_VERSION: u16 = 3;
/// Largest frame either side accepts, bytes.
pub const MAX_FRAME_BYTES: usize = 16 << 20;
/// Most WAL that a sender puts into one frame, bytes.
pub const MAX_WAL_BYTES: usize = 1 << 20;

/// Cuts a connection's bytes into the bodies of frames, and puts a length before each body that is sent. A frame of more
/// than [`MAX_FRAME_BYTES`] is an error of kind `InvalidData` on either side, after which the connection is of no use.
#[cfg(feature = "codec")]
pub fn codec() -> tokio_util::codec::LengthDelimitedCodec {
    crate::codec::up_to(MAX_FRAME_BYTES)
}

/// The first frame of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FirstMessage {
    /// The connection writes WAL.
    Propose(ProposeRequest),
    /// The connection copies WAL to a lagging peer.
    Fetch(FetchRequest),
    /// The connection follows committed WAL.
    Read(StreamRequest),
}

/// A proposer connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposeRequest {
    /// [`PROPOSE_VERSION`] of the sender.
    pub version: u16,
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline that is to be written.
    pub timeline: TimelineId,
    /// W3C `traceparent` of the start that this election belongs to, empty if there is none.
    pub traceparent: String,
}

/// The first message to a proposer: what this safekeeper has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Number of the safekeeper in the installation.
    pub safekeeper_id: u64,
    /// Postgres's identifier of the cluster that the WAL is of.
    pub system_identifier: u64,
    /// Postgres's major version, such as 15.
    pub pg_version: u32,
    /// Where the timeline's WAL began when it was created.
    pub timeline_start_lsn: Lsn,
    /// First byte of WAL that is still here.
    pub oldest_lsn: Lsn,
    /// Where the log is, and what it has promised.
    pub position: LogPosition,
}

/// What a proposer sends after its first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProposerMessage {
    /// Asks for a vote; answered by `Vote`.
    Vote(VoteRequest),
    /// Announces a won election; answered by `Elected`.
    Elected(ElectedRequest),
    /// Has the log begin anew at a later position; answered by the positions.
    Reset(ResetRequest),
    /// Answered by the positions, like an `Append`.
    Configure(ConfigureRequest),
    /// Followed by the WAL.
    Append(AppendHeader),
    /// Asks whether the safekeeper is still promised to this term; answered by `Renewed`, or by a refusal that names the
    /// higher term. From version 4 on, once the safekeeper follows the term.
    Renew {
        /// The proposer's term.
        term: Term,
        /// When the proposer sent this, microseconds of its own clock. The safekeeper sends it back and reads nothing
        /// into it.
        sent_us: u64,
    },
}

/// What a safekeeper sends to a proposer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AcceptorMessage {
    /// Comes first.
    Greeting(Greeting),
    /// The vote, or the refusal of one.
    Vote(VoteReply),
    /// The log follows the announced history.
    Elected(ElectedReply),
    /// Where the log is: after an fsync, after a heartbeat, and when a promise has changed.
    Append {
        /// The positions of the log.
        reply: AppendReply,
        /// Highest position that a pageserver reading here has ingested.
        ingested_lsn: Lsn,
        /// Position below which every holding reader needs no WAL any more.
        remote_consistent_lsn: Lsn,
    },
    /// A rule of consensus forbids what was asked for.
    Refused(Refusal),
    /// Nothing can be done with this timeline here; the connection ends.
    Failed(Failure),
    /// How much more WAL is taken here; `None` for no limit. From version 3 of the proposer on: behind the greeting, and
    /// whenever it has changed.
    Room(Option<Room>),
    /// The safekeeper was still promised to the proposer's term `held_us` after it had received the renewal, and so at
    /// some moment that was not before `sent_us + held_us` of the proposer's clock.
    Renewed {
        /// [`ProposerMessage::Renew`]'s.
        sent_us: u64,
        /// How long the safekeeper had had the renewal when it looked, microseconds. More than 0 only while an fsync
        /// keeps the safekeeper from taking newer ones.
        held_us: u64,
    },
}

/// How much WAL a safekeeper takes of a timeline, which grows as what it keeps is trimmed. WAL before the start of the
/// newest term is taken in any case: it may have been acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Room {
    /// No WAL is taken from here on.
    pub limit_lsn: Lsn,
    /// From here on the proposer slows down.
    pub slow_lsn: Lsn,
    /// What there is no room for.
    pub cause: RoomCause,
}

impl Room {
    /// Bytes of WAL behind `lsn` that are still taken.
    pub fn left(&self, lsn: Lsn) -> u64 {
        self.limit_lsn.0.saturating_sub(lsn.0)
    }

    /// Bytes before the limit in which the proposer slows down.
    pub fn slow_bytes(&self) -> u64 {
        self.limit_lsn.0.saturating_sub(self.slow_lsn.0)
    }
}

/// What sets the limit of a [`Room`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RoomCause {
    /// The quota of WAL that each timeline has.
    Quota,
    /// The safekeeper's disk, of which little is free.
    Disk,
}

/// WAL `[start_lsn, end_lsn)` of the log that `term` continued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchRequest {
    /// [`VERSION`] of the sender.
    pub version: u16,
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline whose WAL is wanted.
    pub timeline: TimelineId,
    /// The term whose history the log must follow.
    pub term: Term,
    /// First byte wanted.
    pub start_lsn: Lsn,
    /// Behind the last byte wanted.
    pub end_lsn: Lsn,
}

/// A part of the WAL that was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FetchReply {
    /// Followed by the WAL from `start_lsn` on.
    Wal {
        /// LSN of the first byte that follows.
        start_lsn: Lsn,
    },
    /// The WAL cannot be given; the connection ends.
    Failed(Failure),
}

/// A reader asks for committed WAL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamRequest {
    /// [`READ_VERSION`] of the sender.
    pub version: u16,
    /// The tenant that the timeline belongs to.
    pub tenant: TenantId,
    /// The timeline whose WAL is wanted.
    pub timeline: TimelineId,
    /// First byte wanted; may lie ahead of what is committed here, the stream then waits.
    pub start_lsn: Lsn,
    /// Stable name of the reader.
    pub reader: String,
    /// Whether WAL must be kept until this reader reports it as durable elsewhere. Kept for the name, not
    /// for the connection.
    pub holds_wal: bool,
    /// W3C `traceparent`, empty if there is none.
    pub traceparent: String,
}

/// The answer to [`StreamRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadReply {
    /// WAL follows, to a reader of version 2.
    Ok {
        /// Up to where the log here is known to be committed.
        commit_lsn: Lsn,
        /// First byte of WAL that is still here.
        oldest_lsn: Lsn,
        /// The term that wrote the last committed byte.
        term: Term,
    },
    /// No WAL will come; the connection ends.
    Refused(Failure),
    /// In place of `Ok` from version 3 on.
    Follows {
        /// Up to where the log here is known to be committed.
        commit_lsn: Lsn,
        /// First byte of WAL that is still here.
        oldest_lsn: Lsn,
        /// Which terms wrote the log. What is committed here is of this history; behind it, it may come to another.
        history: TermHistory,
    },
}

/// What a reader of version 3 gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamFrame {
    /// Followed by the WAL, which is of the history told last.
    Wal(WalFrame),
    /// The log's history is this one now.
    History(TermHistory),
}

/// Committed WAL, `[start_lsn, start_lsn + bytes)`, cut at any byte but never past `commit_lsn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalFrame {
    /// LSN of the first byte that follows.
    pub start_lsn: Lsn,
    /// A record boundary; the stream pauses there until more is committed.
    pub commit_lsn: Lsn,
    /// The term that wrote the last committed byte.
    pub term: Term,
    /// When the safekeeper sent this, microseconds since the Unix epoch.
    pub sent_at_us: u64,
}

/// How far a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feedback {
    /// Last record applied, in memory.
    pub ingested_lsn: Lsn,
    /// Everything below is in object storage and in its index.
    pub remote_consistent_lsn: Lsn,
}

/// Why a request failed and what the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For programs.
    pub kind: FailureKind,
    /// For people: what happened to what, and what to do.
    pub message: String,
}

/// What a caller can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// The timeline does not exist on this safekeeper.
    NotFound,
    /// The WAL asked for was trimmed, object storage holds what it made.
    Trimmed,
    /// The timeline is stopped here (disk full, damaged file); another safekeeper may serve it.
    Stopped,
    /// A newer connection of the same proposer has taken over, or a newer term.
    Superseded,
    /// The request is malformed or contradicts itself.
    BadRequest,
    /// The safekeeper is at fault; another one may serve.
    Internal,
}

/// Why bytes are not the message that was expected.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The length of a frame, bytes, is above [`MAX_FRAME_BYTES`].
    #[error("frame of {0} bytes; the limit is {MAX_FRAME_BYTES}")]
    TooLarge(usize),
    /// The body is not what `postcard` makes of the message.
    #[error("frame of {bytes} bytes does not hold a valid {expected}: {source}")]
    Malformed {
        /// Name of the message's type.
        expected: &'static str,
        /// Size of the body.
        bytes: usize,
        /// What `postcard` says.
        source: postcard::Error,
    },
    /// The message is followed by bytes where no WAL may follow.
    #[error("{expected} is followed by {surplus} bytes that do not belong to it")]
    Surplus {
        /// Name of the message's type.
        expected: &'static str,
        /// Number of those bytes.
        surplus: usize,
    },
}

/// A complete frame, length included.
pub fn encode<T: Serialize>(message: &T) -> BytesMut {
    encode_head(message, 0)
}

/// The beginning of a frame that `payload_bytes` of WAL follow: send both, without copying the WAL.
pub fn encode_head<T: Serialize>(message: &T, payload_bytes: usize) -> BytesMut {
    let mut frame = BytesMut::with_capacity(128);
    frame.put_u32(0);
    let mut frame =
        postcard::to_extend(message, frame).expect("plain structs serialise into memory");
    let length = frame.len() - 4 + payload_bytes;
    debug_assert!(length <= MAX_FRAME_BYTES, "frame of {length} bytes");
    frame[..4].copy_from_slice(&(length as u32).to_be_bytes());
    frame
}

/// A message that must fill the frame's body.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, CodecError> {
    let (message, rest) = take(body)?;
    if !rest.is_empty() {
        return Err(CodecError::Surplus {
            expected: name::<T>(),
            surplus: rest.len(),
        });
    }
    Ok(message)
}

/// A message and the WAL behind it, which shares the body's memory.
pub fn decode_with_wal<T: DeserializeOwned>(mut body: Bytes) -> Result<(T, Bytes), CodecError> {
    let (message, rest) = take(&body)?;
    let head = body.len() - rest.len();
    body.advance(head);
    Ok((message, body))
}

fn take<T: DeserializeOwned>(body: &[u8]) -> Result<(T, &[u8]), CodecError> {
    if body.len() > MAX_FRAME_BYTES {
        return Err(CodecError::TooLarge(body.len()));
    }
    postcard::take_from_bytes(body).map_err(|source| CodecError::Malformed {
        expected: name::<T>(),
        bytes: body.len(),
        source,
    })
}

fn name<T>() -> &'static str {
    std::any::type_name::<T>()
        .rsplit("::")
        .next()
        .unwrap_or("message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_append_keeps_its_wal_without_copying_it() {
        let header = AppendHeader {
            term: Term(3),
            generation: consensus::Generation::ZERO,
            begin_lsn: Lsn(16),
            end_lsn: Lsn(21),
            commit_lsn: Lsn(8),
        };
        let message = ProposerMessage::Append(header);
        let mut frame = encode_head(&message, 5);
        frame.extend_from_slice(b"hello");
        let frame = frame.freeze();
        assert_eq!(
            u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize,
            frame.len() - 4
        );
        let body = frame.slice(4..);
        let (decoded, wal) = decode_with_wal::<ProposerMessage>(body.clone()).expect("valid frame");
        assert_eq!(decoded, message);
        assert_eq!(wal, b"hello"[..]);
        assert_eq!(wal.as_ptr(), body[body.len() - 5..].as_ptr());
        assert!(matches!(
            decode::<ProposerMessage>(&body),
            Err(CodecError::Surplus { surplus: 5, .. })
        ));
    }

    #[test]
    fn garbage_is_an_error_and_never_a_panic() {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for length in 0..400_usize {
            let body: Vec<u8> = (0..length)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state as u8
                })
                .collect();
            let _ = decode::<FirstMessage>(&body);
            let _ = decode_with_wal::<AcceptorMessage>(Bytes::from(body.clone()));
            let _ = decode_with_wal::<ProposerMessage>(Bytes::from(body));
        }
    }
}
