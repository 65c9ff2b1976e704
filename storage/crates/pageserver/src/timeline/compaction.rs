//! Compaction: level-0 layers are merged into level-1 layers, and level-1 layers that lie before the history horizon
//! are merged into level 2 without the versions that no readable LSN needs (`layers::plan_l0`,
//! `layers::plan_settling`).
//!
//! Level 0 comes first: a merge to level 2 pauses as long as any timeline's level 0 is being compacted, and ingest is
//! slowed when level 0 grows all the same (`backpressure`). Reads never wait for a compaction.
//!
//! A compaction that holds the turn waits for no upload and for no download of its inputs: inputs are fetched before,
//! and outputs may still be on their way when the next timeline merges. Only when a relation's truncations lie in a
//! layer that is not on the local disk is that layer fetched during the merge. What a timeline has merged and not
//! stored is bounded, because its next merge waits for the last one's uploads; over all timelines it is bounded by
//! `memory::MemoryBudget`.
//!
//! A merge to level 2 also lets go what is said of relations that are gone, once there is nothing of them left that it
//! would have to hide. What that rests on is in `known`.
//!
//! Each output is uploaded while the next one is being written. Once all outputs are durable, the layer map replaces
//! the inputs by the outputs, and in the same step the index is told to drop the inputs; once it is stored, the inputs
//! are deleted. A crash leaves objects that no index names, or an index that names outputs beside their inputs, never an
//! index that names a missing layer.

mod known;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use blob::{PutPayload, RemoteLayer};
use layers::{
    CompactionPlan, LayerDesc, LayerError, LayerName, MergeOptions, Retention, merge_layers,
    plan_l0, plan_settling,
};
use pg_types::{Key, Lsn};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, mpsc};

use self::known::{Dropped, Entries, Known};

use super::backpressure::Backpressure;
use super::identity::Identity;
use super::images::Images;
use super::layer_stack::LayerStack;
use super::lock_order::{RETENTION, Ranked};
use crate::error::{Error, Result};
use crate::layer_file::{LayerFile, Reader};
use crate::memory::{MAX_MERGED_BYTES, MemoryBudget, MergeTurn};
use crate::timeline_index::TimelineIndex;
use crate::version_store::VersionStore;

/// How often inputs may have vanished from local disk when it comes to the turn.
const MAX_FETCHES: usize = 10;
const RETRY: Duration = Duration::from_secs(5);

/// Merges the layers of one timeline. This part knows `LayerStack` and `Backpressure`; only the timeline knows this
/// part.
pub(super) struct Compaction {
    identity: Arc<Identity>,
    store: Arc<VersionStore>,
    index: Arc<TimelineIndex>,
    memory: Arc<MemoryBudget>,
    backpressure: Arc<Backpressure>,
    stack: Arc<LayerStack>,
    images: Arc<Images>,
    /// What may be dropped; everything stays until it is known what branches need.
    retention: Ranked<RETENTION, Retention>,
    /// Held for writing by a merge that lets entries go, and for reading by whoever needs that none does.
    entries: Arc<RwLock<()>>,
}

impl Compaction {
    pub fn new(
        identity: Arc<Identity>,
        index: Arc<TimelineIndex>,
        store: Arc<VersionStore>,
        memory: Arc<MemoryBudget>,
        backpressure: Arc<Backpressure>,
        images: Arc<Images>,
        stack: Arc<LayerStack>,
    ) -> Compaction {
        Compaction {
            identity,
            store,
            index,
            memory,
            backpressure,
            images,
            stack,
            retention: Ranked::default(),
            entries: Arc::default(),
        }
    }

    /// Waits for a merge that lets entries go to be over. None goes until what this returns is dropped.
    pub async fn hold_entries(&self) -> OwnedRwLockReadGuard<()> {
        self.entries.clone().read_owned().await
    }

    /// From now on what this does not keep may be dropped.
    pub fn keep(&self, retention: Retention) {
        *self.retention.lock() = retention;
    }

