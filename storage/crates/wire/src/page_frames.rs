//! Replies of the page service as frames, without a copy of the pages on either side.
//!
//! The bytes are those of `postcard` for [`ReplyFrame`]; only the pages are not copied into the frame.

use bytes::{BufMut, Bytes, BytesMut};
use pg_types::Lsn;
use serde::Deserialize;

use crate::page::{ErrorReply, MAX_FRAME_BYTES, PageReply, Reply, ReplyFrame};

/// The numbers of `Ok` and of [`Reply::Pages`] among their variants.
const OK: u32 = 0;
const PAGES: u32 = 0;

/// The whole frame, its length first, in pieces that go out one after another; pages are pieces of their own.
pub fn encode_reply(frame: &ReplyFrame) -> postcard::Result<Vec<Bytes>> {
    let Ok(Reply::Pages { as_of, pages }) = &frame.reply else {
        let body = postcard::to_stdvec(frame)?;
        let mut whole = BytesMut::with_capacity(4 + body.len());
        put_length(&mut whole, body.len())?;
        whole.put_slice(&body);
        return Ok(vec![whole.freeze()]);
    };
    // All that is not a page, in one piece of memory; and where in it pages belong.
    let mut rest = postcard::to_stdvec(&(frame.id, OK, PAGES, as_of, pages.len()))?;
    let mut places = Vec::with_capacity(pages.len());
    for page in pages {
        rest = postcard::to_extend(&page.bytes.len(), rest)?;
        places.push(rest.len());
        rest = postcard::to_extend(&page.chain_length, rest)?;
    }
    let body = rest.len() + pages.iter().map(|page| page.bytes.len()).sum::<usize>();
    let mut head = BytesMut::with_capacity(4);
    put_length(&mut head, body)?;
    let mut pieces = Vec::with_capacity(2 + 2 * pages.len());
    pieces.push(head.freeze());
    let rest = Bytes::from(rest);
    let mut from = 0;
    for (place, page) in places.into_iter().zip(pages) {
        if page.bytes.is_empty() {
            continue;
        }
        pieces.push(rest.slice(from..place));
        pieces.push(page.bytes.clone());
        from = place;
    }
    pieces.push(rest.slice(from..));
    Ok(pieces)
}

fn put_length(out: &mut BytesMut, length: usize) -> postcard::Result<()> {
    match u32::try_from(length) {
        Ok(length) if length as usize <= MAX_FRAME_BYTES => {
            out.put_u32(length);
            Ok(())
        }
        _ => Err(postcard::Error::SerializeBufferFull),
    }
}

/// A reply from the body of its frame; its pages share the body's memory.
pub fn decode_reply(body: &Bytes) -> postcard::Result<ReplyFrame> {
    // Only pages are worth the trouble; they are told by how the body begins.
    let (id, rest) = postcard::take_from_bytes::<u64>(body)?;
    let lent = match postcard::take_from_bytes::<(u32, u32)>(rest) {
        Ok(((OK, PAGES), rest)) => postcard::from_bytes::<LentPages<'_>>(rest)?,
        _ => return postcard::from_bytes(body),
    };
    let pages = lent.pages.into_iter().map(|page| PageReply {
        bytes: body.slice_ref(page.bytes),
        chain_length: page.chain_length,
    });
    let pages = pages.collect();
    let as_of = lent.as_of;
    let reply: Result<Reply, ErrorReply> = Ok(Reply::Pages { as_of, pages });
    Ok(ReplyFrame { id, reply })
}

/// What follows the numbers of the variants.
#[derive(Deserialize)]
struct LentPages<'a> {
    as_of: Lsn,
    #[serde(borrow)]
    pages: Vec<LentPage<'a>>,
}

#[derive(Deserialize)]
struct LentPage<'a> {
    bytes: &'a [u8],
    chain_length: u32,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::ErrorKind;

    fn pages() -> impl Strategy<Value = Vec<PageReply>> {
        let bytes = prop_oneof![
            Just(Vec::new()),
            prop::collection::vec(any::<u8>(), 0..300),
            Just(vec![7; 8192]),
        ];
        let page = (bytes, any::<u32>()).prop_map(|(bytes, chain_length)| PageReply {
            bytes: bytes.into(),
            chain_length,
        });
        prop::collection::vec(page, 0..12)
    }

    fn reply() -> impl Strategy<Value = Result<Reply, ErrorReply>> {
        let message = || "no such page".to_owned();
        prop_oneof![
            (any::<u64>(), pages()).prop_map(|(lsn, pages)| Ok(Reply::Pages {
                as_of: Lsn(lsn),
                pages
            })),
            pages().prop_map(|mut pages| match pages.pop() {
                Some(page) => Ok(Reply::SlruPage { page }),
                None => Ok(Reply::RelSize { blocks: Some(3) }),
            }),
            prop_oneof![Just(ErrorKind::Fenced), Just(ErrorKind::NotFound)].prop_map(move |kind| {
                let message = message();
                Err(ErrorReply { kind, message })
            }),
        ]
    }

    proptest! {
        #[test]
        fn frames_are_what_postcard_makes_of_them_and_come_back_the_same(id in any::<u64>(), reply in reply()) {
            let frame = ReplyFrame { id, reply };
            let pieces = encode_reply(&frame).unwrap();
            let bytes = pieces.concat();
            let body = postcard::to_stdvec(&frame).unwrap();
            prop_assert_eq!(&bytes[..4], &(body.len() as u32).to_be_bytes()[..]);
            prop_assert_eq!(&bytes[4..], &body[..]);
            let body = Bytes::from(body);
            prop_assert_eq!(decode_reply(&body).unwrap(), frame);
            for cut in 0..body.len().min(40) {
                prop_assert!(decode_reply(&body.slice(..cut)).is_err());
            }
        }

        #[test]
        fn whatever_comes_is_a_frame_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = Bytes::from(bytes);
            let ours = decode_reply(&bytes);
            prop_assert_eq!(ours.ok(), postcard::from_bytes::<ReplyFrame>(&bytes).ok());
        }
    }
}
