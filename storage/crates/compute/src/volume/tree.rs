//! Names and nodes of a volume: what storage lists, overlaid by everything that happened since the start.
//!
//! Invariant: a directory entry is decided by the overlay first. Once a name was created, removed or renamed
//! here, storage's listing is never asked about it again; so a dropped file cannot come back and a new file
//! of an old name starts empty.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;
use pg_types::RelTag;

use super::VolumeError;
use super::file::CachedFile;
use super::listing::{DirKind, Listing, Stored};
use super::names::RelFile;
use super::origin::Origin;

/// Inode of the volume's root, as the kernel numbers it.
pub(super) const ROOT: u64 = 1;

// Nearly every node is a file, so boxing the large variant would only add an indirection.
/// A file or a directory.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub enum Content {
    /// A directory, whose entries the tree has; the kind says what storage lists in it.
    Directory(DirKind),
    /// A regular file. There are no links and no devices.
    File {
        /// The file's blocks.
        file: CachedFile,
        /// The relation fork the file belongs to and its first block there, by its name; of files made here too.
        relation: Option<(RelTag, u32)>,
    },
}

/// A file or directory. Lives while it has a name or the kernel knows it.
#[derive(Debug)]
pub struct Node {
    /// Inode number, never given again within a volume; 1 is the root.
    pub ino: u64,
    /// Permission bits.
    pub mode: u16,
    /// When the node was made in this volume; the kernel is told this for every kind of time.
    pub created: std::time::SystemTime,
    /// Whether the node is a file or a directory, and what is in a file.
    pub content: Content,
}

impl Node {
    /// The kind of the directory. A file is [`VolumeError::NotADirectory`].
    pub fn directory(&self) -> Result<DirKind, VolumeError> {
        match &self.content {
            Content::Directory(kind) => Ok(*kind),
            Content::File { .. } => Err(VolumeError::NotADirectory),
        }
    }

    /// The file. A directory is [`VolumeError::IsADirectory`].
    pub fn file(&self) -> Result<&CachedFile, VolumeError> {
        match &self.content {
            Content::File { file, .. } => Ok(file),
            Content::Directory(_) => Err(VolumeError::IsADirectory),
        }
    }
}

#[derive(Debug)]
struct Slot {
    node: Arc<Node>,
    /// References the kernel holds.
    lookups: u64,
    has_name: bool,
}

#[derive(Debug, Default)]
struct Directory {
    /// `None` until storage was asked.
    listing: Option<Arc<Listing>>,
    /// `None` marks a name that is gone although storage lists it.
    overlay: BTreeMap<String, Option<u64>>,
}

#[derive(Debug, Default)]
struct Inner {
    slots: HashMap<u64, Slot>,
    directories: HashMap<u64, Directory>,
    last_ino: u64,
}

/// The tree. Nothing in it waits for storage: [`Tree::listing_needed`] says what to ask first.
#[derive(Debug)]
pub(super) struct Tree {
    inner: RwLock<Inner>,
}

/// What a name stands for after the overlay was asked.
pub(super) enum Resolved {
    Node(Arc<Node>),
    /// Only storage lists it; make a node with [`Tree::adopt`].
    Stored(Stored),
    Nothing,
}

impl Tree {
    pub fn new(root: DirKind) -> Tree {
        let tree = Tree {
            inner: RwLock::default(),
        };
        tree.insert(Content::Directory(root), 0o700);
        tree
    }

    fn insert(&self, content: Content, mode: u16) -> Arc<Node> {
        self.inner.write().insert(content, mode)
    }

    /// A directory that storage may fill, as its kind says.
    pub fn create_directory(
        &self,
        parent: u64,
        name: &str,
        kind: DirKind,
    ) -> Result<(), VolumeError> {
        let mut inner = self.inner.write();
        let node = inner.insert(Content::Directory(kind), 0o700);
        inner.link(parent, name, &node)
    }

    pub fn node(&self, ino: u64) -> Result<Arc<Node>, VolumeError> {
        let inner = self.inner.read();
        inner
            .slots
            .get(&ino)
            .map(|slot| slot.node.clone())
            .ok_or(VolumeError::NotFound)
    }

    /// Whether storage must be asked before names in this directory can be looked up.
    pub fn listing_needed(&self, ino: u64) -> bool {
        let inner = self.inner.read();
        inner
            .directories
            .get(&ino)
            .is_some_and(|directory| directory.listing.is_none())
    }

    /// Keeps what storage lists; the first answer stays.
    pub fn set_listing(&self, ino: u64, listing: Listing) {
        if let Some(directory) = self.inner.write().directories.get_mut(&ino) {
            directory.listing.get_or_insert_with(|| Arc::new(listing));
        }
    }

    /// Looks a name up. The directory's listing must be there.
    pub fn resolve(&self, parent: u64, name: &str) -> Result<Resolved, VolumeError> {
        let inner = self.inner.read();
        inner.resolve(parent, name)
    }

