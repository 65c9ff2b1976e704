//! The set of a timeline's layer files, searchable by key.
//!
//! Invariants: the answer to "which layers can hold a version of this key in this window" is complete, for
//! any overlap of layers; no two layers have the same name. The structure is an implicit interval tree: layers
//! sorted by first key, each subtree knowing its largest last key. A change builds it anew (thousands of layers:
//! well under a millisecond); a reader holds an `Arc` of the map it started with.

use std::collections::HashSet;
use std::sync::Arc;

use pg_types::{Key, KeyRange};

use crate::desc::LayerDesc;
use crate::name::LayerName;
use crate::value::Window;
use crate::versions::PersistentLayer;

/// The layer files of one timeline, searchable by key; immutable. `L` is the caller's handle of a layer file.
pub struct LayerMap<L> {
    /// By first key.
    layers: Vec<Arc<L>>,
    /// For the subtree rooted at each index: the largest last key in it.
    max_last: Vec<Key>,
}

impl<L> Clone for LayerMap<L> {
    fn clone(&self) -> LayerMap<L> {
        LayerMap {
            layers: self.layers.clone(),
            max_last: self.max_last.clone(),
        }
    }
}

impl<L> Default for LayerMap<L> {
    fn default() -> LayerMap<L> {
        LayerMap {
            layers: Vec::new(),
            max_last: Vec::new(),
        }
    }
}

impl<L: PersistentLayer> LayerMap<L> {
    /// The map of these layers, in whatever order they come. No two may have the same name.
    pub fn new(mut layers: Vec<Arc<L>>) -> LayerMap<L> {
        layers.sort_by_key(|layer| (layer.desc().keys.first, layer.desc().lsns.first));
        let mut map = LayerMap {
            max_last: layers.iter().map(|layer| layer.desc().keys.last).collect(),
            layers,
        };
        map.index(0, map.layers.len());
        map
    }

    fn index(&mut self, low: usize, high: usize) -> Option<Key> {
        if low >= high {
            return None;
        }
        let middle = low + (high - low) / 2;
        let below = self.index(low, middle).max(self.index(middle + 1, high));
        let max = below.map_or(self.max_last[middle], |key| key.max(self.max_last[middle]));
        self.max_last[middle] = max;
        Some(max)
    }

    /// The map after adding `add` and removing the layers named `remove`, in one step. When a layer is added whose
    /// name is in the map and is not removed, the layer in the map stays: both are the same file, made twice from the
    /// same inputs, for instance after a crash that left outputs beside inputs. Of two handles with one name, a
    /// lookup by name would find only one.
    pub fn with(&self, add: Vec<Arc<L>>, remove: &[LayerName]) -> LayerMap<L> {
        let remove: HashSet<&LayerName> = remove.iter().collect();
        let keep = |layer: &&Arc<L>| remove.is_empty() || !remove.contains(&layer.desc().name());
        let mut layers: Vec<Arc<L>> = self.layers.iter().filter(keep).cloned().collect();
        for layer in add {
            let is_same = |other: &Arc<L>| other.desc().is_named_as(layer.desc());
            if !layers.iter().any(is_same) {
                layers.push(layer);
            }
        }
        LayerMap::new(layers)
    }

    /// Layers that can hold a version of `key` in the window, those with the newest versions first.
    pub fn candidates(&self, key: &Key, window: Window) -> Vec<&Arc<L>> {
        self.overlapping(
            &KeyRange {
                first: *key,
                last: *key,
            },
            window,
        )
    }

    /// The same for any key of a range.
    pub fn overlapping(&self, keys: &KeyRange, window: Window) -> Vec<&Arc<L>> {
        let mut found = Vec::new();
        if !window.is_empty() {
            self.search(0, self.layers.len(), keys, window, &mut found);
        }
        found.sort_by_key(|layer| std::cmp::Reverse(layer.desc().lsns.last));
        found
    }

