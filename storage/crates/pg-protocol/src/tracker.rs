//! Follows a stream of typed messages without keeping it: where messages begin, of which type they are, and with what
//! their bodies begin.

/// So much of a body is told.
pub const BEGIN_BYTES: usize = 4;

/// A message that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The message's type byte.
    pub tag: u8,
    /// The first bytes of its body, and zeros where the body is shorter.
    pub begin: [u8; BEGIN_BYTES],
}

/// Follows one direction of a connection after the start-up phase.
///
/// A length that no message can have ends the following: the receiver will refuse the stream, and from there on
/// nothing is said about it.
#[derive(Debug, Default)]
pub struct Tracker {
    header: [u8; 5],
    header_bytes: usize,
    begin: [u8; BEGIN_BYTES],
    begin_bytes: usize,
    body_left: u32,
    lost: bool,
}

impl Tracker {
    /// Takes the next bytes; `seen` is called for each message whose header and begin of body have come.
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
                let most = (BEGIN_BYTES - self.begin_bytes).min(self.body_left as usize);
                let (begin, rest) = bytes.split_at(most.min(bytes.len()));
                let end = self.begin_bytes + begin.len();
                self.begin[self.begin_bytes..end].copy_from_slice(begin);
                self.begin_bytes = end;
                self.body_left -= begin.len() as u32;
                bytes = rest;
                if begin.len() < most {
                    return;
                }
                seen(Seen {
                    tag: self.header[0],
                    begin: self.begin,
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
                let begin = [0; BEGIN_BYTES];
                seen(Seen { tag, begin });
            }
            Some(body) => {
                self.begin = [0; BEGIN_BYTES];
                self.begin_bytes = 0;
                self.body_left = body;
            }
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
                .map(|(tag, body)| {
                    let mut begin = [0; BEGIN_BYTES];
                    let count = body.len().min(BEGIN_BYTES);
                    begin[..count].copy_from_slice(&body[..count]);
                    Seen { tag: *tag, begin }
                })
                .collect();
            prop_assert_eq!(all, expected);
            prop_assert!(tracker.between_messages());
        }
    }
}
