//! A branch becomes independent: it gets layers of its own for all that it reads through its ancestors.
//!
//! Invariants:
//! - What is copied of an ancestor is its layer map of one moment, as far as the layers lie at or before the branch
//!   point. The branch's history begins where its lineage's history began after the last map was taken. A layer that
//!   was compacted away before it was copied starts the round over.
//! - Copies are named by no index until all are durable. Then one write of the index names them, takes the ancestor
//!   away, and adds what the branch had there: leases, where its history begins. Only after that write may the
//!   ancestor drop the branch point, and be deleted.
//! - From before the first map is taken until the branch reads its copies, neither the branch nor its ancestors let go of
//!   an entry that hides something in the copies (`compaction`).
//! - Two layers never hold different values for one key at one LSN. The branch's first layer holds the state and the
//!   control file at its start, so these are left out at exactly that LSN.
//!
//! A crash before the index is written leaves the branch as it was, and copies that no index names, which the next
//! start removes; a repeated request begins anew. A crash after the write leaves the branch detached.
//!
//! A detach that is given up before the index changes leaves the branch as it was. Its copies are deleted; one that
//! was being written just then stays until the next start.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use anyhow::{Context, anyhow};
use blob::RemoteLayer;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use layers::{LayerDesc, LayerName, MergeOptions, PersistentLayer as _, merge_layers};
use pg_types::{Key, Lsn, TimelineId};
use tokio::sync::{Notify, OwnedRwLockReadGuard};

use super::Timeline;
use super::lock_order::{COPIES, DETACH, Ranked};
use crate::api::{DetachInfo, DetachState};
use crate::error::{Error, Result};
use crate::layer_file::LayerFile;
use crate::timeline_index::{Inheritance, Lease};

/// Layers copied at the same time.
const COPIES_AT_ONCE: usize = 4;
/// How often copying starts over because layers were compacted away meanwhile. What was copied is kept, so each round
/// is shorter than the one before.
const ROUNDS: usize = 50;
/// How often a layer is fetched for rewriting that is evicted before it is opened.
const FETCHES: usize = 10;

type Source = (TimelineId, LayerName);

/// What has become of the request.
#[derive(Default)]
pub struct DetachWork {
    request: Ranked<DETACH, RequestState>,
    /// Wakes the copying when the request is given up.
    given_up: Notify,
    layers: AtomicUsize,
    layers_copied: AtomicUsize,
    bytes: AtomicU64,
    bytes_copied: AtomicU64,
    /// What has been copied, for the next round or attempt.
    copies: Ranked<COPIES, HashMap<Source, Vec<RemoteLayer>>>,
}

#[derive(Default)]
struct RequestState {
    running: bool,
    // By whoever wants it to stop.
    given_up: bool,
    /// The index changes: it is too late to stop.
    leaving: bool,
    failed: Option<String>,
}

/// What a branch needs of one layer of an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    Nothing,
    All,
    /// What lies at or before the branch point.
    Part,
}

/// See [`Needed`]; `upto` is where the branch leaves the ancestor.
fn needed(desc: &LayerDesc, upto: Lsn) -> Needed {
    match desc.lsns {
        lsns if lsns.first > upto => Needed::Nothing,
        // At the branch point itself the branch has some values of its own.
        lsns if lsns.last < upto => Needed::All,
        _ => Needed::Part,
    }
}

/// Whether a version at or before the branch point is the ancestor's to give.
fn is_inherited(key: &Key, lsn: Lsn, upto: Lsn) -> bool {
    let is_own = lsn == upto && [Key::timeline_state(), Key::control_file()].contains(key);
    lsn <= upto && !is_own
}

/// One layer to be copied.
struct Part {
    from: Arc<Timeline>,
    file: Arc<LayerFile>,
    upto: Lsn,
    needed: Needed,
}

impl Part {
    fn source(&self) -> Source {
        (self.from.id(), self.file.name().clone())
    }

    fn is_superseded(&self) -> bool {
        self.from.store.map().get(self.file.name()).is_none()
    }
}

