//! The settings of one tenant, and how a change to them is checked.

use std::time::Duration;

use layers::ImageRule;
use serde::{Deserialize, Serialize};

/// The longest [`TenantConfig::history_window_seconds`]: ten years of 366 days.
pub const LONGEST_HISTORY_WINDOW: Duration = Duration::from_secs(10 * 366 * 86_400);

/// How it is decided that a page gets an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageMode {
    /// At a fixed chain length.
    #[default]
    Fixed,
    /// By what the timeline's reads and writes cost (`layers::ChainCounts`).
    Adaptive,
}

/// Settings of one tenant. Stored with the tenant; unknown names in a stored file are ignored, so that
/// going back to an older program stays possible.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantConfig {
    /// Deltas on a page that make the storage write an image while the compute still logs page images.
    pub image_threshold: u32,
    /// Deltas on a page that make the storage write an image once full page writes are off (image generation
    /// pushdown).
    pub image_threshold_pushdown: u32,
    /// Whether the two thresholds above hold, or storage weighs reads against writes whatever the compute logs.
    pub image_mode: ImageMode,
    /// Deltas on a page that make the storage write an image in the adaptive mode at the latest.
    pub image_threshold_max: u32,
    /// Bytes of values gathered in memory before they are written to a layer.
    pub checkpoint_distance_bytes: u64,
    /// Longest time values stay in memory only, milliseconds.
    pub checkpoint_timeout_ms: u64,
    /// Number of freshly flushed (L0) layers that starts a compaction.
    pub compaction_threshold: u32,
    /// Target size of compacted layers, bytes.
    pub compaction_target_bytes: u64,
    /// Longest time a read waits for its LSN to be ingested, milliseconds.
    pub wait_lsn_timeout_ms: u64,
    /// How far back a timeline can be read and branched from, seconds; branch points and leases stay longer.
    pub history_window_seconds: u64,
}

impl Default for TenantConfig {
    fn default() -> TenantConfig {
        TenantConfig {
            image_threshold: 128,
            image_threshold_pushdown: 128,
            image_mode: ImageMode::Fixed,
            image_threshold_max: 512,
            checkpoint_distance_bytes: 256 << 20,
            checkpoint_timeout_ms: 60_000,
            compaction_threshold: 8,
            compaction_target_bytes: 64 << 20,
            wait_lsn_timeout_ms: 30_000,
            history_window_seconds: 7 * 86_400,
        }
    }
}

/// A change to some settings; absent ones stay as they are. Unknown names are refused, because a typing
/// error that silently changes nothing is worse than an error.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantConfigPatch {
    /// [`TenantConfig::image_threshold`], 1 to 2^20 deltas.
    pub image_threshold: Option<u32>,
    /// [`TenantConfig::image_threshold_pushdown`], 1 to 2^20 deltas.
    pub image_threshold_pushdown: Option<u32>,
    /// [`TenantConfig::image_mode`], `fixed` or `adaptive`.
    pub image_mode: Option<ImageMode>,
    /// [`TenantConfig::image_threshold_max`], 8 to 2^20 deltas.
    pub image_threshold_max: Option<u32>,
    /// [`TenantConfig::checkpoint_distance_bytes`], 64 KiB to 1 GiB.
    pub checkpoint_distance_bytes: Option<u64>,
    /// [`TenantConfig::checkpoint_timeout_ms`], 100 ms to a day.
    pub checkpoint_timeout_ms: Option<u64>,
    /// [`TenantConfig::compaction_threshold`], 2 to 1000 layers.
    pub compaction_threshold: Option<u32>,
    /// [`TenantConfig::compaction_target_bytes`], 1 MiB to 1 GiB.
    pub compaction_target_bytes: Option<u64>,
    /// [`TenantConfig::wait_lsn_timeout_ms`], 1 ms to ten minutes.
    pub wait_lsn_timeout_ms: Option<u64>,
    /// [`TenantConfig::history_window_seconds`], 1 s to ten years of 366 days.
    pub history_window_seconds: Option<u64>,
}

/// A setting is outside what the pageserver can work with.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{name} = {value} is out of range: give a value from {min} to {max}")]
pub struct OutOfRange {
    name: &'static str,
    value: u64,
    min: u64,
    max: u64,
}

