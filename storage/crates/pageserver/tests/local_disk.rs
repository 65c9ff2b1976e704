//! Local disk as a cache: whatever happens to it, every page reads as before, because the object store has all.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::level_0::{
    WAIT, compact_from, compacted, flush_layers, project as project_with_postgres,
};
use common::server::{Server, Wals, lsn, tenant_id, timeline_id};
use object_store::local::LocalFileSystem;
use pageserver::timeline::Timeline;
use pg_types::{Lsn, TenantId, TimelineId};
use serde_json::json;

/// A store whose layers can't be read in place, as if it were far away.
fn remote(root: &Path) -> blob::Store {
    let objects = root.join("objects");
    std::fs::create_dir_all(&objects).expect("objects");
    let files = LocalFileSystem::new_with_prefix(objects).expect("store");
    blob::Store::new(Arc::new(files))
}

async fn start(root: &Path, cache_bytes: u64) -> Server {
    Server::start_on(root, Wals::default(), remote(root), cache_bytes).await
}

async fn project(server: &Server) -> (TenantId, TimelineId) {
    let (tenant, timeline) = (tenant_id(), timeline_id());
    let path = format!("/v1/tenant/{tenant}");
    server.request("PUT", &path, None).await;
    let body = json!({"new_timeline_id": timeline, "pg_version": 15, "safekeepers": []});
    let (status, created) = server
        .request("POST", &format!("{path}/timeline"), Some(body))
        .await;
    assert_eq!(status, 201, "{created}");
    assert!(lsn(&created["start_lsn"]) > Lsn::INVALID);
    (tenant, timeline)
}

/// A checksum of every page of every relation.
async fn everything(timeline: &Arc<Timeline>) -> anyhow::Result<Vec<(String, u32)>> {
    let at = timeline.last_record_lsn();
    let mut found = Vec::new();
    for (spc, db) in timeline.reads().list_databases(at).await? {
        for (rel, blocks) in timeline.reads().list_rels(spc, db, at).await? {
            let all: Vec<u32> = (0..blocks).collect();
            let pages = timeline.reads().rel_pages(rel, &all, at).await?;
            let crc = pages
                .iter()
                .fold(0, |crc, page| crc32c::crc32c_append(crc, &page.bytes));
            found.push((format!("{rel} {blocks}"), crc));
        }
    }
    assert!(found.len() > 200, "a cluster has more relations");
    Ok(found)
}

