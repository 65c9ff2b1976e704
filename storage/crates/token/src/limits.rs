//! How long tokens may be, in bytes and in time.

/// By how much the clocks of the maker and of the checker of a token may differ.
pub const LEEWAY_SECONDS: u64 = 30;
/// A token that is made for longer counts at no time.
pub const LONGEST_LIFETIME_SECONDS: u64 = 24 * 3600;
/// A token of the control plane has some 400 bytes.
pub const LONGEST_TOKEN_BYTES: usize = 4096;
