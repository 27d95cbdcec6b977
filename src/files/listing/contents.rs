//! The files of a directory that are served, in the order that a request asks for.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::io;
use std::time::SystemTime;

use super::super::path::{self, Dots};
use crate::fs::directory::{Directory, Kind};
use crate::fs::{Metadata, Root};

/// Maximum number of names that are listed. They take up to 10 MiB.
const MOST: usize = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Name,
    Size,
    Modified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) key: Key,
    pub(super) descending: bool,
}

/// A file or directory to list.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: OsString,
    pub(super) is_directory: bool,
    /// Looked up when the row is written, unless the order needs it before.
    pub(super) facts: Option<Facts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) size: u64,
    pub(super) modified: Option<SystemTime>,
}

/// The files of a directory that are served, in order.
#[derive(Debug)]
pub(super) struct Contents {
    directory: Directory,
    pub(super) items: Vec<Item>,
    /// Whether there are more names than are listed.
    pub(super) more: bool,
    pub(super) is_root: bool,
    pub(super) order: Order,
}

impl Contents {
    /// Reads the names in a directory, and what the order needs beside them. **Blocks on the disk.**
    pub(super) fn read_blocking(root: &Root, name: &[u8], dots: Dots, order: Order) -> io::Result<Self> {
        let directory = Directory::open_blocking(root, path::as_path(name))?;
        let (names, more) = directory.names_blocking(MOST)?;
        let is_seen =
            |item: &OsStr| !item.as_encoded_bytes().starts_with(b".") || dots.serves(item.as_encoded_bytes(), name);
        let seen = names.into_iter().filter(|(item, _)| is_seen(item));
        let mut items: Vec<Item> = seen.filter_map(|(item, kind)| Item::new(&directory, item, kind, order)).collect();
        items.sort_unstable_by(|a, b| order.compare(a, b));
        Ok(Self { directory, items, more, is_root: name.is_empty(), order })
    }

    /// Returns the number of bytes that the items take in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.items.iter().map(|item| (size_of::<Item>() + item.name.len()) as u64).sum()
    }

    /// Returns what the row of an item tells; `None` if the file was removed since. **Blocks on the disk.**
    pub(super) fn facts_blocking(&self, item: &Item) -> Option<Facts> {
        item.facts.or_else(|| self.directory.status_blocking(&item.name).ok().map(|found| Facts::of(&found)))
    }
}

impl Order {
    /// Reads `sort=name|size|modified` and `order=asc|desc` of a query. Other values are ignored.
    pub(super) fn of(query: &str) -> Self {
        let mut order = Self { key: Key::Name, descending: false };
        for pair in query.split('&') {
            match pair {
                "sort=name" => order.key = Key::Name,
                "sort=size" => order.key = Key::Size,
                "sort=modified" => order.key = Key::Modified,
                "order=asc" => order.descending = false,
                "order=desc" => order.descending = true,
                _ => {}
            }
        }
        order
    }

    fn needs_facts(self) -> bool {
        self.key != Key::Name
    }

    /// Compares two items: directories come first in both directions.
    fn compare(self, a: &Item, b: &Item) -> Ordering {
        let key = |item: &Item| match self.key {
            Key::Name => None,
            // The size of a directory says nothing about its files.
            Key::Size => item.facts.map(|facts| (if item.is_directory { 0 } else { facts.size }, None)),
            Key::Modified => item.facts.map(|facts| (0, facts.modified)),
        };
        let ascending = key(a).cmp(&key(b)).then_with(|| by_name(&a.name, &b.name));
        b.is_directory.cmp(&a.is_directory).then(if self.descending { ascending.reverse() } else { ascending })
    }
}

/// Compares names without regard to the case of ASCII letters; names that are then equal, by their bytes.
fn by_name(a: &OsStr, b: &OsStr) -> Ordering {
    let folded = |b: &u8| b.to_ascii_lowercase();
    let by_letters = a.as_encoded_bytes().iter().map(folded).cmp(b.as_encoded_bytes().iter().map(folded));
    by_letters.then_with(|| a.cmp(b))
}

impl Item {
    /// `None` for a file that is not served, or that has been removed since.
    fn new(directory: &Directory, name: OsString, kind: Kind, order: Order) -> Option<Self> {
        let known = match kind {
            Kind::File => Some(false),
            Kind::Directory => Some(true),
            Kind::Unknown => None,
        };
        match known {
            Some(is_directory) if !order.needs_facts() => Some(Self { name, is_directory, facts: None }),
            _ => {
                let found = directory.status_blocking(&name).ok().filter(|found| found.is_file() || found.is_dir())?;
                Some(Self { name, is_directory: found.is_dir(), facts: Some(Facts::of(&found)) })
            }
        }
    }
}

impl Facts {
    fn of(found: &Metadata) -> Self {
        Self { size: found.len(), modified: found.last_modified() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_query() {
        let at = |seconds| SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(seconds));
        let item = |name: &str, is_directory, size, seconds| Item {
            name: name.into(),
            is_directory,
            facts: Some(Facts { size, modified: at(seconds) }),
        };
        for (query, expected) in [
            ("", "src Zoo a B c"),
            ("sort=name&order=desc", "Zoo src c B a"),
            ("sort=size", "src Zoo B c a"),
            ("x=1&sort=size&order=desc", "Zoo src a c B"),
            ("sort=modified", "Zoo src c a B"),
            ("sort=nonsense&order=nonsense", "src Zoo a B c"),
        ] {
            let mut items = [
                item("c", false, 2, 1),
                item("Zoo", true, 9, 0),
                item("B", false, 1, 3),
                item("a", false, 3, 2),
                item("src", true, 7, 5),
            ];
            let order = Order::of(query);
            items.sort_unstable_by(|a, b| order.compare(a, b));
            let names: Vec<_> = items.iter().map(|item| item.name.to_str().unwrap()).collect();
            assert_eq!(names.join(" "), expected, "{query}");
        }
    }
}
