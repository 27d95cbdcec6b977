//! Contents of the disk: nodes by number, and the changes of them.

use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::tree::{FileItem, Item, Tree, join};
use crate::fuse::session::ROOT;

/// Bytes that are written as a whole or not at all.
pub(super) const SECTOR: u64 = 512;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes that were written, which may be fewer or more than the length.
    File {
        bytes: Vec<u8>,
        len: u64,
    },
    Directory(BTreeMap<Vec<u8>, u64>),
    Link(Vec<u8>),
}

impl Node {
    pub(super) fn new(kind: Kind, mode: u32) -> Self {
        Self { kind, mode, owner: (0, 0), attributes: BTreeMap::new() }
    }

    pub(super) fn empty_file(mode: u32) -> Self {
        Self::new(Kind::File { bytes: Vec::new(), len: 0 }, mode)
    }

    /// Returns the bytes of a file; none of anything else.
    pub(super) fn contents(&self) -> Vec<u8> {
        let Kind::File { bytes, len } = &self.kind else { return Vec::new() };
        let mut contents = bytes.clone();
        contents.resize(*len as usize, 0);
        contents
    }
}

/// A change that arrives on the disk as a whole or not at all.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// A new node, which does not exist before a name leads to it.
    New {
        node: u64,
        is: Box<Node>,
    },
    /// Bytes within a sector.
    Bytes {
        node: u64,
        at: u64,
        bytes: Vec<u8>,
    },
    Len {
        node: u64,
        len: u64,
    },
    Mode {
        node: u64,
        mode: u32,
    },
    Owner {
        node: u64,
        owner: (u32, u32),
    },
    Attribute {
        node: u64,
        name: Vec<u8>,
        value: Option<Vec<u8>>,
    },
    /// Names in directories, and the nodes that they lead to from now on.
    Names(Vec<(u64, Vec<u8>, Option<u64>)>),
}

/// Describes the change without its bytes.
impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New { node, .. } => write!(f, "new {node}"),
            Self::Bytes { node, at, bytes } => write!(f, "{} bytes of {node} at {at}", bytes.len()),
            Self::Len { node, len } => write!(f, "length {len} of {node}"),
            Self::Mode { node, mode } => write!(f, "mode {mode:o} of {node}"),
            Self::Owner { node, owner } => write!(f, "owner {owner:?} of {node}"),
            Self::Attribute { node, name, .. } => write!(f, "attribute {} of {node}", String::from_utf8_lossy(name)),
            Self::Names(names) => {
                let names = names.iter().map(|(_, name, to)| match to {
                    Some(node) => format!("{} is {node}", String::from_utf8_lossy(name)),
                    None => format!("no {}", String::from_utf8_lossy(name)),
                });
                f.write_str(&names.collect::<Vec<_>>().join(" and "))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Image {
    pub(super) nodes: BTreeMap<u64, Node>,
}

impl Image {
    pub(super) fn new(tree: &Tree) -> Self {
        let root = Node::new(Kind::Directory(BTreeMap::new()), 0o755);
        let mut image = Self { nodes: BTreeMap::from([(ROOT, root)]) };
        let mut directories = BTreeMap::from([(Path::new("").to_owned(), ROOT)]);
        for (path, item) in tree.items() {
            let number = ROOT + image.nodes.len() as u64;
            let node = match item {
                Item::Directory => {
                    directories.insert(path.to_owned(), number);
                    Node::new(Kind::Directory(BTreeMap::new()), 0o755)
                }
                Item::Link(to) => Node::new(Kind::Link(to.as_os_str().as_bytes().to_vec()), 0o777),
                Item::File(FileItem { contents, mode, owner, attributes }) => Node {
                    kind: Kind::File { bytes: contents.clone(), len: contents.len() as u64 },
                    mode: *mode,
                    owner: *owner,
                    attributes: attributes.clone(),
                },
            };
            image.nodes.insert(number, node);
            let name = path.file_name().unwrap().as_bytes().to_vec();
            let dir = directories[path.parent().unwrap()];
            image.apply(&Change::Names(vec![(dir, name, Some(number))]));
        }
        image
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::New { node, is } => drop(self.nodes.insert(*node, (**is).clone())),
            Change::Bytes { node, at, bytes: new } => {
                let Kind::File { bytes, .. } = &mut self.node(*node).kind else { panic!("bytes of no file") };
                let (at, end) = (*at as usize, *at as usize + new.len());
                bytes.resize(bytes.len().max(end), 0);
                bytes[at..end].copy_from_slice(new);
            }
            Change::Len { node, len: new } => {
                let Kind::File { bytes, len } = &mut self.node(*node).kind else { panic!("length of no file") };
                // Bytes behind the end come back as zeros. What was written there before the length arrived stays.
                if new < len {
                    bytes.truncate(*new as usize);
                }
                *len = *new;
            }
            Change::Mode { node, mode } => self.node(*node).mode = *mode,
            Change::Owner { node, owner } => self.node(*node).owner = *owner,
            Change::Attribute { node, name, value } => {
                let attributes = &mut self.node(*node).attributes;
                match value {
                    Some(value) => attributes.insert(name.clone(), value.clone()),
                    None => attributes.remove(name),
                };
            }
            Change::Names(names) => {
                for (dir, name, node) in names {
                    let Kind::Directory(names) = &mut self.node(*dir).kind else { panic!("names in no directory") };
                    match node {
                        Some(node) => names.insert(name.clone(), *node),
                        None => names.remove(name),
                    };
                }
            }
        }
    }

    fn node(&mut self, node: u64) -> &mut Node {
        self.nodes.get_mut(&node).expect("a change of a node")
    }

    /// Returns what the root directory leads to.
    pub(super) fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        self.add_to(&mut tree, ROOT, Path::new(""));
        tree
    }

    fn add_to(&self, tree: &mut Tree, dir: u64, path: &Path) {
        let Kind::Directory(names) = &self.nodes[&dir].kind else { panic!("no directory") };
        for (name, number) in names {
            let (path, node) = (join(path, name), &self.nodes[number]);
            match &node.kind {
                Kind::Directory(_) => {
                    tree.insert(&path, Item::Directory);
                    self.add_to(tree, *number, &path);
                }
                Kind::Link(to) => tree.insert(&path, Item::Link(join(Path::new(""), to))),
                Kind::File { .. } => {
                    let (mode, owner, attributes) = (node.mode, node.owner, node.attributes.clone());
                    tree.insert(&path, Item::File(FileItem { contents: node.contents(), mode, owner, attributes }));
                }
            }
        }
    }
}
