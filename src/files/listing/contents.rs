//! The files of a directory that are served, in the order that a request asks for.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::io;
use std::time::SystemTime;

use super::super::budget::Share;
use super::super::path::{self, Dots};
use crate::fs::directory::{Directory, Kind};
use crate::fs::{Metadata, Root};
use crate::sys::errno::Errno;

/// Maximum number of names that are listed. Usual ones take 5 MiB, the longest ones 29 MiB.
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
    /// Where its name is. The names take less than 4 GiB.
    at: u32,
    len: u16,
    pub(super) is_directory: bool,
    /// Looked up when the row is written, unless the order needs it before.
    facts: Option<Facts>,
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
    /// One after another, because an allocation for each would take more than most names.
    names: Vec<u8>,
    pub(super) items: Vec<Item>,
    /// Whether there are more names than are listed.
    pub(super) more: bool,
    pub(super) is_root: bool,
    pub(super) order: Order,
}

impl Contents {
    /// Reads the names in a directory, and what the order needs beside them. `share` is resized to the memory that they
    /// take. Fails with `EAGAIN` if its budget is used up. **Blocks on the disk.**
    pub(super) fn read_blocking(
        root: &Root,
        name: &[u8],
        dots: Dots,
        order: Order,
        share: &mut Share,
    ) -> io::Result<Self> {
        let directory = Directory::open_blocking(root, path::as_path(name))?;
        let (mut names, mut items) = (Vec::new(), Vec::new());
        let more = directory.names_blocking(MOST, |found, kind| {
            let bytes = found.as_encoded_bytes();
            if bytes.starts_with(b".") && !dots.serves(bytes, name) {
                return Ok(());
            }
            let at = (u32::try_from(names.len()), u16::try_from(bytes.len()));
            let ((Ok(at), Ok(len)), Some((is_directory, facts))) = (at, look_up(&directory, found, kind, order)) else {
                return Ok(());
            };
            names.extend_from_slice(bytes);
            items.push(Item { at, len, is_directory, facts });
            fit(share, &names, &items)
        })?;
        names.shrink_to_fit();
        items.shrink_to_fit();
        fit(share, &names, &items)?;
        let mut contents = Self { directory, names, items: Vec::new(), more, is_root: name.is_empty(), order };
        items.sort_unstable_by(|a, b| order.compare((contents.name(a), a), (contents.name(b), b)));
        contents.items = items;
        Ok(contents)
    }

    /// Returns the bytes of the name of an item.
    pub(super) fn name(&self, item: &Item) -> &[u8] {
        &self.names[item.at as usize..][..usize::from(item.len)]
    }

    /// Returns what the row of an item tells; `None` if the file was removed since. **Blocks on the disk.**
    pub(super) fn facts_blocking(&self, item: &Item) -> Option<Facts> {
        item.facts.or_else(|| {
            let name = path::as_path(self.name(item)).as_os_str();
            self.directory.status_blocking(name).ok().map(|found| Facts::of(&found))
        })
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

    /// Compares two names with their items: directories come first in both directions.
    fn compare(self, (a_name, a): (&[u8], &Item), (b_name, b): (&[u8], &Item)) -> Ordering {
        let key = |item: &Item| match self.key {
            Key::Name => None,
            // The size of a directory says nothing about its files.
            Key::Size => item.facts.map(|facts| (if item.is_directory { 0 } else { facts.size }, None)),
            Key::Modified => item.facts.map(|facts| (0, facts.modified)),
        };
        let ascending = key(a).cmp(&key(b)).then_with(|| by_name(a_name, b_name));
        b.is_directory.cmp(&a.is_directory).then(if self.descending { ascending.reverse() } else { ascending })
    }
}

/// Compares names without regard to the case of ASCII letters; names that are then equal, by their bytes.
fn by_name(a: &[u8], b: &[u8]) -> Ordering {
    let folded = |b: &u8| b.to_ascii_lowercase();
    let by_letters = a.iter().map(folded).cmp(b.iter().map(folded));
    by_letters.then_with(|| a.cmp(b))
}

/// Returns whether a name is that of a directory, and what is known about it; `None` for a file that is not served, or
/// that has been removed since.
fn look_up(directory: &Directory, name: &OsStr, kind: Kind, order: Order) -> Option<(bool, Option<Facts>)> {
    match kind {
        Kind::File | Kind::Directory if !order.needs_facts() => Some((kind == Kind::Directory, None)),
        _ => {
            let found = directory.status_blocking(name).ok().filter(|found| found.is_file() || found.is_dir())?;
            Some((found.is_dir(), Some(Facts::of(&found))))
        }
    }
}

/// Resizes a share to the memory of names and items.
fn fit(share: &mut Share, names: &Vec<u8>, items: &Vec<Item>) -> io::Result<()> {
    let bytes = names.capacity() + items.capacity() * size_of::<Item>();
    if share.resize(bytes as u64) { Ok(()) } else { Err(Errno::AGAIN.into()) }
}

impl Facts {
    fn of(found: &Metadata) -> Self {
        Self { size: found.len(), modified: found.last_modified() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::budget::Budget;
    use super::*;

    #[test]
    fn the_order_is_that_of_the_query() {
        let at = |seconds| SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(seconds));
        let item = |name: &'static str, is_directory, size, seconds| {
            (name, Item { at: 0, len: 0, is_directory, facts: Some(Facts { size, modified: at(seconds) }) })
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
            items.sort_unstable_by(|a, b| order.compare((a.0.as_bytes(), &a.1), (b.0.as_bytes(), &b.1)));
            assert_eq!(items.map(|(name, _)| name).join(" "), expected, "{query}");
        }
    }

    #[test]
    fn a_reading_has_the_share_that_it_needs_and_ends_without_one() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..1000 {
            std::fs::write(dir.path().join(format!("{n:0>100}")), "").unwrap();
        }
        let root = Root::open_dir(dir.path()).unwrap();
        let read = |budget: u64| {
            let budget = Arc::new(Budget::new(budget));
            let mut share = Budget::take(&budget, 0).unwrap();
            let contents = Contents::read_blocking(&root, b"", Dots::None, Order::of(""), &mut share);
            let left = (0..).find(|&bytes| Budget::take(&budget, bytes + 1).is_none()).unwrap();
            contents.map(|contents| (contents.items.len(), left))
        };
        let all = 1000 * (100 + size_of::<Item>() as u64);
        assert_eq!(read(2 * all).unwrap(), (1000, all), "the difference was returned");
        assert_eq!(read(all - 1).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
