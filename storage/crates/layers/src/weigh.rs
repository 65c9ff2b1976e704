//! Decides which pages should get an image when, from what a timeline's own reads and writes cost.
//!
//! An image saves later reads the replay of deltas, and costs bytes to write. How much it saves depends on which
//! pages are read and how often; how much it costs depends on how often they are written. So a timeline's deltas and
//! reads are weighed under a set of policies side by side: for each policy, how many images it would have made, and
//! how many deltas each read would have replayed. The policy with the least (99th percentile of a read's cost) x
//! (bytes written) is used, until another would have been better by a margin.
//!
//! A policy needs no chains of its own for the weighing: a page that gets an image each `n` deltas has, after `d`
//! deltas, a chain of `d mod n`.
//!
//! Memory: a histogram for each policy, and two numbers for each page, which `ChainCounts` keeps. Nothing is stored;
//! after a restart or a crash the weighing begins anew.

/// Chain lengths that are weighed, below the bound.
const CHAINS: [u32; 6] = [8, 16, 32, 64, 128, 256];
/// Which pages get images at such a length, by the deltas a page gathers for each of its reads. Nothing: all pages.
const DELTAS_PER_READ: [Option<u32>; 4] = [None, Some(4096), Some(512), Some(64)];

/// What one of the slowest requests costs beyond replay, in deltas of the longest chains: how the 99th percentile of
/// requests grows, from one fixed threshold to the next, with that of what they replay. Measured anew by
/// `bench/pageserver.py --only adaptive` (`costs`).
pub const REQUEST_COST: u32 = 50;
/// What each page of a request adds to that.
pub const PAGE_COST: u32 = 350;
/// What an image adds to the bytes written, in bytes of values from the WAL: images compress better than those do.
/// Measured on three workloads, from 1,300 to 4,200.
const IMAGE_BYTES: u64 = 2500;

/// Each value's share of keys and positions.
const VALUE_BYTES: u64 = 16;

/// Requests before anything is concluded from them.
const FEWEST_REQUESTS: u64 = 100;
/// Deltas after which a policy is chosen although there were fewer than [`FEWEST_REQUESTS`]: the timeline is hardly
/// read.
const PATIENCE: u64 = 1 << 18;
/// A choice is made anew each so many requests or deltas.
const REQUESTS_PER_LOOK: u64 = 256;
const DELTAS_PER_LOOK: u64 = 4096;
/// Another policy must be cheaper by this factor.
const MARGIN: f64 = 0.97;
/// Deltas, or requests, after which everything that was counted counts half.
const WINDOW: u64 = 1 << 20;

/// Pages whose reads and writes are such get an image at a chain of `chain` deltas, all others at the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Deltas at which such a page gets an image; the bound counts where it is lower.
    pub chain: u32,
    /// At most so many deltas for each read; any page without it.
    pub deltas_per_read: Option<u32>,
}

/// What is known of a page since its chain's last start from the WAL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Habits {
    pub deltas: u32,
    /// Reads that had to replay, or would have without an image.
    pub reads: u32,
}

impl Policy {
    fn threshold(self, habits: Habits, bound: u32) -> u32 {
        let is_meant = self.deltas_per_read.is_none_or(|most| {
            habits.reads > 0 && habits.deltas <= most.saturating_mul(habits.reads)
        });
        if is_meant {
            self.chain.min(bound)
        } else {
            bound
        }
    }
}

/// What one policy would have cost.
#[derive(Clone, Debug)]
struct Trial {
    policy: Policy,
    images: u64,
    costs: Histogram,
}

/// Weighs a timeline's reads and writes under all policies, and chooses one.
#[derive(Clone, Debug)]
pub struct Weigher {
    bound: u32,
    trials: Vec<Trial>,
    /// The policy in force.
    chosen: usize,
    deltas: u64,
    /// Bytes of all values that came from the WAL.
    bytes: u64,
    requests: u64,
    /// Deltas and requests since the last choice.
    since: (u64, u64),
}

impl Weigher {
    /// `bound`: the chain length at which any page gets an image.
    pub fn new(bound: u32) -> Weigher {
        let only_bound = Policy {
            chain: bound,
            deltas_per_read: None,
        };
        let pairs = CHAINS.iter().flat_map(|chain| {
            DELTAS_PER_READ.iter().map(|deltas_per_read| Policy {
                chain: *chain,
                deltas_per_read: *deltas_per_read,
            })
        });
        let policies = std::iter::once(only_bound).chain(pairs.filter(|it| it.chain < bound));
        let trial = |policy| Trial {
            policy,
            images: 0,
            costs: Histogram::default(),
        };
        let trials: Vec<Trial> = policies.map(trial).collect();
        Weigher {
            bound,
            trials,
            // Until reads are known nothing says that an image pays.
            chosen: 0,
            deltas: 0,
            bytes: 0,
            requests: 0,
            since: (0, 0),
        }
    }

    /// The policy in force.
    pub fn policy(&self) -> Policy {
        self.trials[self.chosen].policy
    }