impl TenantConfig {
    /// The settings after the change. Fails with the first setting that is out of range, changed or not; `self` stays
    /// as it is either way.
    pub fn patched(&self, patch: &TenantConfigPatch) -> Result<TenantConfig, OutOfRange> {
        let config = TenantConfig {
            image_threshold: patch.image_threshold.unwrap_or(self.image_threshold),
            image_threshold_pushdown: patch
                .image_threshold_pushdown
                .unwrap_or(self.image_threshold_pushdown),
            image_mode: patch.image_mode.unwrap_or(self.image_mode),
            image_threshold_max: patch
                .image_threshold_max
                .unwrap_or(self.image_threshold_max),
            checkpoint_distance_bytes: patch
                .checkpoint_distance_bytes
                .unwrap_or(self.checkpoint_distance_bytes),
            checkpoint_timeout_ms: patch
                .checkpoint_timeout_ms
                .unwrap_or(self.checkpoint_timeout_ms),
            compaction_threshold: patch
                .compaction_threshold
                .unwrap_or(self.compaction_threshold),
            compaction_target_bytes: patch
                .compaction_target_bytes
                .unwrap_or(self.compaction_target_bytes),
            wait_lsn_timeout_ms: patch
                .wait_lsn_timeout_ms
                .unwrap_or(self.wait_lsn_timeout_ms),
            history_window_seconds: patch
                .history_window_seconds
                .unwrap_or(self.history_window_seconds),
        };
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), OutOfRange> {
        let ranges = [
            (
                "image_threshold",
                u64::from(self.image_threshold),
                1,
                1 << 20,
            ),
            (
                "image_threshold_pushdown",
                u64::from(self.image_threshold_pushdown),
                1,
                1 << 20,
            ),
            (
                "image_threshold_max",
                u64::from(self.image_threshold_max),
                8,
                1 << 20,
            ),
            (
                "checkpoint_distance_bytes",
                self.checkpoint_distance_bytes,
                1 << 16,
                1 << 30,
            ),
            (
                "checkpoint_timeout_ms",
                self.checkpoint_timeout_ms,
                100,
                24 * 3_600_000,
            ),
            (
                "compaction_threshold",
                u64::from(self.compaction_threshold),
                2,
                1000,
            ),
            (
                "compaction_target_bytes",
                self.compaction_target_bytes,
                1 << 20,
                1 << 30,
            ),
            ("wait_lsn_timeout_ms", self.wait_lsn_timeout_ms, 1, 600_000),
            (
                "history_window_seconds",
                self.history_window_seconds,
                1,
                LONGEST_HISTORY_WINDOW.as_secs(),
            ),
        ];
        match ranges
            .into_iter()
            .find(|(_, value, min, max)| value < min || value > max)
        {
            Some((name, value, min, max)) => Err(OutOfRange {
                name,
                value,
                min,
                max,
            }),
            None => Ok(()),
        }
    }

    /// When a page gets an image, given the compute's full-page-writes state.
    pub fn image_rule(&self, full_page_writes: bool) -> ImageRule {
        match (self.image_mode, full_page_writes) {
            (ImageMode::Fixed, true) => ImageRule::Fixed(self.image_threshold),
            (ImageMode::Fixed, false) => ImageRule::Fixed(self.image_threshold_pushdown),
            (ImageMode::Adaptive, _) => ImageRule::Adaptive {
                bound: self.image_threshold_max,
            },
        }
    }

    /// The chain length at which any page gets an image.
    pub fn threshold(&self, full_page_writes: bool) -> u32 {
        match self.image_rule(full_page_writes) {
            ImageRule::Fixed(threshold) | ImageRule::Adaptive { bound: threshold } => threshold,
        }
    }

    /// How long a read waits at most for its LSN to be ingested.
    pub fn wait_lsn_timeout(&self) -> Duration {
        Duration::from_millis(self.wait_lsn_timeout_ms)
    }

    /// How far back a timeline can be read and branched from.
    pub fn history_window(&self) -> Duration {
        Duration::from_secs(self.history_window_seconds)
    }

    /// How long values stay at most in memory alone.
    pub fn checkpoint_timeout(&self) -> Duration {
        Duration::from_millis(self.checkpoint_timeout_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_touches_only_what_it_names_and_bad_values_change_nothing() {
        let config = TenantConfig::default();
        let patch: TenantConfigPatch =
            serde_json::from_str(r#"{"image_threshold_pushdown": 8}"#).unwrap();
        let changed = config.patched(&patch).unwrap();
        assert_eq!(
            changed,
            TenantConfig {
                image_threshold_pushdown: 8,
                ..config.clone()
            }
        );
        let zero: TenantConfigPatch = serde_json::from_str(r#"{"image_threshold": 0}"#).unwrap();
        assert!(
            config
                .patched(&zero)
                .unwrap_err()
                .to_string()
                .contains("image_threshold")
        );
        assert!(serde_json::from_str::<TenantConfigPatch>(r#"{"image_treshold": 8}"#).is_err());
    }

    #[test]
    fn the_adaptive_mode_has_its_own_bound_and_leaves_the_fixed_thresholds_alone() {
        let config = TenantConfig::default();
        assert_eq!(config.image_rule(true), ImageRule::Fixed(128));
        assert_eq!(config.image_rule(false), ImageRule::Fixed(128));
        let patch =
            serde_json::from_str(r#"{"image_mode": "adaptive", "image_threshold_max": 300}"#);
        let adaptive = config.patched(&patch.unwrap()).unwrap();
        for full_page_writes in [true, false] {
            assert_eq!(
                adaptive.image_rule(full_page_writes),
                ImageRule::Adaptive { bound: 300 }
            );
            assert_eq!(adaptive.threshold(full_page_writes), 300);
        }
        let back = serde_json::from_str(r#"{"image_mode": "fixed"}"#);
        let back = adaptive.patched(&back.unwrap()).unwrap();
        assert_eq!(back.threshold(false), 128);
    }
}