/// Copies of layers below the data directory.
fn copies(server: &Server) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![server.data_dir.join("tenants")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.expect("entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found
}

async fn wait_for_eviction(server: &Server) {
    wait_for_copies(server, "none is left", |names| names.is_empty()).await;
}

/// Until the names of the copies, in order, are as asked for.
async fn wait_for_copies(server: &Server, what: &str, hold: impl Fn(&[String]) -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !hold(&names(server)) {
        let is_late = tokio::time::Instant::now() > deadline;
        assert!(
            !is_late,
            "not so in time: {what}; copies: {:?}",
            names(server)
        );
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_lost_or_damaged_is_filled_again() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = start(root.path(), 1 << 30).await;
    let (tenant, timeline) = project(&server).await;
    let expected = everything(&server.timeline(tenant, timeline)).await;
    let expected = expected.expect("read");
    assert!(!copies(&server).is_empty(), "reads make copies");
    let data_dir = server.data_dir.clone();
    server.stop().await;

    std::fs::remove_dir_all(&data_dir).expect("lose the disk");
    let server = start(root.path(), 1 << 30).await;
    let read = everything(&server.timeline(tenant, timeline)).await;
    assert_eq!(read.expect("read from the object store"), expected);
    let damaged = copies(&server);
    server.stop().await;

    // Torn, flipped, and left over: what a bad disk or a crash leaves.
    for (number, path) in damaged.iter().enumerate() {
        let mut bytes = std::fs::read(path).expect("read");
        let middle = bytes.len() / 2;
        match number % 2 {
            0 => bytes[middle / 2..middle]
                .iter_mut()
                .for_each(|byte| *byte ^= 1),
            _ => bytes.truncate(middle),
        }
        std::fs::write(path, bytes).expect("write");
    }
    let leftover = damaged[0].with_extension("part");
    std::fs::write(&leftover, b"half").expect("write");
    let server = start(root.path(), 1 << 30).await;
    assert!(!leftover.exists(), "unfinished downloads are removed");
    let read = everything(&server.timeline(tenant, timeline)).await;
    assert_eq!(read.expect("read in spite of damage"), expected);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_stay_within_the_limit_and_come_again_when_read() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = start(root.path(), 0).await;
    let (tenant, timeline) = project(&server).await;
    let expected = everything(&server.timeline(tenant, timeline)).await;
    let expected = expected.expect("read");
    for _ in 0..3 {
        wait_for_eviction(&server).await;
        let read = everything(&server.timeline(tenant, timeline)).await;
        assert_eq!(read.expect("read"), expected);
    }
    server.stop().await;
}

/// Promise: what a crash leaves when a compaction's outputs are in the index beside its inputs reads on, also once
/// the next compaction has made the same layers again, under names that are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layers_that_are_made_again_after_a_crash_are_there_once() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = start(root.path(), 0).await;
    let of = project_with_postgres(&server, root.path(), 100).await;
    let (tenant, id) = (of.0.tenant(), of.0.id());
    flush_layers(&server, &of, 3).await;
    let expected = everything(&of.0).await.expect("read");
    drop(of);
    compact_from(&server, tenant, 2).await;
    let wals = server.stop().await;
    let objects = remote(root.path()).timeline(tenant, id);
    let blob::Loaded::Index(inputs) = objects.load().await.expect("load") else {
        panic!("there is an index");
    };
    let mut kept = Vec::new();
    for layer in inputs.layers.into_iter().filter(|it| it.desc.is_l0()) {
        let content = objects.get_layer(&layer).await.expect("read");
        kept.push((layer, content));
    }
    assert!(kept.len() >= 2);

    let server = Server::start_on(root.path(), wals, remote(root.path()), 0).await;
    compacted(&server.timeline(tenant, id)).await;
    let wals = server.stop().await;
    // The index as a crash between the outputs' upload and the inputs' removal leaves it.
    let (_, loaded) = objects.attach().await.expect("attach");
    let blob::Loaded::Index(mut index) = loaded else {
        panic!("there is an index");
    };
    let mut outputs: Vec<String> = index.layers.iter().map(|it| it.desc.name().0).collect();
    outputs.sort();
    for (layer, content) in kept {
        objects.put_layer(&layer, content).await.expect("put");
        index.layers.push(layer);
    }
    objects.put_index(&index).await.expect("put the index");

    let server = Server::start_on(root.path(), wals, remote(root.path()), 0).await;
    let timeline = server.timeline(tenant, id);
    let names = || {
        let infos = timeline.layer_infos().into_iter();
        let mut names: Vec<String> = infos.map(|it| it.name).collect();
        names.sort();
        names
    };
    let deadline = tokio::time::Instant::now() + WAIT;
    while names() != outputs {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", names());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    wait_for_eviction(&server).await;
    assert_eq!(everything(&timeline).await.expect("read"), expected);
    let stored = objects.list_layers().await.expect("list").into_iter();
    let mut stored: Vec<String> = stored.map(|it| it.desc.name().0).collect();
    stored.sort();
    stored.retain(|name| outputs.contains(name));
    assert_eq!(stored, outputs, "none is stored twice");
    server.stop().await;
}

/// Promise: an object that is damaged is an error that names the file, for that timeline only; once it is mended,
/// reads succeed without a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_object_is_named_and_heals() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = start(root.path(), 0).await;
    let (tenant, timeline) = project(&server).await;
    let (other_tenant, other) = project(&server).await;
    let objects = root
        .path()
        .join(format!("objects/{tenant}/{timeline}/layers"));
    let objects = std::fs::read_dir(objects).expect("layers");
    let object = objects
        .map(|it| it.expect("entry").path())
        .next()
        .expect("a layer");
    let sound = std::fs::read(&object).expect("read");
    let mut bad = sound.clone();
    bad[sound.len() / 2] ^= 0x10;
    std::fs::write(&object, bad).expect("write");
    wait_for_eviction(&server).await;
    let error = everything(&server.timeline(tenant, timeline)).await;
    let error = error.map(|found| found.len());
    let error = format!("{:#}", error.expect_err("a damaged object can't be read"));
    let name = object
        .file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned();
    assert!(
        error.contains(&name) && error.contains("checksum"),
        "{error}"
    );
    // What came of it is not left on the disk, where nothing would count it.
    wait_for_eviction(&server).await;
    let others = everything(&server.timeline(other_tenant, other)).await;
    others.expect("the rest of the server goes on");
    std::fs::write(&object, sound).expect("mend");
    let read = everything(&server.timeline(tenant, timeline)).await;
    read.expect("reads work again");
    server.stop().await;
}

/// Names of the copies, in order.
fn names(server: &Server) -> Vec<String> {
    let names = copies(server).into_iter();
    let mut names: Vec<String> = names
        .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

/// Promise: what was read lately is fetched again before anyone reads it, when the disk was lost; and only that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_disk_is_warm_again_before_anyone_reads() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = start(root.path(), 1 << 30).await;
    let (tenant, timeline) = project(&server).await;
    let (idle_tenant, _) = project(&server).await;
    let expected = everything(&server.timeline(tenant, timeline)).await;
    let expected = expected.expect("read");
    let hot = names(&server);
    assert!(!hot.is_empty(), "reads make copies");
    server.manager.remember_hot_layers().await;
    let data_dir = server.data_dir.clone();
    server.stop().await;

    std::fs::remove_dir_all(&data_dir).expect("lose the disk");
    let server = start(root.path(), 1 << 30).await;
    let what = format!("all of {hot:?} came");
    wait_for_copies(&server, &what, |names| {
        hot.iter().all(|name| names.contains(name))
    })
    .await;
    let objects = root.path().join("objects");
    let remembered = |tenant: TenantId| objects.join(format!("{tenant}/hot.json")).exists();
    let read = everything(&server.timeline(tenant, timeline)).await;
    assert_eq!(read.expect("read"), expected);

    for id in [tenant, idle_tenant] {
        let (status, _) = server
            .request("DELETE", &format!("/v1/tenant/{id}"), None)
            .await;
        assert!(status < 300, "{status}");
        assert!(!remembered(id), "a deleted tenant is forgotten");
    }
    server.stop().await;
}

/// Promise: a document of what is hot that is damaged or names what is gone changes nothing of what is read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_advice_about_what_is_hot_is_passed_over() {
    let root = tempfile::tempdir().expect("tempdir");
    let server = start(root.path(), 1 << 30).await;
    let (tenant, timeline) = project(&server).await;
    let expected = everything(&server.timeline(tenant, timeline)).await;
    let expected = expected.expect("read");
    server.manager.remember_hot_layers().await;
    let data_dir = server.data_dir.clone();
    server.stop().await;

    let document = root.path().join(format!("objects/{tenant}/hot.json"));
    let sound = std::fs::read(&document).expect("the document");
    let mut flipped = sound.clone();
    flipped[sound.len() / 2] ^= 4;
    let stale = json!({"version": 1, "timelines": {timeline.to_string(): ["gone-00000001"]}});
    let stale = blob::seal(serde_json::to_vec(&stale).expect("encode"));
    for advice in [flipped, sound[..sound.len() / 2].to_vec(), stale] {
        std::fs::remove_dir_all(&data_dir).expect("lose the disk");
        std::fs::write(&document, advice).expect("write");
        let server = start(root.path(), 1 << 30).await;
        let read = everything(&server.timeline(tenant, timeline)).await;
        assert_eq!(read.expect("read"), expected);
        server.stop().await;
    }
}

