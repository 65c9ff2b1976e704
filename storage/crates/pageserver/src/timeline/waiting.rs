//! Reads and requests that wait until ingest has reached an LSN. Reaching an LSN wakes only the waiters of that LSN
//! or an earlier one, because ingest moves thousands of times a second, and many reads wait while ingest is behind.
//!
//! Invariant: a waiter is woken by the first [`LsnWaiters::reached`] at or past its LSN. For that the caller moves
//! the position before it calls `reached`, and a waiter looks at the position after [`LsnWaiters::enqueue`]: either
//! the caller finds the waiter in the queue, or the waiter finds the position moved. Dropping a waiter takes it out
//! of the queue. Nothing here is stored.

use std::collections::BTreeMap;

use pg_types::Lsn;
use tokio::sync::oneshot;

use super::lock_order::{Ranked, WAITERS};

/// The waiters for LSNs of one timeline, by LSN.
#[derive(Default)]
pub struct LsnWaiters {
    queue: Ranked<WAITERS, Queue>,
}

#[derive(Default)]
struct Queue {
    /// The next number given out; it tells waiters for the same LSN apart.
    next: u64,
    waiting: BTreeMap<(Lsn, u64), oneshot::Sender<()>>,
}

/// A place in the queue, until it is dropped.
pub struct Waiter<'a> {
    waiters: &'a LsnWaiters,
    place: (Lsn, u64),
    arrived: oneshot::Receiver<()>,
}

impl LsnWaiters {
    /// Begins to wait for an LSN. The caller has to look at the position once more before it awaits
    /// [`Waiter::arrived`].
    pub fn enqueue(&self, lsn: Lsn) -> Waiter<'_> {
        let (sender, arrived) = oneshot::channel();
        let mut queue = self.queue.lock();
        let place = (lsn, queue.next);
        queue.next += 1;
        queue.waiting.insert(place, sender);
        Waiter {
            waiters: self,
            place,
            arrived,
        }
    }

    /// Wakes all waiters for this LSN or an earlier one.
    pub fn reached(&self, lsn: Lsn) {
        let mut queue = self.queue.lock();
        while let Some(first) = queue.waiting.first_entry()
            && first.key().0 <= lsn
        {
            // A failed send means that the waiter was dropped and waits no more.
            let _ = first.remove().send(());
        }
    }
}

impl Waiter<'_> {
    /// Returns once the LSN is reached.
    pub async fn arrived(&mut self) {
        let _ = (&mut self.arrived).await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.waiters.queue.lock().waiting.remove(&self.place);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    /// Promise: each waiter is woken by its own LSN, several of one LSN together, and a waiter that gives up leaves
    /// the queue.
    #[tokio::test]
    async fn each_is_woken_by_its_own_lsn() {
        let waiters = LsnWaiters::default();
        let mut early = [waiters.enqueue(Lsn(10)), waiters.enqueue(Lsn(10))];
        let mut late = waiters.enqueue(Lsn(20));
        let gave_up = waiters.enqueue(Lsn(15));
        drop(gave_up);
        let (no, yes) = (Duration::from_millis(20), Duration::from_secs(10));
        waiters.reached(Lsn(9));
        assert!(tokio::time::timeout(no, early[0].arrived()).await.is_err());
        waiters.reached(Lsn(19));
        for waiter in &mut early {
            assert!(tokio::time::timeout(yes, waiter.arrived()).await.is_ok());
        }
        assert!(tokio::time::timeout(no, late.arrived()).await.is_err());
        assert_eq!(waiters.queue.lock().waiting.len(), 1);
        waiters.reached(Lsn(20));
        assert!(tokio::time::timeout(yes, late.arrived()).await.is_ok());
        drop((early, late));
        assert!(waiters.queue.lock().waiting.is_empty());
    }

    /// Promise: no waiter sleeps on after its LSN was reached, however enqueueing and moving race.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn nobody_sleeps_through_it() {
        const END: u64 = 20_000;
        let waiters = Arc::new(LsnWaiters::default());
        let position = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for first in 0..16 {
            let (waiters, position) = (waiters.clone(), position.clone());
            tasks.push(tokio::spawn(async move {
                for lsn in (first..END).step_by(16) {
                    let mut waiter = waiters.enqueue(Lsn(lsn));
                    if position.load(Ordering::Relaxed) < lsn {
                        waiter.arrived().await;
                        assert!(position.load(Ordering::Relaxed) >= lsn);
                    }
                }
            }));
        }
        let (mover, at) = (waiters.clone(), position.clone());
        tasks.push(tokio::task::spawn_blocking(move || {
            for lsn in 1..=END {
                at.store(lsn, Ordering::Relaxed);
                mover.reached(Lsn(lsn));
            }
        }));
        for task in tasks {
            let ended = tokio::time::timeout(Duration::from_secs(60), task).await;
            ended.expect("nobody is left waiting").expect("no panic");
        }
    }
}
