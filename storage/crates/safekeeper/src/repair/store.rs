//! WAL that was offloaded.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use blob::Store;
use pg_types::Lsn;

use super::gathering::Gathering;
use super::{Sources, agrees, pace};
use crate::offload::choice;
use crate::offload::filling::history_of;
use crate::timeline::{RepairView, Timeline};

/// Fills `gathering` from the pieces in the store that are of the log's history.
pub async fn take(
    store: &Store,
    timeline: &Arc<Timeline>,
    view: &RepairView,
    sources: &Sources,
    mut gathering: Gathering,
) -> anyhow::Result<Gathering> {
    let identity = timeline.identity;
    let remote = store.timeline(identity.tenant, identity.timeline);
    let names = remote.list_wal().await?;
    let from = gathering.next();
    let chain = choice::choose(&names, &view.history, from, view.commit, false)?;
    for name in chain.pieces {
        let found = remote.get_wal(name).await?;
        let (header, content) = found.with_context(|| format!("{name} is gone"))?;
        let of = (header.system_identifier, header.pg_version);
        ensure!(
            of == (identity.system_identifier, identity.pg_version),
            "{name} is of another cluster"
        );
        let both: Lsn = header.end.min(view.commit);
        ensure!(
            agrees(&view.history, &history_of(&header), both),
            "{name} is of another history"
        );
        let at = gathering.next();
        ensure!(name.begin <= at && at < name.end, "{name} does not join");
        let slice = |lsn: Lsn| (lsn.0 - name.begin.0) as usize;
        let wal = content.slice(slice(at)..slice(both));
        if stalls::off_worker(|| gathering.feed(&wal))? {
            return Ok(gathering);
        }
        pace(wal.len(), sources).await;
    }
    bail!("it has nothing behind {}", gathering.next())
}
