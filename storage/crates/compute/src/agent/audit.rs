//! Audit reads: pages the compute has written, read back from storage at the committed LSN.
//!
//! A compute never needs to read back what it wrote, so only this shows how long a *changed* page takes and how
//! long its chain is. Where the page here and there have the same LSN they must be the same page, but for bytes
//! that no WAL describes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pg_types::{BLCKSZ, Lsn, RelTag};
use wal_redo::masking::{PageClass, Rules, first_difference, mask};
use wire::page::ReadPosition;

use super::Agent;
use super::live::Live;
use crate::source::SourceError;

/// Pause while there is nothing to read or no audit is asked for.
const IDLE: Duration = Duration::from_millis(200);

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Equal,
    /// Storage knows changes that are not written here yet.
    Newer,
    Mismatch,
    /// The page is gone, or not committed yet.
    Nothing,
}

/// Reads back for as long as the compute runs. Never ends.
pub async fn run(agent: &Agent, live: &Arc<Live>) {
    loop {
        let rate = agent.spec.lock().audit_reads_per_second;
        if rate == 0 {
            tokio::time::sleep(IDLE).await;
            continue;
        }
        let next = tokio::time::Instant::now() + Duration::from_secs(1) / rate;
        let Some((rel, block)) = live.volume.written().sample() else {
            tokio::time::sleep(IDLE).await;
            continue;
        };
        match audit(agent, live, rel, block).await {
            Ok(Outcome::Equal) => agent.metrics.audit_equal.inc(),
            Ok(Outcome::Newer) => agent.metrics.audit_newer.inc(),
            Ok(Outcome::Mismatch) => agent.metrics.audit_mismatch.inc(),
            Ok(Outcome::Nothing) => {}
            Err(SourceError::NotFound(_)) => live.volume.written().forget((rel, block)),
            Err(error) => tracing::debug!(%rel, block, "audit read failed: {error}"),
        }
        tokio::time::sleep_until(next).await;
    }
}

/// The page as Postgres sees it, read through the mount: pages that were written may be with the kernel alone.
async fn local(
    live: &Arc<Live>,
    rel: RelTag,
    block: u32,
) -> Result<Option<Box<[u8; BLCKSZ]>>, SourceError> {
    let (volume, data) = (live.volume.clone(), live.data.clone());
    let read = tokio::task::spawn_blocking(move || {
        let Some((path, offset)) = volume.place_of_block(rel, block).map_err(failed)? else {
            return Ok(None);
        };
        data.read_block(&path, offset).map_err(failed)
    });
    read.await.map_err(failed)?
}

fn failed(error: impl std::fmt::Display) -> SourceError {
    SourceError::Failed(error.to_string())
}

async fn audit(
    agent: &Agent,
    live: &Arc<Live>,
    rel: RelTag,
    block: u32,
) -> Result<Outcome, SourceError> {
    let Some(here) = local(live, rel, block).await? else {
        live.volume.written().forget((rel, block));
        return Ok(Outcome::Nothing);
    };
    let commit = live.commit_lsn();
    if pg_types::page::lsn(&here[..]) > commit {
        return Ok(Outcome::Nothing);
    }
    let started = Instant::now();
    let position = ReadPosition {
        not_modified_since: commit,
        at: None,
    };
    let (as_of, mut pages) = live.client.pages(position, rel, vec![block]).await?;
    agent
        .metrics
        .audits
        .seconds
        .observe(started.elapsed().as_secs_f64());
    let Some(page) = pages.pop() else {
        return Err(SourceError::Failed("no page came back".into()));
    };
    agent
        .metrics
        .audits
        .chain_length
        .observe(f64::from(page.chain_length));
    let mut there = Box::new([0; BLCKSZ]);
    if page.bytes.len() == BLCKSZ {
        there.copy_from_slice(&page.bytes);
    }
    let outcome = compare(&here, &there, block, as_of);
    if outcome == Outcome::Mismatch {
        // The page may have been dropped or cut meanwhile; if it stands as it was, storage is wrong.
        if local(live, rel, block)
            .await?
            .is_none_or(|again| again != here)
        {
            return Ok(Outcome::Nothing);
        }
        tracing::error!(
            %rel, block, %as_of, here = %pg_types::page::lsn(&here[..]), there = %pg_types::page::lsn(&there[..]),
            "storage does not have the page that this compute has written"
        );
    }
    Ok(outcome)
}

fn compare(here: &[u8; BLCKSZ], there: &[u8; BLCKSZ], block: u32, as_of: Lsn) -> Outcome {
    let (ours, theirs) = (
        pg_types::page::lsn(&here[..]),
        pg_types::page::lsn(&there[..]),
    );
    if theirs > ours {
        return Outcome::Newer;
    }
    // A page without an LSN was extended and never logged as such: nothing describes it.
    if ours == Lsn::INVALID || ours > as_of {
        return Outcome::Nothing;
    }
    if theirs < ours {
        return Outcome::Mismatch;
    }
    let (mut ours, mut theirs) = (*here, *there);
    let class = PageClass::of_page(&ours, pg_types::ForkNumber::Main);
    if mask(&mut ours, block, class, Rules::Postgres).is_err()
        || mask(&mut theirs, block, class, Rules::Postgres).is_err()
    {
        return Outcome::Mismatch;
    }
    match first_difference(&ours, &theirs) {
        None => Outcome::Equal,
        Some(_) => Outcome::Mismatch,
    }
}

#[cfg(test)]
mod tests {
    use pg_types::page::{init, set_lsn};

    use super::*;

    fn page(lsn: u64, fill: u8) -> [u8; BLCKSZ] {
        let mut page = [0; BLCKSZ];
        init(&mut page[..], 0);
        set_lsn(&mut page[..], Lsn(lsn));
        page[BLCKSZ / 2] = fill;
        page
    }

    #[test]
    fn a_page_that_storage_lacks_a_change_of_is_a_mismatch() {
        assert_eq!(
            compare(&page(200, 0), &page(100, 0), 0, Lsn(300)),
            Outcome::Mismatch
        );
        assert_eq!(
            compare(&page(200, 0), &[0; BLCKSZ], 0, Lsn(300)),
            Outcome::Mismatch
        );
        assert_eq!(
            compare(&page(100, 0), &page(200, 0), 0, Lsn(300)),
            Outcome::Newer
        );
        assert_eq!(
            compare(&page(200, 0), &page(200, 0), 0, Lsn(300)),
            Outcome::Equal
        );
        assert_eq!(
            compare(&page(400, 0), &page(200, 0), 0, Lsn(300)),
            Outcome::Nothing
        );
        // Bytes between the line pointers and the tuples mean nothing.
        assert_eq!(
            compare(&page(200, 1), &page(200, 2), 0, Lsn(300)),
            Outcome::Equal
        );
    }
}
