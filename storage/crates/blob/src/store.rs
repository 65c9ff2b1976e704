//! The object store as a whole: opening it, the documents beside the timelines, and listing tenants and timelines.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use pg_types::{TenantId, TimelineId};

use crate::direct;
use crate::error::BlobError;
use crate::known_keys::Keys;
use crate::s3;
use crate::staged;

/// An object that every pageserver tries to create when it starts.
/// Content of so many bytes takes milliseconds to go through once.
const LONG: usize = 1 << 20;
const CREATE_ONCE: &str = "create-once";

/// A handle; cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) objects: Arc<dyn ObjectStore>,
    /// The store as a directory, where it is one.
    directory: Option<LocalFileSystem>,
    /// Whether the store is a local directory, of which layers are read in place.
    in_place: bool,
    /// Data keys of tenants.
    pub(crate) keys: Arc<Keys>,
}

impl Store {
    /// A local directory, created if missing. Every write is synced to disk before it returns.
    pub fn local(directory: &Path) -> Result<Store, BlobError> {
        std::fs::create_dir_all(directory).map_err(|source| BlobError::File {
            path: directory.to_owned(),
            source,
        })?;
        let local = LocalFileSystem::new_with_prefix(directory)?
            .with_fsync(true)
            .with_automatic_cleanup(true);
        Ok(Store {
            objects: Arc::new(local.clone()),
            directory: Some(local),
            in_place: true,
            keys: Arc::default(),
        })
    }

    /// From an address: `file:///absolute/directory`, `mount:///absolute/directory` for a directory that is a
    /// network file system, of which layers are copied to local disk like from any remote store, or
    /// `s3://bucket/prefix`, with endpoint, region and credentials from the environment's `AWS_` variables.
    pub fn from_address(address: &str) -> Result<Store, BlobError> {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Store::from_address_with(address, variables)
    }

