//! The topics by name, and the readers that follow each.
//!
//! Invariant: an entry is in the table while it has a source or a reader. Wakers are called without the lock.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use crate::source::Source;

/// The topics of all handles.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    topics: HashMap<Arc<str>, Entry>,
    next_reader: u64,
    /// Whether no topic is inserted any more.
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Entry {
    source: Option<Arc<PlacedSource>>,
    readers: HashMap<u64, Waker>,
}

/// The source of a topic, from its insertion to its removal.
pub(crate) struct PlacedSource {
    source: Box<dyn Source>,
    /// The position of readers that waited for the topic.
    first: Option<String>,
    is_removed: AtomicBool,
}

impl PlacedSource {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self { first: source.position(), source, is_removed: AtomicBool::new(false) }
    }

    pub(crate) fn source(&self) -> &dyn Source {
        &*self.source
    }

    pub(crate) fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }
}

impl Registry {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the source of a topic, unless it has one that is not lost. Returns whether it was set.
    pub(crate) fn add(&self, name: &str, source: PlacedSource) -> bool {
        // Without the lock: a source may run any code when it is asked, and when it is dropped.
        let lost = self.find(name).filter(|source| source.source().is_lost());
        let table = self.table();
        let now = table.topics.get(name).and_then(|entry| entry.source.as_ref());
        if now.is_some_and(|now| lost.as_ref().is_none_or(|lost| !Arc::ptr_eq(now, lost))) {
            drop(table);
            return false;
        }
        Self::replace(table, name, Some(source));
        true
    }

    /// Sets or removes the source of a topic, and wakes its readers. Returns whether it had one.
    pub(crate) fn set(&self, name: &str, source: Option<PlacedSource>) -> bool {
        Self::replace(self.table(), name, source)
    }

    fn replace(mut table: MutexGuard<'_, Table>, name: &str, source: Option<PlacedSource>) -> bool {
        let entry = match table.topics.get_mut(name) {
            Some(entry) => entry,
            None if source.is_none() => return false,
            None => table.topics.entry(name.into()).or_default(),
        };
        let old = mem::replace(&mut entry.source, source.map(Arc::new));
        let readers: Vec<Waker> = entry.readers.values().cloned().collect();
        if entry.source.is_none() && readers.is_empty() {
            table.topics.remove(name);
        }
        // Under the lock: a reader that has found the old source and joins now sees it removed, or is woken.
        if let Some(old) = &old {
            old.is_removed.store(true, Ordering::Release);
        }
        drop(table);
        readers.into_iter().for_each(Waker::wake);
        old.is_some()
    }

    /// Removes all topics. No reader waits for one any more.
    pub(crate) fn close(&self) {
        let mut table = self.table();
        table.is_closed = true;
        let entries = table.topics.values_mut();
        let (sources, readers): (Vec<_>, Vec<Vec<Waker>>) =
            entries.map(|entry| (entry.source.take(), entry.readers.values().cloned().collect())).unzip();
        table.topics.retain(|_, entry| !entry.readers.is_empty());
        sources.iter().flatten().for_each(|source| source.is_removed.store(true, Ordering::Release));
        drop(table);
        readers.into_iter().flatten().for_each(Waker::wake);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.table().is_closed
    }

    /// Returns the number of topics that have a source.
    pub(crate) fn len(&self) -> usize {
        self.table().topics.values().filter(|entry| entry.source.is_some()).count()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<PlacedSource>> {
        self.table().topics.get(name)?.source.clone()
    }

    /// Adds a reader of a topic, which is woken when the source changes.
    pub(crate) fn join(self: &Arc<Self>, name: &str, waker: Waker) -> Membership {
        let mut table = self.table();
        let reader = table.next_reader;
        table.next_reader += 1;
        let name = match table.topics.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => name.into(),
        };
        table.topics.entry(Arc::clone(&name)).or_default().readers.insert(reader, waker);
        Membership { registry: Arc::clone(self), name, reader }
    }
}

/// A reader of a topic, until it is dropped.
#[derive(Debug)]
pub(crate) struct Membership {
    registry: Arc<Registry>,
    name: Arc<str>,
    reader: u64,
}

impl Membership {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn source(&self) -> Option<Arc<PlacedSource>> {
        self.registry.find(&self.name)
    }

    /// Returns whether a source may be inserted.
    pub(crate) fn may_wait(&self) -> bool {
        !self.registry.is_closed()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut table = self.registry.table();
        let Some(entry) = table.topics.get_mut(&self.name) else { return };
        let waker = entry.readers.remove(&self.reader);
        if entry.source.is_none() && entry.readers.is_empty() {
            table.topics.remove(&self.name);
        }
        drop(table);
        // A waker may run any code when it is dropped.
        drop(waker);
    }
}

impl fmt::Debug for PlacedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacedSource").field("is_removed", &self.is_removed()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use millstream::sse::Hub;

    use super::*;

    #[test]
    fn an_entry_lasts_as_long_as_its_source_and_its_readers() {
        let registry = Arc::new(Registry::default());
        let len = || registry.table().topics.len();
        let readers = ["a", "b", "a"].map(|name| registry.join(name, Waker::noop().clone()));
        assert_eq!((len(), registry.len()), (2, 0));
        let source = || Some(PlacedSource::new(Box::new(Hub::new())));
        assert!(!registry.set("a", source()) && registry.set("a", source()));
        assert!(!registry.add("a", source().unwrap()));
        assert!(readers[0].source().is_some() && readers[1].source().is_none());
        drop(readers);
        assert_eq!((len(), registry.len()), (1, 1));
        assert!(registry.set("a", None) && !registry.set("a", None));
        assert_eq!(len(), 0);
        let reader = registry.join("a", Waker::noop().clone());
        registry.set("b", source());
        registry.close();
        assert_eq!((len(), registry.len(), reader.may_wait()), (1, 0, false));
        drop(reader);
        assert_eq!(len(), 0);
    }
}
