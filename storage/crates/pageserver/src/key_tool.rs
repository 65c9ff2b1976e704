//! Commands on the data keys of tenants: `weir-pageserver keys ...`. They may run beside the pageserver and the
//! safekeepers whose store it is.
//!
//! A rotation has three steps: another key is added to the key file, all data keys are wrapped by it (`rewrap`), and
//! the old key is taken out of the file once no data key is wrapped by it (`list`). A crash between them leaves
//! everything readable, and each step can be repeated.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use blob::{BlobError, Store, Wrapped};
use clap::Subcommand;
use pg_types::TenantId;
use serde_json::json;

use crate::manager::CONFIG_DOCUMENT;

/// The commands on data keys.
#[derive(Subcommand, Debug)]
pub enum KeyTool {
    /// Print the data keys of tenants, and which key-encryption key has wrapped each, as JSON.
    List {
        /// As given to the pageserver.
        #[arg(long)]
        object_store: String,
    },
    /// Wrap every data key by the newest key of the key file. The data stays as it is. Exits with 1 if a data key
    /// cannot be wrapped; the others are.
    Rewrap {
        /// As given to the pageserver.
        #[arg(long)]
        object_store: String,
        /// As given to the pageserver, with both the old key and the new one.
        #[arg(long)]
        key_file: PathBuf,
    },
}

/// Runs a command; what it finds goes to standard output.
pub(crate) async fn run(tool: KeyTool) -> Result<()> {
    match tool {
        KeyTool::List { object_store } => {
            let store = Store::from_address(&object_store).context("open the object store")?;
            println!("{}", serde_json::to_string_pretty(&list(&store).await?)?);
            Ok(())
        }
        KeyTool::Rewrap {
            object_store,
            key_file,
        } => {
            let store = Store::from_address(&object_store).context("open the object store")?;
            rewrap(&store.with_key_file(Some(&key_file), false)?).await
        }
    }
}

async fn list(store: &Store) -> Result<Vec<Wrapped>> {
    let mut found = Vec::new();
    for tenant in store.tenants().await.context("list tenants")? {
        found.extend(store.wrapped_key(tenant).await?);
    }
    Ok(found)
}

async fn rewrap_one(store: &Store, tenant: TenantId) -> Result<bool, BlobError> {
    let exists =
        async || Ok::<_, BlobError>(store.get_document(tenant, CONFIG_DOCUMENT).await?.is_some());
    let existed = exists().await?;
    let was_done = store.rewrap_key(tenant).await?;
    if was_done && existed && !exists().await? {
        // Deleted meanwhile: its key must not come back.
        store.delete_tenant_key(tenant).await?;
    }
    Ok(was_done)
}

async fn rewrap(store: &Store) -> Result<()> {
    let (mut wrapped, mut failures) = (0, Vec::new());
    for tenant in store.tenants().await.context("list tenants")? {
        match rewrap_one(store, tenant).await {
            Ok(was_done) => wrapped += u64::from(was_done),
            Err(error) => failures.push(format!("tenant {tenant}: {error}")),
        }
    }
    println!("{}", json!({ "wrapped": wrapped, "failures": failures }));
    ensure!(
        failures.is_empty(),
        "{} data keys are not wrapped by the newest key: {}",
        failures.len(),
        failures.join("; ")
    );
    Ok(())
}