/// Everything a branch read through its ancestors, durable, and where the history in it begins.
pub(crate) struct Copied {
    layers: Vec<RemoteLayer>,
    oldest: Lsn,
    held: Vec<OwnedRwLockReadGuard<()>>,
}

impl Timeline {
    /// Takes note that it is to be detached: whether that has to be started.
    pub(crate) fn begin_detaching(&self) -> Result<bool> {
        if self.index.is_detached() {
            return Ok(false);
        }
        if self.lineage.parent().is_none() {
            return Err(Error::Conflict(format!(
                "timeline {} has no ancestor: there is nothing to detach it from",
                self.id()
            )));
        }
        let mut request = self.detaching.request.lock();
        let is_new = !std::mem::replace(&mut request.running, true);
        if is_new {
            *request = RequestState {
                running: true,
                ..RequestState::default()
            };
        }
        Ok(is_new)
    }

    /// Has the detach that is under way stop, unless the index changes already.
    pub(crate) fn give_up_detaching(&self) {
        let mut request = self.detaching.request.lock();
        if request.running && !request.leaving {
            request.given_up = true;
            self.detaching.given_up.notify_one();
        }
    }

    /// Returns once the detach is given up; never, if it is not.
    pub(crate) async fn detaching_given_up(&self) {
        // A notice that an earlier detach left behind only makes it look once more.
        while !self.detaching.request.lock().given_up {
            self.detaching.given_up.notified().await;
        }
    }

    /// Takes note that the index is about to change. False when the detach was given up before.
    pub(crate) fn begin_leaving(&self) -> bool {
        let mut request = self.detaching.request.lock();
        request.leaving = !request.given_up;
        request.leaving
    }

    pub(crate) async fn detaching_ended(&self, result: Result<()>) {
        let given_up = self.detaching.request.lock().given_up;
        if given_up {
            tracing::info!(tenant = %self.tenant(), timeline = %self.id(), "the detach was given up");
            // Before another one can begin, which would want them.
            self.remove_spare_copies(&[]).await;
        }
        let mut request = self.detaching.request.lock();
        request.running = false;
        if let Err(error) = result
            && !given_up
        {
            tracing::error!(tenant = %self.tenant(), timeline = %self.id(), "cannot detach the branch: {error}");
            request.failed = Some(error.to_string());
        }
    }

    /// How far the branch is on its way to independence; counts are those of the last attempt of this process.
    pub fn detach_info(&self) -> DetachInfo {
        let work = &self.detaching;
        let request = work.request.lock();
        let is_done = self.index.is_detached() && self.lineage.parent().is_none();
        DetachInfo {
            state: match (is_done, request.running, &request.failed) {
                (true, ..) => DetachState::Detached,
                (false, true, _) => DetachState::Running,
                (false, false, Some(_)) => DetachState::Failed,
                (false, false, None) => DetachState::Attached,
            },
            reason: request.failed.clone(),
            layers: work.layers.load(Ordering::Relaxed),
            layers_copied: work.layers_copied.load(Ordering::Relaxed),
            bytes: work.bytes.load(Ordering::Relaxed),
            bytes_copied: work.bytes_copied.load(Ordering::Relaxed),
        }
    }

    /// Copies what is read through the ancestors. May take long; nothing is changed by it.
    pub(crate) async fn copy_ancestors(&self) -> Result<Copied> {
        crash::point!("detach.begun");
        let started = std::time::Instant::now();
        let mut held = vec![self.compaction.hold_entries().await];
        for (ancestor, _) in self.lineage.all() {
            held.push(ancestor.compaction.hold_entries().await);
        }
        for _ in 0..ROUNDS {
            let (parts, oldest) = self.parts_to_copy().await?;
            let copies: Vec<_> = parts.iter().map(|part| self.copied(part)).collect();
            let copied = futures::stream::iter(copies)
                .buffer_unordered(COPIES_AT_ONCE)
                .try_collect::<Vec<_>>()
                .await;
            match copied {
                Ok(layers) => {
                    tracing::info!(
                        tenant = %self.tenant(), timeline = %self.id(), layers = parts.len(),
                        elapsed_ms = started.elapsed().as_millis() as u64, "copied what the branch reads of its ancestors"
                    );
                    let layers = layers.into_iter().flatten().collect();
                    return Ok(Copied {
                        layers,
                        oldest,
                        held,
                    });
                }
                Err(error) if !parts.iter().any(Part::is_superseded) => return Err(error),
                Err(_) => {}
            }
        }
        Err(anyhow!(
            "its ancestors' layers were compacted away {ROUNDS} times while they were copied; detach it when less is \
             written to them"
        )
        .into())
    }

