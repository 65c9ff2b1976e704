//! Data keys of tenants: when one is made, and that it is there before anything of the tenant is opened.
//!
//! A tenant's configuration keeps in mind that the tenant has a data key. So a key that is lost is told from one that
//! was never made: its timelines stay closed, with the reason, until it is back, and no other key is made.
//!
//! A crash between the key and the configuration leaves a key that the next attempt takes. With it the tenant is
//! encrypted, whatever its configuration says.

use std::sync::atomic::Ordering;

use anyhow::Context;
use blob::Plain;
use pg_types::TenantId;
use serde::{Deserialize, Serialize};

use super::{CONFIG_DOCUMENT, Tenant, TenantManager};
use crate::config::TenantConfig;

/// What the object store keeps of a tenant's settings.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredConfig {
    #[serde(flatten)]
    pub config: TenantConfig,
    /// Whether the tenant has a data key.
    #[serde(default)]
    pub encrypted: bool,
}

impl StoredConfig {
    pub fn encode(config: &TenantConfig, encrypted: bool) -> serde_json::Result<Vec<u8>> {
        let config = config.clone();
        serde_json::to_vec_pretty(&StoredConfig { config, encrypted })
    }
}

impl Tenant {
    pub(super) fn is_encrypted(&self) -> bool {
        self.encrypted.load(Ordering::Relaxed)
    }
}

impl TenantManager {
    pub(super) async fn store_config(
        &self,
        id: TenantId,
        config: &TenantConfig,
        encrypted: bool,
    ) -> anyhow::Result<()> {
        let json = StoredConfig::encode(config, encrypted).context("encode the configuration")?;
        crash::point!("tenant.before-config");
        self.options
            .objects
            .put_document(id, CONFIG_DOCUMENT, json.into())
            .await
            .context("store the configuration")?;
        crash::point!("tenant.config-stored");
        Ok(())
    }

    /// The data key of a tenant that is being made, durable on return, if tenants are to have one; whether it has
    /// one.
    pub(super) async fn first_key(&self, id: TenantId) -> anyhow::Result<bool> {
        let objects = &self.options.objects;
        if objects.encrypts() {
            let made = objects.make_tenant_key(id, Plain::Refused).await;
            made.with_context(|| format!("make the data key of tenant {id}"))?;
            return Ok(true);
        }
        Ok(objects.tenant_key(id).await?.is_some())
    }

    /// Sees that the tenant's data key is in memory if it has one, and makes one if it should have one and never had.
    pub(super) async fn have_key(&self, tenant: &Tenant) -> anyhow::Result<()> {
        let (objects, id) = (&self.options.objects, tenant.id);
        if tenant.is_encrypted() {
            objects.expect_key(id);
        } else if objects.encrypts() {
            let made = objects.make_tenant_key(id, Plain::Accepted).await;
            made.with_context(|| format!("make the data key of tenant {id}"))?;
            let config = tenant.config.read().clone();
            self.store_config(id, &config, true).await?;
            tenant.encrypted.store(true, Ordering::Relaxed);
        }
        objects.tenant_key(id).await?;
        Ok(())
    }
}
