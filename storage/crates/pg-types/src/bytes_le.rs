//! Little-endian field access in byte slices.
//!
//! The `get_*` readers return `None` past the end and are for bytes from outside; the `at_*` readers
//! and `put_*` writers index and are for buffers whose length the caller has already checked.

/// A `u8` at `at`, if the slice reaches that far.
#[inline]
pub fn get_u8(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

macro_rules! le_access {
    ($get:ident, $at:ident, $put:ident, $ty:ty) => {
        /// The value at `at`, if the slice reaches that far.
        #[inline]
        pub fn $get(bytes: &[u8], at: usize) -> Option<$ty> {
            let end = at.checked_add(size_of::<$ty>())?;
            Some(<$ty>::from_le_bytes(bytes.get(at..end)?.try_into().ok()?))
        }

        /// The value at `at`; the caller has checked the length.
        #[inline]
        pub fn $at(bytes: &[u8], at: usize) -> $ty {
            let mut field = [0; size_of::<$ty>()];
            field.copy_from_slice(&bytes[at..at + size_of::<$ty>()]);
            <$ty>::from_le_bytes(field)
        }

        /// Stores the value at `at`; the caller has checked the length.
        #[inline]
        pub fn $put(bytes: &mut [u8], at: usize, value: $ty) {
            bytes[at..at + size_of::<$ty>()].copy_from_slice(&value.to_le_bytes());
        }
    };
}

le_access!(get_u16, at_u16, put_u16, u16);
le_access!(get_u32, at_u32, put_u32, u32);
le_access!(get_i32, at_i32, put_i32, i32);
le_access!(get_u64, at_u64, put_u64, u64);
le_access!(get_i64, at_i64, put_i64, i64);
