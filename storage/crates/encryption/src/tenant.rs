//! The data key of a tenant, and the document in which it is kept, wrapped, beside the tenant's data.

use pg_types::TenantId;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::EncryptionError;
use crate::hex;
use crate::provider::{KeyProvider, Wrapping};

/// Version of the document written; newer ones are refused.
pub const KEY_FORMAT_VERSION: u32 = 1;

/// Whether files of a tenant that are not encrypted are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plain {
    /// The tenant is older than its data key, and has files of before.
    Accepted,
    /// The tenant has had its data key from the start: a plain file was put there by somebody else.
    Refused,
}

/// What is known of a wrapped data key without unwrapping it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Wrapped {
    /// The tenant of the data key.
    pub tenant: TenantId,
    /// Id of the data key.
    pub data_key: String,
    /// Id of the key-encryption key that has wrapped it.
    pub wrapped_by: String,
    /// Whether plain files are read beside it.
    pub plain: Plain,
}

#[derive(Serialize, Deserialize)]
struct Document {
    format_version: u32,
    tenant: TenantId,
    data_key: String,
    plain: Plain,
    wrapped_by: String,
    wrapped: String,
}

impl Document {
    fn parse(json: &[u8]) -> Result<Document, EncryptionError> {
        let parsed: Document = serde_json::from_slice(json)
            .map_err(|error| EncryptionError::Document(error.to_string()))?;
        if parsed.format_version > KEY_FORMAT_VERSION {
            return Err(EncryptionError::TooNew {
                what: "the document of a wrapped data key",
                found: parsed.format_version,
                known: KEY_FORMAT_VERSION,
            });
        }
        Ok(parsed)
    }
}

/// The data key of a tenant, in clear. It is never written, shown or logged.
pub struct TenantKey {
    tenant: TenantId,
    id: [u8; 16],
    secret: Zeroizing<[u8; 32]>,
    plain: Plain,
}

impl std::fmt::Debug for TenantKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TenantKey")
            .field("tenant", &self.tenant)
            .field("id", &self.id())
            .field("plain", &self.plain)
            .finish_non_exhaustive()
    }
}

impl TenantKey {
    /// A new data key, out of random bytes.
    pub fn create(tenant: TenantId, plain: Plain) -> Result<TenantKey, EncryptionError> {
        Ok(TenantKey {
            tenant,
            id: crate::random()?,
            secret: Zeroizing::new(crate::random()?),
            plain,
        })
    }

    /// The document that keeps it, wrapped by the newest key of the provider: JSON.
    pub fn document(&self, provider: &dyn KeyProvider) -> Result<Vec<u8>, EncryptionError> {
        let tenant = self.tenant.to_string();
        let context = context(self.tenant, self.id, self.plain);
        let wrapping = provider.wrap(&tenant, &context, &self.secret)?;
        let document = Document {
            format_version: KEY_FORMAT_VERSION,
            tenant: self.tenant,
            data_key: self.id(),
            plain: self.plain,
            wrapped_by: wrapping.key,
            wrapped: hex::encode(&wrapping.bytes),
        };
        serde_json::to_vec_pretty(&document)
            .map_err(|error| EncryptionError::Document(error.to_string()))
    }

    /// The data key out of its document. Refuses the document of another tenant, even under this one's name.
    pub fn from_document(
        tenant: TenantId,
        json: &[u8],
        provider: &dyn KeyProvider,
    ) -> Result<TenantKey, EncryptionError> {
        let found = Document::parse(json)?;
        let damaged = |reason: &str| EncryptionError::Document(reason.to_owned());
        let id = hex::decode_array(&found.data_key)
            .ok_or_else(|| damaged("the id of the data key makes no sense"))?;
        let bytes = hex::decode(&found.wrapped)
            .ok_or_else(|| damaged("the wrapped data key makes no sense"))?;
        let key = found.wrapped_by;
        let secret = provider.unwrap(
            &tenant.to_string(),
            &context(tenant, id, found.plain),
            &Wrapping { key, bytes },
        )?;
        Ok(TenantKey {
            tenant,
            id,
            secret,
            plain: found.plain,
        })
    }

    /// The tenant of the data key.
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Id of the data key, which files name: 32 digits.
    pub fn id(&self) -> String {
        hex::encode(&self.id)
    }

    /// Whether plain files are read beside encrypted ones.
    pub fn plain(&self) -> Plain {
        self.plain
    }

    pub(crate) fn id_bytes(&self) -> [u8; 16] {
        self.id
    }

    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret[..]
    }
}

impl Wrapped {
    /// What a document says. None of it is checked against the key that has wrapped it.
    pub fn of(json: &[u8]) -> Result<Wrapped, EncryptionError> {
        let found = Document::parse(json)?;
        Ok(Wrapped {
            tenant: found.tenant,
            data_key: found.data_key,
            wrapped_by: found.wrapped_by,
            plain: found.plain,
        })
    }
}

/// What a wrapping is bound to: no two data keys have the same.
fn context(tenant: TenantId, id: [u8; 16], plain: Plain) -> Vec<u8> {
    let plain = match plain {
        Plain::Accepted => 0,
        Plain::Refused => 1,
    };
    [b"weir data key 1 ", &tenant.0[..], &id, &[plain]].concat()
}
