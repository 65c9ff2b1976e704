//! New timelines: from a fresh cluster, or as a branch.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use layers::{LayerDesc, Value, WriterOptions, image_layer};
use pg_types::v15::ControlFile;
use pg_types::{Key, Lsn};
use wal_decode::TimelineState;

use super::{Tenant, TenantManager};
use crate::api::CreateTimeline;
use crate::error::{Error, Result};
use crate::import::{Import, initdb};
use crate::timeline::{Timeline, encode_state};
use crate::timeline_index::{AncestorPoint, Manifest, TimelineIndex};
use crate::timestamp::PgTimestamp;
use crate::version_store::VersionStore;

/// The majors whose WAL and pages this program knows.
const SUPPORTED_VERSIONS: [u32; 1] = [15];

impl TenantManager {
    /// Creates a timeline, or returns the one an identical request made: `true` when it is new; durable on return.
    /// Fails with `BadRequest` for a version that is not supported or a start that contradicts itself or the
    /// ancestor, with `Conflict` when the id is in use, with `NotFound` without such an ancestor and for an LSN
    /// before its history, with `Timeout` or `Stopped` when the ancestor does not ingest the LSN in time, and with
    /// `Internal` when `initdb` or the object store fails.
    pub async fn create_timeline(
        &self,
        tenant: &Arc<Tenant>,
        request: CreateTimeline,
    ) -> Result<(Arc<Timeline>, bool)> {
        let id = request.new_timeline_id;
        if !SUPPORTED_VERSIONS.contains(&request.pg_version) {
            return Err(Error::BadRequest(format!(
                "Postgres {} is not supported; supported majors: {SUPPORTED_VERSIONS:?}",
                request.pg_version
            )));
        }
        let _one_at_a_time = tenant.changing.lock().await;
        match tenant.timeline(id) {
            Ok(existing) if existing.manifest().request == request => return Ok((existing, false)),
            Ok(_) => {
                return Err(Error::Conflict(format!(
                    "timeline {id} exists and was created differently"
                )));
            }
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
        self.have_key(tenant).await?;
        let started = std::time::Instant::now();
        let timeline = match request.ancestor_timeline_id {
            Some(ancestor) => {
                let ancestor = tenant.timeline(ancestor)?;
                self.create_branch(tenant, request, ancestor).await?
            }
            None if request.ancestor_start_lsn.is_some()
                || request.ancestor_timestamp.is_some() =>
            {
                return Err(Error::BadRequest(
                    "ancestor_start_lsn and ancestor_timestamp need ancestor_timeline_id"
                        .to_owned(),
                ));
            }
            None => self.create_root(tenant, request).await?,
        };
        tracing::info!(
            tenant = %tenant.id, timeline = %id, start_lsn = %timeline.manifest().start_lsn,
            elapsed_ms = started.elapsed().as_millis() as u64, "created the timeline"
        );
        Ok((timeline, true))
    }

    /// The template cluster, scanned. The first call in a fresh data directory runs `initdb`.
    async fn template(&self, pg_version: u32) -> Result<Arc<Import>> {
        let read = async || -> anyhow::Result<Arc<Import>> {
            let install = self.options.postgres.clone();
            let templates = self.options.data_dir.join("templates");
            let scan = move || Import::read(&initdb::template(&install, &templates, pg_version)?);
            Ok(Arc::new(
                tokio::task::spawn_blocking(scan)
                    .await
                    .context("initdb task")??,
            ))
        };
        Ok(self.template.get_or_try_init(read).await?.clone())
    }

    /// Makes the template ahead of the first project, so that its creation is as fast as any other. Fails as `initdb`
    /// and the import of its cluster do; the first creation tries again.
    pub async fn prepare_template(&self) -> Result<()> {
        for version in SUPPORTED_VERSIONS {
            self.template(version).await?;
        }
        Ok(())
    }

    async fn create_root(
        &self,
        tenant: &Arc<Tenant>,
        request: CreateTimeline,
    ) -> Result<Arc<Timeline>> {
        let import = self.template(request.pg_version).await?;
        let id = request.new_timeline_id;
        let manifest = Manifest {
            pg_version: request.pg_version,
            system_identifier: new_system_identifier(),
            start_lsn: import.state.last_record_lsn,
            ancestor: None,
            safekeepers: request.safekeepers.clone(),
            request,
        };
        let state = import.state;
        let system_identifier = manifest.system_identifier;
        let build = move || import_layer(&import, system_identifier);
        let layer = tokio::task::spawn_blocking(build)
            .await
            .context("import task")??;
        self.store_and_start(tenant, id, manifest, vec![layer], None, state)
            .await
    }

    async fn create_branch(
        &self,
        tenant: &Arc<Tenant>,
        request: CreateTimeline,
        ancestor: Arc<Timeline>,
    ) -> Result<Arc<Timeline>> {
        if ancestor.pg_version() != request.pg_version {
            return Err(Error::BadRequest(format!(
                "timeline {} runs Postgres {}, a branch cannot run {}",
                ancestor.id(),
                ancestor.pg_version(),
                request.pg_version
            )));
        }
        let lsn = branch_point(&ancestor, &request).await?;
        let state = ancestor.state_at(lsn).await?;
        let system_identifier = new_system_identifier();
        let control = ancestor.reads().value(Key::control_file(), lsn).await?;
        let control = control
            .with_context(|| format!("timeline {} has no control file at {lsn}", ancestor.id()))?;
        let values = vec![
            (Key::timeline_state(), Value::Meta(encode_state(&state)?)),
            (
                Key::control_file(),
                Value::Meta(with_system_identifier(&control, system_identifier)?),
            ),
        ];
        let layer = image_layer(lsn, values, &WriterOptions::default())
            .context("write the branch's first layer")?;
        let manifest = Manifest {
            pg_version: request.pg_version,
            system_identifier,
            start_lsn: lsn,
            ancestor: Some(AncestorPoint {
                timeline_id: ancestor.id(),
                lsn,
            }),
            safekeepers: request.safekeepers.clone(),
            request: request.clone(),
        };
        let id = request.new_timeline_id;
        self.store_and_start(
            tenant,
            id,
            manifest,
            vec![layer],
            Some((ancestor, lsn)),
            state,
        )
        .await
    }

    async fn store_and_start(
        &self,
        tenant: &Arc<Tenant>,
        id: pg_types::TimelineId,
        manifest: Manifest,
        layers: Vec<(LayerDesc, Bytes)>,
        ancestor: Option<(Arc<Timeline>, Lsn)>,
        state: TimelineState,
    ) -> Result<Arc<Timeline>> {
        let objects = self.options.objects.clone();
        let (index, layers) =
            TimelineIndex::create(objects, tenant.id, id, manifest, layers).await?;
        let below = ancestor
            .as_ref()
            .map(|(timeline, lsn)| (timeline.store().clone(), *lsn));
        let cache = self.layer_cache(tenant.id, id);
        let store = Arc::new(VersionStore::new(
            cache,
            layers,
            below,
            self.memory.account(),
            self.pages.clone(),
        ));
        Ok(self.start(tenant, id, index, store, ancestor, state))
    }
}

/// Where a branch starts: a record boundary that the ancestor has ingested.
async fn branch_point(ancestor: &Timeline, request: &CreateTimeline) -> Result<Lsn> {
    let lsn = match (request.ancestor_start_lsn, &request.ancestor_timestamp) {
        (Some(_), Some(_)) => {
            return Err(Error::BadRequest(
                "give ancestor_start_lsn or ancestor_timestamp, not both".to_owned(),
            ));
        }
        (Some(lsn), None) => lsn,
        (None, Some(text)) => {
            let timestamp: PgTimestamp = text
                .parse()
                .map_err(|error| Error::BadRequest(format!("ancestor_timestamp: {error}")))?;
            ancestor.lsn_by_timestamp(timestamp).await?.lsn
        }
        (None, None) => ancestor.last_record_lsn(),
    };
    // A position the ancestor is about to reach is fine; one it will not reach is a mistake.
    ancestor.resolve_position(lsn, Some(lsn)).await?;
    ancestor.boundary(lsn).await
}

/// Random, positive as a signed number, never 0.
fn new_system_identifier() -> u64 {
    let random = uuid::Uuid::new_v4().as_u128() as u64;
    (random >> 1).max(1)
}

fn with_system_identifier(control: &[u8], system_identifier: u64) -> anyhow::Result<Bytes> {
    let mut control = ControlFile::parse(control).context("read the control file")?;
    control.set_system_identifier(system_identifier);
    Ok(control.to_bytes().into())
}

/// Everything of a cluster at its LSN, as one layer.
fn import_layer(import: &Import, system_identifier: u64) -> Result<(LayerDesc, Bytes)> {
    let mut control = import.control.clone();
    control.set_system_identifier(system_identifier);
    let own = [
        (
            Key::timeline_state(),
            Value::Meta(encode_state(&import.state)?),
        ),
        (Key::control_file(), Value::Meta(control.to_bytes().into())),
    ];
    let wrap = |(key, bytes): &(Key, Bytes)| {
        let value = if key.is_page() {
            Value::Image(bytes.clone())
        } else {
            Value::Meta(bytes.clone())
        };
        (*key, value)
    };
    let mut values: Vec<(Key, Value)> = import.values.iter().map(wrap).chain(own).collect();
    values.sort_by_key(|(key, _)| *key);
    let lsn = import.state.last_record_lsn;
    Ok(image_layer(lsn, values, &WriterOptions::default()).map_err(|error| anyhow!(error))?)
}
