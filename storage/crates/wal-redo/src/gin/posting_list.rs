//! Posting lists: sorted places of rows, packed.
//!
//! A list ("segment") begins with its first place, as it is, and the `u16` length of what follows: the
//! distance from each place to the next in seven-bit groups, the lowest first, with the top bit set in all
//! but the last. For that a place is the number `block << 11 | item`. An odd length is padded with a zero.

use pg_types::bytes_le::{get_u16, put_u16};

use crate::error::{CUT_SHORT, Step, Why};

/// Bytes of a row's place: block in two halves, the high one first, then item.
pub(super) const PLACE_BYTES: usize = 6;
const HEADER_BYTES: usize = PLACE_BYTES + 2;
const ITEM_BITS: u32 = 11;
/// Most groups a number may have; 43 bits need no more.
const MOST_GROUPS: u32 = 7;

const BAD_LIST: Why = Why::Is("a posting list makes no sense");

/// One posting list, whole.
pub(super) struct Segment<'a> {
    bytes: &'a [u8],
    /// Length of the packed distances, without padding.
    packed: usize,
}

impl<'a> Segment<'a> {
    /// Takes the list at the start of `data` off it.
    pub(super) fn take(data: &mut &'a [u8]) -> Step<Segment<'a>> {
        let packed = usize::from(get_u16(data, PLACE_BYTES).ok_or(CUT_SHORT)?);
        let (bytes, rest) = data
            .split_at_checked(HEADER_BYTES + packed.next_multiple_of(2))
            .ok_or(CUT_SHORT)?;
        *data = rest;
        Ok(Segment { bytes, packed })
    }

    /// The list with its padding.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    fn places(&self) -> Places<'a> {
        Places {
            first: Some(&self.bytes[..PLACE_BYTES]),
            packed: &self.bytes[HEADER_BYTES..HEADER_BYTES + self.packed],
            last: 0,
        }
    }
}

/// The places of a list as numbers, in order.
struct Places<'a> {
    first: Option<&'a [u8]>,
    packed: &'a [u8],
    last: u64,
}

impl Places<'_> {
    fn next(&mut self) -> Step<Option<u64>> {
        if let Some(first) = self.first.take() {
            self.last = number(first)?;
            return Ok(Some(self.last));
        }
        if self.packed.is_empty() {
            return Ok(None);
        }
        let mut distance = 0;
        for group in 0..MOST_GROUPS {
            let (byte, rest) = self.packed.split_first().ok_or(BAD_LIST)?;
            self.packed = rest;
            distance |= u64::from(byte & 0x7F) << (7 * group);
            if byte & 0x80 == 0 {
                // At most 8 KiB of distances below 2^49 each: no overflow.
                self.last += distance;
                return Ok(Some(self.last));
            }
        }
        Err(BAD_LIST)
    }
}

fn number(place: &[u8]) -> Step<u64> {
    let part = |at| get_u16(place, at).map(u64::from).ok_or(CUT_SHORT);
    let item = part(4)?;
    if item >> ITEM_BITS != 0 {
        return Err(Why::Is("a row's place is higher than on any page"));
    }
    Ok((part(0)? << 16 | part(2)?) << ITEM_BITS | item)
}

/// A list being packed.
struct Packer<'a> {
    room: &'a mut [u8],
    at: usize,
    last: Option<u64>,
}

impl Packer<'_> {
    /// Adds a place. `None` when the list does not fit.
    fn push(&mut self, place: u64) -> Step<Option<()>> {
        let Some(last) = self.last.replace(place) else {
            return Ok(self.start(place));
        };
        let mut distance = place
            .checked_sub(last)
            .filter(|distance| *distance > 0)
            .ok_or(Why::Is("places of rows are out of order"))?;
        loop {
            let Some(byte) = self.room.get_mut(self.at) else {
                return Ok(None);
            };
            self.at += 1;
            *byte = (distance & 0x7F) as u8;
            distance >>= 7;
            if distance == 0 {
                return Ok(Some(()));
            }
            *byte |= 0x80;
        }
    }

    fn start(&mut self, place: u64) -> Option<()> {
        let header = self.room.get_mut(..HEADER_BYTES)?;
        let block = place >> ITEM_BITS;
        put_u16(header, 0, (block >> 16) as u16);
        put_u16(header, 2, block as u16);
        put_u16(header, 4, (place & ((1 << ITEM_BITS) - 1)) as u16);
        self.at = HEADER_BYTES;
        Some(())
    }

    /// Pads the list and returns how long it is.
    fn finish(self) -> Option<usize> {
        let packed = self.at.checked_sub(HEADER_BYTES)?;
        put_u16(self.room, PLACE_BYTES, packed as u16);
        if packed.is_multiple_of(2) {
            return Some(self.at);
        }
        *self.room.get_mut(self.at)? = 0;
        Some(self.at + 1)
    }
}