    /// Which layers there are to copy as of now, and where the history in them begins.
    async fn parts_to_copy(&self) -> Result<(Vec<Part>, Lsn)> {
        self.wait_for_ancestors(self.config().wait_lsn_timeout())
            .await?;
        let mut parts = Vec::new();
        for (from, upto) in self.lineage.all() {
            // Until it returns, what the index reaches may still be in memory alone.
            from.checkpoint().await?;
            for file in from.store.map().iter() {
                let needed = needed(file.desc(), upto);
                if needed != Needed::Nothing {
                    let (from, file) = (from.clone(), file.clone());
                    parts.push(Part {
                        from,
                        file,
                        upto,
                        needed,
                    });
                }
            }
        }
        // After the maps: compaction drops nothing before the horizon has moved.
        let oldest = self.oldest_lsn();
        let work = &self.detaching;
        let bytes = |parts: &[Part]| parts.iter().map(|part| part.file.desc().size).sum();
        work.layers.store(parts.len(), Ordering::Relaxed);
        work.bytes.store(bytes(&parts), Ordering::Relaxed);
        work.layers_copied.store(0, Ordering::Relaxed);
        work.bytes_copied.store(0, Ordering::Relaxed);
        Ok((parts, oldest))
    }

    /// A layer's copy, made now unless it was before.
    async fn copied(&self, part: &Part) -> Result<Vec<RemoteLayer>> {
        let work = &self.detaching;
        let known = work.copies.lock().get(&part.source()).cloned();
        let copies = match known {
            Some(copies) => copies,
            None => {
                let copies = match part.needed {
                    Needed::Part => self.rewrite(part).await,
                    Needed::All | Needed::Nothing => self.copy_whole(part).await,
                };
                let copies = copies.with_context(|| format!("copy layer {}", part.file.name()))?;
                work.copies.lock().insert(part.source(), copies.clone());
                copies
            }
        };
        work.layers_copied.fetch_add(1, Ordering::Relaxed);
        work.bytes_copied
            .fetch_add(part.file.desc().size, Ordering::Relaxed);
        Ok(copies)
    }

    async fn copy_whole(&self, part: &Part) -> anyhow::Result<Vec<RemoteLayer>> {
        let (own, from) = (self.index.remote(), part.from.index.remote());
        let copied = own.copy_layer(from, part.file.remote(), self.index.generation());
        let copied = copied.await?;
        crash::point!("detach.layer-copied");
        Ok(vec![copied])
    }

    /// Writes what a layer holds up to the branch point as layers of their own.
    async fn rewrite(&self, part: &Part) -> anyhow::Result<Vec<RemoteLayer>> {
        let mut opened = None;
        for _ in 0..FETCHES {
            part.from.store.cache().fetch(&part.file).await?;
            if let Ok(reader) = part.file.reader() {
                opened = Some(reader);
                break;
            }
        }
        let reader = match opened {
            Some(reader) => reader,
            None => part.file.reader()?,
        };
        let (upto, target_bytes) = (part.upto, self.config().compaction_target_bytes);
        let options = MergeOptions {
            target_bytes,
            level: part.file.desc().level.max(1),
            ..MergeOptions::default()
        };
        let write = move || -> anyhow::Result<Vec<(LayerDesc, Bytes)>> {
            let mut written = Vec::new();
            let inherited = reader.iter().filter(|found| match found {
                Ok((key, version)) => is_inherited(key, version.lsn, upto),
                Err(_) => true,
            });
            merge_layers(
                vec![inherited],
                &options,
                &mut |_: &Key| Ok(Lsn::INVALID),
                |desc, bytes| {
                    written.push((desc, bytes));
                    Ok::<(), anyhow::Error>(())
                },
            )?;
            Ok(written)
        };
        let written = tokio::task::spawn_blocking(write)
            .await
            .context("task that rewrites a layer")??;
        let (remote, generation) = (self.index.remote(), self.index.generation());
        let mut copies = Vec::with_capacity(written.len());
        for (desc, bytes) in written {
            remote.check_fence(generation).await?;
            let layer = RemoteLayer { desc, generation };
            remote.put_layer(&layer, bytes).await?;
            copies.push(layer);
        }
        crash::point!("detach.layer-rewritten");
        Ok(copies)
    }

