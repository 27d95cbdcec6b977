//! Groups of waiting readers, and how they are woken.
//!
//! A sender wakes one task in each runtime, the [wake task](super::wake_task), which wakes the readers there. So the
//! cost of a send does not grow with the readers, a burst of sends wakes them once, and they are woken on their own
//! thread, which costs a tenth of waking them from another. The wake task has the only timer for keep-alive, and ends
//! with the last reader. Readers polled outside of tokio are woken by the sender, and have no keep-alive.
//!
//! Invariants:
//! 1. A waiting reader has checked for news under the lock, and senders wake after publishing. So either the reader
//!    sees the news or it is woken.
//! 2. A group with waiting readers has a running wake task, or is woken by senders.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use super::wake_task::WakeTask;

/// Number of ticks after which an idle reader gets a comment.
pub(super) const TICKS: u64 = 2;

/// The readers of a hub in one runtime.
#[derive(Debug)]
pub(super) struct Group {
    /// `None` outside of all runtimes.
    runtime: Option<Id>,
    wake_task: Option<Arc<WakeTask>>,
    /// Whether the wake task was notified and has not woken the group yet.
    pub(super) rung: AtomicBool,
    /// Whether senders wake the readers, because there is no runtime, it is ending, or it has no timers.
    direct: AtomicBool,
    wait_list: Mutex<WaitList>,
}

#[derive(Debug, Default)]
pub(super) struct WaitList {
    /// Waiting readers: place, tick of the last frame, waker.
    waiting: Vec<(usize, u64, Waker)>,
    spare: Vec<(usize, u64, Waker)>,
    /// Last index in `waiting` of each place, which may be stale.
    at: Vec<usize>,
    free: Vec<usize>,
    tick: u64,
    /// Whether the wake task serves this group.
    pub(super) wake_task: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Waits,
    News,
    /// The reader was idle for so long that it should get a comment.
    Silent,
    /// The reader is polled by a runtime other than its group's, and should join there.
    Elsewhere,
}

/// Place of a reader in its group, released on drop.
#[derive(Debug)]
pub(super) struct Member {
    group: Arc<Group>,
    place: usize,
    /// Tick of the last frame; `None` if a frame was sent since the last wait.
    since: Option<u64>,
}

impl Group {
    pub(super) fn join(groups: &mut Arc<Vec<Arc<Self>>>, keep_alive: Option<Duration>) -> Member {
        let runtime = Handle::try_current().ok().map(|handle| handle.id());
        let found = groups.iter().find(|group| group.runtime == runtime).map(Arc::clone);
        let group = found.unwrap_or_else(|| {
            let groups = Arc::make_mut(groups);
            // Removes, among others, groups of runtimes that have ended.
            groups.retain(|group| !group.wait_list().is_empty());
            let wake_task = runtime.map(|runtime| WakeTask::of(runtime, keep_alive));
            let (rung, direct) = (AtomicBool::new(false), AtomicBool::new(runtime.is_none()));
            let group = Arc::new(Self { runtime, wake_task, rung, direct, wait_list: Mutex::default() });
            groups.push(Arc::clone(&group));
            group
        });
        let place = group.wait_list().join();
        Member { group, place, since: None }
    }

    pub(super) fn wait_list(&self) -> MutexGuard<'_, WaitList> {
        // A panic under the lock leaves the list consistent.
        self.wait_list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes senders wake the readers. The readers must check for news once more afterwards.
    pub(super) fn set_direct(&self) {
        self.direct.store(true, Ordering::Relaxed);
        // Pairs with the fence in `wake`: the sender sees the flag, or the reader sees the news.
        fence(Ordering::SeqCst);
    }

    /// Wakes all waiting readers.
    pub(super) fn wake(self: &Arc<Self>) {
        fence(Ordering::SeqCst);
        match &self.wake_task {
            Some(wake_task) if !self.is_direct() => wake_task.ring(self),
            _ => self.wake_all(),
        }
    }

    fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Relaxed)
    }

    pub(super) fn wake_all(&self) {
        let mut waiting = {
            let mut wait_list = self.wait_list();
            let spare = mem::take(&mut wait_list.spare);
            mem::replace(&mut wait_list.waiting, spare)
        };
        // Called without the lock, because a waker may run any code.
        waiting.drain(..).for_each(|(_, _, waker)| wake(waker));
        self.wait_list().spare = waiting;
    }

    pub(super) fn tick(&self) {
        let silent: Vec<Waker> = {
            let mut wait_list = self.wait_list();
            wait_list.tick += 1;
            let tick = wait_list.tick;
            let due = wait_list.waiting.iter().filter(|(_, since, _)| *since + TICKS <= tick);
            due.map(|(_, _, waker)| waker.clone()).collect()
        };
        silent.into_iter().for_each(wake);
    }

    /// Adds the group to the wake task; returns `false` in another runtime than the group's.
    fn notify_wake_task(self: &Arc<Self>) -> bool {
        let runtime = Handle::try_current().ok();
        if runtime.as_ref().map(Handle::id) != self.runtime {
            return false;
        }
        if let Some((wake_task, runtime)) = self.wake_task.as_ref().zip(runtime) {
            wake_task.add(self, &runtime);
        }
        true
    }
}

