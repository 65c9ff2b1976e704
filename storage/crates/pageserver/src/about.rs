//! The control plane's description of a tenant (names, owners, settings), a document beside the tenant's timelines.
//!
//! The pageserver keeps the document and never reads its content. From these documents the list of projects and
//! branches can be made again with the object store alone (`inventory`). Like a tenant's configuration the document
//! has no generation: the last writer wins. A crash leaves the document as it was before a change or as it is after
//! it. A damaged document counts as missing, and the control plane writes it again.

use anyhow::Context;
use blob::{Store, seal, unseal};
use pg_types::TenantId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

const DOCUMENT: &str = "about.json";

/// What the control plane says of a tenant's project. The pageserver gives both fields back as they were put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Tells one description from another; chosen by the control plane, shown as `about_revision` of the tenant.
    pub revision: String,
    /// The description, of the shape that `weir.recovery.description` of the control plane defines; any JSON is kept.
    pub about: Value,
}

/// Reads a tenant's description; `None` when the object store has none. Fails when the object store can't be read,
/// when the document's checksum is wrong, and when its content is no [`About`].
pub async fn load(objects: &Store, tenant: TenantId) -> anyhow::Result<Option<About>> {
    let found = objects.get_document(tenant, DOCUMENT).await;
    let Some(bytes) = found.context("read the description")? else {
        return Ok(None);
    };
    let json = unseal(&format!("{tenant}/{DOCUMENT}"), &bytes)?;
    let about = serde_json::from_slice(json);
    Ok(Some(about.with_context(|| {
        format!("{tenant}/{DOCUMENT} is no description")
    })?))
}

/// Puts a description in place of the tenant's earlier one; durable on return. Fails when the object store does not
/// take the document; a later read may then find either description.
pub async fn store(objects: &Store, tenant: TenantId, about: &About) -> anyhow::Result<()> {
    let json = serde_json::to_vec_pretty(about).context("encode the description")?;
    let put = objects.put_document(tenant, DOCUMENT, seal(json).into());
    put.await.context("store the description")
}

/// Deletes a tenant's description; fine if there is none. Fails when the object store does not delete the document.
pub async fn delete(objects: &Store, tenant: TenantId) -> anyhow::Result<()> {
    let deleted = objects.delete_document(tenant, DOCUMENT).await;
    deleted.context("delete the description")
}
