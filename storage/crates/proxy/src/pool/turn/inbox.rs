//! Bytes that a client has sent and that nobody has taken yet.

use std::ops::Range;

use pg_protocol::messages::Fatal;

/// A message may be this long at most, its length word included: Postgres's own limit, 1 GiB.
const MOST_MESSAGE_BYTES: usize = (1 << 30) - 1;
/// Names of statements and portals, and what else stands in front of what is passed on, have at most so many bytes.
pub const MOST_HEAD_BYTES: usize = 16 << 10;
/// Type and length.
pub const HEADER_BYTES: usize = 5;

/// The bytes, of which the first begins a message where nothing else is said.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    at: usize,
}

/// A violation of the protocol.
pub fn violation(text: impl Into<String>) -> Fatal {
    Fatal::new("08P01", text)
}

impl Inbox {
    /// Takes what the client has sent.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// What has not been taken.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    /// Takes so many bytes, which must be there. An inbox that is empty holds no memory.
    pub fn consume(&mut self, count: usize) {
        self.at += count;
        if self.at == self.bytes.len() {
            *self = Inbox::default();
        }
    }

    /// Frees the room of what has been taken.
    pub fn compact(&mut self) {
        if self.at > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
    }

    /// Type, and bytes in all, of the next message. None: too little of it has come.
    ///
    /// # Errors
    /// 08P01 for a length that no message can have.
    pub fn header(&self) -> Result<Option<(u8, usize)>, Fatal> {
        let Some([tag, length @ ..]) = self.rest().first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        match (4..=MOST_MESSAGE_BYTES).contains(&length) {
            true => Ok(Some((*tag, length + 1))),
            false => Err(violation(format!("invalid message length {length}"))),
        }
    }

    /// Where the text that begins at `from` in the next message of `total` bytes is, without its zero byte. None: its end has
    /// not come.
    ///
    /// # Errors
    /// 08P01 when it has no end within the message, or is longer than any name.
    pub fn text(&self, from: usize, total: usize) -> Result<Option<Range<usize>>, Fatal> {
        let most = total.min(MOST_HEAD_BYTES);
        let rest = self.rest();
        let here = rest.len().min(most);
        let end = rest.get(from..here).and_then(|bytes| {
            let mut bytes = bytes.iter();
            bytes.position(|byte| *byte == 0)
        });
        match end {
            Some(length) => Ok(Some(from..from + length)),
            None if here < most => Ok(None),
            None => Err(violation("a name in a message has no end, or is too long")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_bounded_and_texts_end_within_their_message() {
        let with = |bytes: &[u8]| {
            let mut inbox = Inbox::default();
            inbox.extend(bytes);
            inbox
        };
        assert_eq!(with(b"Q\0\0\0").header(), Ok(None));
        assert_eq!(with(b"Q\0\0\0\x04").header(), Ok(Some((b'Q', 5))));
        for wrong in [&b"Q\0\0\0\x03"[..], b"Q\xFF\xFF\xFF\xFF", b"Q\x40\0\0\0"] {
            assert!(with(wrong).header().is_err(), "{wrong:?}");
        }
        let bind = with(b"B\0\0\0\x0dab\0cde\0\0rest\0");
        assert_eq!(bind.text(5, 14), Ok(Some(5..7)));
        assert_eq!(bind.text(8, 14), Ok(Some(8..11)));
        assert!(bind.text(13, 14).is_err());
        assert_eq!(with(b"B\0\0\0\x0dab").text(5, 14), Ok(None));
        let long = [&b"B\0\x01\0\0"[..], &[b'x'; MOST_HEAD_BYTES]].concat();
        assert!(with(&long).text(5, 65537).is_err());
    }

    #[test]
    fn what_is_taken_is_gone_and_frees_its_memory() {
        let mut inbox = Inbox::default();
        inbox.extend(b"abcdef");
        inbox.consume(2);
        inbox.compact();
        inbox.extend(b"g");
        assert_eq!(inbox.rest(), b"cdefg");
        inbox.consume(5);
        assert_eq!(inbox.bytes.capacity(), 0);
    }
}
