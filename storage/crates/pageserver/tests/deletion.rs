//! Deleting a timeline with its branches: all or nothing where it is refused, and to be repeated where it fails.

mod common;

use std::path::{Path, PathBuf};

use common::server::{Server, Wals, tenant_id, timeline_id, timeline_path};
use pg_types::{TenantId, TimelineId};
use serde_json::json;

/// A project under test.
struct Project {
    root: tempfile::TempDir,
    server: Server,
    tenant: TenantId,
}

impl Project {
    async fn new() -> Project {
        let root = tempfile::tempdir().expect("tempdir");
        let server = Server::start(root.path(), Wals::default()).await;
        let tenant = tenant_id();
        let path = format!("/v1/tenant/{tenant}");
        assert_eq!(server.request("PUT", &path, None).await.0, 200);
        Project {
            root,
            server,
            tenant,
        }
    }

    /// A timeline, or a branch of one.
    async fn timeline(&self, ancestor: Option<TimelineId>) -> TimelineId {
        let id = timeline_id();
        let body = json!({
            "new_timeline_id": id, "pg_version": 15, "safekeepers": [], "ancestor_timeline_id": ancestor
        });
        let path = format!("/v1/tenant/{}/timeline", self.tenant);
        let (status, answer) = self.server.request("POST", &path, Some(body)).await;
        assert_eq!(status, 201, "{answer}");
        id
    }

    async fn status(&self, id: TimelineId) -> u16 {
        let path = timeline_path(self.tenant, id);
        self.server.request("GET", &path, None).await.0
    }

    async fn delete_with_branches(&self, id: TimelineId) -> (u16, String) {
        let path = format!("{}?branches=delete", timeline_path(self.tenant, id));
        let (status, answer) = self.server.request("DELETE", &path, None).await;
        (status, answer.to_string())
    }

    async fn restarted(self) -> Project {
        let wals = self.server.stop().await;
        let server = Server::start(self.root.path(), wals).await;
        Project { server, ..self }
    }

    fn folder(&self, id: TimelineId) -> PathBuf {
        let objects = self.root.path().join("objects");
        objects.join(self.tenant.to_string()).join(id.to_string())
    }

    async fn tombstones(&self) -> Vec<TimelineId> {
        let store = blob::Store::local(&self.root.path().join("objects")).expect("store");
        let found = store.tombstones().await.expect("list");
        found.iter().map(|it| it.timeline).collect()
    }
}

/// In place of an object, so that it cannot be put.
fn in_the_way(path: &Path) {
    std::fs::create_dir_all(path.join("anything")).expect("something in the way");
}

/// Promise: where one of the branches may not be deleted, none is, wherever it hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_deletes_none_of_the_branches() {
    let project = Project::new().await;
    let root = project.timeline(None).await;
    let parent = project.timeline(Some(root)).await;
    let broken = project.timeline(Some(parent)).await;
    let other = project.timeline(Some(root)).await;
    let below_other = project.timeline(Some(other)).await;
    std::fs::remove_dir_all(project.folder(broken).join("layers")).expect("break it");
    let project = project.restarted().await;
    assert_eq!(project.status(broken).await, 500);

    let (status, answer) = project.delete_with_branches(root).await;
    assert_eq!(status, 412, "{answer}");
    assert!(answer.contains(&broken.to_string()), "{answer}");
    for id in [root, parent, other, below_other] {
        assert_eq!(project.status(id).await, 200, "{id}");
    }
    assert_eq!(project.tombstones().await, []);

    let path = timeline_path(project.tenant, broken);
    assert_eq!(project.server.request("DELETE", &path, None).await.0, 204);
    let (status, answer) = project.delete_with_branches(root).await;
    assert_eq!(status, 204, "{answer}");
    assert_eq!(project.tombstones().await.len(), 5);
}

/// Promise: a deletion that fails half-way goes on when it is asked for again, also after a restart, and what was not
/// deleted is whole until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_that_fails_half_way_goes_on() {
    for restarts in [false, true] {
        let mut project = Project::new().await;
        let root = project.timeline(None).await;
        let branch = project.timeline(Some(root)).await;
        let mark = project.folder(root).join("deleted");
        in_the_way(&mark);
        let (status, answer) = project.delete_with_branches(root).await;
        assert_eq!(status, 500, "{answer}");
        assert_eq!(project.status(branch).await, 404);
        assert_eq!(project.tombstones().await, [branch]);
        std::fs::remove_dir_all(&mark).expect("out of the way");
        if restarts {
            project = project.restarted().await;
            assert_eq!(project.status(branch).await, 404);
            assert_eq!(project.status(root).await, 200);
            let anew = project.timeline(Some(root)).await;
            assert_eq!(project.status(anew).await, 200);
        }
        let (status, answer) = project.delete_with_branches(root).await;
        assert_eq!(status, 204, "{answer}");
        assert_eq!(project.status(root).await, 404);
        assert!(!project.folder(root).exists());
        let (status, answer) = project.delete_with_branches(root).await;
        assert_eq!(status, 204, "{answer}");
    }
}

/// Promise: an id can be used again, and what a safekeeper has put there for the timeline before it is none of the new
/// one's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_timeline_under_a_used_id_begins_without_what_was_left() {
    let project = Project::new().await;
    let id = project.timeline(None).await;
    assert_eq!(project.delete_with_branches(id).await.0, 204);
    assert_eq!(project.tombstones().await, [id]);
    let wal = project.folder(id).join("wal");
    std::fs::create_dir_all(&wal).expect("folder");
    let piece = wal.join("0000000001000000-0000000001000008-0000000000000001-00000000");
    std::fs::write(&piece, "of before").expect("piece");
    let body = json!({"new_timeline_id": id, "pg_version": 15, "safekeepers": []});
    let path = format!("/v1/tenant/{}/timeline", project.tenant);
    let (status, answer) = project.server.request("POST", &path, Some(body)).await;
    assert_eq!(status, 201, "{answer}");
    assert!(!piece.exists());
    assert_eq!(project.tombstones().await, []);
}