    fn search<'a>(
        &'a self,
        low: usize,
        high: usize,
        keys: &KeyRange,
        window: Window,
        found: &mut Vec<&'a Arc<L>>,
    ) {
        if low >= high {
            return;
        }
        let middle = low + (high - low) / 2;
        if self.max_last[middle] < keys.first {
            return;
        }
        self.search(low, middle, keys, window, found);
        let layer = &self.layers[middle];
        let desc = layer.desc();
        if desc.keys.first > keys.last {
            return;
        }
        if desc.keys.last >= keys.first && window.overlaps(&desc.lsns) {
            found.push(layer);
        }
        self.search(middle + 1, high, keys, window, found);
    }

    /// All layers, by first key; those with the same one by first LSN.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<L>> {
        self.layers.iter()
    }

    /// The layer of this name; `None` if the map has none. Looks through all layers.
    pub fn get(&self, name: &LayerName) -> Option<&Arc<L>> {
        let wanted = name.parse(0).ok()?;
        let is_wanted = |layer: &&Arc<L>| layer.desc().is_named_as(&wanted);
        self.layers.iter().find(is_wanted)
    }

    /// Delta layers not yet compacted, oldest first.
    pub fn l0(&self) -> Vec<&Arc<L>> {
        let mut layers: Vec<_> = self
            .layers
            .iter()
            .filter(|layer| layer.desc().is_l0())
            .collect();
        layers.sort_by_key(|layer| layer.desc().lsns.first);
        layers
    }

    /// Number of layers.
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there is no layer.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Size of all layer files together, bytes.
    pub fn total_bytes(&self) -> u64 {
        self.layers.iter().map(|layer| layer.desc().size).sum()
    }

    /// The descriptions of all layers, in the order of [`LayerMap::iter`].
    pub fn descs(&self) -> Vec<LayerDesc> {
        self.layers
            .iter()
            .map(|layer| layer.desc().clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desc::LayerKind;
    use crate::error::LayerError;
    use crate::value::LsnRange;
    use crate::versions::VersionSource;
    use pg_types::Lsn;
    use proptest::prelude::*;

    struct Named(LayerDesc);

    impl PersistentLayer for Named {
        fn desc(&self) -> &LayerDesc {
            &self.0
        }
        fn open(&self) -> Result<Arc<dyn VersionSource + Send + Sync>, LayerError> {
            Err(LayerError::NotResident(self.0.name()))
        }
    }

    fn layer((keys, lsns): ((u32, u32), (u64, u64))) -> Arc<Named> {
        Arc::new(Named(LayerDesc {
            kind: LayerKind::Delta,
            level: 0,
            keys: KeyRange {
                first: Key::aux(keys.0.min(keys.1)),
                last: Key::aux(keys.0.max(keys.1)),
            },
            lsns: LsnRange {
                first: Lsn(lsns.0.min(lsns.1)),
                last: Lsn(lsns.0.max(lsns.1)),
            },
            checksum: 0,
            size: 1,
        }))
    }

    proptest! {
        /// Promise: the tree finds exactly the layers that a look at each would find, newest first.
        #[test]
        fn the_search_equals_a_look_at_every_layer(
            layers in prop::collection::vec(((0..60_u32, 0..60_u32), (1..60_u64, 1..60_u64)), 0..80),
            keys in (0..60_u32, 0..60_u32),
            floor in 0..60_u64,
            upto in 0..60_u64,
        ) {
            let layers: Vec<_> = layers.into_iter().map(layer).collect();
            let map = LayerMap::new(layers.clone());
            let range = KeyRange { first: Key::aux(keys.0.min(keys.1)), last: Key::aux(keys.0.max(keys.1)) };
            let window = Window { floor: Lsn(floor), upto: Lsn(upto) };
            let found = map.overlapping(&range, window);
            let expected = layers.iter().filter(|layer| {
                let desc = layer.desc();
                let lsns = (desc.lsns.first.0..=desc.lsns.last.0).any(|lsn| window.contains(Lsn(lsn)));
                desc.keys.overlaps(&range) && lsns
            });
            let address = |layer: &&Arc<Named>| Arc::as_ptr(layer) as usize;
            let mut expected: Vec<usize> = expected.map(|layer| address(&layer)).collect();
            let mut got: Vec<usize> = found.iter().map(address).collect();
            expected.sort_unstable();
            got.sort_unstable();
            prop_assert_eq!(got, expected);
            prop_assert!(found.windows(2).all(|pair| pair[0].desc().lsns.last >= pair[1].desc().lsns.last));
        }
    }

    /// Promise: a name is in a map once, so that the layer that is fetched by its name is the one that is read.
    #[test]
    fn a_layer_that_is_added_again_stays_as_it_is() {
        let first = layer(((1, 2), (1, 2)));
        let again = || layer(((1, 2), (1, 2)));
        let map = LayerMap::default().with(vec![first.clone(), again()], &[]);
        assert_eq!(map.len(), 1);
        let map = map.with(vec![again()], &[]);
        assert_eq!(map.len(), 1);
        let name = first.desc().name();
        assert!(Arc::ptr_eq(map.get(&name).unwrap(), &first));
        let other = again();
        let map = map.with(vec![other.clone()], std::slice::from_ref(&name));
        assert!(
            Arc::ptr_eq(map.get(&name).unwrap(), &other),
            "unless the first is removed in the same step"
        );
    }

    #[test]
    fn a_change_adds_and_removes_in_one_step() {
        let map = LayerMap::new(vec![layer(((1, 2), (1, 2))), layer(((3, 4), (1, 2)))]);
        let remove = map.candidates(&Key::aux(3), Window::upto(Lsn::MAX))[0]
            .desc()
            .name();
        let changed = map.with(vec![layer(((9, 9), (5, 6)))], std::slice::from_ref(&remove));
        assert_eq!((map.len(), changed.len()), (2, 2));
        assert!(changed.get(&remove).is_none());
        assert_eq!(
            changed.candidates(&Key::aux(9), Window::upto(Lsn(5))).len(),
            1
        );
        assert_eq!(changed.total_bytes(), 2);
    }
}