/// Writes the list that `old` becomes with `more` sorted places to the start of `room`, and returns how
/// long it is; `None` when it does not fit. A place that is in both comes once.
pub(super) fn merge(old: &Segment<'_>, more: &[u8], room: &mut [u8]) -> Step<Option<usize>> {
    let mut olds = old.places();
    let mut news = more.chunks_exact(PLACE_BYTES).map(number);
    let (mut old, mut new) = (olds.next()?, news.next().transpose()?);
    let mut packer = Packer {
        room,
        at: 0,
        last: None,
    };
    while let Some(place) = old.into_iter().chain(new).min() {
        if packer.push(place)?.is_none() {
            return Ok(None);
        }
        if old == Some(place) {
            old = olds.next()?;
        }
        if new == Some(place) {
            new = news.next().transpose()?;
        }
    }
    Ok(packer.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(block: u32, item: u16) -> Vec<u8> {
        let halves = [(block >> 16) as u16, block as u16, item];
        halves.iter().flat_map(|half| half.to_le_bytes()).collect()
    }

    /// A list of these places.
    fn list(places: &[(u32, u16)]) -> Vec<u8> {
        let mut bytes = place(places[0].0, places[0].1);
        bytes.extend([0, 0]);
        let mut data = bytes.as_slice();
        let first = Segment::take(&mut data).unwrap();
        let more: Vec<u8> = places[1..]
            .iter()
            .flat_map(|(block, item)| place(*block, *item))
            .collect();
        let mut room = [0xEE; 512];
        let length = merge(&first, &more, &mut room).unwrap().unwrap();
        room[..length].to_vec()
    }

    #[test]
    fn distances_are_packed_in_seven_bit_groups() {
        // 1 item on, then one block and 2 items on: 2050 = 16 << 7 | 2.
        let packed = list(&[(5, 1), (5, 2), (6, 4)]);
        assert_eq!(packed, [0, 0, 5, 0, 1, 0, 3, 0, 1, 0x82, 0x10, 0]);
        assert_eq!(list(&[(7, 3)]), [0, 0, 7, 0, 3, 0, 0, 0]);
        let far = list(&[(0, 1), (u32::MAX - 1, 2047)]);
        assert_eq!(far.len(), HEADER_BYTES + 8, "seven groups and padding");
    }

    #[test]
    fn merging_keeps_order_and_drops_what_is_there_already() {
        let old = list(&[(1, 5), (1, 9), (300, 2)]);
        let segment = Segment::take(&mut old.as_slice()).unwrap();
        let more = [place(0, 7), place(1, 9), place(70000, 1)].concat();
        let mut room = [0; 64];
        let length = merge(&segment, &more, &mut room).unwrap().unwrap();
        let expected = list(&[(0, 7), (1, 5), (1, 9), (300, 2), (70000, 1)]);
        assert_eq!(room[..length], expected);
        assert_eq!(merge(&segment, &more, &mut room[..14]).unwrap(), None);
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(Segment::take(&mut &[0, 0, 1, 0, 1, 0, 9, 0, 1][..]).is_err());
        let endless = [&[0, 0, 1, 0, 1, 0, 8, 0][..], &[0x80; 8]].concat();
        let segment = Segment::take(&mut endless.as_slice()).unwrap();
        assert!(merge(&segment, &[], &mut [0; 64]).is_err());
        let good = list(&[(1, 1)]);
        let segment = Segment::take(&mut good.as_slice()).unwrap();
        assert!(merge(&segment, &place(1, 5000), &mut [0; 64]).is_err());
        let unsorted = [place(3, 1), place(2, 1)].concat();
        assert!(merge(&segment, &unsorted, &mut [0; 64]).is_err());
    }
}
