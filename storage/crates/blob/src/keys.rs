//! Data keys of tenants: kept wrapped in `{tenant}/keys.json`, and unwrapped in memory while the program runs.
//!
//! A store holds them, and loads them out of itself: this file and `store` are one thing.
//!
//! Invariants:
//!
//! 1. The object is made by creation, before anything of its tenant is encrypted, and never made again while it is
//!    expected to be there: a data key that is lost is an error, not a reason for a new one. A rotation replaces it
//!    whole with the same data key, wrapped by another key.
//! 2. A tenant that has a data key gets nothing written in clear, by any program: where keys are required
//!    ([`Store::with_encryption`]) or one is expected ([`Store::expect_key`]), its absence is an error.
//! 3. Who makes the object looks afterwards at which key-encryption key is the newest, and wraps again if it is
//!    another one. So a rotation that has listed all objects before has missed none whose key-encryption key it then removes.
//!
//! A crash leaves the object or none; after a creation that crashed, the next one takes the object that is there.

use std::path::Path;
use std::sync::Arc;

use encryption::{EncryptionError, KeyFile, KeyProvider, Plain, TenantKey, Wrapped};
use object_store::PutMode;
use object_store::path::Path as ObjectPath;
use parking_lot::RwLock;
use pg_types::TenantId;

use crate::error::BlobError;
use crate::known_keys::{Keys, Known};
use crate::store::Store;

const KEY_DOCUMENT: &str = "keys.json";

impl Store {
    /// With these keys. `required`: every tenant has to have a data key, so that nothing is written in clear. Without
    /// a provider nothing can be unwrapped. What was known of data keys is forgotten.
    pub fn with_encryption(
        mut self,
        provider: Option<Arc<dyn KeyProvider>>,
        required: bool,
    ) -> Store {
        self.keys = Arc::new(Keys {
            provider,
            required,
            tenants: RwLock::default(),
        });
        self
    }

    /// The same, with the keys of a key file, if there is one. Fails with [`BlobError::Keys`] if the file is lost,
    /// torn or open to others.
    pub fn with_key_file(self, file: Option<&Path>, required: bool) -> Result<Store, BlobError> {
        let opened = file.map(KeyFile::open).transpose();
        let provider = opened.map_err(BlobError::Keys)?;
        let provider = provider.map(|it| Arc::new(it) as Arc<dyn KeyProvider>);
        Ok(self.with_encryption(provider, required))
    }

    /// Whether every tenant has to have a data key.
    pub fn encrypts(&self) -> bool {
        self.keys.required
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.keys.provider.is_some()
    }

    fn provider(&self, tenant: TenantId) -> Result<&dyn KeyProvider, BlobError> {
        let provider = self.keys.provider.as_deref();
        provider.ok_or_else(|| failed(tenant)(EncryptionError::NoKey))
    }

    /// Takes note that the tenant has a data key, so that its absence is an error.
    pub fn expect_key(&self, tenant: TenantId) {
        let mut tenants = self.keys.tenants.write();
        if !matches!(tenants.get(&tenant), Some(Known::Key(_))) {
            tenants.insert(tenant, Known::Expected);
        }
    }

    /// The tenant's data key, from memory or from the store; `None` if the tenant has none and needs none. Fails with
    /// [`BlobError::NoDataKey`] if it needs one, and with [`BlobError::Encryption`] if it cannot be unwrapped.
    pub async fn tenant_key(&self, tenant: TenantId) -> Result<Option<Arc<TenantKey>>, BlobError> {
        let known = self.keys.tenants.read().get(&tenant).cloned();
        let expected = match known {
            Some(Known::Key(key)) => return Ok(Some(key)),
            Some(Known::Plain) => return Ok(None),
            Some(Known::Expected) => true,
            None => self.keys.required,
        };
        match self.get_document(tenant, KEY_DOCUMENT).await? {
            Some(json) => self.unwrapped(tenant, &json).map(Some),
            None if expected => Err(BlobError::NoDataKey(tenant)),
            None => {
                let mut tenants = self.keys.tenants.write();
                match tenants.entry(tenant).or_insert(Known::Plain) {
                    Known::Key(key) => Ok(Some(key.clone())),
                    Known::Plain => Ok(None),
                    Known::Expected => Err(BlobError::NoDataKey(tenant)),
                }
            }
        }
    }

    /// The data key if it is in memory.
    pub(crate) fn known_key(&self, tenant: TenantId) -> Option<Arc<TenantKey>> {
        match self.keys.tenants.read().get(&tenant) {
            Some(Known::Key(key)) => Some(key.clone()),
            _ => None,
        }
    }

