//! Readers that wait, and how they are woken.
//!
//! A sender wakes one task in each runtime, the [herald](super::herald), and that wakes the readers there. So what a send
//! costs does not grow with the readers, a burst of sends wakes them once, and they are woken on their own thread, which
//! costs a tenth of waking them from another. The herald has the one timer for keep-alive, and ends with the last reader.
//! Readers polled outside of tokio are woken by the sender, and have no keep-alive.
//!
//! Invariants:
//! 1. Who waits has looked for news while it held the lock, and whoever brings news wakes after bringing them. So either
//!    the reader sees them or it is woken.
//! 2. A group with readers that wait has a herald, or is woken by senders.

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::{Handle, Id};

use super::wake_task::WakeTask;

/// Ticks in the time after which a silent reader gets a comment.
pub(super) const TICKS: u64 = 2;

/// The readers that a hub has in one runtime.
#[derive(Debug)]
pub(super) struct Group {
    /// `None` outside of all runtimes.
    runtime: Option<Id>,
    wake_task: Option<Arc<WakeTask>>,
    /// The herald was asked to come, and has not yet.
    pub(super) rung: AtomicBool,
    /// Whether senders wake the readers, because no herald can: there is no runtime, or it ends, or it has no timers.
    direct: AtomicBool,
    wait_list: Mutex<WaitList>,
}

#[derive(Debug, Default)]
pub(super) struct WaitList {
    /// Those that wait, each with its place and the tick of its last frame.
    waiting: Vec<(usize, u64, Waker)>,
    /// Empty, kept for its memory.
    spare: Vec<(usize, u64, Waker)>,
    /// By place: where in `waiting` it was put last, be it still there or not.
    at: Vec<usize>,
    /// Places that nobody has.
    free: Vec<usize>,
    tick: u64,
    /// Whether the herald comes.
    pub(super) wake_task: bool,
}

/// What came of a wish to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The waker is kept.
    Waits,
    /// There is news.
    News,
    /// It has had nothing for so long that it should get a comment.
    Silent,
    /// It is polled by another runtime than its group's, and should join there.
    Elsewhere,
}

/// A reader's place in its group, which it leaves when it drops.
#[derive(Debug)]
pub(super) struct Member {
    group: Arc<Group>,
    place: usize,
    /// The tick of the last frame; `None` if there was one since it waited last.
    since: Option<u64>,
}

impl Group {
    /// Takes a place in the group of the runtime that this is called in, making the group if need be.
    pub(super) fn join(groups: &mut Arc<Vec<Arc<Self>>>, keep_alive: Option<Duration>) -> Member {
        let runtime = Handle::try_current().ok().map(|handle| handle.id());
        let found = groups.iter().find(|group| group.runtime == runtime).map(Arc::clone);
        let group = found.unwrap_or_else(|| {
            let groups = Arc::make_mut(groups);
            // Those of runtimes that are gone, among others.
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
        // What is done under the lock leaves nothing half done.
        self.wait_list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has senders wake the readers. Afterwards the readers have to look for news once more.
    pub(super) fn set_direct(&self) {
        self.direct.store(true, Ordering::Relaxed);
        // With that in `wake`: the sender sees this, or the reader sees the news.
        fence(Ordering::SeqCst);
    }

    /// Has all that wait look for news.
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
        // Without the lock: nobody knows what a waker does.
        waiting.drain(..).for_each(|(_, _, waker)| wake(waker));
        self.wait_list().spare = waiting;
    }

    /// Counts a tick, and wakes those that are silent.
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

    /// Has the herald come; `false` in another runtime than the group's.
    fn call_herald(self: &Arc<Self>) -> bool {
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

/// One that panics, which has been told then, holds up none of those behind it.
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

    /// Where in `waiting` a place is.
    fn position(&self, place: usize) -> Option<usize> {
        let at = self.at[place];
        self.waiting.get(at).is_some_and(|waiting| waiting.0 == place).then_some(at)
    }

    /// Keeps a waker; gives one that is not needed any more.
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

    /// Gives a place back, and its waker if it has one.
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
            // Nothing is kept for those that have been.
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
            if !self.group.call_herald() {
                return Wait::Elsewhere;
            }
            wait_list = self.group.wait_list();
            if !wait_list.wake_task {
                // The runtime ends.
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

    /// It has had a frame.
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
            // The herald does not come any more.
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
                assert!(groups[0].wait_list.try_lock().is_err(), "a sender could wake in between");
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
                assert_eq!(member.wait(Waker::noop(), || false), Wait::Waits, "once is enough");
            }
            assert_eq!(waiting().len(), 10 - 3 * round);
            for at in [1, 3, 0] {
                let place = members[at].place;
                drop(members.remove(at));
                assert!(!waiting().contains(&place), "{:?}", waiting());
            }
            for member in &mut members {
                assert_eq!(member.wait(Waker::noop(), || false), Wait::Waits, "those that were moved as well");
            }
            assert_eq!(waiting().len(), members.len());
            group.wake_all();
            assert!(waiting().is_empty());
        }
        drop(members);
        assert!(group.wait_list().is_empty() && group.wait_list().at.is_empty());
    }
}
