//! One clock for what timelines do by themselves from time to time.
//!
//! A timeline's tasks sleep until they are woken. No event tells them that something has been in memory for too long, or
//! that a setting has changed. One task for the process asks every timeline, which costs a few loads and locks for each
//! timeline that has nothing to do, and wakes no thread.
//!
//! Invariant: [`Scheduled::wake_if_due`] neither waits nor does the work; it wakes the task that does the work. Nothing
//! here is stored.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

/// Time between two ticks.
const TICK: Duration = Duration::from_millis(250);

/// Something with work that no event announces.
pub trait Scheduled: Send + Sync {
    /// Wakes the task that does the work, if there is work. Must not block.
    fn wake_if_due(&self);
}

/// Everything that is asked from time to time whether it has work.
#[derive(Default)]
pub struct Schedule {
    members: Mutex<Vec<Member>>,
}

struct Member {
    scheduled: Weak<dyn Scheduled>,
    /// Ticks from one question to the next.
    period: u64,
}

impl Schedule {
    /// Asks `scheduled` once in `period` ticks of 250 ms, until it is dropped.
    pub fn add(&self, scheduled: Weak<dyn Scheduled>, period: u64) {
        self.members.lock().push(Member { scheduled, period });
    }

    /// Asks each member when its time has come, for as long as there is a schedule.
    pub fn run(schedule: &Arc<Schedule>) -> impl Future<Output = ()> + Send + use<> {
        let schedule = Arc::downgrade(schedule);
        async move {
            let mut due = tokio::time::interval(TICK);
            due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            for tick in 0u64.. {
                due.tick().await;
                let Some(schedule) = schedule.upgrade() else {
                    return;
                };
                schedule.tick(tick);
            }
        }
    }

    fn tick(&self, tick: u64) {
        // Not asked under the lock, for which a timeline that is dropped here would wait.
        let mut due = Vec::new();
        self.members.lock().retain(|member| {
            let is_due = tick.is_multiple_of(member.period);
            let scheduled = member.scheduled.upgrade();
            let is_there = scheduled.is_some();
            due.extend(scheduled.filter(|_| is_due));
            is_there
        });
        for scheduled in due {
            scheduled.wake_if_due();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Questions(AtomicUsize);

    impl Scheduled for Questions {
        fn wake_if_due(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Promise: each member is asked in its own rhythm, and one that is gone is forgotten.
    #[test]
    fn each_has_its_rhythm_until_it_is_gone() {
        let schedule = Schedule::default();
        let (frequent, rare) = (
            Arc::new(Questions::default()),
            Arc::new(Questions::default()),
        );
        let weak: Weak<dyn Scheduled> = Arc::downgrade(&frequent) as _;
        schedule.add(weak, 1);
        let weak: Weak<dyn Scheduled> = Arc::downgrade(&rare) as _;
        schedule.add(weak, 2);
        (0..4).for_each(|tick| schedule.tick(tick));
        assert_eq!(frequent.0.load(Ordering::Relaxed), 4);
        assert_eq!(rare.0.load(Ordering::Relaxed), 2);
        drop(frequent);
        schedule.tick(4);
        assert_eq!(schedule.members.lock().len(), 1);
        assert_eq!(rare.0.load(Ordering::Relaxed), 3);
    }
}
