//! Promise: the metric of allocated memory grows by what is kept and by nothing else, whichever thread allocates it.

#![cfg(all(target_os = "linux", target_env = "gnu"))]

const MIB: i64 = 1 << 20;

fn metric(name: &str) -> i64 {
    let text = telemetry::metrics_text().expect("metrics");
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    value.expect(name).trim().parse().expect("a number")
}

fn allocated() -> i64 {
    metric("weir_allocated_bytes ")
}

/// Small pieces, of which a thread of its own allocates those that are kept between those that are freed at once.
fn pieces(count: usize, bytes: usize) -> Vec<Vec<u8>> {
    let work = move || {
        let all = (0..2 * count).map(|number| vec![number as u8; bytes]);
        // Else the compiler leaves out what nobody reads.
        let all: Vec<Vec<u8>> = std::hint::black_box(all.collect());
        let kept = all.into_iter().enumerate();
        kept.filter_map(|(number, piece)| (number % 2 == 0).then_some(piece))
            .collect()
    };
    std::thread::spawn(work).join().expect("pieces")
}

#[test]
fn what_is_kept_counts_and_what_is_freed_does_not() {
    let before = allocated();
    let small = pieces(20_000, 1_000);
    let with_small = allocated() - before;
    assert!((19 * MIB..23 * MIB).contains(&with_small), "{with_small}");
    assert!(metric("weir_allocator_kept_bytes ") > 15 * MIB);
    let large = std::hint::black_box(vec![1_u8; 64 << 20]);
    let with_large = allocated() - before - with_small;
    assert!((63 * MIB..66 * MIB).contains(&with_large), "{with_large}");
    drop((small, large));
    let after = allocated() - before;
    assert!(after < MIB, "{after} bytes are left of what was freed");
}
