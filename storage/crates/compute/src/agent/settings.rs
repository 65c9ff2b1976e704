//! Which settings a start uses, what became of them, and what of them is in force.
//!
//! A start uses the spec's settings, without those that the list refuses. When Postgres does not start with them, or
//! nobody can connect, the next attempt uses those that worked last, which lie in a file of the compute's directory,
//! or none; and they stay until other ones are asked for or the process is started anew. Each time this is logged as
//! an error, and `GET /settings` says which settings failed, and why.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::live::Live;
use super::{Agent, End, State};
use crate::postgres::{SettingsError, SettingsFile};
use crate::settings::{self, SettingValue};
use crate::spec::Spec;

/// Values by name.
pub(super) type Settings = BTreeMap<String, SettingValue>;

/// When clients are tried after a start over which the trial does not decide: not while the first of them come.
const TRIAL_LATER: Duration = Duration::from_secs(2);

/// Of a spec's settings.
#[derive(Default)]
pub(super) struct Choices {
    /// The customer's, among what Postgres was given.
    applied: Settings,
    /// All that Postgres was given in its file.
    file: Settings,
    /// The customer's with which clients connected last.
    good: Option<Settings>,
    /// Those that Postgres refused as a whole, which are not tried again in this process, and why.
    refused: Option<(Settings, String)>,
    /// Whether the last start used those that worked last, in place of `refused`.
    fell_back: bool,
    /// Why settings of the spec are not in force, by name.
    failed: BTreeMap<String, String>,
    /// Whether clients were tried since the last start.
    tried: bool,
}

impl Choices {
    /// Nothing applied yet; `good` are the settings that worked last.
    pub(super) fn with_good(good: Option<Settings>) -> Choices {
        Choices {
            good,
            ..Choices::default()
        }
    }

    /// Takes notice that `wanted` is refused while `applied` is in force: what differs has failed.
    fn refuse(&mut self, wanted: &Settings, reason: &str) {
        let names = wanted.keys().chain(self.applied.keys());
        let differing = names.filter(|name| wanted.get(*name) != self.applied.get(*name));
        let failed: Vec<_> = differing.cloned().collect();
        self.failed
            .extend(failed.into_iter().map(|name| (name, reason.to_owned())));
        self.refused = Some((wanted.clone(), reason.to_owned()));
    }
}

/// What became of one setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SettingState {
    /// The wanted value is in force.
    InForce,
    /// The wanted value is in force from the next start on.
    PendingRestart,
    /// Another value is in force; the reason says why.
    Failed,
}

/// One setting that is wanted, or in force without being wanted.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct SettingStatus {
    /// The setting's name as the spec writes it, or as Postgres does where only Postgres has it.
    pub name: String,
    /// As the spec has it; null when it was taken back from the spec and is in force still.
    pub wanted: Option<String>,
    /// As a session begins with it; null when Postgres has no such setting.
    pub in_force: Option<String>,
    /// Whether the wanted value is in force.
    pub state: SettingState,
    /// Why the setting has failed; null in other states.
    pub reason: Option<String>,
}

/// A setting that is wanted and not in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FailedSetting {
    /// The setting's name, as the spec writes it.
    pub name: String,
    /// Why the setting is not in force, in words.
    pub reason: String,
}