    /// The chain length at which a page of such habits gets an image.
    pub fn threshold(&self, habits: Habits) -> u32 {
        self.policy().threshold(habits, self.bound)
    }

    /// A value of so many bytes was put.
    pub fn wrote(&mut self, bytes: usize) {
        self.bytes += bytes as u64 + VALUE_BYTES;
    }

    /// A page got a delta; `habits` has it already.
    pub fn delta(&mut self, habits: Habits) {
        self.deltas += 1;
        self.since.0 += 1;
        // All lengths but the bound are multiples of the first.
        if habits.deltas.is_multiple_of(CHAINS[0]) || habits.deltas.is_multiple_of(self.bound) {
            for trial in &mut self.trials {
                let threshold = trial.policy.threshold(habits, self.bound);
                trial.images += u64::from(habits.deltas.is_multiple_of(threshold));
            }
        }
    }

    /// One request: for each page its habits before it, and the deltas that were replayed if that was less than
    /// its chain, because what an earlier read made was at hand.
    pub fn request(&mut self, pages: &[(Habits, Option<u32>)]) {
        self.requests += 1;
        self.since.1 += 1;
        let fixed = REQUEST_COST + PAGE_COST * u32::try_from(pages.len()).unwrap_or(u32::MAX >> 8);
        for trial in &mut self.trials {
            let mut cost = fixed;
            for (habits, replayed) in pages.iter().filter(|(habits, _)| habits.deltas > 0) {
                let threshold = trial.policy.threshold(*habits, self.bound);
                let chain = habits.deltas % threshold;
                cost = cost.saturating_add(replayed.map_or(chain, |replayed| replayed.min(chain)));
                let read = Habits {
                    reads: habits.reads + 1,
                    ..*habits
                };
                // The read may have made the page one that gets its image earlier.
                trial.images += u64::from(chain >= trial.policy.threshold(read, self.bound));
            }
            trial.costs.add(cost, 1);
        }
    }

    /// So many requests for one page each that were answered with a page as an earlier read had made it.
    pub fn requests_without_replay(&mut self, requests: u64) {
        self.requests += requests;
        self.since.1 += requests;
        for trial in &mut self.trials {
            trial.costs.add(REQUEST_COST + PAGE_COST, requests);
        }
    }

    /// Whether there is enough news to choose anew.
    pub fn is_time(&self) -> bool {
        self.since.0 >= DELTAS_PER_LOOK || self.since.1 >= REQUESTS_PER_LOOK
    }

    /// Chooses anew; whether another policy holds now.
    pub fn choose(&mut self) -> bool {
        self.since = (0, 0);
        if self.requests < FEWEST_REQUESTS && self.deltas < PATIENCE {
            return false;
        }
        let costs: Vec<f64> = self.trials.iter().map(|trial| self.cost(trial)).collect();
        let mut best = self.chosen;
        for number in 0..costs.len() {
            if costs[number] < costs[best] {
                best = number;
            }
        }
        let is_other = costs[best] < MARGIN * costs[self.chosen];
        if is_other {
            self.chosen = best;
        }
        is_other
    }

    /// The 99th percentile of a request's cost times the bytes written. Of too few requests nothing is concluded:
    /// then only bytes count. A policy of more images than the one in force would make due at once what it would have
    /// made by now and that one has not: those count twice, so that a change pays for itself within the time it is
    /// judged by.
    fn cost(&self, trial: &Trial) -> f64 {
        let read = match self.requests < FEWEST_REQUESTS {
            true => 1.0,
            false => trial.costs.percentile(0.99),
        };
        let at_once = trial.images.saturating_sub(self.trials[self.chosen].images);
        read * (self.bytes + (trial.images + at_once) * IMAGE_BYTES) as f64
    }

    /// Whether what is counted is old enough to count less.
    pub fn is_full(&self) -> bool {
        self.deltas >= WINDOW || self.requests >= WINDOW
    }

    /// Everything counts half from now on. Pages' habits are halved by who keeps them.
    pub fn halve(&mut self) {
        self.deltas /= 2;
        self.bytes /= 2;
        for trial in &mut self.trials {
            trial.images /= 2;
            trial.costs.halve();
        }
        self.requests = self.trials[0].costs.total;
    }
}

/// Costs in bars of a sixteenth of an octave.
#[derive(Clone, Debug, Default)]
struct Histogram {
    counts: Vec<u32>,
    total: u64,
}

impl Histogram {
    const PER_OCTAVE: f64 = 16.0;

    fn add(&mut self, cost: u32, times: u64) {
        let bar = (f64::from(cost.max(1)).log2() * Histogram::PER_OCTAVE) as usize;
        if self.counts.len() <= bar {
            self.counts.resize(bar + 1, 0);
        }
        let times = u32::try_from(times).unwrap_or(u32::MAX);
        self.counts[bar] = self.counts[bar].saturating_add(times);
        self.total += u64::from(times);
    }

