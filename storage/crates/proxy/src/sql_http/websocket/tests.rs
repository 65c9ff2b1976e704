use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = pairs.iter().map(|(name, value)| {
        let name = header::HeaderName::from_static(name);
        (name, HeaderValue::from_static(value))
    });
    pairs.collect()
}

#[test]
fn a_websocket_is_agreed_on_as_its_rfc_has_it() {
    // The key and the answer of RFC 6455, section 1.3.
    let all = [
        ("upgrade", "WebSocket"),
        ("connection", "keep-alive, Upgrade"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let accepted = accept(&headers(&all)).expect("it is one");
    assert_eq!(accepted, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    for missing in 0..all.len() {
        let mut some = all.to_vec();
        some.remove(missing);
        assert_eq!(accept(&headers(&some)), None);
    }
}

#[test]
fn a_host_has_no_port() {
    assert_eq!(
        host(&headers(&[("host", "ep-a.db.test:7432")])),
        "ep-a.db.test"
    );
    assert_eq!(host(&headers(&[("host", "ep-a.db.test")])), "ep-a.db.test");
    assert_eq!(host(&headers(&[])), "");
}

const MASK: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// A client's frame.
fn masked(opcode: OpCode, payload: &[u8]) -> Vec<u8> {
    let mut header = FrameHeader {
        opcode,
        ..FrameHeader::default()
    };
    header.mask = Some(MASK);
    let mut out = Vec::new();
    header
        .format(payload.len() as u64, &mut out)
        .expect("a vector");
    let at = out.len();
    out.extend_from_slice(payload);
    unmask(&mut out[at..], MASK, 0);
    out
}

fn binary(payload: &[u8]) -> Vec<u8> {
    masked(OpCode::Data(Data::Binary), payload)
}

async fn read_all(sent: &[u8]) -> io::Result<Vec<u8>> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    far.write_all(sent).await.expect("there is room");
    drop(far);
    let mut found = Vec::new();
    Frames::new(near).read_to_end(&mut found).await?;
    Ok(found)
}

#[tokio::test]
async fn what_clients_must_not_send_ends_the_connection() {
    let mut unmasked = Vec::new();
    frame(&mut unmasked, OpCode::Data(Data::Binary), b"ab");
    let mut extended = binary(b"ab");
    extended[0] |= 0x40;
    let mut cut = masked(OpCode::Control(Control::Ping), b"");
    cut[0] &= 0x7F;
    for wrong in [
        unmasked,
        extended,
        cut,
        masked(OpCode::Data(Data::Text), b"SELECT 1"),
        masked(OpCode::Control(Control::Ping), &[0; 126]),
        vec![0x83, 0x80, 0, 0, 0, 0],
    ] {
        assert!(read_all(&wrong).await.is_err(), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_goodbye_ends_the_stream_and_a_ping_is_answered() {
    let closed = [
        binary(b"ab"),
        masked(OpCode::Control(Control::Close), b""),
        binary(b"cd"),
    ];
    assert_eq!(
        read_all(&closed.concat()).await.expect("well formed"),
        b"ab"
    );
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let mut frames = Frames::new(near);
    let sent = [
        masked(OpCode::Control(Control::Ping), b"here"),
        binary(b"ab"),
    ];
    far.write_all(&sent.concat()).await.expect("there is room");
    let mut found = [0; 2];
    frames.read_exact(&mut found).await.expect("two bytes");
    let mut pong = [0; 6];
    far.read_exact(&mut pong).await.expect("an answer");
    assert_eq!(&pong, b"\x8A\x04here");
}

/// A frame that says it has 2^62 bytes costs none but those that come.
#[tokio::test]
async fn a_frames_length_is_not_believed() {
    let mut sent = vec![0x82, 0xFF];
    sent.extend((1_u64 << 62).to_be_bytes());
    sent.extend([0; 4]);
    sent.extend(b"abc");
    assert_eq!(read_all(&sent).await.expect("well formed so far"), b"abc");
}

#[tokio::test]
async fn what_is_written_comes_in_frames_and_ends_with_a_goodbye() {
    let (near, mut far) = tokio::io::duplex(1 << 10);
    let long = vec![7; FRAME_BYTES + 1];
    let writing = tokio::spawn(async move {
        let mut frames = Frames::new(near);
        frames.write_all(&long).await.expect("taken");
        frames.shutdown().await.expect("closed");
    });
    let mut found = Vec::new();
    far.read_to_end(&mut found).await.expect("all of it");
    writing.await.expect("no panic");
    let (first, rest) = found.split_at(10 + FRAME_BYTES);
    assert_eq!(first[..10], [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(rest, [0x82, 1, 7, 0x88, 2, 0x03, 0xE8]);
}

proptest! {
    /// However a stream is cut into frames and these into pieces, what is read is what was sent.
    #[test]
    fn the_stream_is_what_was_sent(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8), pipe in 1_usize..40) {
        let sent: Vec<u8> = pieces.iter().flat_map(|piece| binary(piece)).collect();
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let found = runtime.block_on(async {
            let (near, mut far) = tokio::io::duplex(pipe);
            let writing = async move {
                far.write_all(&sent).await.expect("taken");
            };
            let mut found = Vec::new();
            let mut frames = Frames::new(near);
            let reading = frames.read_to_end(&mut found);
            let (_, read) = tokio::join!(writing, reading);
            read.expect("well formed");
            found
        });
        prop_assert_eq!(found, pieces.concat());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let _ = runtime.block_on(read_all(&bytes));
    }
}
