//! Readers in groups that are woken together: the readers of a hub, or all bodies that only need comments.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::runtime::Handle;

use super::beat::Beat;
use super::sinks::SinkList;
use super::wake_task::{Group, Member};

/// Number of readers in a group at which a runtime with several workers gets a further group.
const SHARD: usize = 64;

/// All readers of a hub, or all bodies that only need comments, with any period.
#[derive(Debug, Default)]
pub(in crate::sse) struct Groups {
    groups: RwLock<Arc<Vec<Arc<Group>>>>,
    /// Number of readers that the wake tasks write to. Without a lock, because a framing may ask for it in a pass.
    sinks: Arc<AtomicUsize>,
}

impl Groups {
    /// Wakes all waiting readers after an event was published. Works on any thread.
    pub(in crate::sse) fn wake(&self) {
        // Woken without the lock, because a waker may poll a reader that joins.
        let groups = Arc::clone(&self.groups.read().unwrap_or_else(PoisonError::into_inner));
        groups.iter().for_each(Group::wake);
    }

    /// Returns the number of readers that the wake tasks write to.
    pub(in crate::sse) fn sinks(&self) -> usize {
        self.sinks.load(Ordering::Relaxed)
    }

    /// Adds a reader that ends after `age`.
    pub(in crate::sse) fn join(&self, beat: Beat, age: Option<Duration>) -> Member {
        let runtime = Handle::try_current().ok();
        let id = runtime.as_ref().map(Handle::id);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        let of_runtime = || groups.iter().filter(|group| group.is_of(id, beat));
        let smallest = of_runtime().map(|group| (group.len(), group)).min_by_key(|(len, _)| *len);
        let shards = runtime.map_or(1, |runtime| runtime.metrics().num_workers());
        let group = match smallest {
            Some((len, group)) if len < SHARD || of_runtime().count() >= shards => Arc::clone(group),
            _ => {
                let shard =
                    (0..shards).find(|&shard| of_runtime().all(|group| group.shard() != shard)).unwrap_or_default();
                let groups = Arc::make_mut(&mut groups);
                // Removes, among others, groups of runtimes that have ended.
                groups.retain(|group| group.len() > 0);
                let group = Group::new(id, shard, beat, SinkList::new(&self.sinks));
                groups.push(Arc::clone(&group));
                group
            }
        };
        group.join(age)
    }
}