    /// The cost that `fraction` of what was counted does not exceed, between a bar's ends by its share; 1 of nothing.
    fn percentile(&self, fraction: f64) -> f64 {
        let wanted = self.total as f64 * fraction;
        let mut below = 0.0;
        for (bar, count) in self.counts.iter().enumerate() {
            let count = f64::from(*count);
            if count > 0.0 && below + count >= wanted {
                let within = (wanted - below) / count;
                return ((bar as f64 + within) / Histogram::PER_OCTAVE).exp2();
            }
            below += count;
        }
        1.0
    }

    fn halve(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.total = self.counts.iter().map(|count| u64::from(*count)).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many pages, each written `deltas` times in turn; a read for each ten deltas to a page, if it is read.
    fn run(weigher: &mut Weigher, pages: usize, is_read: impl Fn(usize) -> bool, deltas: u32) {
        let mut habits = vec![Habits::default(); pages];
        for number in 1..=deltas {
            for (page, habits) in habits.iter_mut().enumerate() {
                habits.deltas += 1;
                weigher.wrote(100);
                weigher.delta(*habits);
                let is_turn = (number as usize + page * 37).is_multiple_of(10);
                if is_turn && is_read(page) {
                    weigher.request(&[(*habits, None)]);
                    habits.reads += 1;
                }
                if weigher.is_time() {
                    weigher.choose();
                }
            }
        }
    }

    const PAGE: Habits = Habits {
        deltas: 3000,
        reads: 300,
    };
    const NEVER_READ: Habits = Habits {
        deltas: 3000,
        reads: 0,
    };

    #[test]
    fn pages_that_are_read_get_images_early_and_pages_that_are_not_at_the_bound() {
        let mut weigher = Weigher::new(512);
        run(&mut weigher, 100, |page| page < 10, 3000);
        let policy = weigher.policy();
        assert!(policy.chain <= 64, "{policy:?}");
        assert_eq!(weigher.threshold(PAGE), policy.chain);
        assert_eq!(weigher.threshold(NEVER_READ), 512, "{policy:?}");
    }

    #[test]
    fn without_reads_all_pages_wait_for_the_bound() {
        let mut weigher = Weigher::new(300);
        assert_eq!(weigher.threshold(PAGE), 300, "nothing is known");
        run(&mut weigher, 100, |_| false, 3000);
        assert_eq!(weigher.threshold(NEVER_READ), 300);
        assert_eq!(weigher.threshold(PAGE), 300);
    }

    #[test]
    fn replay_that_kept_pages_save_calls_for_no_image() {
        let mut weigher = Weigher::new(512);
        let mut habits = Habits::default();
        for _ in 0..20_000 {
            habits.deltas += 1;
            weigher.wrote(100);
            weigher.delta(habits);
            // Whatever the chain, the page was made one delta ago.
            weigher.request(&[(habits, Some(1))]);
            habits.reads += 1;
            weigher.choose();
        }
        assert_eq!(weigher.threshold(habits), 512);
        weigher.requests_without_replay(5);
        assert_eq!(weigher.requests, 20_005);
    }

    #[test]
    fn a_change_that_makes_pages_due_at_once_has_to_pay_for_them() {
        // Of two policies, the one with more images costs 4 % less by itself, and 4 % more with those it makes due.
        let mut weigher = Weigher::new(512);
        weigher.trials.truncate(2);
        weigher.chosen = 0;
        weigher.requests = 1000;
        weigher.bytes = 100 * IMAGE_BYTES;
        weigher.trials[1].images = 8;
        for (trial, cost) in [(0, 1000), (1, 890)] {
            weigher.trials[trial].costs.add(cost, 1000);
        }
        assert!(!weigher.choose());
        // The other way round nothing becomes due.
        weigher.chosen = 1;
        weigher.trials[0].costs = Histogram::default();
        weigher.trials[0].costs.add(890, 1000);
        assert!(weigher.choose());
    }

    #[test]
    fn what_was_learned_is_forgotten_by_halves_and_a_change_of_the_workload_followed() {
        let mut weigher = Weigher::new(512);
        run(&mut weigher, 100, |_| true, 2000);
        assert!(weigher.threshold(PAGE) < 512);
        // From now on the pages that are written are not read.
        for _ in 0..12 {
            weigher.halve();
        }
        run(&mut weigher, 100, |_| false, 3000);
        assert_eq!(weigher.threshold(PAGE), 512);
    }

    #[test]
    fn a_histogram_tells_percentiles_within_a_bar() {
        let mut histogram = Histogram::default();
        assert!((histogram.percentile(0.99) - 1.0).abs() < f64::EPSILON);
        for cost in 1..=1000 {
            histogram.add(cost, 1);
        }
        let error = |fraction: f64| histogram.percentile(fraction) / (1000.0 * fraction);
        assert!((0.97..1.03).contains(&error(0.99)), "{}", error(0.99));
        assert!((0.95..1.05).contains(&error(0.5)), "{}", error(0.5));
        histogram.halve();
        assert!(histogram.total < 1000);
    }
}