    /// The node of a name, made now if only storage listed it so far. `make` builds the file.
    pub fn adopt(
        &self,
        parent: u64,
        name: &str,
        make: impl FnOnce(u64, Origin, u32) -> CachedFile,
    ) -> Result<Arc<Node>, VolumeError> {
        let mut inner = self.inner.write();
        let stored = match inner.resolve(parent, name)? {
            Resolved::Node(node) => return Ok(node),
            Resolved::Stored(stored) => stored,
            Resolved::Nothing => return Err(VolumeError::NotFound),
        };
        let kind = inner.kind(parent)?;
        let node = match stored {
            Stored::Directory => inner.insert(Content::Directory(kind.of_child(name)), 0o700),
            Stored::File { origin, blocks } => {
                let file = make(inner.last_ino + 1, origin, blocks);
                let relation = relation_of(kind, name);
                inner.insert(Content::File { file, relation }, 0o600)
            }
        };
        inner.link(parent, name, &node)?;
        Ok(node)
    }

    /// Gives a new node a name that must be free.
    pub fn create(
        &self,
        parent: u64,
        name: &str,
        mode: u16,
        file: Option<impl FnOnce(u64) -> CachedFile>,
    ) -> Result<Arc<Node>, VolumeError> {
        let mut inner = self.inner.write();
        if !matches!(inner.resolve(parent, name)?, Resolved::Nothing) {
            return Err(VolumeError::Exists);
        }
        let kind = inner.kind(parent)?;
        let node = match file {
            Some(make) => {
                let file = make(inner.last_ino + 1);
                let relation = relation_of(kind, name);
                inner.insert(Content::File { file, relation }, mode)
            }
            None => {
                let node = inner.insert(Content::Directory(kind.of_child(name)), mode);
                // Storage knows nothing of a directory that is made here.
                if let Some(directory) = inner.directories.get_mut(&node.ino) {
                    directory.listing = Some(Arc::new(Listing::Nothing));
                }
                node
            }
        };
        inner.link(parent, name, &node)?;
        Ok(node)
    }

    /// Takes the name of a file, or of an empty directory, away. Its listing must be there.
    pub fn remove(&self, parent: u64, name: &str, directory: bool) -> Result<(), VolumeError> {
        let mut inner = self.inner.write();
        match inner.resolve(parent, name)? {
            Resolved::Nothing => return Err(VolumeError::NotFound),
            Resolved::Stored(Stored::Directory) => return Err(VolumeError::NotEmpty),
            Resolved::Stored(Stored::File { .. }) if directory => {
                return Err(VolumeError::NotADirectory);
            }
            Resolved::Stored(Stored::File { .. }) => {}
            Resolved::Node(node) => match (&node.content, directory) {
                (Content::File { .. }, true) => return Err(VolumeError::NotADirectory),
                (Content::Directory(_), false) => return Err(VolumeError::IsADirectory),
                (Content::Directory(_), true) => inner.check_empty(node.ino)?,
                (Content::File { .. }, false) => {}
            },
        }
        inner.unlink(parent, name)
    }

    /// Moves a node to another name, over whatever has it. The node must exist (see [`Tree::adopt`]).
    pub fn rename(
        &self,
        parent: u64,
        name: &str,
        new_parent: u64,
        new_name: &str,
    ) -> Result<(), VolumeError> {
        let mut inner = self.inner.write();
        let Resolved::Node(node) = inner.resolve(parent, name)? else {
            return Err(VolumeError::NotFound);
        };
        inner.kind(new_parent)?;
        match inner.resolve(new_parent, new_name)? {
            Resolved::Nothing => {}
            Resolved::Node(target) if target.ino == node.ino => return Ok(()),
            Resolved::Node(target) => {
                if let Content::Directory(_) = target.content {
                    inner.check_empty(target.ino)?;
                }
                inner.unlink(new_parent, new_name)?;
            }
            Resolved::Stored(Stored::File { .. }) => inner.unlink(new_parent, new_name)?,
            Resolved::Stored(Stored::Directory) => return Err(VolumeError::NotEmpty),
        }
        inner.take_name(parent, name)?;
        inner.link(new_parent, new_name, &node)
    }

    /// Every entry of a directory: inode (0 if it has none yet), name, whether it is a directory.
    pub fn entries(&self, ino: u64) -> Result<Vec<(u64, String, bool)>, VolumeError> {
        let inner = self.inner.read();
        inner.kind(ino)?;
        let directory = inner.directories.get(&ino).ok_or(VolumeError::NotFound)?;
        let mut entries: Vec<(u64, String, bool)> = directory
            .overlay
            .iter()
            .filter_map(|(name, ino)| {
                let slot = inner.slots.get(&(*ino)?)?;
                let is_directory = matches!(slot.node.content, Content::Directory(_));
                Some((slot.node.ino, name.clone(), is_directory))
            })
            .collect();
        if let Some(listing) = &directory.listing {
            entries.extend(
                listing
                    .names()
                    .into_iter()
                    .filter(|(name, _)| !directory.overlay.contains_key(name))
                    .map(|(name, is_directory)| (0, name, is_directory)),
            );
        }
        Ok(entries)
    }

