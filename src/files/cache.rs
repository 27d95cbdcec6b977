//! Cache of open files by name, each loaded once for all waiting requests and validated after `validate_every`.
//!
//! Invariants:
//! 1. Keys are names as [`path::name`](super::path::name) returns them. So the undecoded path of a request can be
//!    looked up unchanged: it is found only if it is such a name.
//! 2. The task that loads a name holds its placeholder. Dropping the load, finished or not, passes it to the next task.
//! 3. An entry that is stale, torn or cold is removed and loaded again, once for all waiting requests.
//! 4. An entry belongs to the directory it was loaded from. Its generation shows whether that directory is still
//!    served; an entry of an earlier generation is never returned.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::entry::Entry;
use super::loader::{Loaded, Loader};
use crate::fs::Root;
use crate::runtime::blocking::BlockingTask;
use crate::sys::call::Wait;

/// Minimum time between two checks whether kept bytes are still in memory, in nanoseconds.
const WARM: u64 = 1_000_000_000;

/// Minimum time between two checks of the lengths of open files, in nanoseconds. A busy file is checked for a small
/// part of its requests, and a file truncated in place is noticed long before the next validation.
const LENGTH: u64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Store {
    entries: Cache<Vec<u8>, Arc<Entry>, Files>,
    dir: PathBuf,
    loader: RwLock<Arc<Loader>>,
    /// Generation of the current loader. Written under the loader's lock.
    generation: AtomicU64,
    followed: AtomicU64,
    validate_every: u64,
    clock: Instant,
}

/// The weight of an entry is the number of files that it keeps open.
#[derive(Clone, Debug)]
struct Files;

impl Weighter<Vec<u8>, Arc<Entry>> for Files {
    fn weight(&self, _name: &Vec<u8>, entry: &Arc<Entry>) -> u64 {
        entry.files()
    }
}

impl Store {
    pub(super) fn new(dir: PathBuf, loader: Loader, validate_every: Duration, capacity: usize) -> Self {
        Self {
            entries: Cache::with_weighter(capacity, capacity as u64, Files),
            dir,
            generation: AtomicU64::new(loader.generation),
            loader: RwLock::new(Arc::new(loader)),
            followed: AtomicU64::new(0),
            validate_every: u64::try_from(validate_every.as_nanos()).unwrap_or(u64::MAX),
            clock: Instant::now(),
        }
    }

    pub(super) fn follow(&self, now: u64) {
        if now.saturating_sub(self.followed.load(Ordering::Relaxed)) < self.validate_every {
            return;
        }
        // Set first, so that other threads do not wait for a slow check.
        self.followed.fetch_max(now, Ordering::Relaxed);
        let is_elsewhere = |root: &Root| matches!(root.is_at(&self.dir), Ok(false));
        if !is_elsewhere(&self.loader().root) {
            return;
        }
        // Checked again under the lock: a slow thread must not restore a previous directory.
        let current = self.loader.write().unwrap_or_else(PoisonError::into_inner);
        if is_elsewhere(&current.root)
            && let Ok(root) = current.root.reopen(&self.dir)
        {
            self.switch(current, root);
        }
    }

    pub(super) fn reopen(&self) -> io::Result<()> {
        let current = self.loader.write().unwrap_or_else(PoisonError::into_inner);
        let root = current.root.reopen(&self.dir)?;
        self.switch(current, root);
        Ok(())
    }

    fn switch(&self, mut current: RwLockWriteGuard<'_, Arc<Loader>>, root: Root) {
        let generation = current.generation + 1;
        *current = Arc::new(Loader { root, generation, ..Loader::clone(&current) });
        self.generation.store(generation, Ordering::Release);
        drop(current);
        // Their descriptors would keep files of the old directory from being freed.
        self.entries.retain(|_, entry| entry.generation >= generation);
    }

    pub(super) fn loader(&self) -> Arc<Loader> {
        Arc::clone(&self.loader.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_of_this_directory(&self, entry: &Entry) -> bool {
        entry.generation == self.generation.load(Ordering::Acquire)
    }

    /// Returns the entry of a name, if it is cached and valid. Never waits.
    pub(super) fn fresh(&self, name: &[u8], now: u64) -> Option<Arc<Entry>> {
        let entry = self.entries.get(name)?;
        if self.is_valid(&entry, now) {
            return Some(entry);
        }
        self.forget(name, &entry);
        None
    }

    fn forget(&self, name: &[u8], entry: &Arc<Entry>) {
        self.entries.remove_if(name, |cached| Arc::ptr_eq(cached, entry));
    }

    fn is_valid(&self, entry: &Entry, now: u64) -> bool {
        if entry.is_torn() || !self.is_of_this_directory(entry) {
            return false;
        }
        let is_older = |at: &AtomicU64, limit: u64| now.saturating_sub(at.load(Ordering::Relaxed)) >= limit;
        let looks: [(&AtomicU64, u64, &dyn Fn() -> bool); 3] = [
            (&entry.measured, LENGTH, &|| entry.is_as_long()),
            (&entry.checked, self.validate_every, &|| entry.is_current()),
            (&entry.warmed, WARM, &|| entry.is_warm()),
        ];
        looks.into_iter().all(|(at, limit, look)| {
            if !is_older(at, limit) {
                return true;
            }
            let fine = look();
            if fine {
                // A request with an earlier clock reading must not set the time back.
                at.fetch_max(now, Ordering::Relaxed);
            }
            fine
        })
    }

    /// Loads a name, or waits for another task that is loading it. Failures are not cached. Dropping the future passes
    /// the load to the next task that waits for the name.
    pub(super) async fn load(&self, name: &[u8]) -> io::Result<Loaded> {
        loop {
            match self.entries.get_value_or_guard_async(name).await {
                Ok(entry) if self.is_of_this_directory(&entry) => return Ok(Loaded::Entry(entry)),
                Ok(entry) => self.forget(name, &entry),
                Err(turn) => {
                    let loaded = self.open(name).await?;
                    if let Loaded::Entry(entry) = &loaded {
                        // Refused only if the entry was removed meanwhile; the next request then loads it again.
                        let _ = turn.insert(Arc::clone(entry));
                    }
                    return Ok(loaded);
                }
            }
        }
    }

    /// Returns the entry of a name from the cache, or loads it.
    pub(super) async fn current(&self, name: &[u8]) -> io::Result<Loaded> {
        match self.fresh(name, self.now()) {
            Some(entry) => Ok(Loaded::Entry(entry)),
            None => self.load(name).await,
        }
    }

    async fn open(&self, name: &[u8]) -> io::Result<Loaded> {
        let (loader, now) = (self.loader(), self.now());
        match loader.load(name, now, Wait::Never) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        let name = name.to_owned();
        BlockingTask::start(move || loader.load(&name, now, Wait::ForDisk))?.await
    }

    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
