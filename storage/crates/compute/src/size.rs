//! What the size of a compute makes of its limits. Pure.
//!
//! PostgreSQL's own defaults are those of one unit: a compute of another size has its parts or multiples of them, as far as
//! a running server takes them. `shared_buffers` waits for a start and stays the customer's to choose.

use crate::settings::SettingValue;

/// Memory of one unit.
const UNIT_MEMORY: u64 = 4 << 30;
/// What a server of one unit gives a sort, a vacuum, and a plan to reckon with, kB.
const WORK_MEM: f64 = 4096.0;
const MAINTENANCE_WORK_MEM: f64 = 65_536.0;
/// What the temporary files of a session of one unit may hold, kB: local disk is shared by all computes of a machine, and
/// by safekeepers, which take no commits once it is full. [`crate::postgres`] gives a compute of one unit as much.
const TEMP_FILES: f64 = (10 << 20) as f64;
/// What PostgreSQL takes for these at least, kB.
const LEAST_MEMORY: i64 = 1024;
/// Processes of parallel plans of one unit, for all sessions.
const PARALLEL_WORKERS: f64 = 8.0;

/// How large a compute is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComputeSize {
    units: f64,
}

impl ComputeSize {
    /// A compute of so many units. What is no positive number counts as one unit.
    pub fn new(units: f64) -> ComputeSize {
        let units = if units.is_finite() && units > 0.0 {
            units
        } else {
            1.0
        };
        ComputeSize { units }
    }

    /// Processors that the compute is to have.
    pub fn processors(self) -> f64 {
        self.units
    }

    /// Bytes of memory that the compute is to have.
    pub fn memory_bytes(self) -> u64 {
        (UNIT_MEMORY as f64 * self.units) as u64
    }

    /// Settings of PostgreSQL that follow from the size and that a running server takes; none for one unit, whose
    /// values are PostgreSQL's own.
    pub fn settings(self) -> Vec<(&'static str, SettingValue)> {
        if self.units == 1.0 {
            return Vec::new();
        }
        let memory = |of_a_unit: f64| (of_a_unit * self.units) as i64;
        let most = i64::from(i32::MAX);
        let kilobytes =
            |value: i64| SettingValue::Text(format!("{}kB", value.clamp(LEAST_MEMORY, most)));
        let workers = (PARALLEL_WORKERS * self.processors()).round() as i64;
        vec![
            ("work_mem", kilobytes(memory(WORK_MEM))),
            (
                "maintenance_work_mem",
                kilobytes(memory(MAINTENANCE_WORK_MEM)),
            ),
            (
                "effective_cache_size",
                kilobytes((self.memory_bytes() >> 10) as i64),
            ),
            (
                "max_parallel_workers",
                SettingValue::Integer(workers.clamp(1, 64)),
            ),
            ("temp_file_limit", kilobytes(memory(TEMP_FILES))),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(units: f64) -> Vec<String> {
        let settings = ComputeSize::new(units).settings();
        settings
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    #[test]
    fn one_unit_has_postgresqls_own_values_and_others_parts_of_them() {
        assert!(of(1.0).is_empty());
        assert_eq!(
            of(2.0),
            [
                "work_mem=8192kB",
                "maintenance_work_mem=131072kB",
                "effective_cache_size=8388608kB",
                "max_parallel_workers=16",
                "temp_file_limit=20971520kB"
            ]
        );
        assert_eq!(
            of(0.25),
            [
                "work_mem=1024kB",
                "maintenance_work_mem=16384kB",
                "effective_cache_size=1048576kB",
                "max_parallel_workers=2",
                "temp_file_limit=2621440kB"
            ]
        );
    }

    #[test]
    fn no_number_makes_a_value_that_postgresql_refuses() {
        for units in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            assert!(of(units).is_empty(), "{units}");
        }
        assert_eq!(of(0.001)[0], "work_mem=1024kB");
        assert_eq!(of(1000.0)[3], "max_parallel_workers=64");
        assert_eq!(of(1000.0)[4], "temp_file_limit=2147483647kB");
    }
}