    /// Changes over to the copies. The caller holds the tenant's lock.
    pub(crate) async fn leave_ancestors(&self, copied: Copied) -> Result<()> {
        crash::point!("detach.copied");
        let Copied {
            layers,
            oldest,
            held,
        } = copied;
        if self.index.aux().is_none()
            && let Some(aux) = self.aux_at(self.identity.manifest.start_lsn).await?
        {
            self.index
                .store_aux(self.identity.manifest.start_lsn, aux)
                .await?;
        }
        let lineage = self.lineage.all();
        let leases = lineage.iter().flat_map(|(ancestor, upto)| {
            let leases = ancestor.index.leases().into_iter();
            leases.filter(|lease: &Lease| lease.lsn <= *upto)
        });
        let inherited = Inheritance {
            layers: layers.clone(),
            oldest,
            leases: leases.collect(),
        };
        self.index.detach(inherited).await?;
        crash::point!("detach.indexed");
        self.store.leave_ancestors(layers.clone());
        drop(held);
        self.lineage.leave();
        // Until it is known again what must stay, all does.
        self.compaction.keep(layers::Retention::everything());
        crash::point!("detach.cut-off");
        self.layers.report_layers();
        self.layers.want_compaction();
        tracing::info!(tenant = %self.tenant(), timeline = %self.id(), %oldest, "the branch is detached");
        self.remove_spare_copies(&layers).await;
        Ok(())
    }

    /// Deletes copies of layers that were compacted away before the last round. The next start would do it as well.
    async fn remove_spare_copies(&self, named: &[RemoteLayer]) {
        let named: HashSet<String> = named.iter().map(RemoteLayer::object_name).collect();
        let copies = std::mem::take(&mut *self.detaching.copies.lock());
        let mut spare: Vec<RemoteLayer> = copies.into_values().flatten().collect();
        spare.retain(|layer| !named.contains(&layer.object_name()));
        if let Err(error) = self.index.remote().delete_layers(&spare).await {
            tracing::warn!(tenant = %self.tenant(), timeline = %self.id(), "spare copies stay until the next start: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use layers::{Value, WriterOptions, image_layer};

    use super::*;

    #[test]
    fn what_a_branch_needs_ends_at_the_branch_point_where_it_has_values_of_its_own() {
        let value = (Key::aux(1), Value::Meta(Bytes::from_static(b"x")));
        let (mut desc, _) =
            image_layer(Lsn(10), vec![value], &WriterOptions::default()).expect("layer");
        desc.lsns.last = Lsn(20);
        let cases = [
            (9, Needed::Nothing),
            (10, Needed::Part),
            (20, Needed::Part),
            (21, Needed::All),
        ];
        for (upto, expected) in cases {
            assert_eq!(needed(&desc, Lsn(upto)), expected, "{upto}");
        }
        for key in [Key::timeline_state(), Key::control_file()] {
            assert!(is_inherited(&key, Lsn(19), Lsn(20)));
            assert!(!is_inherited(&key, Lsn(20), Lsn(20)));
        }
        assert!(is_inherited(&Key::aux(1), Lsn(20), Lsn(20)));
        assert!(!is_inherited(&Key::aux(1), Lsn(21), Lsn(20)));
    }
}