    fn unwrapped(&self, tenant: TenantId, json: &[u8]) -> Result<Arc<TenantKey>, BlobError> {
        let provider = self.provider(tenant)?;
        let key = stalls::off_worker(|| TenantKey::from_document(tenant, json, provider));
        Ok(self.know(key.map_err(failed(tenant))?))
    }

    fn know(&self, key: TenantKey) -> Arc<TenantKey> {
        let (tenant, key) = (key.tenant(), Arc::new(key));
        self.keys
            .tenants
            .write()
            .insert(tenant, Known::Key(key.clone()));
        key
    }

    /// Gives a tenant a data key, durable on return, unless it has one. Call it once for a tenant, before anything is
    /// encrypted for it, and never for one that may have lost its key. `plain` says what counts beside encrypted
    /// files.
    pub async fn make_tenant_key(
        &self,
        tenant: TenantId,
        plain: Plain,
    ) -> Result<Arc<TenantKey>, BlobError> {
        let provider = self.provider(tenant)?;
        if let Some(json) = self.get_document(tenant, KEY_DOCUMENT).await? {
            return self.unwrapped(tenant, &json);
        }
        let made = stalls::off_worker(|| {
            let key = TenantKey::create(tenant, plain)?;
            Ok::<_, EncryptionError>((key.document(provider)?, key))
        });
        let (document, key) = made.map_err(failed(tenant))?;
        let path = key_path(tenant);
        match self.put(&path, document, PutMode::Create).await {
            Ok(()) => {}
            Err(BlobError::Store(object_store::Error::AlreadyExists { .. })) => {
                let json = self.get_document(tenant, KEY_DOCUMENT).await?;
                let json = json.ok_or(BlobError::NoDataKey(tenant))?;
                return self.unwrapped(tenant, &json);
            }
            Err(error) => return Err(error),
        }
        let key = self.know(key);
        self.rewrap_key(tenant).await?;
        tracing::info!(%tenant, data_key = key.id(), "made the tenant's data key");
        Ok(key)
    }

    /// Wraps the tenant's data key by the newest key-encryption key, unless that has wrapped it. Durable on return,
    /// which says whether there was anything to do.
    pub async fn rewrap_key(&self, tenant: TenantId) -> Result<bool, BlobError> {
        let Some(json) = self.get_document(tenant, KEY_DOCUMENT).await? else {
            return Ok(false);
        };
        let provider = self.provider(tenant)?;
        let wrap = || {
            if Wrapped::of(&json)?.wrapped_by == provider.newest()? {
                return Ok(None);
            }
            let key = TenantKey::from_document(tenant, &json, provider)?;
            key.document(provider).map(Some)
        };
        let Some(document) = stalls::off_worker(wrap).map_err(failed(tenant))? else {
            return Ok(false);
        };
        self.put(&key_path(tenant), document, PutMode::Overwrite)
            .await?;
        Ok(true)
    }

    /// What is known of a tenant's wrapped data key without unwrapping it; `None` if it has none.
    pub async fn wrapped_key(&self, tenant: TenantId) -> Result<Option<Wrapped>, BlobError> {
        let Some(json) = self.get_document(tenant, KEY_DOCUMENT).await? else {
            return Ok(None);
        };
        let wrapped = Wrapped::of(&json).map_err(failed(tenant))?;
        if wrapped.tenant != tenant {
            return Err(BlobError::Corrupt {
                path: key_path(tenant).to_string(),
                reason: format!("it belongs to tenant {}", wrapped.tenant),
            });
        }
        Ok(Some(wrapped))
    }

    /// Deletes the tenant's data key, from memory too; fine if it has none. Whatever was encrypted with it, here and
    /// in every copy elsewhere, can be read by nobody who has no copy of this object.
    pub async fn delete_tenant_key(&self, tenant: TenantId) -> Result<(), BlobError> {
        self.delete_document(tenant, KEY_DOCUMENT).await?;
        self.keys.tenants.write().remove(&tenant);
        Ok(())
    }
}

fn key_path(tenant: TenantId) -> ObjectPath {
    ObjectPath::from(format!("{tenant}/{KEY_DOCUMENT}"))
}

fn failed(tenant: TenantId) -> impl Fn(EncryptionError) -> BlobError {
    move |source| BlobError::Encryption {
        path: key_path(tenant).to_string(),
        source,
    }
}