/// Why it is not known which settings are in force.
#[derive(Debug, thiserror::Error)]
pub enum SettingsStatusError {
    /// No Postgres runs in the state of the field.
    #[error("the compute is {0:?}; which settings are in force is known while it runs")]
    NotRunning(State),
    /// Postgres gave no session or no answer. Ask again.
    #[error("Postgres does not say which settings are in force: {0}")]
    Postgres(#[from] crate::postgres::trial::TrialError),
}

/// Settings without those that the list refuses, and these with why.
fn sort_out(spec: &Spec) -> (Settings, BTreeMap<String, String>) {
    let (mut allowed, mut refused) = (Settings::new(), BTreeMap::new());
    for (name, value) in &spec.settings {
        match settings::check_one(name, value, spec.pg_version, spec.compute_units) {
            Ok(()) => drop(allowed.insert(name.clone(), value.clone())),
            Err(refusal) => drop(refused.insert(name.clone(), refusal.to_string())),
        }
    }
    (allowed, refused)
}

/// A trial of clients that decides nothing, behind a start: when those who waited for it have been served. Does not end.
pub(super) async fn try_later(agent: &Agent, live: &Live) {
    let (started_with, tried) = {
        let choices = agent.choices.lock();
        (choices.applied.clone(), choices.tried)
    };
    if !tried {
        tokio::time::sleep(TRIAL_LATER).await;
        // No change of settings meanwhile, which has trials of its own.
        let _one = agent.changing.lock().await;
        if agent.choices.lock().applied == started_with {
            let spec = agent.spec();
            agent.try_clients(&spec, live).await.ok();
        }
    }
    std::future::pending().await
}

impl Agent {
    fn settings_file<'a>(&'a self, spec: &'a Spec, live: &'a Live) -> SettingsFile<'a> {
        let switched = self.status.lock().full_page_writes;
        SettingsFile {
            spec,
            data: &live.data,
            socket: &live.socket,
            postmaster: &live.postmaster,
            user: &self.pg_user,
            full_page_writes: switched.is_none_or(|switched| switched.enabled),
        }
    }

    /// The spec with the settings to start with.
    pub(super) fn spec_to_start(&self) -> Spec {
        let mut spec = self.spec();
        let (mut chosen, left_out) = sort_out(&spec);
        for (name, reason) in &left_out {
            tracing::error!(name, "starting without a setting: {reason}");
        }
        let mut choices = self.choices.lock();
        choices.failed = left_out;
        let refused = choices.refused.take();
        let refused = refused.filter(|(wanted, _)| *wanted == chosen);
        choices.fell_back = refused.is_some();
        choices.tried = false;
        if let Some((wanted, reason)) = refused {
            chosen = choices.good.clone().unwrap_or_default();
            choices.applied = chosen.clone();
            choices.refuse(&wanted, &reason);
            let kept: Vec<_> = chosen.keys().collect();
            tracing::error!(
                ?kept,
                "starting with the settings that worked last: {reason}"
            );
        }
        spec.settings = chosen;
        choices.applied = spec.settings.clone();
        choices.file = spec.postgres_settings();
        spec
    }

    /// A start came to nothing. The next one uses the settings that worked last, if this one used others; if it used
    /// them, they were not the reason, and the next one uses the spec's again.
    pub(super) fn start_failed(&self, reason: &str) {
        let mut choices = self.choices.lock();
        if choices.fell_back {
            choices.refused = None;
        } else if choices.applied != choices.good.clone().unwrap_or_default() {
            let reason = format!("Postgres did not start with it: {reason}");
            choices.refused = Some((choices.applied.clone(), reason));
        }
    }

    /// Whether a trial of clients decides over the start that is under way: it has other settings than those that worked
    /// last.
    pub(super) fn trial_decides(&self) -> bool {
        let choices = self.choices.lock();
        !choices.fell_back && choices.applied != choices.good.clone().unwrap_or_default()
    }

    /// After a start: whether clients can connect. Where they cannot, and other settings worked, the start has failed.
    pub(super) async fn try_clients(&self, spec: &Spec, live: &Live) -> Result<(), End> {
        self.choices.lock().tried = true;
        let Err(fault) = self.settings_file(spec, live).try_clients().await else {
            self.settings_worked(&[]);
            return Ok(());
        };
        if !self.trial_decides() {
            tracing::error!("no client can connect: {fault}");
            return Ok(());
        }
        Err(End::Start(anyhow::anyhow!(
            "no client can connect: {fault}"
        )))
    }

    /// Keeps the settings that are in force as those that worked last, but for those that wait for a start.
    fn settings_worked(&self, pending: &[String]) {
        let good = {
            let mut choices = self.choices.lock();
            let mut good = choices.applied.clone();
            for name in pending {
                good.retain(|other, _| !other.eq_ignore_ascii_case(name));
                let before = choices.good.as_ref().and_then(|good| good.get(name));
                if let Some(value) = before.cloned() {
                    good.insert(name.clone(), value);
                }
            }
            choices.good = Some(good.clone());
            good
        };
        if let Err(error) = keep(&self.paths.good_settings, &good) {
            tracing::error!(%error, "cannot keep the settings that worked; the next start falls back to older ones");
        }
    }

    /// Puts the settings of `next` in force as a transaction; returns those that wait for the next start. Settings that
    /// were refused before are not tried again, and are no error.
    pub(super) async fn change_settings(
        &self,
        next: &Spec,
        live: &Live,
    ) -> Result<Vec<String>, SettingsError> {
        let (allowed, left_out) = sort_out(next);
        let mut spec = next.clone();
        spec.settings = allowed;
        let (before, tried) = {
            let mut choices = self.choices.lock();
            choices.failed = left_out;
            let refused = choices.refused.take();
            let again = refused.filter(|(refused, _)| *refused == spec.settings);
            let tried = again.is_some();
            if let Some((refused, reason)) = again {
                choices.refuse(&refused, &reason);
                // What is not the customer's, the durability that the spec names, is changed all the same.
                spec.settings = choices.applied.clone();
            }
            (choices.file.clone(), tried)
        };
        let wanted = spec.postgres_settings();
        let settings_file = self.settings_file(next, live);
        if before == wanted {
            return Ok(settings_file.pending().await);
        }
        match settings_file.change(&before, &wanted).await {
            Ok(pending) => {
                {
                    let mut choices = self.choices.lock();
                    choices.applied = spec.settings;
                    choices.file = wanted;
                }
                self.settings_worked(&pending);
                Ok(pending)
            }
            Err(error) => {
                if !tried {
                    let mut choices = self.choices.lock();
                    choices.refuse(&spec.settings, &error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Which settings of the spec are not in force, by what was tried last.
    pub(super) fn failed_settings(&self) -> Vec<FailedSetting> {
        let failed = self.choices.lock().failed.clone();
        failed
            .into_iter()
            .map(|(name, reason)| FailedSetting { name, reason })
            .collect()
    }

    /// The value of `synchronous_commit` that Postgres was given.
    pub(super) fn given_synchronous_commit(&self) -> Option<String> {
        let choices = self.choices.lock();
        let mut given = choices.file.iter();
        given
            .find(|(name, _)| name.eq_ignore_ascii_case("synchronous_commit"))
            .map(|(_, value)| value.to_string())
    }

    /// What is wanted and what is in force, as Postgres says now.
    pub async fn settings_status(&self) -> Result<Vec<SettingStatus>, SettingsStatusError> {
        let live = self
            .running()
            .ok_or_else(|| SettingsStatusError::NotRunning(self.status.lock().state))?;
        let spec = self.spec();
        let (applied, failed) = {
            let choices = self.choices.lock();
            (choices.applied.clone(), choices.failed.clone())
        };
        let mut names: Vec<String> = spec
            .settings
            .keys()
            .chain(applied.keys())
            .cloned()
            .collect();
        let settings_file = self.settings_file(&spec, &live);
        // One that was taken back stays in force until the next start where it needs one.
        names.extend(settings_file.pending().await);
        names.sort();
        names.dedup();
        let in_force = settings_file.in_force(names.iter()).await?;
        let one = |name: String| {
            let found = in_force.get(&name.to_ascii_lowercase());
            let given = applied.get(&name) == spec.settings.get(&name);
            let (state, reason) = match (failed.get(&name), found) {
                (Some(reason), _) => (SettingState::Failed, Some(reason.clone())),
                (None, Some(found)) if found.pending_restart => {
                    (SettingState::PendingRestart, None)
                }
                (None, Some(found)) if found.from_spec && given => (SettingState::InForce, None),
                _ => (
                    SettingState::Failed,
                    Some("Weir has another value in force at present".to_owned()),
                ),
            };
            SettingStatus {
                wanted: spec.settings.get(&name).map(ToString::to_string),
                in_force: found.map(|found| found.value.clone()),
                state,
                reason,
                name,
            }
        };
        Ok(names.into_iter().map(one).collect())
    }
}

/// The settings that worked last, as an earlier process kept them; none when there are none, or they cannot be read.
pub(super) fn kept(path: &std::path::Path) -> Option<Settings> {
    let text = std::fs::read(path).ok()?;
    serde_json::from_slice(&text)
        .inspect_err(
            |error| tracing::error!(%error, "the settings that worked last cannot be read"),
        )
        .ok()
}

fn keep(path: &std::path::Path, good: &Settings) -> std::io::Result<()> {
    let beside = path.with_extension("next");
    std::fs::write(&beside, serde_json::to_vec_pretty(good)?)?;
    std::fs::rename(beside, path)
}
