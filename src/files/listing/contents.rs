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

/// Maximum number of names that are listed. Usual ones take 5 MiB, the longest ones 28 MiB.
const MOST: usize = 100_000;
/// Bytes of a piece of memory.
const PIECE: usize = 64 << 10;

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
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    /// Where its name is.
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
    /// Stored one after another: a separate allocation would need more memory than most names.
    names: Pieces<u8>,
    items: Pieces<Item>,
    /// The indexes of the items, in order.
    sorted: Vec<u32>,
    /// Whether there are more names than are listed.
    pub(super) more: bool,
    pub(super) is_root: bool,
    pub(super) order: Order,
}

/// Values in pieces: no memory is moved while they grow, and freed pieces fit others.
#[derive(Debug)]
struct Pieces<T>(Vec<Vec<T>>);

impl<T: Copy> Pieces<T> {
    /// Values of a piece.
    const MAX: usize = PIECE / size_of::<T>();

    /// Adds values that stay together, at most a piece. Returns where they are, and whether memory was allocated.
    fn add(&mut self, values: &[T]) -> (usize, bool) {
        if self.0.last().is_none_or(|last| last.len() + values.len() > Self::MAX) {
            self.0.push(Vec::new());
        }
        let index = self.0.len() - 1;
        let last = &mut self.0[index];
        let (at, capacity, len) = (index * Self::MAX + last.len(), last.capacity(), last.len() + values.len());
        if len > capacity {
            last.reserve_exact((2 * capacity).clamp(len, Self::MAX) - last.len());
        }
        last.extend_from_slice(values);
        (at, len > capacity)
    }

    fn get(&self, at: usize, len: usize) -> &[T] {
        &self.0[at / Self::MAX][at % Self::MAX..][..len]
    }

    fn shrink(&mut self) {
        self.0.iter_mut().last().into_iter().for_each(Vec::shrink_to_fit);
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(Vec::capacity).sum::<usize>() * size_of::<T>()
    }
}

impl Contents {
    /// Reads the names in a directory, and the metadata that the order needs. `share` is resized to the memory that
    /// they take. Fails with `EAGAIN` if its budget is used up. **Blocks on the disk.**
    pub(super) fn read_blocking(
        root: &Root,
        name: &[u8],
        dots: Dots,
        order: Order,
        share: &mut Share,
    ) -> io::Result<Self> {
        let directory = Directory::open_blocking(root, path::as_path(name))?;
        let (mut names, mut items, mut count) = (Pieces(Vec::new()), Pieces(Vec::new()), 0);
        let more = directory.names_blocking(MOST, |found, kind| {
            let bytes = found.as_encoded_bytes();
            if bytes.starts_with(b".") && !dots.serves(bytes, name) {
                return Ok(());
            }
            let (Ok(len), Some((is_directory, facts))) =
                (u16::try_from(bytes.len()), look_up(&directory, found, kind, order))
            else {
                return Ok(());
            };
            let (at, names_grew) = names.add(bytes);
            let at = u32::try_from(at).map_err(io::Error::other)?;
            let (_, items_grew) = items.add(&[Item { at, len, is_directory, facts }]);
            count += 1;
            if names_grew || items_grew { fit(share, names.bytes() + items.bytes()) } else { Ok(()) }
        })?;
        names.shrink();
        items.shrink();
        fit(share, names.bytes() + items.bytes() + count as usize * size_of::<u32>())?;
        let mut sorted: Vec<u32> = (0..count).collect();
        let mut contents = Self { directory, names, items, sorted: Vec::new(), more, is_root: name.is_empty(), order };
        let found = |&index: &u32| {
            let item = &contents.items.get(index as usize, 1)[0];
            (contents.name(item), item)
        };
        sorted.sort_unstable_by(|a, b| order.compare(found(a), found(b)));
        contents.sorted = sorted;
        Ok(contents)
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the item at an index in the order.
    pub(super) fn item(&self, index: usize) -> &Item {
        &self.items.get(self.sorted[index] as usize, 1)[0]
    }

    /// Returns the bytes of the name of an item.
    pub(super) fn name(&self, item: &Item) -> &[u8] {
        self.names.get(item.at as usize, item.len.into())
    }

    /// Returns the metadata for the row of an item; `None` if the file was removed since. **Blocks on the disk.**
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

fn fit(share: &mut Share, bytes: usize) -> io::Result<()> {
    if share.resize(bytes as u64) { Ok(()) } else { Err(Errno::AGAIN.into()) }
}

impl Facts {
    fn of(found: &Metadata) -> Self {
        Self { size: found.len(), modified: found.last_modified() }
    }
}

#[cfg(test)]
mod tests;