    /// The same with other variables than the environment's.
    pub fn from_address_with(
        address: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Store, BlobError> {
        let unsupported = |reason: &str| BlobError::Address {
            address: address.to_owned(),
            reason: reason.to_owned(),
        };
        match address.split_once("://") {
            Some(("file", path)) if path.starts_with('/') => Store::local(Path::new(path)),
            Some(("mount", path)) if path.starts_with('/') => Ok(Store {
                in_place: false,
                ..Store::local(Path::new(path))?
            }),
            Some(("file" | "mount", _)) => Err(unsupported(
                "give an absolute directory, such as file:///var/lib/weir/objects",
            )),
            Some(("s3", _)) => Ok(Store::new(s3::open(address, variables)?)),
            _ => Err(unsupported(
                "give file:///directory, mount:///directory or s3://bucket/prefix",
            )),
        }
    }

    /// Any other store; it must make writes durable and create-only puts atomic.
    pub fn new(objects: Arc<dyn ObjectStore>) -> Store {
        Store {
            objects,
            directory: None,
            in_place: false,
            keys: Arc::default(),
        }
    }

    /// Refuses a store that can't be reached, or that lets two writers create the same object, on which all rests
    /// that keeps two pageservers apart. Costs one request, two the first time; leaves one empty object.
    pub async fn check(&self) -> Result<(), BlobError> {
        let path = ObjectPath::from(CREATE_ONCE);
        for _ in 0..2 {
            match self.put(&path, Bytes::new(), PutMode::Create).await {
                Ok(()) => {}
                Err(BlobError::Store(object_store::Error::AlreadyExists { .. })) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Err(BlobError::CreatesTwice(self.objects.to_string()))
    }

    /// The objects themselves, past the names given to them here.
    pub fn objects(&self) -> Arc<dyn ObjectStore> {
        self.objects.clone()
    }

    /// Tenants that have at least one object.
    pub async fn tenants(&self) -> Result<Vec<TenantId>, BlobError> {
        Ok(self
            .children(None)
            .await?
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect())
    }

    /// Timelines of a tenant that have at least one object, those being deleted included.
    pub async fn timelines(&self, tenant: TenantId) -> Result<Vec<TimelineId>, BlobError> {
        let prefix = ObjectPath::from(tenant.to_string());
        Ok(self
            .children(Some(&prefix))
            .await?
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect())
    }

    async fn children(&self, prefix: Option<&ObjectPath>) -> Result<Vec<String>, BlobError> {
        match self.objects.list_with_delimiter(prefix).await {
            Ok(listed) => {
                let last = |path: &ObjectPath| path.filename().map(str::to_owned);
                Ok(listed.common_prefixes.iter().filter_map(last).collect())
            }
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces a small document of a tenant (its configuration, say), atomically and durably.
    pub async fn put_document(
        &self,
        tenant: TenantId,
        name: &str,
        content: Bytes,
    ) -> Result<(), BlobError> {
        self.put(&document_path(tenant, name), content, PutMode::Overwrite)
            .await
    }

    /// The content of a tenant's document; `None` if there is none.
    pub async fn get_document(
        &self,
        tenant: TenantId,
        name: &str,
    ) -> Result<Option<Bytes>, BlobError> {
        self.get(&document_path(tenant, name)).await
    }

    /// Removes a document; fine if there is none.
    pub async fn delete_document(&self, tenant: TenantId, name: &str) -> Result<(), BlobError> {
        self.delete(&document_path(tenant, name)).await
    }

    /// Replaces a small document that belongs to no tenant, atomically and durably. Several pageservers may share a
    /// store: the last writer wins.
    pub async fn put_shared_document(&self, name: &str, content: Bytes) -> Result<(), BlobError> {
        self.put(&ObjectPath::from(name), content, PutMode::Overwrite)
            .await
    }

    /// The content of a document that belongs to no tenant; `None` if there is none.
    pub async fn get_shared_document(&self, name: &str) -> Result<Option<Bytes>, BlobError> {
        self.get(&ObjectPath::from(name)).await
    }

    pub(crate) async fn put(
        &self,
        path: &ObjectPath,
        content: impl Into<PutPayload>,
        mode: PutMode,
    ) -> Result<(), BlobError> {
        let options = PutOptions {
            mode,
            ..PutOptions::default()
        };
        let content = content.into();
        // A bucket's request is signed with a checksum of all of the content, before it is first sent.
        let is_long = content.content_length() >= LONG;
        let put = self.objects.put_opts(path, content, options);
        match stalls::begun_off_worker(is_long, put).await {
            Ok(_) => Ok(()),
            // What callers look for.
            Err(error @ object_store::Error::AlreadyExists { .. }) => Err(error.into()),
            Err(source) => Err(BlobError::Put {
                path: path.to_string(),
                source,
            }),
        }
    }

    /// Puts a layer's file; durable on return. In a local directory the file's whole pages go past the kernel's page
    /// cache.
    pub(crate) async fn put_layer(
        &self,
        path: &ObjectPath,
        content: PutPayload,
    ) -> Result<(), BlobError> {
        let Some(file) = self.local_path(path).filter(|file| has_directory(file)) else {
            return self.put(path, content, PutMode::Overwrite).await;
        };
        let write = {
            let file = file.clone();
            move || direct::write(&file, &content)
        };
        blocking(file, write).await
    }

    /// The object's bytes, `None` if there is no such object.
    pub(crate) async fn get(&self, path: &ObjectPath) -> Result<Option<Bytes>, BlobError> {
        match self.objects.get(path).await {
            Ok(found) => Ok(Some(found.bytes().await?)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn exists(&self, path: &ObjectPath) -> Result<bool, BlobError> {
        match self.objects.head(path).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn delete(&self, path: &ObjectPath) -> Result<(), BlobError> {
        match self.objects.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Where the object is read in place.
    pub(crate) fn local_path(&self, path: &ObjectPath) -> Option<PathBuf> {
        self.in_place.then(|| self.file_path(path)).flatten()
    }

    /// Where the object is if the store is a directory, local or not.
    fn file_path(&self, path: &ObjectPath) -> Option<PathBuf> {
        let directory = self.directory.as_ref()?;
        directory.path_to_filesystem(path).ok()
    }

    /// Removes what crashes left half written of those objects in a folder of which `may_go` says so by their names.
    /// Returns how many there were. Only directories are left with such files.
    pub(crate) async fn remove_staged(
        &self,
        folder: &ObjectPath,
        may_go: impl Fn(&str) -> bool + Send + 'static,
    ) -> Result<usize, BlobError> {
        let Some(directory) = self.file_path(folder) else {
            return Ok(0);
        };
        let remove = {
            let directory = directory.clone();
            move || staged::remove(&directory, may_go)
        };
        blocking(directory, remove).await
    }
}

/// Work on a file or directory, off the threads that must not wait for a disk.
async fn blocking<T: Send + 'static>(
    path: PathBuf,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, BlobError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(std::io::Error::from)
        .flatten()
        .map_err(|source| BlobError::File { path, source })
}

/// Whether the file's directory exists. A file whose directory is missing is written by the `object_store` crate,
/// which makes the directory and syncs it.
fn has_directory(file: &Path) -> bool {
    file.parent().is_some_and(Path::is_dir)
}

fn document_path(tenant: TenantId, name: &str) -> ObjectPath {
    ObjectPath::from(format!("{tenant}/{name}"))
}
