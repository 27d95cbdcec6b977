//! Open files by name: loaded once for all who wait, looked at again when they are older than the limit.
//!
//! Invariants:
//! 1. Keys are names as [`path::name`](super::path::name) gives them, so the undecoded path of a request can be looked
//!    up as it is: it is found only if it is such a name.
//! 2. Whoever loads a name holds its placeholder; dropping the load, finished or not, passes the turn on.
//! 3. An entry that is stale, torn or cold is taken out and loaded anew, so that, too, happens once for all.
//! 4. An entry belongs to the directory it was loaded from. Its generation tells whether that is still the one that is
//!    served; an entry of an earlier generation is never handed out.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockWriteGuard};
use std::time::{Duration, Instant};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::entry::{Entry, Loaded, Loader, Wait};
use crate::fs::Root;
use crate::turn::job::Job;

/// Shortest time between two looks at whether kept bytes are still in memory, in nanoseconds.
const WARM: u64 = 1_000_000_000;

/// Shortest time between two looks at the lengths of open files, in nanoseconds: a busy file is looked at for a small part
/// of its requests, and one that is truncated in place is noticed long before the next validation.
const LENGTH: u64 = 1_000_000;

/// The cache and what it loads with.
#[derive(Debug)]
pub(super) struct Store {
    entries: Cache<Vec<u8>, Arc<Entry>, Files>,
    /// The path of the directory; absolute.
    dir: PathBuf,
    /// Replaced as a whole when the path leads to another directory.
    loader: RwLock<Arc<Loader>>,
    /// That of the loader; changes under its lock.
    generation: AtomicU64,
    /// When it was last looked where the path leads.
    followed: AtomicU64,
    validate_every: u64,
    clock: Instant,
}

/// Entries weigh as many files as they keep open.
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

    /// Looks where the path of the directory leads, unless that was done less than `validate_every` before `now`.
    pub(super) fn follow(&self, now: u64) {
        if now.saturating_sub(self.followed.load(Ordering::Relaxed)) < self.validate_every {
            return;
        }
        // First, so that nobody waits beside a look that takes long.
        self.followed.fetch_max(now, Ordering::Relaxed);
        let is_elsewhere = |root: &Root| matches!(root.is_at(&self.dir), Ok(false));
        if !is_elsewhere(&self.loader().root) {
            return;
        }
        // Once more under the lock: a thread that was slow must not bring back a directory of before.
        let current = self.loader.write().unwrap_or_else(PoisonError::into_inner);
        if is_elsewhere(&current.root)
            && let Ok(root) = current.root.reopen(&self.dir)
        {
            self.switch(current, root);
        }
    }

    /// Opens what the path of the directory leads to, and forgets all entries.
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
        // Their descriptors keep files of the old directory from being freed.
        self.entries.retain(|_, entry| entry.generation >= generation);
    }

    fn loader(&self) -> Arc<Loader> {
        Arc::clone(&self.loader.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_of_this_directory(&self, entry: &Entry) -> bool {
        entry.generation == self.generation.load(Ordering::Acquire)
    }

    /// The entry of a name, if it is cached and valid. Never waits.
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
                // A request that looked at the clock earlier must not turn it back.
                at.fetch_max(now, Ordering::Relaxed);
            }
            fine
        })
    }

    /// What a name leads to, opened now or by someone who was first. What failed is not remembered.
    ///
    /// # Cancellation
    ///
    /// Dropping the future passes the load on to the next who waits for the name.
    pub(super) async fn load(&self, name: &[u8]) -> io::Result<Loaded> {
        loop {
            match self.entries.get_value_or_guard_async(name).await {
                Ok(entry) if self.is_of_this_directory(&entry) => return Ok(Loaded::Entry(entry)),
                // It was being loaded when the directory was switched.
                Ok(entry) => self.forget(name, &entry),
                Err(turn) => {
                    let loaded = self.open(name).await?;
                    if let Loaded::Entry(entry) = &loaded {
                        // Refused only if the entry was removed meanwhile: then the next request loads it again.
                        let _ = turn.insert(Arc::clone(entry));
                    }
                    return Ok(loaded);
                }
            }
        }
    }

    async fn open(&self, name: &[u8]) -> io::Result<Loaded> {
        let (loader, now) = (self.loader(), self.now());
        match loader.load(name, now, Wait::Never) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        let name = name.to_owned();
        Job::start(move || loader.load(&name, now, Wait::ForDisk))?.await
    }

    /// Nanoseconds on the cache's clock.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
