//! `weir-pageserver layer` and `index`: what they say about sound and damaged files.

use std::path::PathBuf;
use std::process::Command;

use blob::{IndexChange, IndexPart, PutPayload, QueueOptions, Store, UploadQueue};
use bytes::Bytes;
use layers::{MemoryLayer, Value, WriterOptions};
use pg_types::{Key, Lsn, TenantId, TimelineId};

const TENANT: TenantId = TenantId([1; 16]);
const TIMELINE: TimelineId = TimelineId([2; 16]);

/// A timeline of two layers in a local store; the store's directory and the layers' paths.
async fn stored(root: &std::path::Path) -> Vec<PathBuf> {
    let store = Store::local(root).expect("store");
    let timeline = store.timeline(TENANT, TIMELINE);
    let generation = timeline.claim_generation().await.expect("claim");
    let empty = IndexPart::empty(TENANT, TIMELINE, None);
    let queue = UploadQueue::start(timeline.clone(), empty, generation, QueueOptions::default());
    let mut paths = Vec::new();
    for number in 0..2 {
        let memory = MemoryLayer::new();
        for lsn in 0..50 {
            let value = Value::Meta(Bytes::from(format!("value {number} at {lsn}")));
            memory
                .put(Key::aux(number), Lsn(1000 + lsn), value)
                .expect("put");
        }
        memory.freeze();
        let (desc, pieces) = memory
            .write_delta_layer(&WriterOptions::default())
            .expect("layer");
        let layer = queue
            .upload(desc, PutPayload::from_iter(pieces.iter()))
            .await
            .expect("upload");
        paths.push(timeline.local_layer_path(&layer).expect("local"));
    }
    queue.commit(IndexChange::default()).expect("commit");
    queue.flush().await.expect("flush");
    paths
}

/// Whether the command succeeded, and all it printed.
fn weir_pageserver(arguments: &[&str]) -> (bool, String) {
    let done = Command::new(env!("CARGO_BIN_EXE_weir-pageserver"))
        .args(arguments)
        .output()
        .expect("run");
    let text = [done.stdout, done.stderr].concat();
    (
        done.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[tokio::test]
async fn sound_layers_and_indexes_pass_and_are_shown() {
    let root = tempfile::tempdir().expect("tempdir");
    let paths = stored(root.path()).await;
    let path = paths[0].to_str().expect("path");
    let (ok, text) = weir_pageserver(&["layer", "verify", path]);
    assert!(ok && text.contains("50 versions of 1 keys"), "{text}");
    let (ok, text) = weir_pageserver(&["layer", "dump", path]);
    assert!(ok && text.contains("\"versions\": 50"), "{text}");
    let (ok, text) = weir_pageserver(&["layer", "dump", "--versions", "--key", "Aux", path]);
    assert!(ok && text.lines().count() == 50, "{text}");
    let address = format!("file://{}", root.path().display());
    let (tenant, timeline) = (TENANT.to_string(), TIMELINE.to_string());
    let place = [
        "--object-store",
        &address,
        "--tenant",
        &tenant,
        "--timeline",
        &timeline,
    ];
    let (ok, text) = weir_pageserver(&[&["index", "verify", "--layers"][..], &place].concat());
    assert!(ok && text.contains("\"problems\": []"), "{text}");
    let (ok, text) = weir_pageserver(&[&["index", "dump"][..], &place].concat());
    assert!(ok && text.contains("\"format_version\": 2"), "{text}");
}

#[tokio::test]
async fn what_is_damaged_missing_or_misnamed_is_named_and_fails() {
    let root = tempfile::tempdir().expect("tempdir");
    let paths = stored(root.path()).await;
    let renamed = root.path().join(paths[1].file_name().expect("name"));
    std::fs::copy(&paths[0], &renamed).expect("copy");
    let (ok, text) = weir_pageserver(&["layer", "verify", renamed.to_str().expect("path")]);
    assert!(!ok && text.contains("its name says otherwise"), "{text}");

    let mut bytes = std::fs::read(&paths[0]).expect("read");
    bytes[40] ^= 4;
    std::fs::write(&paths[0], bytes).expect("write");
    std::fs::remove_file(&paths[1]).expect("remove");
    let path = paths[0].to_str().expect("path");
    let (ok, text) = weir_pageserver(&["layer", "verify", path]);
    assert!(
        !ok && text.contains("DAMAGED") && text.contains("checksum"),
        "{text}"
    );
    let address = format!("file://{}", root.path().display());
    let (tenant, timeline) = (TENANT.to_string(), TIMELINE.to_string());
    let (ok, text) = weir_pageserver(&[
        "index",
        "verify",
        "--layers",
        "--object-store",
        &address,
        "--tenant",
        &tenant,
        "--timeline",
        &timeline,
    ]);
    assert!(
        !ok && text.contains("is missing") && text.contains("checksum"),
        "{text}"
    );
}

#[test]
fn the_help_says_what_can_be_asked() {
    let (ok, text) = weir_pageserver(&["--help"]);
    assert!(
        ok && text.contains("layer") && text.contains("--object-store"),
        "{text}"
    );
    let (ok, text) = weir_pageserver(&["layer", "verify", "--help"]);
    assert!(ok && text.contains("fetches it again"), "{text}");
    let (ok, text) = weir_pageserver(&["--object-store", "file:///nowhere"]);
    assert!(!ok && text.contains("--data-dir"), "{text}");
}
