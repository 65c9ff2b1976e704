//! The list of pages of catalogs that a run reads first, carried from a suspend to the next start like that of
//! [`super::prewarm`]: a hint, without which a start waits longer.

use std::time::Duration;

use super::live::Live;
use crate::bundle::Bundle;
use crate::prewarm::{FIRST_READS, List};
use crate::volume::Volume;

/// What is read within so long after the start is what the next start, and the first session of it, will read.
const NOTED: Duration = Duration::from_millis(1500);

/// What the last suspend has left; an empty list where that is nothing, or cannot be used.
pub(super) fn of(bundle: &Bundle) -> List {
    let mut found = bundle.auxiliary.iter();
    let Some((_, kept)) = found.find(|(path, _)| path == FIRST_READS) else {
        return List::default();
    };
    List::from_kept(kept).unwrap_or_else(|error| {
        tracing::warn!("the list of pages that a start reads first is ignored: {error}");
        List::default()
    })
}

/// Ends the noting in time. Does not end itself.
pub(super) async fn watch(live: &Live) {
    tokio::time::sleep(NOTED).await;
    live.volume.first_reads().end();
    std::future::pending().await
}

/// The list for the next start; nothing where nothing was read.
pub(super) fn collect(volume: &Volume) -> Option<(String, Vec<u8>)> {
    let list = List::of_pages(volume.first_reads().pages());
    (list.pages() > 0).then(|| (FIRST_READS.to_owned(), list.to_kept()))
}
