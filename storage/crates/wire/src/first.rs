//! The token that a connection of either protocol may begin with: a frame of its own, before the first message.
//!
//! A part that asks for tokens refuses a connection without one, in the form of the message that came; any other part skips
//! it. Neither protocol has a first message that begins like such a frame: as a [`Hello`](crate::page::Hello) it would be of
//! version 119, and a [`FirstMessage`](crate::wal::FirstMessage) has three variants. So versions stay as they are, and a peer
//! of before tokens that is sent one ends the connection.

use bytes::{BufMut as _, Bytes, BytesMut};

const MARK: &[u8] = b"weir-token ";
/// No frame up to the first message is longer, bytes: whoever connects is a stranger until then.
pub const MAX_FRAME_BYTES: usize = 64 << 10;

/// The body of the frame with this token.
pub fn token_body(token: &str) -> Bytes {
    Bytes::from([MARK, token.as_bytes()].concat())
}

/// The frame with this token, its length first.
pub fn token_frame(token: &str) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_u32((MARK.len() + token.len()) as u32);
    frame.put_slice(MARK);
    frame.put_slice(token.as_bytes());
    frame
}

/// The token in the body of a frame; `None` where the frame is a first message. One that is no text is the empty token, which
/// opens nothing.
pub fn token_of(body: &[u8]) -> Option<&str> {
    let token = body.strip_prefix(MARK)?;
    Some(std::str::from_utf8(token).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use pg_types::{TenantId, Term, TimelineId};

    use super::*;
    use crate::{page, wal};

    #[test]
    fn a_token_comes_back_and_is_no_first_message() {
        let body = token_body("a.b.c");
        assert_eq!(token_of(&body), Some("a.b.c"));
        assert_eq!(token_frame("a.b.c")[4..], body);
        assert_eq!(token_frame("a.b.c")[..4], (body.len() as u32).to_be_bytes());
        assert_eq!(token_of(b"weir-token \xff"), Some(""));
        assert!(wal::decode::<wal::FirstMessage>(&body).is_err());
        let hello = postcard::take_from_bytes::<u16>(&body).expect("a number");
        assert_ne!(hello.0, page::VERSION);
    }

    #[test]
    fn no_first_message_is_taken_for_a_token() {
        let (tenant, timeline) = (
            TenantId(*b"weir-token weir-"),
            TimelineId(*b"weir-token weir-"),
        );
        let hello = page::Hello {
            version: page::VERSION,
            tenant,
            timeline,
            term: Term(1),
            traceparent: String::new(),
        };
        assert_eq!(
            token_of(&postcard::to_stdvec(&hello).expect("encoded")),
            None
        );
        let propose = wal::FirstMessage::Propose(wal::ProposeRequest {
            version: wal::PROPOSE_VERSION,
            tenant,
            timeline,
            traceparent: String::new(),
        });
        assert_eq!(token_of(&wal::encode(&propose)[4..]), None);
        assert_eq!(token_of(b""), None);
    }
}