/// Promise: what is hot is stored when it has changed, and not once for every start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_hot_is_not_stored_again_while_it_is_the_same() {
    use std::os::unix::fs::MetadataExt;
    let root = tempfile::tempdir().expect("tempdir");
    let server = start(root.path(), 1 << 30).await;
    let (tenant, timeline) = project(&server).await;
    everything(&server.timeline(tenant, timeline))
        .await
        .expect("read");
    let hot = names(&server);
    server.manager.remember_hot_layers().await;
    let document = root.path().join(format!("objects/{tenant}/hot.json"));
    // Each write is another file under that name.
    let written = || std::fs::metadata(&document).expect("the document").ino();
    let first = written();
    let data_dir = server.data_dir.clone();
    server.stop().await;

    std::fs::remove_dir_all(&data_dir).expect("lose the disk");
    let server = start(root.path(), 1 << 30).await;
    wait_for_copies(&server, "what was hot came", |names| *names == *hot).await;
    let before = std::fs::read_to_string(&document).expect("the document");
    server.manager.remember_hot_layers().await;
    let after = std::fs::read_to_string(&document).expect("the document");
    assert_eq!(after, before);
    assert_eq!(written(), first, "nothing has changed");

    let (other, second) = project(&server).await;
    everything(&server.timeline(other, second))
        .await
        .expect("read");
    server.manager.remember_hot_layers().await;
    let its_own = root.path().join(format!("objects/{other}/hot.json"));
    assert!(its_own.exists(), "what is new is stored");
    assert_eq!(written(), first, "the other's has not changed");
    server.stop().await;
}
