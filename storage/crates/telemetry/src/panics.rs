//! Panics are crashes: a program in which anything has panicked ends at once.
//!
//! A task or thread that panics ends by itself, and whoever spawned it may never look. What the task kept going then
//! stands still without a word, while everything around it looks healthy: nothing is flushed any more, say, and memory
//! fills. And what the task held half-way changed stays so. A crash is a state that every program of Weir comes back from
//! by its start, and that its supervisor sees.
//!
//! Nothing is flushed, closed or unwound, as at a power cut. What that leaves behind is said in the heads of the modules.

use std::panic::{PanicHookInfo, set_hook};
use std::sync::LazyLock;
use std::thread;

use prometheus::{IntCounter, register_int_counter};

static PANICS: LazyLock<IntCounter> = LazyLock::new(|| {
    let counter = register_int_counter!(
        "weir_panics_total",
        "Panics of this program; each ends it, so that more than 0 is seen only while it dies"
    );
    counter.expect("metric registered once")
});

/// From here on a panic on any thread or in any task is logged and ends the process by `SIGABRT`, even where the code
/// around it would catch it. Call once, behind [`init`](crate::init).
pub fn end_at_panics() {
    LazyLock::force(&PANICS);
    set_hook(Box::new(end));
}

fn end(panic: &PanicHookInfo<'_>) {
    PANICS.inc();
    let payload = panic.payload();
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let (text, thread) = (text.unwrap_or("no message"), thread::current());
    let location = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    let backtrace = std::backtrace::Backtrace::capture();
    tracing::error!(
        thread = thread.name().unwrap_or("unnamed"), location, %backtrace, "panic, the program ends here: {text}"
    );
    // Also where no log is set up.
    eprintln!("panic at {location}, the program ends here: {text}");
    std::process::abort();
}