    /// The background task for level 0.
    pub async fn l0_task(self: Arc<Compaction>) {
        loop {
            let compacted = self.compact_l0().await;
            self.backpressure.compaction_ended(compacted.is_err());
            match compacted {
                Ok(true) => continue,
                Ok(false) => self.backpressure.compaction_wanted().await,
                Err(error) => {
                    tracing::error!(tenant = %self.identity.tenant, timeline = %self.identity.id, "cannot compact: {error}");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// The background task for what has become history.
    pub async fn settling_task(self: Arc<Compaction>) {
        loop {
            match self.merge_settled().await {
                Ok(true) => continue,
                Ok(false) => self.stack.settling_wanted().await,
                Err(error) => {
                    tracing::error!(tenant = %self.identity.tenant, timeline = %self.identity.id, "cannot trim history: {error}");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// One compaction of level 0, if there is enough to do.
    async fn compact_l0(&self) -> Result<bool> {
        let threshold = self.identity.config().compaction_threshold as usize;
        let Some(plan) = plan_l0(&self.store.map(), threshold, MAX_MERGED_BYTES) else {
            return Ok(false);
        };
        crash::point!("compaction.planned");
        self.compact(plan, Retention::everything()).await?;
        Ok(true)
    }

    /// One step of merging what lies before the horizon, if it is worth it.
    async fn merge_settled(&self) -> Result<bool> {
        let retention = self.retention.lock().clone();
        let least = self.identity.config().compaction_target_bytes;
        let horizon = retention.horizon();
        let Some(plan) = plan_settling(&self.store.map(), horizon, least, MAX_MERGED_BYTES) else {
            return Ok(false);
        };
        crash::point!("settling.planned");
        self.compact(plan, retention).await?;
        Ok(true)
    }

    /// Has the inputs on local disk, opened so that they stay readable, and the turn to merge them.
    async fn opened(
        &self,
        level: u8,
        inputs: &[Arc<LayerFile>],
    ) -> Result<(Vec<Reader>, MergeTurn<'_>)> {
        for _ in 0..MAX_FETCHES {
            for file in inputs {
                self.store.cache().fetch(file).await?;
            }
            let turn = self.memory.merge_turn(level).await;
            match inputs.iter().map(|file| file.reader()).collect() {
                Ok(readers) => return Ok((readers, turn)),
                // Evicted while the others had their turn.
                Err(LayerError::NotResident(_)) => {}
                Err(error) => return Err(anyhow!(error).into()),
            }
        }
        let why = "layers keep vanishing from the local cache; is its disk full or being cleaned?";
        Err(anyhow!(why).into())
    }

    async fn compact(&self, plan: CompactionPlan, retention: Retention) -> Result<()> {
        let map = self.store.map();
        let mut removed: Vec<LayerName> = plan.inputs.iter().map(LayerDesc::name).collect();
        let mut inputs: Vec<Arc<LayerFile>> = removed
            .iter()
            .filter_map(|name| map.get(name).cloned())
            .collect();
        let _room = self.memory.merge_room(plan.level, plan.bytes).await;
        let (known, _entries) = self.known(&plan, retention.horizon()).await?;
        let (readers, turn) = self.opened(plan.level, &inputs).await?;
        let started = Instant::now();
        crash::point!("compaction.inputs-fetched");
        let options = MergeOptions {
            target_bytes: self.identity.config().compaction_target_bytes,
            level: plan.level,
            retention,
            ..MergeOptions::default()
        };
        let Merged {
            added,
            stays,
            dropped,
        } = self.merge(readers, options, known, turn).await?;
        let dropped = self.checked(dropped, &removed, &added).await?;
        removed.retain(|name| !stays.contains(name));
        inputs.retain(|file| !stays.contains(file.name()));
        crash::point!("compaction.outputs-durable");
        if plan.level > 1 {
            crash::point!("settling.outputs-durable");
        }
        let (count, bytes) = (
            added.len(),
            added.iter().map(|it| it.desc.size).sum::<u64>(),
        );
        // The map changes before the inputs are deleted, so that no read starts on a deleted layer; a read that
        // opened an input before keeps the open file.
        let removing = || self.index.remove_layers(removed.clone());
        let (store, newest) = (&self.store, dropped.newest());
        let removing = store.replace_files(added, &removed, newest, removing);
        crash::point!("compaction.map-changed");
        self.stack.report_layers();
        self.backpressure.level_0_compacted();
        removing.await?;
        crash::point!("compaction.index-changed");
        if plan.level > 1 {
            crash::point!("settling.index-changed");
        }
        for file in &inputs {
            self.store.cache().remove_copy(file).await?;
        }
        crash::point!("compaction.copies-removed");
        let seconds = started.elapsed().as_secs_f64();
        self.identity
            .metrics
            .observe_compaction(plan.level, seconds, plan.bytes, bytes);
        for (kind, count) in dropped.counts() {
            self.identity.metrics.observe_dropped(kind, count);
        }
        if plan.level == 1 {
            self.stack.want_settling();
        }
        tracing::info!(
            tenant = %self.identity.tenant, timeline = %self.identity.id, level = plan.level, inputs = removed.len(), outputs = count,
            bytes_in = plan.bytes, bytes_out = bytes, elapsed_ms = started.elapsed().as_millis() as u64, "compacted"
        );
        Ok(())
    }

    /// What the merge of a plan is told of all that lies beside its inputs. As long as the guard lives the merge may let
    /// entries go.
    async fn known(
        &self,
        plan: &CompactionPlan,
        horizon: Lsn,
    ) -> Result<(Known, Option<OwnedRwLockWriteGuard<()>>)> {
        // None goes while a branch copies layers.
        let entries = || self.entries.clone().try_write_owned().ok();
        let Some(held) = (plan.level > 1).then(entries).flatten() else {
            return Ok((Known::new(self.store.clone(), horizon, None), None));
        };
        let state = [(Key::timeline_state(), Lsn::INVALID)];
        let states = self.store.chains(&state, horizon).await?;
        let state = states.first().and_then(|chain| chain.lsn());
        // Before it is looked what there is: an image that was put meanwhile is seen there.
        let making = self.images.oldest_in_making();
        let upto = horizon.min(making).min(state.unwrap_or_default());
        let inputs: HashSet<LayerName> = plan.inputs.iter().map(LayerDesc::name).collect();
        let entries = Entries::new(self.store.beside(inputs, upto), upto);
        let known = Known::new(self.store.clone(), horizon, Some(entries));
        Ok((known, Some(held)))
    }

    /// Checks again that what a merge has let go hides nothing, right before that takes effect. Otherwise nothing is
    /// left of the merge.
    async fn checked(
        &self,
        dropped: Dropped,
        inputs: &[LayerName],
        added: &[RemoteLayer],
    ) -> Result<Dropped> {
        let inputs = inputs.iter().cloned().collect();
        let beside = self.store.beside(inputs, dropped.newest());
        let check = move || dropped.check(&beside).map(|()| dropped);
        let checked = tokio::task::spawn_blocking(check).await;
        match checked.context("task that checks a merge") {
            Ok(Ok(dropped)) => Ok(dropped),
            Ok(Err(error)) | Err(error) => {
                self.discard(added).await;
                Err(error.into())
            }
        }
    }

    /// Takes outputs that are not used out of the index, which would bring them back at the next start.
    async fn discard(&self, added: &[RemoteLayer]) {
        let names: Vec<LayerName> = added.iter().map(|layer| layer.desc.name()).collect();
        if names.is_empty() {
            return;
        }
        if let Err(error) = self.index.discard_layers(names).await {
            tracing::warn!(tenant = %self.identity.tenant, timeline = %self.identity.id, "outputs of a merge that failed stay: {error}");
        }
    }

    /// Merges layers and uploads what comes out, each while the next one is written. The turn ends with the merge. An
    /// output that is there already stays where it is, as often as it comes out: an input that nothing was merged
    /// into, or what a crash had left in the index beside what it was made from.
    async fn merge(
        &self,
        readers: Vec<Reader>,
        options: MergeOptions,
        mut known: Known,
        turn: MergeTurn<'_>,
    ) -> Result<Merged> {
        // The channel is bounded only by the size of the inputs, so that the merge, which holds the turn, never waits
        // for an upload.
        let (outputs, written) = mpsc::unbounded_channel::<(LayerDesc, PutPayload)>();
        let uploads = self.store.uploads().clone();
        let memory = self.memory.clone();
        let gives_way = options.level > 1;
        let merge = move || -> anyhow::Result<Dropped> {
            let give_way = || {
                if gives_way {
                    memory.give_way_to_l0();
                }
            };
            let versions = readers
                .iter()
                .map(|reader| reader.iter().inspect(|_| give_way()));
            merge_layers(versions.collect(), &options, &mut known, |desc, bytes| {
                let sent = outputs.send((desc, uploads.counted([bytes])));
                sent.map_err(|_| anyhow!("nobody takes the merged layers any more"))
            })?;
            Ok(known.dropped())
        };
        let merging = tokio::task::spawn_blocking(merge);
        let merged = async {
            let merged = merging.await;
            drop(turn);
            merged
        };
        let (mut added, mut stays) = (Vec::new(), Vec::new());
        let uploaded = async {
            // Gone with the first error, so that the merge ends.
            let mut written = written;
            while let Some((desc, bytes)) = written.recv().await {
                let name = desc.name();
                if self.store.map().get(&name).is_some() {
                    stays.push(name);
                    continue;
                }
                added.push(self.index.upload_layer(desc, bytes).await?);
                crash::point!("compaction.output-queued");
            }
            Ok::<_, Error>(())
        };
        let (merged, uploaded) = tokio::join!(merged, uploaded);
        let durable = async {
            uploaded?;
            let dropped = merged.context("compaction task")??;
            self.index.uploaded().await?;
            Ok::<_, Error>(dropped)
        };
        match durable.await {
            Ok(dropped) => Ok(Merged {
                added,
                stays,
                dropped,
            }),
            Err(error) => {
                self.discard(&added).await;
                Err(error)
            }
        }
    }
}

/// What comes out of a merge.
struct Merged {
    /// Durable, and not yet named by the index.
    added: Vec<RemoteLayer>,
    /// There before.
    stays: Vec<LayerName>,
    dropped: Dropped,
}

#[cfg(test)]
mod tests;
