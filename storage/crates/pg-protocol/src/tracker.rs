//! Follows a stream of typed messages without keeping it: where messages begin, and of which type they are.

/// A message that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The message's type byte.
    pub tag: u8,
    /// The first byte of its body; None when the body is empty.
    pub first: Option<u8>,
}

/// Follows one direction of a connection after the start-up phase.
///
/// A length that no message can have ends the following: the receiver will refuse the stream, and from there on
/// nothing is said about it.
#[derive(Debug, Default)]
pub struct Tracker {
    header: [u8; 5],
    header_bytes: usize,
    body_left: u32,
    lost: bool,
}

impl Tracker {
    /// Takes the next bytes; `seen` is called for each message whose header and first byte of body have come.
    pub fn feed(&mut self, mut bytes: &[u8], mut seen: impl FnMut(Seen)) {
        while !self.lost && !bytes.is_empty() {
            if self.header_bytes < 5 {
                self.header[self.header_bytes] = bytes[0];
                self.header_bytes += 1;
                bytes = &bytes[1..];
                if self.header_bytes == 5 {
                    self.begin(&mut seen);
                }
                continue;
            }
            if self.header_bytes == 5 {
                // The first byte of the body.
                seen(Seen {
                    tag: self.header[0],
                    first: Some(bytes[0]),
                });
                self.header_bytes = 6;
            }
            let step = bytes.len().min(self.body_left as usize);
            self.body_left -= step as u32;
            bytes = &bytes[step..];
            if self.body_left == 0 {
                self.header_bytes = 0;
            }
        }
    }

    fn begin(&mut self, seen: &mut impl FnMut(Seen)) {
        let [tag, length @ ..] = self.header;
        match u32::from_be_bytes(length).checked_sub(4) {
            None => self.lost = true,
            Some(0) => {
                self.header_bytes = 0;
                seen(Seen { tag, first: None });
            }
            Some(body) => self.body_left = body,
        }
    }

    /// Whether the stream stands between two messages. Never again once it was lost.
    pub fn between_messages(&self) -> bool {
        !self.lost && self.header_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u32 + 4).to_be_bytes();
        [&[tag], &length[..], body].concat()
    }

    #[test]
    fn an_impossible_length_ends_the_following() {
        let mut tracker = Tracker::default();
        let mut count = 0;
        tracker.feed(b"Q\0\0\0\x03rest", |_| count += 1);
        tracker.feed(&message(b'Q', b"x"), |_| count += 1);
        assert_eq!((count, tracker.between_messages()), (0, false));
    }

    proptest! {
        #[test]
        fn messages_are_seen_however_the_stream_is_cut(
            messages in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40)), 0..10),
            cut in 1_usize..50,
        ) {
            let stream: Vec<u8> = messages.iter().flat_map(|(tag, body)| message(*tag, body)).collect();
            let (mut tracker, mut all) = (Tracker::default(), Vec::new());
            for piece in stream.chunks(cut) {
                tracker.feed(piece, |seen| all.push(seen));
            }
            let expected: Vec<_> = messages
                .iter()
                .map(|(tag, body)| Seen { tag: *tag, first: body.first().copied() })
                .collect();
            prop_assert_eq!(all, expected);
            prop_assert!(tracker.between_messages());
        }
    }
}