/// Calls a waker. A panic, which was already reported, must not affect the other readers.
fn wake(waker: Waker) {
    let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
}

impl WaitList {
    fn join(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.at.push(0);
            self.at.len() - 1
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.at.len()
    }

    fn position(&self, place: usize) -> Option<usize> {
        let at = self.at[place];
        self.waiting.get(at).is_some_and(|waiting| waiting.0 == place).then_some(at)
    }

    fn wait(&mut self, place: usize, since: u64, waker: &Waker) -> Option<Waker> {
        match self.position(place) {
            Some(at) => {
                let (_, before, kept) = &mut self.waiting[at];
                *before = since;
                (!kept.will_wake(waker)).then(|| mem::replace(kept, waker.clone()))
            }
            None => {
                self.at[place] = self.waiting.len();
                self.waiting.push((place, since, waker.clone()));
                None
            }
        }
    }

    fn leave(&mut self, place: usize) -> Option<Waker> {
        let left = self.position(place).map(|at| {
            let (_, _, waker) = self.waiting.swap_remove(at);
            if let Some(&(moved, ..)) = self.waiting.get(at) {
                self.at[moved] = at;
            }
            waker
        });
        self.free.push(place);
        if self.is_empty() {
            (self.at, self.free, self.waiting, self.spare) = Default::default();
        }
        left
    }
}

impl Member {
    /// Waits, unless there is news or it is time for a comment. `news` is called under the group's lock.
    pub(super) fn wait(&mut self, waker: &Waker, news: impl FnOnce() -> bool) -> Wait {
        let mut wait_list = self.group.wait_list();
        if !wait_list.wake_task && !self.group.is_direct() {
            drop(wait_list);
            if !self.group.notify_wake_task() {
                return Wait::Elsewhere;
            }
            wait_list = self.group.wait_list();
            if !wait_list.wake_task {
                self.group.set_direct();
            }
        }
        if news() {
            return Wait::News;
        }
        let tick = wait_list.tick;
        let since = *self.since.get_or_insert(tick);
        if since + TICKS <= tick {
            self.since = None;
            return Wait::Silent;
        }
        let old = wait_list.wait(self.place, since, waker);
        drop(wait_list);
        drop(old);
        Wait::Waits
    }

    pub(super) fn had_frame(&mut self) {
        self.since = None;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let (old, last) = {
            let mut wait_list = self.group.wait_list();
            (wait_list.leave(self.place), wait_list.is_empty())
        };
        drop(old);
        if last {
            // Lets the wake task remove the empty group.
            self.group.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_has_looked_for_news_under_the_lock() {
        let mut groups = Arc::default();
        let mut member = Group::join(&mut groups, None);
        assert_eq!(member.wait(Waker::noop(), || true), Wait::News);
        assert_eq!(
            member.wait(Waker::noop(), || {
                assert!(
                    groups[0].wait_list.try_lock().is_err(),
                    "the lock is not held, so a sender could wake in between"
                );
                false
            }),
            Wait::Waits
        );
        assert_eq!(groups[0].wait_list().waiting.len(), 1);
    }

    #[test]
    fn places_are_left_from_anywhere() {
        let mut groups = Arc::default();
        let mut members: Vec<_> = (0..10).map(|_| Group::join(&mut groups, None)).collect();
        let group = Arc::clone(&groups[0]);
        group.set_direct();
        let waiting = || group.wait_list().waiting.iter().map(|(place, ..)| *place).collect::<Vec<_>>();
        for round in 0..2 {
            for member in &mut members {
                assert_eq!(member.wait(Waker::noop(), || false), Wait::Waits);
                assert_eq!(member.wait(Waker::noop(), || false), Wait::Waits, "the reader was already woken");
            }
            assert_eq!(waiting().len(), 10 - 3 * round);
            for at in [1, 3, 0] {
                let place = members[at].place;
                drop(members.remove(at));
                assert!(!waiting().contains(&place), "{:?}", waiting());
            }
            for member in &mut members {
                assert_eq!(member.wait(Waker::noop(), || false), Wait::Waits, "moved readers stay registered");
            }
            assert_eq!(waiting().len(), members.len());
            group.wake_all();
            assert!(waiting().is_empty());
        }
        drop(members);
        assert!(group.wait_list().is_empty() && group.wait_list().at.is_empty());
    }
}
