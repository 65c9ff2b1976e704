//! What reads ask of whatever holds versions: layers in memory, and layer files as their owner holds them.

use std::ops::ControlFlow;
use std::sync::Arc;

use pg_types::{Key, KeyRange};

use crate::desc::LayerDesc;
use crate::error::LayerError;
use crate::value::{LsnRange, Version, Window};

/// Anything that holds versions: a memory layer, an opened layer file.
pub trait VersionSource {
    /// The LSNs it holds versions at; `None` when it is empty.
    fn lsns(&self) -> Option<LsnRange>;

    /// Calls `visit` with the key's versions inside the window, newest first, until it breaks.
    fn newest_first(
        &self,
        key: &Key,
        window: Window,
        visit: &mut dyn FnMut(Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError>;

    /// `newest_first` of several keys in key order, each with its window. `visit` gets the place of the version's
    /// key in `keys`; to break ends that key only.
    fn newest_first_of(
        &self,
        keys: &[(Key, Window)],
        visit: &mut dyn FnMut(usize, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        for (at, (key, window)) in keys.iter().enumerate() {
            self.newest_first(key, *window, &mut |version| visit(at, version))?;
        }
        Ok(())
    }

    /// Calls `visit` with every version of the keys inside the window, by `(key, lsn, seq)`, until it breaks.
    fn scan(
        &self,
        keys: &KeyRange,
        window: Window,
        visit: &mut dyn FnMut(Key, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError>;

    /// As `scan`, but only the newest version of each key.
    fn scan_newest(
        &self,
        keys: &KeyRange,
        window: Window,
        visit: &mut dyn FnMut(Key, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        let mut held: Option<(Key, Version)> = None;
        let mut stopped = false;
        self.scan(keys, window, &mut |key, version| {
            let previous = held.replace((key, version));
            match previous {
                Some((older_key, older)) if older_key != key => {
                    let flow = visit(older_key, older);
                    stopped = flow.is_break();
                    flow
                }
                _ => ControlFlow::Continue(()),
            }
        })?;
        if let Some((key, version)) = held
            && !stopped
        {
            let _ = visit(key, version);
        }
        Ok(())
    }
}

/// A layer file as its owner holds it.
pub trait PersistentLayer {
    /// The description of the file, known without opening it.
    fn desc(&self) -> &LayerDesc;

    /// The opened layer; [`LayerError::NotResident`] when it must be fetched first. Called once a read that
    /// visits the layer, so it should be cheap: keep the reader open.
    fn open(&self) -> Result<Arc<dyn VersionSource + Send + Sync>, LayerError>;
}
