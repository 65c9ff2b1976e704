//! Changing the spec of a compute.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::settings::FailedSetting;
use super::{Agent, Live, State, SwitchError};
use crate::postgres::limits::Limits;
use crate::postgres::{self, AdminError, SettingsError};
use crate::settings;
use crate::spec::{Spec, SpecError};

const SWITCH_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a run may take to end and the next one to serve.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(30);
const REPLACE_PAUSE: Duration = Duration::from_millis(20);

/// Why a spec was not applied, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    /// The spec cannot be followed by this compute. Nothing was changed.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// No Postgres serves in the state of the field. Repeat the call once one does. Where the call waited for a new
    /// run, the spec is applied all the same.
    #[error("the compute is {0:?}; it can be configured only while it runs")]
    NotRunning(State),
    /// Postgres refused a statement for roles, databases or drops. What came before it is applied, and the same spec
    /// can be applied again.
    #[error("Postgres refused the spec: {0}")]
    Postgres(#[from] AdminError),
    /// Postgres refused the settings, or no client could connect with them. The rest of the spec is applied.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Full page writes could not be switched. Roles, databases and limits are applied, and so are settings that were
    /// not refused; nothing is dropped.
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

/// What became of a spec that was applied.
#[derive(Debug, serde::Serialize)]
pub struct Configured {
    /// Settings that take effect at the next start.
    pub pending_restart: Vec<String>,
    /// Settings of the spec that were refused before, and are not in force.
    pub failed: Vec<FailedSetting>,
}

impl Agent {
    /// Holds WAL to a rate, in bytes a second, from here on.
    pub(super) fn set_wal_rate(&self, rate: Option<u64>) {
        self.pace.set(rate);
        self.metrics.wal_rate_limit.set(rate.unwrap_or(0) as i64);
    }

    /// Waits until another run serves in the place of one that has to end.
    async fn replaced(&self, old: &Arc<Live>) -> Result<(), ConfigureError> {
        let deadline = Instant::now() + REPLACE_TIMEOUT;
        while (self.running()).is_none_or(|live| Arc::ptr_eq(&live, old)) {
            if Instant::now() > deadline {
                return Err(ConfigureError::NotRunning(self.status.lock().state));
            }
            tokio::time::sleep(REPLACE_PAUSE).await;
        }
        Ok(())
    }

    /// Applies a spec. One that the list of settings refuses changes nothing. Settings that Postgres refuses, or with
    /// which nobody can connect, are taken back as a whole, and are the error once the rest of the spec is applied.
    /// Roles and databases before a refused one are applied, and applying again goes on from there. Limits hold from
    /// here on whatever Postgres says to the rest.
    pub async fn configure(&self, next: Spec) -> Result<Configured, ConfigureError> {
        let one = self.changing.lock().await;
        let now = self.spec();
        now.check_change(&next)?;
        // Settings it has already were sorted out when it started: other changes need not wait until they are gone.
        if next.settings != now.settings {
            settings::check(&next.settings, next.pg_version, next.compute_units)
                .map_err(SpecError::from)?;
        }
        let live = self
            .running()
            .ok_or_else(|| ConfigureError::NotRunning(self.status.lock().state))?;
        // What a size allows comes before the settings that count on it, and goes after them.
        let larger = now.compute_units.max(next.compute_units);
        self.resize(&live, larger).await;
        let settings = self.change_settings(&next, &live).await;
        self.hold_to(&next);
        let applied = self.apply_to(&live, &next).await;
        // A spec that was not applied leaves the size before, as the status says it.
        self.resize(&live, self.spec().compute_units).await;
        // After the rest, because a quota that the branch is near ends this run; and also when the rest has failed,
        // because what a user has done to a role or a database must not keep a limit from counting.
        live.volume.quota().set(next.storage_quota_bytes);
        drop(one);
        applied?;
        if live.volume.write_through_needed().is_some() {
            self.replaced(&live).await?;
        }
        Ok(Configured {
            pending_restart: settings?,
            failed: self.failed_settings(),
        })
    }

    /// Bounds what Postgres takes of the machine as its size says, where it has a control group.
    pub(super) async fn resize(&self, live: &Arc<Live>, units: f64) {
        let (limits, postmaster) = (Limits::of_units(units), live.postmaster.clone());
        if postmaster.is_within(&limits) {
            return;
        }
        // The kernel may take memory back before it answers.
        match tokio::task::spawn_blocking(move || postmaster.resize(limits)).await {
            Ok(bounds) => self.bounded(bounds.as_ref()),
            Err(error) => tracing::error!(%error, "changing the limits of a size panicked"),
        }
    }

    /// Takes into the spec, and so into the next run, what needs no consent of Postgres.
    fn hold_to(&self, next: &Spec) {
        {
            let mut spec = self.spec.lock();
            (spec.settings, spec.durability) = (next.settings.clone(), next.durability);
            spec.wal_bytes_per_second = next.wal_bytes_per_second;
            spec.storage_quota_bytes = next.storage_quota_bytes;
        }
        self.set_wal_rate(next.wal_bytes_per_second);
    }

    /// Brings what only Postgres can do in force: roles, databases, the switch of page images, drops.
    async fn apply_to(&self, live: &Arc<Live>, next: &Spec) -> Result<(), ConfigureError> {
        let admin = live.admin().await?;
        postgres::apply(&admin, next).await?;
        self.switch_on(live, next.full_page_writes, SWITCH_TIMEOUT)
            .await?;
        *self.spec.lock() = next.clone();
        // Last: what users have done to a role or a database may keep it from being dropped, and all else is in force.
        postgres::drop_named(&admin, &live.socket, next).await?;
        Ok(())
    }
}
