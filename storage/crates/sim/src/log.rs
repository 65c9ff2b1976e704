//! A log in memory whose records can be told apart, checked and found again after a torn write.

use pg_types::{Lsn, Term};

/// Where every simulated timeline begins.
pub const START: Lsn = Lsn(64);

const HEADER: usize = 16;

/// Bytes from [`START`] on.
#[derive(Clone, Default, Debug)]
pub struct Log(Vec<u8>);

fn sum(bytes: &[u8]) -> u8 {
    bytes
        .iter()
        .fold(0x5a_u8, |sum, byte| sum.rotate_left(3) ^ byte)
}

/// A record that no other proposer and no other moment makes: `length | term | writer | sequence | sum | rest`.
pub fn record(term: Term, writer: u16, sequence: u32, length: usize) -> Vec<u8> {
    let length = length.clamp(HEADER, 255);
    let mut bytes = vec![0; length];
    bytes[0] = length as u8;
    bytes[2..6].copy_from_slice(&(term.0 as u32).to_le_bytes());
    bytes[6..8].copy_from_slice(&writer.to_le_bytes());
    bytes[8..12].copy_from_slice(&sequence.to_le_bytes());
    for (i, byte) in bytes[12..].iter_mut().enumerate() {
        *byte = (sequence as u8).wrapping_mul(31) ^ i as u8;
    }
    bytes[1] = sum(&bytes[2..]);
    bytes
}

impl Log {
    fn index(lsn: Lsn) -> usize {
        usize::try_from(lsn.0 - START.0).expect("simulated logs are small")
    }

    /// End of the bytes, exclusive; can lie within a record.
    pub fn end(&self) -> Lsn {
        START + self.0.len() as u64
    }

    /// Appends bytes, of whole records or not.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Cuts the log to end at `to`, which may lie beyond its end.
    pub fn cut(&mut self, to: Lsn) {
        self.0.truncate(Self::index(to));
    }

    /// Fills with nothing up to `to`, for a log that starts again there.
    pub fn skip_to(&mut self, to: Lsn) {
        self.0.clear();
        self.0.resize(Self::index(to), 0);
    }

    /// Bytes `[from, to)`, or up to the end of the log.
    pub fn slice(&self, from: Lsn, to: Lsn) -> &[u8] {
        &self.0[Self::index(from)..Self::index(to.min(self.end()))]
    }

    /// Flips the bits of one byte; nothing happens beyond the end.
    pub fn damage(&mut self, at: Lsn) {
        if let Some(byte) = self.0.get_mut(Self::index(at)) {
            *byte ^= 0xff;
        }
    }

    /// The end of the last whole, undamaged record at or after `from`, which must be a record boundary.
    pub fn boundary(&self, from: Lsn) -> Lsn {
        let mut at = Self::index(from);
        while let Some(rest) = self.0.get(at..)
            && let Some(length) = rest.first().map(|length| *length as usize)
            && length >= HEADER
            && rest.len() >= length
            && sum(&rest[2..length]) == rest[1]
        {
            at += length;
        }
        START + at as u64
    }
}
