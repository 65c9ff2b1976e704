//! No bytes make a parser panic: whole nonsense, nonsense behind a valid header, and nonsense in the body of
//! every kind of record.

use pg_types::v15::{CheckPoint, ControlFile};
use pg_types::wal::rmgr;
use pg_types::{Lsn, PgMajor};
use proptest::collection::vec;
use proptest::prelude::*;
use wal_decode::synth::plain_record;
use wal_decode::{
    BlockImage, DecodedRecord, TimelineState, WalStats, WalStreamDecoder, decode, decode_for,
    interpret, restore_image, strip_images, summarize,
};

fn state() -> TimelineState {
    TimelineState::start_of_nothing(PgMajor::V15)
}

/// Everything a consumer does with a record.
fn digest(bytes: &[u8]) {
    let decoded = decode(Lsn(0x0100_0028), Lsn(0x0100_0100), bytes);
    let summary = decoded.as_ref().map(DecodedRecord::summary);
    assert_eq!(
        summarize(Lsn(0x0100_0028), bytes).as_ref(),
        summary.as_ref().map_err(|error| *error),
        "who only counts sees the same"
    );
    let lent = decode_for(
        Lsn(0x0100_0028),
        Lsn(0x0100_0100),
        bytes,
        DecodedRecord::clone,
    );
    assert_eq!(lent, decoded, "a record that is only lent is the same");
    let Ok(record) = decoded else {
        return;
    };
    let mut state = state();
    for commit_timestamps in [false, true] {
        state.parameters.track_commit_timestamp = commit_timestamps;
        if let Ok(changes) = interpret(&record, &state) {
            let mut keys: Vec<_> = changes.pages.iter().map(|(key, _)| *key).collect();
            keys.sort_unstable();
            keys.dedup();
            let distinct_blocks = record.blocks.iter().enumerate().all(|(i, block)| {
                record.blocks[..i]
                    .iter()
                    .all(|other| (other.rel, other.blkno) != (block.rel, block.blkno))
            });
            if record.blocks.is_empty() && distinct_blocks {
                assert_eq!(keys.len(), changes.pages.len(), "one change for each key");
            }
        }
    }
    let _ = state.observe(&record);
    WalStats::default().add(&record.summary());
    for block in &record.blocks {
        let stripped = strip_images(&record, block.id);
        let again =
            decode(record.start_lsn, record.end_lsn, &stripped).expect("a stripped record decodes");
        assert_eq!(again.prev_lsn, Lsn::INVALID, "the link is not kept");
        let kept = again.block(block.id).expect("the block is kept");
        assert_eq!(
            (kept.rel, kept.blkno, kept.data, again.main_data),
            (block.rel, block.blkno, block.data, record.main_data)
        );
        if let Some(image) = &block.image {
            let _ = restore_image(image);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whole_nonsense(bytes in vec(any::<u8>(), 0..300)) {
        digest(&bytes);
        let mut decoder = WalStreamDecoder::new(Lsn(0x0100_0028), PgMajor::V15);
        let mut records = decoder.feed(Lsn(0x0100_0028), &bytes).unwrap();
        let _ = records.next_record();
        let _ = ControlFile::parse(&bytes);
        let _ = CheckPoint::parse(&bytes);
    }

    #[test]
    fn nonsense_bodies(rmid in 0u8..rmgr::COUNT as u8 + 2, info in any::<u8>(), xid in any::<u32>(), body in vec(any::<u8>(), 0..120)) {
        digest(&plain_record(rmid, info, xid, Lsn(8), &body));
    }

    /// Small numbers make counts and lengths plausible, so that loops over them run.
    #[test]
    fn plausible_bodies(rmid in 0u8..rmgr::COUNT as u8, info in any::<u8>(), words in vec(prop_oneof![0u32..6, Just(u32::MAX), 2040u32..2050, any::<u32>()], 0..40)) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        digest(&plain_record(rmid, info, 5, Lsn(8), &body));
    }

    #[test]
    fn nonsense_block_headers(rmid in prop_oneof![Just(rmgr::HEAP), Just(rmgr::XLOG), Just(rmgr::GIN), 0u8..22], info in any::<u8>(), headers in block_headers(), rest in vec(any::<u8>(), 0..200)) {
        let mut bytes = plain_record(rmid, info, 5, Lsn(8), &[]).to_vec();
        bytes.extend_from_slice(&headers);
        bytes.extend_from_slice(&rest);
        let length = bytes.len() as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        digest(&bytes);
    }

    #[test]
    fn nonsense_images(bytes in vec(any::<u8>(), 0..400), hole_offset in any::<u16>(), hole_length in any::<u16>(), info in any::<u8>()) {
        let _ = restore_image(&BlockImage { bytes: &bytes, hole_offset, hole_length, info, apply: true });
        let (hole_offset, hole_length) = (hole_offset % 8193, 8192 - hole_offset % 8193);
        let _ = restore_image(&BlockImage { bytes: &bytes, hole_offset, hole_length, info, apply: true });
    }
}

/// One to three block references with data, lengths mostly right, then a main data header.
fn block_headers() -> impl Strategy<Value = Vec<u8>> {
    let block = (0u8..4, any::<bool>(), any::<bool>(), 0usize..20, 0u32..3);
    (vec(block, 1..4), 0usize..40).prop_map(|(blocks, main)| {
        let (mut headers, mut payload) = (Vec::new(), main);
        for (i, (fork, same_rel, will_init, data, blkno)) in blocks.into_iter().enumerate() {
            let same_rel = same_rel && i > 0;
            let flags =
                fork | u8::from(data > 0) << 5 | u8::from(will_init) << 6 | u8::from(same_rel) << 7;
            headers.extend_from_slice(&[i as u8, flags]);
            headers.extend_from_slice(&(data as u16).to_le_bytes());
            if !same_rel {
                headers.extend_from_slice(&[1; 12]);
            }
            headers.extend_from_slice(&blkno.to_le_bytes());
            payload += data;
        }
        headers.extend_from_slice(&[255, main as u8]);
        headers.extend(std::iter::repeat_n(3u8, payload));
        headers
    })
}
