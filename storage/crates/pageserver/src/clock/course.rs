//! Even time, and how the wall clock ran against it. No clock is read here.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config::LONGEST_HISTORY_WINDOW;
use crate::timestamp::PgTimestamp;

/// A difference up to this is drift, not a jump, microseconds. It adds up until it is one.
const DRIFT: i64 = 1_000_000;
/// How long a machine that was booted anew is believed to have been away, microseconds. What the wall clock says
/// beyond it counts as a jump: that keeps history longer, which is harmless, where belief could cost it.
const BELIEVED_ABSENCE: i64 = 3600 * 1_000_000;
/// Jumps are forgotten after this: a history window that were longer would be cut on the wrong scale.
const LONGEST_MEMORY: Duration = LONGEST_HISTORY_WINDOW;
/// Jumps remembered at most; the oldest two become one, such that history is kept longer, if anything.
const MOST_JUMPS: usize = 1000;
/// Jumps that sum up to less are not worth telling, microseconds.
const TOLD: i64 = 60 * 1_000_000;

/// One reading of the clocks.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Which boot of which machine `ticks` belong to.
    pub boot: String,
    /// Microseconds of the machine's clock that cannot be set.
    pub ticks: i64,
    /// Microseconds since 1970 by the wall clock.
    pub wall: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Jump {
    /// When, in even time.
    at: i64,
    by: i64,
}

/// How the wall clock has run against even time: the content of the document `clock.json`. All numbers are
/// microseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    boot: String,
    ticks: i64,
    even: i64,
    /// The wall clock minus even time.
    ahead: i64,
    /// Even time at which counting began: of the wall clock before that nothing is known.
    since: i64,
    /// Oldest first.
    jumps: Vec<Jump>,
}

/// By which time history is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryTime {
    /// Now, by the wall clock as it ran a window ago; `None` while that is not known.
    pub now: Option<PgTimestamp>,
    /// Why this is not what the wall clock shows, for an operator; `None` when it is.
    pub why: Option<String>,
}

impl Course {
    /// A count that begins now: even time is what the wall clock shows, and of the time before nothing is known.
    pub fn new(reading: &Reading) -> Course {
        Course {
            boot: reading.boot.clone(),
            ticks: reading.ticks,
            even: reading.wall,
            ahead: 0,
            since: reading.wall,
            jumps: Vec::new(),
        }
    }

    /// The count of an earlier process, gone on to this reading. On the same boot the ticks say how much time has
    /// passed; after another boot the wall clock does, up to an hour, and never back.
    pub fn resumed(mut self, reading: &Reading) -> Course {
        if self.boot != reading.boot {
            let absence = reading.wall.saturating_sub(self.even + self.ahead);
            self.boot.clone_from(&reading.boot);
            self.even += absence.clamp(0, BELIEVED_ABSENCE);
            self.ticks = reading.ticks;
        }
        self.advance(reading);
        self
    }

    /// Goes on to a reading of the same boot. Returns by how many microseconds the wall clock jumped, back negative;
    /// `None` where that is a second at most.
    pub fn advance(&mut self, reading: &Reading) -> Option<i64> {
        // A thread may have looked later and come earlier.
        let elapsed = (reading.ticks - self.ticks).max(0);
        self.even += elapsed;
        self.ticks = self.ticks.max(reading.ticks);
        let by = reading
            .wall
            .saturating_sub(self.even)
            .saturating_sub(self.ahead);
        if by.saturating_abs() <= DRIFT {
            return None;
        }
        self.ahead += by;
        self.jumps.push(Jump { at: self.even, by });
        let forgotten = self.even - micros(LONGEST_MEMORY);
        self.jumps.retain(|jump| jump.at > forgotten);
        if self.jumps.len() > MOST_JUMPS {
            // As if it had come later, for a jump forward. One back would be believed to be within a window that it is
            // not in, and the cut would go forward by it: it is left out.
            let oldest = self.jumps.remove(0);
            self.jumps[0].by += oldest.by.max(0);
        }
        Some(by)
    }

    /// Even time at the last reading, microseconds since 1970, as far as no jump was taken for passing time.
    pub fn even(&self) -> i64 {
        self.even
    }

    /// What the wall clock shows at a moment of even time. Both in microseconds since 1970; the wall clock is taken
    /// not to jump again.
    pub fn shown_at(&self, even: i64) -> i64 {
        even.saturating_add(self.ahead)
    }

