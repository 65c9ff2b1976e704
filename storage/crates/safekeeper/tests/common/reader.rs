//! What reads WAL from a safekeeper.

use bytes::{Bytes, BytesMut};
use consensus::TermHistory;
use futures::StreamExt as _;
use pg_types::Lsn;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use wire::wal::{self, Feedback, FirstMessage, ReadReply, StreamFrame, StreamRequest, WalFrame};

use super::{PATIENCE, Quorum};

/// A pageserver's connection.
pub struct Reader {
    pub frames: FramedRead<OwnedReadHalf, LengthDelimitedCodec>,
    writer: OwnedWriteHalf,
    /// Whether it is told whose WAL it gets.
    is_told: bool,
    /// What it was told, one after the other.
    pub histories: Vec<TermHistory>,
}

impl Reader {
    pub async fn connect(quorum: &Quorum, index: usize, start_lsn: Lsn) -> (Reader, ReadReply) {
        Reader::connect_as(quorum, index, start_lsn, wal::READ_VERSION).await
    }

    pub async fn connect_as(
        quorum: &Quorum,
        index: usize,
        start_lsn: Lsn,
        version: u16,
    ) -> (Reader, ReadReply) {
        let stream = TcpStream::connect(&quorum.safekeepers[index].wal)
            .await
            .expect("connect");
        let (reader, mut writer) = stream.into_split();
        let request = FirstMessage::Read(StreamRequest {
            version,
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
        let mut frames = FramedRead::new(reader, wal::codec());
        let reply: BytesMut = frames.next().await.expect("a reply").expect("a frame");
        let reply = wal::decode(&reply).expect("a reply");
        let reader = Reader {
            frames,
            writer,
            is_told: version == wal::READ_VERSION,
            histories: match &reply {
                ReadReply::Follows { history, .. } => vec![history.clone()],
                _ => Vec::new(),
            },
        };
        (reader, reply)
    }

    /// WAL or a heartbeat; none when it was told a history.
    pub async fn next_frame(&mut self) -> Option<(WalFrame, Bytes)> {
        let frame = tokio::time::timeout(PATIENCE, self.frames.next())
            .await
            .expect("in time");
        let frame = frame
            .expect("the stream goes on")
            .expect("a frame")
            .freeze();
        if !self.is_told {
            return Some(wal::decode_with_wal(frame).expect("WAL"));
        }
        match wal::decode_with_wal(frame).expect("a frame") {
            (StreamFrame::Wal(head), wal) => Some((head, wal)),
            (StreamFrame::History(history), _) => {
                self.histories.push(history);
                None
            }
        }
    }

    /// Everything up to `end`.
    pub async fn read_to(&mut self, mut at: Lsn, end: Lsn) -> Vec<u8> {
        let mut bytes = Vec::new();
        while at < end {
            let Some((head, wal)) = self.next_frame().await else {
                continue;
            };
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
