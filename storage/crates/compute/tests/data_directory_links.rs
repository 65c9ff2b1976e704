//! Promise: whatever is put in a data directory by whoever has Postgres's rights, the agent reads and writes nothing
//! outside of it.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::PathBuf;

use compute::postgres::{DataDirectory, OsUser};

const SECRET: &[u8] = b"a secret of somebody else";

/// A compute's folder with a data directory and what is in the place of its volume, and beside it somebody else's folder
/// with one file.
struct Scene {
    root: tempfile::TempDir,
    data: DataDirectory,
    secret: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let root = tempfile::tempdir().unwrap();
        for name in [
            "compute",
            "compute/volume",
            "compute/volume/global",
            "other",
        ] {
            std::fs::create_dir(root.path().join(name)).unwrap();
        }
        let secret = root.path().join("other/secret");
        std::fs::write(&secret, SECRET).unwrap();
        let folder = root.path().join("compute");
        let owner = OsUser::current().unwrap();
        let data =
            DataDirectory::create(&folder.join("pgdata"), &folder.join("volume"), &owner).unwrap();
        Scene { root, data, secret }
    }

    /// Puts a link in the data directory in place of what is there.
    fn plant(&self, name: &str, target: impl AsRef<std::path::Path>) {
        let path = self.data.path.join(name);
        if path.is_dir() && !path.is_symlink() {
            std::fs::remove_dir_all(&path).unwrap();
        } else if path.is_symlink() {
            std::fs::remove_file(&path).unwrap();
        }
        symlink(target, path).unwrap();
    }

    fn nothing_happened_elsewhere(&self) {
        assert_eq!(std::fs::read(&self.secret).unwrap(), SECRET);
        let others = std::fs::read_dir(self.root.path().join("other")).unwrap();
        assert_eq!(others.count(), 1);
    }
}

#[test]
fn a_link_is_refused_for_reading_and_writing_and_its_target_stays() {
    let scene = Scene::new();
    scene.plant("postgresql.auto.conf", &scene.secret);
    scene.plant("pg_stat", scene.root.path().join("other"));
    scene.plant("pg_twophase", "../../other");
    for name in [
        "postgresql.auto.conf",
        "pg_stat/secret",
        "pg_twophase/secret",
        "../../other/secret",
    ] {
        assert!(scene.data.read(name).is_err(), "{name} was read");
        assert!(scene.data.put(name, b"mine").is_err(), "{name} was written");
    }
    for name in ["pg_stat/new", "pg_twophase/new", "../../other/new"] {
        assert!(scene.data.put(name, b"mine").is_err(), "{name}");
        assert!(scene.data.replace(name, b"mine").is_err(), "{name}");
    }
    scene.nothing_happened_elsewhere();
}

#[test]
fn what_the_volume_serves_is_not_read_by_a_link_of_the_servers() {
    let scene = Scene::new();
    let served = scene.root.path().join("compute/volume/global/pg_control");
    std::fs::write(served, b"of the volume").unwrap();
    assert_eq!(
        scene.data.read("global/pg_control").unwrap(),
        b"of the volume"
    );
    std::fs::rename(&scene.secret, scene.root.path().join("other/pg_control")).unwrap();
    scene.plant("global", scene.root.path().join("other"));
    assert_eq!(
        scene.data.read("global/pg_control").unwrap(),
        b"of the volume"
    );
}

#[test]
fn a_link_in_the_place_of_a_file_is_replaced_by_the_file() {
    let scene = Scene::new();
    scene.plant("weir.settings.conf", &scene.secret);
    scene.plant("weir.settings.conf.next", &scene.secret);
    scene
        .data
        .replace("weir.settings.conf", b"jit = off")
        .unwrap();
    let made = scene.data.path.join("weir.settings.conf");
    assert!(std::fs::symlink_metadata(&made).unwrap().is_file());
    assert_eq!(std::fs::read(made).unwrap(), b"jit = off");
    scene.nothing_happened_elsewhere();
}

#[test]
fn a_second_name_of_a_file_elsewhere_is_not_written_through() {
    let scene = Scene::new();
    std::fs::hard_link(&scene.secret, scene.data.path.join("pg_hba.conf")).unwrap();
    let before = scene.secret.metadata().unwrap();
    assert!(scene.data.put("pg_hba.conf", b"mine").is_err());
    let after = scene.secret.metadata().unwrap();
    assert_eq!((after.mode(), after.uid()), (before.mode(), before.uid()));
    scene.nothing_happened_elsewhere();
}

#[test]
fn a_pipe_holds_nobody_up() {
    let scene = Scene::new();
    let mode = nix::sys::stat::Mode::S_IRWXU;
    nix::unistd::mkfifo(&scene.data.path.join("pipe"), mode).unwrap();
    assert!(scene.data.read("pipe").is_err());
    assert!(scene.data.put("pipe", b"mine").is_err());
}

#[test]
fn an_earlier_directory_goes_and_a_link_in_its_place_is_not_followed() {
    let scene = Scene::new();
    scene.plant("pg_wal", scene.root.path().join("other"));
    let folder = scene.root.path().join("compute");
    let owner = OsUser::current().unwrap();
    let again = |path: &str| {
        DataDirectory::create(&folder.join(path), &folder.join("volume"), &owner).unwrap()
    };
    assert!(again("pgdata").path.join("pg_wal").is_dir());
    symlink(scene.root.path().join("other"), folder.join("linked")).unwrap();
    assert!(!again("linked").path.is_symlink());
    scene.nothing_happened_elsewhere();
}

#[test]
fn a_file_that_is_missing_is_said_to_be() {
    let scene = Scene::new();
    for name in ["pg_stat/pgstat.stat", "global/1262_fsm"] {
        let error = scene.data.read(name).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{name}");
    }
}