    /// By how many microseconds the wall clock jumped within a window that ends now: the sum, jumps back negative. After
    /// a thousand jumps within the window it can be more than that, and never less.
    pub fn jumped_within(&self, window: Duration) -> i64 {
        let begin = self.even.saturating_sub(micros(window));
        let within = self.jumps.iter().filter(|jump| jump.at > begin);
        within.map(|jump| jump.by).sum()
    }

    /// Now, on the scale on which what is about to leave the window was committed.
    pub fn history_time(&self, window: Duration) -> HistoryTime {
        if self.even.saturating_sub(self.since) < micros(window) {
            let why = format!(
                "how the clock ran before {} is not known: history is kept until a whole window has passed since",
                PgTimestamp::from_unix_micros(self.shown_at(self.since))
            );
            let why = Some(why);
            return HistoryTime { now: None, why };
        }
        let jumped = self.jumped_within(window);
        let now = PgTimestamp::from_unix_micros(self.shown_at(self.even) - jumped);
        let why = (jumped.abs() >= TOLD).then(|| {
            format!(
                "the wall clock jumped by {} s within the history window: history is cut by the time before the jump, \
                 {now}, until a whole window has passed since",
                jumped / 1_000_000
            )
        });
        HistoryTime {
            now: Some(now),
            why,
        }
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;
    const YEAR: i64 = 365 * DAY;
    const WEEK: Duration = Duration::from_secs(7 * 86_400);
    const START: i64 = 1_700_000_000 * SECOND;

    fn at(boot: &str, ticks: i64, wall: i64) -> Reading {
        let boot = boot.to_owned();
        Reading { boot, ticks, wall }
    }

    fn running_for(days: i64) -> Course {
        let mut course = Course::new(&at("a", 0, START));
        assert_eq!(
            course.advance(&at("a", days * DAY, START + days * DAY)),
            None
        );
        course
    }

    fn history_micros(course: &Course) -> i64 {
        let now = course.history_time(WEEK).now.expect("known");
        now.unix_micros()
    }

    /// Promise: a jump of the wall clock, either way, moves the cut not at all for a window; then everything that is
    /// left was committed on the new scale, and the cut follows it.
    #[test]
    fn a_jump_moves_the_cut_only_when_a_window_has_passed() {
        for jump in [YEAR, -YEAR, 90 * SECOND] {
            let mut course = running_for(30);
            let (ticks, wall) = (30 * DAY, START + 30 * DAY);
            assert_eq!(history_micros(&course), wall);
            assert_eq!(course.advance(&at("a", ticks, wall + jump)), Some(jump));
            assert_eq!(history_micros(&course), wall);
            course.advance(&at("a", ticks + 6 * DAY, wall + jump + 6 * DAY));
            assert_eq!(history_micros(&course), wall + 6 * DAY);
            let why = course.history_time(WEEK).why.expect("a reason");
            assert!(why.contains(&format!("{} s", jump / SECOND)), "{why}");
            course.advance(&at("a", ticks + 7 * DAY, wall + jump + 7 * DAY));
            assert_eq!(history_micros(&course), wall + jump + 7 * DAY);
            assert_eq!(course.history_time(WEEK).why, None);
        }
    }

    /// Promise: a jump is remembered for as long as the longest window that a tenant can have. Forgotten sooner, a jump
    /// forward would take all history of before it.
    #[test]
    fn a_jump_is_remembered_for_the_longest_window() {
        let long = Duration::from_secs(10 * 365 * 86_400);
        let mut course = running_for(4000);
        let (ticks, wall) = (4000 * DAY, START + 4000 * DAY);
        let now = |course: &Course| course.history_time(long).now.expect("known").unix_micros();
        course.advance(&at("a", ticks, wall + YEAR));
        for days in [32, 400, 3649] {
            // Another jump: what is too old is forgotten at one.
            let later = at(
                "a",
                ticks + days * DAY,
                wall + YEAR + days * DAY + days * SECOND,
            );
            course.advance(&later);
            assert_eq!(now(&course), wall + days * DAY, "after {days} days");
        }
    }

    /// Promise: the jumps of long ago, made one, never take history that each by itself would keep.
    #[test]
    fn jumps_that_are_made_one_keep_history_for_longer_and_never_for_less() {
        let mut course = running_for(30);
        let (mut ticks, mut wall) = (30 * DAY, START + 30 * DAY);
        let mut all = Vec::new();
        for number in 0..3 * MOST_JUMPS as i64 {
            ticks += DAY / 200;
            let by = match number % 7 {
                0 => -YEAR,
                1 => YEAR + 3 * SECOND,
                other => (other - 4) * 100 * SECOND + 2 * SECOND,
            };
            wall += DAY / 200 + by;
            assert_eq!(course.advance(&at("a", ticks, wall)), Some(by));
            all.push((course.even(), by));
            for window in [WEEK, Duration::from_secs(30 * 86_400)] {
                let begin = course.even() - micros(window);
                let within = all.iter().filter(|(when, _)| *when > begin);
                let sum: i64 = within.map(|(_, by)| by).sum();
                assert!(course.jumped_within(window) >= sum, "jump {number}");
            }
        }
        assert_eq!(course.jumps.len(), MOST_JUMPS);
    }

    #[test]
    fn drift_is_followed_and_no_jump() {
        let mut course = running_for(30);
        let (ticks, wall) = (30 * DAY, START + 30 * DAY);
        assert_eq!(course.advance(&at("a", ticks, wall + SECOND)), None);
        assert_eq!(
            course.advance(&at("a", ticks, wall + SECOND + 1)),
            Some(SECOND + 1)
        );
    }

    /// Promise: leases last as long as they were given for, whatever the wall clock does.
    #[test]
    fn even_time_knows_no_jumps() {
        let mut course = running_for(1);
        let before = course.even();
        course.advance(&at("a", DAY + 10 * SECOND, START + YEAR));
        course.advance(&at("a", DAY + 20 * SECOND, START - YEAR));
        // A reading that comes late does not turn it back.
        course.advance(&at("a", DAY + 5 * SECOND, START - YEAR));
        assert_eq!(course.even() - before, 20 * SECOND);
    }

    #[test]
    fn a_restart_on_the_same_boot_forgets_nothing() {
        let course = running_for(30);
        let later = at("a", 32 * DAY, START + 32 * DAY + YEAR);
        let resumed = course.clone().resumed(&later);
        assert_eq!(resumed.even() - course.even(), 2 * DAY);
        assert_eq!(history_micros(&resumed), START + 32 * DAY);
    }

    #[test]
    fn after_another_boot_an_hour_is_believed_and_the_rest_kept_as_a_jump() {
        let course = running_for(30);
        let wall = START + 30 * DAY;
        let absence = |seconds: i64| {
            let resumed = course.clone().resumed(&at("b", 5, wall + seconds * SECOND));
            (
                resumed.even() - course.even(),
                history_micros(&resumed) - wall,
            )
        };
        assert_eq!(absence(600), (600 * SECOND, 600 * SECOND));
        assert_eq!(absence(7200), (3600 * SECOND, 3600 * SECOND));
        assert_eq!(absence(-7200), (0, 0));
    }

    #[test]
    fn without_a_past_nothing_is_cut_for_a_window() {
        let course = running_for(6);
        let time = course.history_time(WEEK);
        assert_eq!(time.now, None);
        assert!(time.why.expect("a reason").contains("not known"));
        assert!(running_for(7).history_time(WEEK).now.is_some());
        assert!(running_for(0).history_time(Duration::ZERO).now.is_some());
    }

    proptest! {
        /// Whatever jumps there are: what was committed within the last window by even time, on the wall clock's
        /// scale of that moment, is never behind the cut, as long as the clock did not go back meanwhile. Memory
        /// stays bounded.
        #[test]
        fn nothing_younger_than_the_window_is_cut(steps in prop::collection::vec((0_i64..2 * DAY, 0_i64..YEAR), 1..60)) {
            let mut course = running_for(8);
            let (mut ticks, mut wall) = (8 * DAY, START + 8 * DAY);
            let mut commits = Vec::new();
            for (elapsed, jump) in steps {
                ticks += elapsed;
                wall += elapsed;
                course.advance(&at("a", ticks, wall));
                commits.push((ticks, wall));
                wall += jump;
                course.advance(&at("a", ticks, wall));
                let cut = history_micros(&course) - micros(WEEK);
                for (committed, shown) in &commits {
                    let is_young = ticks - committed < micros(WEEK);
                    prop_assert!(!is_young || *shown > cut - DRIFT, "{shown} {cut}");
                }
            }
            for more in 0..2000 {
                wall += 2 * SECOND;
                course.advance(&at("a", ticks + more, wall));
            }
            prop_assert!(course.jumps.len() <= MOST_JUMPS);
        }
    }
}
