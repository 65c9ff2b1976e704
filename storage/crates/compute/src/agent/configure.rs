//! Changing the spec of a compute.

use std::time::Duration;

use super::{Agent, State, SwitchError};
use crate::postgres::{self, AdminError};
use crate::spec::{Spec, SpecError};

const SWITCH_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum ConfigureError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("the compute is {0:?}; it can be configured only while it runs")]
    NotRunning(State),
    #[error("Postgres refused the spec: {0}")]
    Postgres(#[from] AdminError),
    #[error(transparent)]
    Switch(#[from] SwitchError),
}

impl Agent {
    /// Applies a spec; returns the settings that wait for the next start. A refused one changes no setting;
    /// roles and databases before the refused one are applied, and applying again goes on from there.
    pub async fn configure(&self, next: Spec) -> Result<Vec<String>, ConfigureError> {
        let _one = self.changing.lock().await;
        let now = self.spec();
        now.check_change(&next)?;
        let live = self
            .running()
            .ok_or_else(|| ConfigureError::NotRunning(self.status.lock().state))?;
        let admin = live.admin().await?;
        let (before, settings) = (now.postgres_settings(), next.postgres_settings());
        let waiting = if before == settings {
            Vec::new()
        } else {
            let write = |name: &str, content: &[u8]| live.data.put(name, content);
            let check = async || {
                let (program, data) = (next.pg_bin_dir.join("postgres"), live.data.path.clone());
                let user = self.pg_user.clone();
                tokio::task::spawn_blocking(move || {
                    postgres::check_configuration(&program, &data, &user)
                })
                .await
                .map_err(|error| error.to_string())?
            };
            postgres::apply_settings(&admin, write, check, &before, &settings).await?
        };
        {
            let mut spec = self.spec.lock();
            (spec.settings, spec.durability) = (next.settings.clone(), next.durability);
        }
        live.volume.quota().set(next.storage_quota_bytes);
        postgres::apply(&admin, &next).await?;
        self.switch_on(&live, next.full_page_writes, SWITCH_TIMEOUT)
            .await?;
        *self.spec.lock() = next.clone();
        // Last: what users have done to a role or a database may keep it from being dropped, and all else is in force.
        postgres::drop_named(&admin, &live.socket, &next).await?;
        Ok(waiting)
    }
}
