//! Open files by name: loaded once for all who wait, looked at again when they are older than the limit.
//!
//! Invariants:
//! 1. Keys are names as [`path::name`](super::path::name) gives them, so the undecoded path of a request can be looked
//!    up as it is: it is found only if it is such a name.
//! 2. Whoever loads a name holds its placeholder; dropping the load, finished or not, passes the turn on.
//! 3. An entry that is stale, torn or cold is taken out and loaded anew, so that, too, happens once for all.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use super::entry::{Entry, Loaded, Loader, Wait};
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
    loader: Arc<Loader>,
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
    pub(super) fn new(loader: Loader, validate_every: Duration, capacity: usize) -> Self {
        Self {
            entries: Cache::with_weighter(capacity, capacity as u64, Files),
            loader: Arc::new(loader),
            validate_every: u64::try_from(validate_every.as_nanos()).unwrap_or(u64::MAX),
            clock: Instant::now(),
        }
    }

    /// The entry of a name, if it is cached and valid. Never waits.
    pub(super) fn fresh(&self, name: &[u8]) -> Option<Arc<Entry>> {
        let entry = self.entries.get(name)?;
        if self.is_valid(&entry) {
            return Some(entry);
        }
        self.entries.remove_if(name, |cached| Arc::ptr_eq(cached, &entry));
        None
    }

    fn is_valid(&self, entry: &Entry) -> bool {
        if entry.is_torn() {
            return false;
        }
        let now = self.now();
        let is_older = |at: &AtomicU64, limit: u64| now.saturating_sub(at.load(Ordering::Relaxed)) >= limit;
        let looks: [(&AtomicU64, u64, &dyn Fn() -> bool); 3] = [
            (&entry.measured, LENGTH, &|| entry.is_as_long()),
            (&entry.checked, self.validate_every, &|| entry.is_current(&self.loader.root)),
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
        match self.entries.get_value_or_guard_async(name).await {
            Ok(entry) => Ok(Loaded::Entry(entry)),
            Err(turn) => {
                let loaded = self.open(name).await?;
                if let Loaded::Entry(entry) = &loaded {
                    // Refused only if the entry was removed meanwhile: then the next request loads it again.
                    let _ = turn.insert(Arc::clone(entry));
                }
                Ok(loaded)
            }
        }
    }

    async fn open(&self, name: &[u8]) -> io::Result<Loaded> {
        let now = self.now();
        match self.loader.load(name, now, Wait::Never) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            done => return done,
        }
        let (loader, name) = (Arc::clone(&self.loader), name.to_owned());
        Job::start(move || loader.load(&name, now, Wait::ForDisk))?.await
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
