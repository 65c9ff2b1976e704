//! The pace of ingest, given how far compaction is behind.
//!
//! Each level-0 layer is one more place in which a read may have to look. Ingest is slowed little by little as
//! level-0 layers gather, so that writers become slower instead of stopping at once. Ingest stops at a count low
//! enough that the flushes already under way do not bring level 0 past 30 layers.

use std::time::Duration;

/// Slowest pace before the stop, per MiB of versions.
const SLOWEST: Duration = Duration::from_millis(500);
/// Delay per MiB half way between the soft and the hard count: about 100 MiB/s.
const MIDDLE: Duration = Duration::from_millis(10);
/// Level-0 layers, those still in memory included, at which ingest stops under the default threshold.
const HARD: usize = 26;

/// The brake for one timeline, from its compaction threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brake {
    soft: usize,
    hard: usize,
}

impl Brake {
    /// `threshold`: level-0 layers that start a compaction. Ingest is free up to twice that.
    pub fn new(threshold: usize) -> Brake {
        let soft = threshold.max(2).saturating_mul(2);
        Brake {
            soft,
            hard: HARD.max(soft.saturating_add(threshold)),
        }
    }

    /// How long ingest pauses for each MiB it has put into memory while `layers` wait for compaction; `None`: it
    /// stops until there are fewer.
    pub fn delay(&self, layers: usize) -> Option<Duration> {
        if layers >= self.hard {
            return None;
        }
        let over = layers.saturating_sub(self.soft) as f64;
        let fraction = over / (self.hard - self.soft) as f64;
        Some(MIDDLE.mul_f64(fraction / (1.0 - fraction)).min(SLOWEST))
    }
}

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn the_brake_tightens_with_every_layer_and_stops_at_last() {
        let brake = Brake::new(8);
        assert_eq!(brake.delay(16), Some(Duration::ZERO));
        let delays: Vec<_> = (16..26)
            .map(|layers| brake.delay(layers).unwrap())
            .collect();
        assert!(
            delays.windows(2).all(|pair| pair[0] < pair[1]),
            "{delays:?}"
        );
        assert_eq!(brake.delay(26), None);
        assert_eq!(Brake::new(100).delay(299).map(|it| it > MIDDLE), Some(true));
    }

    /// Promise: however fast WAL comes and however slow flushes and compactions are, there are never 30 level-0
    /// layers, and ingest is never stopped while compaction keeps up at all.
    #[test]
    fn level_0_stays_below_30_at_any_speeds() {
        for seed in 0..300 {
            let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
            let brake = Brake::new(8);
            // Seconds a MiB takes to come in, a layer to be flushed, eight layers to be merged.
            let arrive = random.random_range(0.0005..0.05);
            let flush: f64 = random.random_range(0.01..3.0);
            let merge: f64 = random.random_range(0.05..60.0);
            let layer_mib = random.random_range(1..64);
            let (mut time, mut mib, mut layers, mut frozen) = (0.0, 0, 0_usize, 0_usize);
            let (mut flushed_at, mut merged_at) = (f64::MAX, f64::MAX);
            let mut ingested = 0;
            for _ in 0..20_000 {
                let delay = brake.delay(layers + frozen);
                let can_freeze = mib < layer_mib || frozen < 2;
                let next = match delay {
                    Some(delay) if can_freeze => time + arrive + delay.as_secs_f64(),
                    _ => f64::MAX,
                };
                time = next.min(flushed_at).min(merged_at);
                if time == merged_at {
                    layers -= 8;
                    merged_at = f64::MAX;
                } else if time == flushed_at {
                    (frozen, layers, flushed_at) = (frozen - 1, layers + 1, f64::MAX);
                } else {
                    (mib, ingested) = (mib + 1, ingested + 1);
                    if mib >= layer_mib && frozen < 2 {
                        (mib, frozen) = (0, frozen + 1);
                    }
                }
                if frozen > 0 && flushed_at == f64::MAX {
                    flushed_at = time + flush;
                }
                if layers >= 8 && merged_at == f64::MAX {
                    merged_at = time + merge;
                }
                assert!(layers < 30, "{layers} layers, seed {seed}");
            }
            assert!(ingested > 1000, "ingest starved, seed {seed}");
        }
    }
}
