//! What a program knows of tenants' data keys, while it runs; [`crate::keys`] keeps and uses it.

use std::collections::HashMap;
use std::sync::Arc;

use encryption::{KeyProvider, TenantKey};
use parking_lot::RwLock;
use pg_types::TenantId;

/// What a program knows of tenants' data keys.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    /// Unwraps data keys; none where nothing is to be.
    pub(crate) provider: Option<Arc<dyn KeyProvider>>,
    /// Whether every tenant has to have a data key.
    pub(crate) required: bool,
    /// What was seen of tenants' objects so far.
    pub(crate) tenants: RwLock<HashMap<TenantId, Known>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Known {
    /// The data key, unwrapped.
    Key(Arc<TenantKey>),
    /// There is none.
    Plain,
    /// There is one, which was not unwrapped yet.
    Expected,
}
