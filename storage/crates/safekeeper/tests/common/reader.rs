//! What reads WAL from a safekeeper.

use bytes::BytesMut;
use futures::StreamExt as _;
use pg_types::Lsn;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use wire::wal::{self, Feedback, FirstMessage, ReadReply, StreamRequest, WalFrame};

use super::{PATIENCE, Quorum};

/// A pageserver's connection.
pub struct Reader {
    pub frames: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
    writer: OwnedWriteHalf,
}

impl Reader {
    pub async fn connect(quorum: &Quorum, index: usize, start_lsn: Lsn) -> (Reader, ReadReply) {
        let stream = TcpStream::connect(&quorum.safekeepers[index].wal)
            .await
            .expect("connect");
        let (reader, mut writer) = stream.into_split();
        let request = FirstMessage::Read(StreamRequest {
            version: wal::VERSION,
            tenant: quorum.tenant,
            timeline: quorum.timeline,
            start_lsn,
            reader: "pageserver".into(),
            holds_wal: true,
            traceparent: String::new(),
        });
        writer
            .write_all(&wal::encode(&request))
            .await
            .expect("send");
        let mut frames = LengthDelimitedCodec::builder()
            .max_frame_length(wal::MAX_FRAME_BYTES)
            .new_read(reader);
        let reply: BytesMut = frames.next().await.expect("a reply").expect("a frame");
        (
            Reader { frames, writer },
            wal::decode(&reply).expect("a reply"),
        )
    }

    /// Everything up to `end`.
    pub async fn read_to(&mut self, mut at: Lsn, end: Lsn) -> Vec<u8> {
        let mut bytes = Vec::new();
        while at < end {
            let frame = tokio::time::timeout(PATIENCE, self.frames.next())
                .await
                .expect("in time");
            let frame = frame
                .expect("the stream goes on")
                .expect("a frame")
                .freeze();
            let (head, wal) = wal::decode_with_wal::<WalFrame>(frame).expect("WAL");
            assert_eq!(head.start_lsn, at, "WAL comes in order");
            at = at + wal.len() as u64;
            assert!(
                at <= head.commit_lsn || wal.is_empty(),
                "sent {at}, committed is {}",
                head.commit_lsn
            );
            bytes.extend_from_slice(&wal);
        }
        bytes
    }

    pub async fn report(&mut self, ingested_lsn: Lsn, remote_consistent_lsn: Lsn) {
        let feedback = Feedback {
            ingested_lsn,
            remote_consistent_lsn,
        };
        self.writer
            .write_all(&wal::encode(&feedback))
            .await
            .expect("send");
    }
}
