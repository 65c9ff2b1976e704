//! What a killed writer leaves half written in a store that is a directory.

mod common;

use std::path::{Path, PathBuf};

use blob::{Generation, IndexPart, Loaded, RemoteLayer, Store, TimelineStore};
use common::{TENANT, TIMELINE, empty, layer};

/// The two kinds of such stores, new and empty.
fn stores() -> [(tempfile::TempDir, Store); 2] {
    ["file", "mount"].map(|kind| {
        let directory = tempfile::tempdir().unwrap();
        let address = format!("{kind}://{}", directory.path().display());
        let store = Store::from_address(&address).unwrap();
        (directory, store)
    })
}

fn folder_of(directory: &Path, folder: &str) -> PathBuf {
    let timeline = directory.join(TENANT.to_string());
    timeline.join(TIMELINE.to_string()).join(folder)
}

/// A timeline with an index that names one layer.
async fn stored(store: &TimelineStore) -> (Generation, IndexPart) {
    let generation = store.claim_generation().await.unwrap();
    let (desc, bytes) = layer(&[10]);
    let named = RemoteLayer { desc, generation };
    store.put_layer(&named, bytes).await.unwrap();
    let index = IndexPart {
        generation,
        layers: vec![named],
        ..empty()
    };
    store.put_index(&index).await.unwrap();
    (generation, index)
}

/// Promise: a timeline's owner removes what is half written of its own generation and of those before it, and nothing
/// else: a later owner may be writing.
#[tokio::test]
async fn it_is_removed_by_the_owner() {
    for (directory, store) in stores() {
        let store = store.timeline(TENANT, TIMELINE);
        let (ours, index) = stored(&store).await;
        let half_written = |generation: Generation| {
            let (desc, _) = layer(&[20]);
            let names = [
                ("layers", RemoteLayer { desc, generation }.object_name()),
                ("index", format!("{:08x}.json", generation.0)),
                ("generation", format!("{:08x}", generation.0)),
            ];
            names.map(|(folder, name)| {
                let path = folder_of(directory.path(), folder).join(format!("{name}#1"));
                std::fs::write(&path, "half").unwrap();
                path
            })
        };
        let own = half_written(ours);
        let later = half_written(Generation(ours.0 + 1));
        assert_eq!(store.list_layers().await.unwrap(), index.layers);
        assert_eq!(store.remove_orphans(&index, ours).await.unwrap(), 3);
        assert!(!own.iter().any(|path| path.exists()));
        assert!(later.iter().all(|path| path.exists()));
        assert_eq!(store.list_layers().await.unwrap(), index.layers);
    }
}

/// Promise: a deletion leaves nothing of it, nor the timeline's name.
#[tokio::test]
async fn it_goes_with_its_timeline() {
    for (directory, whole) in stores() {
        let store = whole.timeline(TENANT, TIMELINE);
        stored(&store).await;
        for folder in ["layers", "index", "generation"] {
            let folder = folder_of(directory.path(), folder);
            std::fs::write(folder.join("anything#7"), "half").unwrap();
        }
        store.delete_all().await.unwrap();
        assert_eq!(store.load().await.unwrap(), Loaded::Absent);
        assert_eq!(whole.timelines(TENANT).await.unwrap(), []);
        assert_eq!(store.remove_tombstone().await.unwrap(), 0);
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
