//! What the allocator has given to the program, and what it keeps for later.
//!
//! Resident memory says little of a leak: the allocator keeps much of what was given back, a share for each thread that
//! ever allocated at the same time as others. What is in use grows only with what nothing frees.
//!
//! glibc counts it, and with it what each thread has freed and keeps for itself: a quarter of a megabyte at most, which
//! comes together over hours. `GLIBC_TUNABLES=glibc.malloc.tcache_count=0` has threads keep nothing, and the figure is
//! exact then. A program that was built for another C library has no such metrics.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use std::sync::LazyLock;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use prometheus::{IntGauge, register_int_gauge};

#[cfg(all(target_os = "linux", target_env = "gnu"))]
static ALLOCATED: LazyLock<IntGauge> = LazyLock::new(|| {
    let gauge = register_int_gauge!(
        "weir_allocated_bytes",
        "Bytes that this program has allocated and not freed"
    );
    gauge.expect("metric registered once")
});
#[cfg(all(target_os = "linux", target_env = "gnu"))]
static KEPT: LazyLock<IntGauge> = LazyLock::new(|| {
    let gauge = register_int_gauge!(
        "weir_allocator_kept_bytes",
        "Bytes that this program has freed and that its allocator keeps to give them out again"
    );
    gauge.expect("metric registered once")
});

/// Brings the gauges up to date. The allocator walks through all free pieces of memory for that: milliseconds in a
/// program that has freed much in small pieces.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn measure() {
    // SAFETY: it has no arguments and may be called on any thread at any time (`man mallinfo`: MT-safe but for
    // settings, which nothing here changes).
    #[allow(unsafe_code)]
    let info = unsafe { libc::mallinfo2() };
    let bytes = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    // Large allocations are mapped each by itself, and are not among the others.
    ALLOCATED.set(bytes(info.uordblks.saturating_add(info.hblkhd)));
    KEPT.set(bytes(info.fordblks));
}

/// Nothing is known of the allocator here.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn measure() {}
