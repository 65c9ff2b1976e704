//! Reads that stand behind those of sessions: those by which Postgres fills its buffers ahead of need.
//!
//! While sessions wait for storage, a read of this kind waits as well, for [`PATIENCE`] at most: a session may wait, within
//! Postgres, for the very page that this read is to bring. Whose a read is says the title of the process that reads,
//! which Postgres sets; a process whose title cannot be read is a session's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// How long one read waits for those of sessions.
const PATIENCE: Duration = Duration::from_millis(20);
/// What Postgres calls the process that loads the pages of one database.
const TITLE: &[u8] = b"postgres: autoprewarm worker";

/// Which reads stand behind which; shared by the threads that serve them.
#[derive(Debug, Default)]
pub struct Behind {
    /// Whether such reads are to be expected. Nothing is looked at while they are not.
    expected: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Reads of sessions that wait for storage now.
    sessions: usize,
    /// When the last one had waited.
    served: Option<Instant>,
    /// No read waits any more.
    released: bool,
}

/// A session's read that waits for storage, until it is dropped.
#[derive(Debug)]
pub struct SessionRead(Arc<Behind>);

impl Behind {
    /// Says whether reads are to be expected that stand behind those of sessions.
    pub fn expect(&self, expected: bool) {
        self.expected.store(expected, Ordering::Relaxed);
    }

    /// Whether the process of this number reads ahead of need.
    pub(super) fn is_of(&self, pid: u32) -> bool {
        self.expected.load(Ordering::Relaxed)
            && std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|title| is_title(&title))
    }

    /// Counts a session's read that has to wait for storage; `None` while no read stands behind it.
    pub(super) fn session(self: &Arc<Behind>) -> Option<SessionRead> {
        self.expected.load(Ordering::Relaxed).then(|| {
            self.state.lock().sessions += 1;
            SessionRead(self.clone())
        })
    }

    /// Whether no session has waited for storage for so long. Reads count while reads behind them are expected.
    pub fn is_quiet(&self, period: Duration) -> bool {
        let state = self.state.lock();
        state.sessions == 0 && state.served.is_none_or(|at| at.elapsed() >= period)
    }

    /// Waits until no session waits for storage, or long enough.
    pub(super) fn hold(&self) {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock();
        while state.sessions > 0 && !state.released {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// Lets go of every read that waits, and holds none from here on.
    pub(super) fn release(&self) {
        self.state.lock().released = true;
        self.changed.notify_all();
    }
}

impl Drop for SessionRead {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.sessions -= 1;
        state.served = Some(Instant::now());
        if state.sessions == 0 {
            self.0.changed.notify_all();
        }
    }
}

/// Postgres pads its title with blanks and NULs.
fn is_title(cmdline: &[u8]) -> bool {
    let end = cmdline
        .iter()
        .rposition(|byte| ![b' ', 0].contains(byte))
        .map_or(0, |last| last + 1);
    &cmdline[..end] == TITLE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_whole_title() {
        assert!(is_title(b"postgres: autoprewarm worker \0\0\0"));
        assert!(is_title(b"postgres: autoprewarm worker"));
        for other in [
            &b"postgres: app autoprewarm worker"[..],
            b"postgres: autoprewarm worker appdb [local] idle",
            b"postgres: autoprewarm leader ",
            b"",
        ] {
            assert!(!is_title(other));
        }
    }

    #[test]
    fn nothing_is_looked_at_while_no_such_read_is_expected() {
        let behind = Arc::new(Behind::default());
        assert!(behind.session().is_none());
        assert!(!behind.is_of(std::process::id()));
        behind.expect(true);
        assert!(!behind.is_of(std::process::id()), "this is a test");
        assert!(!behind.is_of(0), "no process has that number");
        assert!(behind.session().is_some());
    }

    #[test]
    fn a_read_goes_when_the_last_session_is_served_or_the_volume_closes() {
        for let_go in [
            |_: &Behind, reads: Vec<SessionRead>| drop(reads),
            |behind: &Behind, _kept: Vec<SessionRead>| {
                behind.release();
                behind.hold();
            },
        ] {
            let behind = Arc::new(Behind::default());
            behind.expect(true);
            let reads: Vec<_> = (0..2).filter_map(|_| behind.session()).collect();
            assert_eq!(reads.len(), 2);
            let_go(&behind, reads);
            let began = Instant::now();
            behind.hold();
            assert!(began.elapsed() < PATIENCE);
        }
    }

    #[test]
    fn it_is_quiet_once_no_session_has_waited_for_a_while() {
        let behind = Arc::new(Behind::default());
        behind.expect(true);
        let period = Duration::from_millis(30);
        assert!(behind.is_quiet(period), "nobody has read yet");
        let read = behind.session();
        std::thread::sleep(2 * period);
        assert!(!behind.is_quiet(period), "a session still waits");
        drop(read);
        assert!(!behind.is_quiet(Duration::from_secs(60)));
        std::thread::sleep(2 * period);
        assert!(behind.is_quiet(period));
    }

    #[test]
    fn a_read_waits_for_sessions_but_not_for_ever() {
        let behind = Arc::new(Behind::default());
        behind.expect(true);
        let _read = behind.session();
        let began = Instant::now();
        behind.hold();
        assert!(began.elapsed() >= PATIENCE);
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
