//! Frames of both protocols: a 4-byte big-endian length, which does not count itself, and the body.

use tokio_util::codec::LengthDelimitedCodec;

/// A longer frame, either way, is an `std::io::Error` of kind `InvalidData`, before memory is taken for it.
pub(crate) fn up_to(max_frame_bytes: usize) -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder()
        .max_frame_length(max_frame_bytes)
        .new_codec()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use bytes::{BufMut as _, Bytes, BytesMut};
    use tokio_util::codec::{Decoder as _, Encoder as _};

    use crate::{page, wal};

    #[test]
    fn the_largest_frame_passes_and_the_next_larger_one_is_refused_by_its_length() {
        for (mut codec, limit) in [
            (wal::codec(), wal::MAX_FRAME_BYTES),
            (page::codec(), page::MAX_FRAME_BYTES),
        ] {
            let mut stream = BytesMut::new();
            let largest = Bytes::from(vec![7; limit]);
            codec.encode(largest.clone(), &mut stream).expect("it fits");
            assert_eq!(stream[..4], (limit as u32).to_be_bytes());
            let frame = codec.decode(&mut stream).expect("it fits");
            assert!(frame.is_some_and(|frame| frame == largest));

            stream.put_u32(limit as u32 + 1);
            let error = codec.decode(&mut stream).expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::InvalidData);
            let error = codec.encode(Bytes::from(vec![7; limit + 1]), &mut stream);
            assert!(error.is_err(), "a sender is told as well");
        }
    }

    #[test]
    fn a_frame_is_what_encode_makes() {
        let first = wal::FirstMessage::Fetch(wal::FetchRequest {
            version: wal::VERSION,
            tenant: pg_types::TenantId([1; 16]),
            timeline: pg_types::TimelineId([2; 16]),
            term: pg_types::Term(3),
            start_lsn: pg_types::Lsn(4),
            end_lsn: pg_types::Lsn(5),
        });
        let mut stream = wal::encode(&first);
        let frame = wal::codec().decode(&mut stream).expect("a frame");
        let frame = frame.expect("all of it is there");
        assert_eq!(
            wal::decode::<wal::FirstMessage>(&frame).expect("valid"),
            first
        );
        assert!(stream.is_empty());
    }
}
