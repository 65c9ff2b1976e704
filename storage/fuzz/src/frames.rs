//! Frames of both protocols.

use std::fmt::Debug;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wire::page::{Hello, HelloReply, ReplyFrame, RequestFrame};
use wire::page_frames::{decode_reply, encode_reply};
use wire::wal::{
    AcceptorMessage, Feedback, FetchReply, FirstMessage, Greeting, ProposerMessage, ReadReply,
    StreamFrame, WalFrame, decode_with_wal, encode_head,
};

/// What is read of a body, written and read again, is the same.
fn comes_back<T: DeserializeOwned + Serialize + PartialEq + Debug>(body: &Bytes) {
    let Ok((message, wal)) = decode_with_wal::<T>(body.clone()) else {
        return;
    };
    let mut again = encode_head(&message, wal.len());
    again.extend_from_slice(&wal);
    let again = decode_with_wal::<T>(again.freeze().slice(4..));
    assert_eq!(again.expect("our own frame"), (message, wal));
}

/// The bytes as the body of every kind of frame.
pub fn frames(data: &[u8]) {
    let body = Bytes::copy_from_slice(data);
    comes_back::<FirstMessage>(&body);
    comes_back::<Greeting>(&body);
    comes_back::<ProposerMessage>(&body);
    comes_back::<AcceptorMessage>(&body);
    comes_back::<FetchReply>(&body);
    comes_back::<ReadReply>(&body);
    comes_back::<StreamFrame>(&body);
    comes_back::<WalFrame>(&body);
    comes_back::<Feedback>(&body);
    comes_back::<Hello>(&body);
    comes_back::<HelloReply>(&body);
    comes_back::<RequestFrame>(&body);
    let reply = decode_reply(&body);
    let plain = postcard::from_bytes::<ReplyFrame>(data);
    assert_eq!(reply.as_ref().ok(), plain.as_ref().ok());
    if let Ok(frame) = reply
        && let Ok(pieces) = encode_reply(&frame)
    {
        let again = Bytes::from(pieces.concat()).slice(4..);
        assert_eq!(decode_reply(&again).expect("our own frame"), frame);
    }
}