    /// The kernel got a reference.
    pub fn looked_up(&self, ino: u64) {
        if let Some(slot) = self.inner.write().slots.get_mut(&ino) {
            slot.lookups += 1;
        }
    }

    /// The kernel gave references back; a node without name and references goes, and its cache file with it.
    pub fn forget(&self, ino: u64, count: u64) {
        let gone = {
            let mut inner = self.inner.write();
            let Some(slot) = inner.slots.get_mut(&ino) else {
                return;
            };
            slot.lookups = slot.lookups.saturating_sub(count);
            if slot.lookups == 0 && !slot.has_name {
                inner.directories.remove(&ino);
                inner.slots.remove(&ino)
            } else {
                None
            }
        };
        drop(gone);
    }

    /// Nodes that exist right now.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        let inner = self.inner.read();
        inner.slots.values().map(|slot| slot.node.clone()).collect()
    }
}

fn relation_of(kind: DirKind, name: &str) -> Option<(RelTag, u32)> {
    match kind {
        DirKind::Relations { spc, db } => {
            let file = RelFile::parse(name)?;
            Some((file.tag(spc, db), file.first_block()))
        }
        _ => None,
    }
}

impl Inner {
    fn insert(&mut self, content: Content, mode: u16) -> Arc<Node> {
        self.last_ino += 1;
        let ino = self.last_ino;
        if let Content::Directory(kind) = &content {
            let directory = Directory {
                listing: (*kind == DirKind::Plain).then(|| Arc::new(Listing::Nothing)),
                overlay: BTreeMap::new(),
            };
            self.directories.insert(ino, directory);
        }
        let node = Arc::new(Node {
            ino,
            mode,
            created: std::time::SystemTime::now(),
            content,
        });
        self.slots.insert(
            ino,
            Slot {
                node: node.clone(),
                lookups: 0,
                has_name: true,
            },
        );
        node
    }

    fn kind(&self, ino: u64) -> Result<DirKind, VolumeError> {
        self.slots
            .get(&ino)
            .ok_or(VolumeError::NotFound)?
            .node
            .directory()
    }

    fn resolve(&self, parent: u64, name: &str) -> Result<Resolved, VolumeError> {
        let kind = self.kind(parent)?;
        let directory = self.directories.get(&parent).ok_or(VolumeError::NotFound)?;
        match directory.overlay.get(name) {
            Some(Some(ino)) => match self.slots.get(ino) {
                Some(slot) => Ok(Resolved::Node(slot.node.clone())),
                None => Ok(Resolved::Nothing),
            },
            Some(None) => Ok(Resolved::Nothing),
            None => Ok(directory
                .listing
                .as_ref()
                .and_then(|listing| listing.find(kind, name))
                .map_or(Resolved::Nothing, Resolved::Stored)),
        }
    }

    fn link(&mut self, parent: u64, name: &str, node: &Node) -> Result<(), VolumeError> {
        let directory = self
            .directories
            .get_mut(&parent)
            .ok_or(VolumeError::NotFound)?;
        directory.overlay.insert(name.to_owned(), Some(node.ino));
        Ok(())
    }

    /// Makes a name stand for nothing; returns the inode it stood for.
    fn take_name(&mut self, parent: u64, name: &str) -> Result<Option<u64>, VolumeError> {
        let kind = self.kind(parent)?;
        let directory = self
            .directories
            .get_mut(&parent)
            .ok_or(VolumeError::NotFound)?;
        let listed = directory
            .listing
            .as_ref()
            .is_some_and(|listing| listing.find(kind, name).is_some());
        let ino = if listed {
            directory.overlay.insert(name.to_owned(), None)
        } else {
            directory.overlay.remove(name)
        };
        Ok(ino.flatten())
    }

    fn unlink(&mut self, parent: u64, name: &str) -> Result<(), VolumeError> {
        if let Some(ino) = self.take_name(parent, name)?
            && let Some(slot) = self.slots.get_mut(&ino)
        {
            slot.has_name = false;
            if slot.lookups == 0 {
                self.slots.remove(&ino);
                self.directories.remove(&ino);
            }
        }
        Ok(())
    }

    fn check_empty(&self, ino: u64) -> Result<(), VolumeError> {
        let directory = self.directories.get(&ino).ok_or(VolumeError::NotFound)?;
        // A listing not loaded yet may hold anything; `Volume::rmdir` loads it before.
        let listed = match &directory.listing {
            Some(listing) => listing
                .names()
                .iter()
                .any(|(name, _)| !directory.overlay.contains_key(name)),
            None => true,
        };
        if listed || directory.overlay.values().any(Option::is_some) {
            return Err(VolumeError::NotEmpty);
        }
        Ok(())
    }
}
