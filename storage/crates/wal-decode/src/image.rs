//! Full-page images: decompression and the hole in the middle.

use std::cell::RefCell;

use bytes::{Bytes, BytesMut};
use pg_types::BLCKSZ;
use pg_types::v15::image;
use zstd::bulk::Decompressor;

use crate::error::ImageError;
use crate::record::BlockImage;

/// The page as it was when the image was logged, [`BLCKSZ`] bytes; its LSN is not yet the record's.
pub fn restore_image(image: &BlockImage<'_>) -> Result<Bytes, ImageError> {
    let mut page = BytesMut::zeroed(BLCKSZ);
    restore_into(image, &mut page)?;
    Ok(page.freeze())
}

/// As [`restore_image`], into a page that is there; after an error its content is unspecified.
pub fn restore_into(image: &BlockImage<'_>, page: &mut [u8]) -> Result<(), ImageError> {
    let (hole_offset, hole_length) = (
        usize::from(image.hole_offset),
        usize::from(image.hole_length),
    );
    let hole_end = hole_offset + hole_length;
    if hole_end > BLCKSZ || page.len() != BLCKSZ {
        return Err(ImageError(format!(
            "its hole ends at {hole_end}, the page at {}",
            page.len()
        )));
    }
    let packed = BLCKSZ - hole_length;
    if image.info & image::COMPRESS_MASK == 0 {
        if image.bytes.len() != packed {
            return Err(ImageError(format!(
                "it has {} bytes instead of {packed}",
                image.bytes.len()
            )));
        }
        page[..hole_offset].copy_from_slice(&image.bytes[..hole_offset]);
        page[hole_end..].copy_from_slice(&image.bytes[hole_offset..]);
    } else {
        decompress(image, &mut page[..packed])?;
        page.copy_within(hole_offset..packed, hole_end);
    }
    page[hole_offset..hole_end].fill(0);
    Ok(())
}

/// Fills `out` exactly.
fn decompress(image: &BlockImage<'_>, out: &mut [u8]) -> Result<(), ImageError> {
    let (method, length) = match image.info & image::COMPRESS_MASK {
        image::COMPRESS_PGLZ => ("pglz", pglz_decompress(image.bytes, out)),
        image::COMPRESS_LZ4 => (
            "lz4",
            lz4_flex::block::decompress_into(image.bytes, out).ok(),
        ),
        image::COMPRESS_ZSTD => ("zstd", zstd_decompress(image.bytes, out)),
        other => {
            return Err(ImageError(format!(
                "unknown compression flags {other:#04x}"
            )));
        }
    };
    match length {
        Some(length) if length == out.len() => Ok(()),
        _ => Err(ImageError(format!(
            "its {method} data does not unpack to {} bytes",
            out.len()
        ))),
    }
}

/// With one context a thread: making one takes longer than a page, and allocates.
fn zstd_decompress(input: &[u8], out: &mut [u8]) -> Option<usize> {
    thread_local! {
        static CONTEXT: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
    }
    CONTEXT.with_borrow_mut(|context| {
        let context = match context {
            Some(context) => context,
            None => context.insert(Decompressor::new().ok()?),
        };
        context.decompress_to_buffer(input, out).ok()
    })
}

/// Postgres's own LZ format: a control byte announces eight items, least bit first; a clear bit is a
/// literal byte, a set bit a match of 3 to 273 bytes at most 4095 bytes back. Returns the bytes made, or
/// `None` when the data is damaged or does not end where `out` does.
fn pglz_decompress(input: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut from, mut to) = (0, 0);
    while from < input.len() && to < out.len() {
        let control = input[from];
        from += 1;
        for bit in 0..8 {
            if from >= input.len() || to >= out.len() {
                break;
            }
            if control >> bit & 1 == 0 {
                out[to] = input[from];
                from += 1;
                to += 1;
                continue;
            }
            let (first, second) = (usize::from(input[from]), usize::from(*input.get(from + 1)?));
            from += 2;
            let mut length = (first & 0x0F) + 3;
            let distance = (first & 0xF0) << 4 | second;
            if length == 18 {
                length += usize::from(*input.get(from)?);
                from += 1;
            }
            if distance == 0 || distance > to {
                return None;
            }
            let length = length.min(out.len() - to);
            if distance >= length {
                out.copy_within(to - distance..to - distance + length, to);
            } else {
                // The match overlaps what it makes, repeating it.
                for at in to..to + length {
                    out[at] = out[at - distance];
                }
            }
            to += length;
        }
    }
    (from == input.len()).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pglz_repeats_overlapping_matches() {
        // "ab", then a match of 6 bytes 2 back, then "c".
        let packed = [0b0000_0100, b'a', b'b', 0x03, 0x02, b'c'];
        let mut out = [0; 9];
        assert_eq!(pglz_decompress(&packed, &mut out), Some(9));
        assert_eq!(&out, b"ababababc");
        assert_eq!(
            pglz_decompress(&[0b1, 0x03, 0x09], &mut out),
            None,
            "a match before the beginning"
        );
    }

    #[test]
    fn every_compression_restores_the_page_and_its_hole() {
        let mut page = vec![0u8; BLCKSZ];
        for (i, byte) in page.iter_mut().enumerate() {
            *byte = (i / 7 % 11) as u8;
        }
        page[100..4000].fill(0);
        let packed: Vec<u8> = [&page[..100], &page[4000..]].concat();
        let lz4 = lz4_flex::block::compress(&packed);
        let zstd = zstd::bulk::compress(&packed, 3).unwrap();
        for (bytes, flag) in [
            (&packed, 0),
            (&lz4, image::COMPRESS_LZ4),
            (&zstd, image::COMPRESS_ZSTD),
        ] {
            let image = BlockImage {
                bytes,
                hole_offset: 100,
                hole_length: 3900,
                info: image::HAS_HOLE | image::APPLY | flag,
                apply: true,
            };
            assert_eq!(restore_image(&image).unwrap(), page, "flag {flag}");
        }
    }
}
