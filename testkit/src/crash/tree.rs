//! Directories and files with their contents, by path.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The files of a file system, without its root directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree(BTreeMap<PathBuf, Item>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Item {
    Directory,
    File(FileItem),
    Link(PathBuf),
}

#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FileItem {
    pub contents: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Extended attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl FileItem {
    /// A file of root with the permissions `0o644`.
    pub fn new(contents: impl Into<Vec<u8>>) -> Self {
        Self { contents: contents.into(), mode: 0o644, owner: (0, 0), attributes: BTreeMap::new() }
    }
}

impl std::fmt::Debug for FileItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { contents, mode, owner, attributes } = self;
        write!(f, "{} bytes, mode {mode:o}, owner {owner:?}, attributes {attributes:?}", contents.len())
    }
}

impl Tree {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a directory, and those that it is in.
    #[must_use]
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        for dir in path.as_ref().ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
            self.insert(dir, Item::Directory);
        }
        self
    }

    /// Adds a file, and the directories that it is in.
    #[must_use]
    pub fn file(self, path: impl AsRef<Path>, file: FileItem) -> Self {
        let path = path.as_ref();
        let mut tree = self.directory(path.parent().unwrap_or(Path::new("")));
        tree.insert(path, Item::File(file));
        tree
    }

    pub(super) fn insert(&mut self, path: &Path, item: Item) {
        self.0.insert(path.to_owned(), item);
    }

    /// Returns the file at the path.
    pub fn get(&self, path: impl AsRef<Path>) -> Option<&FileItem> {
        match self.0.get(path.as_ref()) {
            Some(Item::File(file)) => Some(file),
            _ => None,
        }
    }

    /// Returns the items, each directory before what it has.
    pub fn items(&self) -> impl Iterator<Item = (&Path, &Item)> {
        self.0.iter().map(|(path, item)| (path.as_path(), item))
    }

    /// Returns the names of the files in a directory.
    pub fn names_in(&self, dir: impl AsRef<Path>) -> Vec<&str> {
        let dir = dir.as_ref();
        let files = self.0.keys().filter(|path| path.parent() == Some(dir));
        files.map(|path| path.file_name().and_then(|name| name.to_str()).expect("names of tests are text")).collect()
    }

    /// Writes the contents and permissions into an empty directory.
    pub fn write_to(&self, dir: &Path) {
        for (path, item) in self.items() {
            let path = dir.join(path);
            match item {
                Item::Directory => fs::create_dir(path).unwrap(),
                Item::Link(to) => symlink(to, path).unwrap(),
                Item::File(file) => {
                    fs::write(&path, &file.contents).unwrap();
                    fs::set_permissions(&path, PermissionsExt::from_mode(file.mode)).unwrap();
                }
            }
        }
    }
}

/// Returns the path of a name in a directory.
pub(super) fn join(dir: &Path, name: &[u8]) -> PathBuf {
    dir.join(std::ffi::OsStr::from_bytes(name))
}
