//! The watch over the read lease: stops Postgres when the lease has run out.
//!
//! Invariants:
//! - a thread of its own watches: neither work on the proposer's thread nor a full runtime delays the end;
//! - Postgres is stopped first, and the reason told second;
//! - Postgres is stopped at most once, and not at all once the proposer was shut down: then its owner does that.
//!
//! Nothing here is durable: a crash ends the compute, and with it what it shows.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;
use std::{io, thread};

use parking_lot::Mutex;

use crate::Fatal;
use crate::core::Shared;
use crate::moment::Moment;

/// The watch looks at the clock so often, however far away the end is: while a machine sleeps, so does a timer.
const LONGEST_LOOK: Duration = Duration::from_millis(250);

/// Stops Postgres at once, without waiting for it. Called from the thread of the watch, at most once.
pub type Stop = Box<dyn FnOnce() + Send>;

/// The thread that ends a compute whose lease has run out. Dropping this ends the watch.
pub struct Watch {
    stop: Arc<Mutex<Stopping>>,
    _ended: Sender<()>,
}

enum Stopping {
    /// No Postgres runs yet.
    Nothing,
    Postgres(Stop),
    /// The lease has run out.
    Over,
}

impl Watch {
    /// Begins to watch. Fails when the system gives no thread.
    pub fn start(shared: &Arc<Shared>) -> io::Result<Watch> {
        let (ended, end) = channel();
        let stop = Arc::new(Mutex::new(Stopping::Nothing));
        let (watched, stopped) = (Arc::downgrade(shared), stop.clone());
        thread::Builder::new()
            .name("read lease".into())
            .spawn(move || watch(&watched, &stopped, &end))?;
        Ok(Watch {
            stop,
            _ended: ended,
        })
    }

    /// From now on the lease is Postgres's, which `stop` ends: at once if the lease has run out already.
    pub fn guard(&self, stop: Stop) {
        let mut stopping = self.stop.lock();
        if matches!(*stopping, Stopping::Over) {
            drop(stopping);
            return stop();
        }
        *stopping = Stopping::Postgres(stop);
    }
}

fn watch(shared: &Weak<Shared>, stop: &Mutex<Stopping>, ended: &Receiver<()>) {
    loop {
        let Some(held) = shared.upgrade() else { return };
        // Its owner ends Postgres by itself.
        if held.closed.is_cancelled() {
            return;
        }
        let (end, timeout) = (held.lease_end(), held.config.quorum_timeout);
        let now = Moment::now();
        if now >= end {
            let stopping = std::mem::replace(&mut *stop.lock(), Stopping::Over);
            if let Stopping::Postgres(stop) = stopping {
                stop();
            }
            held.fail(Fatal::NoQuorum {
                seconds: (now.since(end) + timeout).as_secs_f64(),
                detail: held.core(|core| core.errors().join("; ")),
            });
            return;
        }
        drop(held);
        match ended.recv_timeout(end.since(now).min(LONGEST_LOOK)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
