//! How waiting readers are woken.
//!
//! ```text
//!  sender ─▶ groups of the hub ─▶ wake task of the group's runtime and shard ─┬▶ wakers of the group
//!                                                                              └▶ connections of the group
//! ```
//!
//! A sender notifies one task in each runtime, the wake task, which wakes the readers there or writes to their
//! connections. So the cost of a send does not grow with the number of readers. A burst of sends wakes the readers
//! once. Readers are woken on their own thread, which costs a tenth of waking them from another thread. One wake task
//! with one timer serves all hubs with the same periods, so a service can create a hub for each response. The
//! wake task ends with its last reader. If a runtime with several workers has many readers, they are spread over as
//! many groups as it has workers. Each group has its own wake task, so that all workers write. Readers polled outside
//! of tokio are woken by the sender, and have no keep-alive.
//!
//! Invariants:
//! 1. Under the lock of its group, a reader sets `waits`, then checks for news, then enters the wait list. A sender
//!    publishes, then clears `waits`; if it was set, the group is woken afterwards. `waits` changes only by
//!    read-modify-write operations, so the reader sees the news or is woken.
//! 2. A group in `to_wake` of a running wake task is woken by this task, also when it ends early. If none runs, the
//!    sender wakes the group.
//! 3. `served` of a group is set if and only if the group is in `groups` of a running wake task. It changes under both
//!    locks, that of the wake task first.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use std::{fmt, mem};

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::beat::Beat;
use super::sinks::{Attached, News, ReaderSink, SinkList, Turn};
use super::wait_list::{WaitList, wake};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock};

/// Wake tasks of all runtimes. Searched when the first reader of a hub joins in a runtime.
static WAKE_TASKS: std::sync::Mutex<Vec<Weak<WakeTask>>> = std::sync::Mutex::new(Vec::new());

/// Readers of a hub in one runtime.
#[derive(Debug)]
pub(in crate::sse) struct Group {
    /// `None` outside of a runtime.
    wake_task: Option<Arc<WakeTask>>,
    beat: Beat,
    /// Whether there may be a waiting reader that no sender is about to wake.
    waits: AtomicBool,
    readers: Mutex<Readers>,
    /// The readers that the wake task writes to. Locked after `readers`.
    sinks: Arc<SinkList>,
}

#[derive(Debug, Default)]
struct Readers {
    list: WaitList,
    /// Whether the wake task serves this group.
    served: bool,
    /// Whether no wake task can serve this group: there is no runtime, it is ending, or it has no timers.
    direct: bool,
}

impl Group {
    /// Creates a group of the readers that this runtime polls, or of those outside of all runtimes.
    pub(super) fn new(runtime: Option<Id>, shard: usize, beat: Beat, sinks: SinkList) -> Arc<Self> {
        let wake_task = runtime.map(|runtime| WakeTask::of(runtime, shard, beat));
        let (waits, readers, sinks) = (AtomicBool::default(), Mutex::default(), Arc::new(sinks));
        Arc::new(Self { wake_task, beat, waits, readers, sinks })
    }

    /// Returns the number of readers.
    pub(in crate::sse) fn len(&self) -> usize {
        lock(&self.readers).list.len()
    }

    pub(in crate::sse) fn join(self: &Arc<Self>, age: Option<Duration>) -> Member {
        let list = &mut lock(&self.readers).list;
        let ends = age.map_or(u64::MAX, |age| list.ticks().saturating_add(self.beat.ticks(age)));
        Member { group: Arc::clone(self), place: list.join(), since: None, ends }
    }

    pub(in crate::sse) fn runtime(&self) -> Option<Id> {
        self.wake_task.as_ref().map(|wake_task| wake_task.runtime)
    }

    /// Returns whether its readers are polled by this runtime, or outside of all runtimes, and have this beat.
    pub(super) fn is_of(&self, runtime: Option<Id>, beat: Beat) -> bool {
        (self.runtime(), self.beat) == (runtime, beat)
    }

    pub(super) fn shard(&self) -> usize {
        self.wake_task.as_ref().map_or(0, |wake_task| wake_task.shard)
    }

    /// Wakes all waiting readers, or has the wake task do so.
    pub(in crate::sse) fn wake(self: &Arc<Self>) {
        if self.waits.swap(false, Ordering::AcqRel) {
            match &self.wake_task {
                Some(wake_task) => wake_task.schedule(self),
                None => self.wake_all(),
            }
        }
    }

    fn wake_all(&self) {
        let mut waiting = lock(&self.readers).list.take();
        // Called without the lock, because a waker may run any code.
        waiting.drain(..).for_each(|waiting| wake(waiting.waker));
        lock(&self.readers).list.reuse(waiting);
    }

    /// Adds the group to the wake task; returns `false` in another runtime than the group's.
    fn serve(self: &Arc<Self>) -> bool {
        let runtime = Handle::try_current().ok();
        if runtime.as_ref().map(Handle::id) != self.runtime() {
            return false;
        }
        if let Some((wake_task, runtime)) = self.wake_task.as_ref().zip(runtime) {
            wake_task.add(self, &runtime);
        }
        let mut readers = lock(&self.readers);
        readers.direct = !readers.served;
        true
    }
}

/// A reader in its group, which it leaves on drop.
#[derive(Debug)]
pub(in crate::sse) struct Member {
    group: Arc<Group>,
    place: usize,
    /// Tick of the last frame; `None` if a frame was sent since the last wait.
    since: Option<u64>,
    /// Tick at which it has reached its age.
    ends: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sse) enum Wait {
    Waits,
    News,
    /// The reader was idle and should get a comment.
    Silent,
    /// The reader is polled by a runtime other than its group's, and should join there.
    Elsewhere,
}

impl Member {
    /// Waits, unless there is news or it is time for a comment. `news` is called under a lock.
    pub(in crate::sse) fn wait(&mut self, waker: &Waker, news: impl FnOnce() -> bool) -> Wait {
        let group = &self.group;
        let mut readers = lock(&group.readers);
        while !readers.served && !readers.direct {
            drop(readers);
            if !group.serve() {
                return Wait::Elsewhere;
            }
            readers = lock(&group.readers);
        }
        group.waits.swap(true, Ordering::AcqRel);
        if news() {
            return Wait::News;
        }
        let ticks = readers.list.ticks();
        let silent = self.since.get_or_insert(ticks).saturating_add(group.beat.silence);
        if silent <= ticks {
            self.since = None;
            return Wait::Silent;
        }
        let old = readers.list.wait(self.place, silent.min(self.ends), waker);
        drop(readers);
        drop(old);
        Wait::Waits
    }

    /// Returns the runtime of its group.
    pub(in crate::sse) fn runtime(&self) -> Option<Id> {
        self.group.runtime()
    }

    pub(in crate::sse) fn had_frame(&mut self) {
        self.since = None;
    }

    /// Lets the group write to `sink`, the waiting reader `member`.
    pub(in crate::sse) fn attach<S: ReaderSink>(
        mut sink: Box<S>,
        member: impl Fn(&mut S) -> Option<&mut Self>,
        waker: &Waker,
    ) -> Result<Attached, Refused> {
        let Some(member) = member(&mut sink) else { return Err(Refused::Waits(sink)) };
        let (group, place) = (Arc::clone(&member.group), member.place);
        // The wake task stops serving the group under this lock.
        let mut readers = lock(&group.readers);
        if !readers.served {
            drop(readers);
            return Err(Refused::Waits(sink));
        }
        let waited = readers.list.stop_waiting(place);
        let attached = group.sinks.enter(sink, waker, &group.waits);
        drop(readers);
        drop(waited);
        attached.map_err(Refused::News)
    }
}

/// A sink that its group does not write to.
pub(in crate::sse) enum Refused {
    /// It waits for its task to be woken, as before.
    Waits(Box<dyn ReaderSink>),
    /// There is news, so it no longer waits.
    News(Box<dyn ReaderSink>),
}

impl Drop for Member {
    fn drop(&mut self) {
        let (old, served) = {
            let mut readers = lock(&self.group.readers);
            (readers.list.leave(self.place), readers.served && readers.list.len() == 0)
        };
        drop(old);
        if served && let Some(wake_task) = &self.group.wake_task {
            wake_task.remove(&self.group);
        }
    }
}

struct WakeTask {
    runtime: Id,
    shard: usize,
    beat: Beat,
    notify: Notify,
    rounds: Mutex<Rounds>,
}

#[derive(Debug, Default)]
struct Rounds {
    runs: bool,
    /// The groups that are served, and those to wake, by address. Empty while no task runs.
    groups: HashMap<usize, Arc<Group>>,
    to_wake: HashMap<usize, Arc<Group>>,
}

fn address(group: &Arc<Group>) -> usize {
    Arc::as_ptr(group).addr()
}

impl WakeTask {
    fn of(runtime: Id, shard: usize, beat: Beat) -> Arc<Self> {
        let mut wake_tasks = WAKE_TASKS.lock().unwrap_or_else(PoisonError::into_inner);
        wake_tasks.retain(|wake_task| wake_task.strong_count() > 0);
        let is_it = |task: &Arc<Self>| (task.runtime, task.shard, task.beat) == (runtime, shard, beat);
        wake_tasks.iter().filter_map(Weak::upgrade).find(is_it).unwrap_or_else(|| {
            let wake_task = Arc::new(Self { runtime, shard, beat, notify: Notify::new(), rounds: Mutex::default() });
            wake_tasks.push(Arc::downgrade(&wake_task));
            wake_task
        })
    }

    fn schedule(&self, group: &Arc<Group>) {
        let mut rounds = lock(&self.rounds);
        if rounds.runs {
            rounds.to_wake.insert(address(group), Arc::clone(group));
            drop(rounds);
            self.notify.notify_one();
        } else {
            drop(rounds);
            group.wake_all();
        }
    }

    /// Serves a group from now on; called in its runtime.
    fn add(self: &Arc<Self>, group: &Arc<Group>, runtime: &Handle) {
        let mut rounds = lock(&self.rounds);
        rounds.groups.insert(address(group), Arc::clone(group));
        lock(&group.readers).served = true;
        if !mem::replace(&mut rounds.runs, true) {
            drop(rounds);
            let mut round = Round { wake_task: Arc::clone(self), to_wake: HashMap::new(), ended: false };
            drop(runtime.spawn(async move { round.run().await }));
        }
    }

    /// Stops serving a group, unless a reader has joined it.
    fn remove(&self, group: &Arc<Group>) {
        let mut rounds = lock(&self.rounds);
        let mut readers = lock(&group.readers);
        if readers.served && readers.list.len() == 0 {
            readers.served = false;
            rounds.groups.remove(&address(group));
            if rounds.groups.is_empty() {
                self.notify.notify_one();
            }
        }
    }
}

/// Omits the groups, which contain this task.
impl fmt::Debug for WakeTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, beat, .. } = self;
        f.debug_struct("WakeTask").field("runtime", runtime).field("beat", beat).finish_non_exhaustive()
    }
}

/// A running wake task. Dropped with the task, also if the runtime ends or before the first poll.
struct Round {
    wake_task: Arc<WakeTask>,
    to_wake: HashMap<usize, Arc<Group>>,
    ended: bool,
}

impl Round {
    async fn run(&mut self) {
        let wake_task = Arc::clone(&self.wake_task);
        let mut ticks = wake_task.beat.period.map(|period| {
            let mut ticks = interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        // Longer than a round: hubs that always have news leave other tasks their time.
        let (mut turn, mut was_tick) = (Turn::default(), false);
        while !self.ended {
            let mut notify = pin!(wake_task.notify.notified());
            // A tick goes first, and behind it news: neither waits until there are none of the other.
            let event = std::future::poll_fn(|cx| match was_tick && notify.as_mut().poll(cx).is_ready() {
                true => Poll::Ready(false),
                false if ticks.as_mut().is_some_and(|ticks| ticks.poll_tick(cx).is_ready()) => Poll::Ready(true),
                false => notify.as_mut().poll(cx).map(|()| false),
            });
            was_tick = event.await;
            let (groups, what) = match was_tick {
                true => (self.tick(), News::Tick { silence: wake_task.beat.silence, now: Instant::now() }),
                false => (self.take_news(), News::Events),
            };
            // All before the first yield, after which the task may end early.
            if let News::Events = what {
                groups.iter().for_each(|group| group.wake_all());
            }
            for group in groups {
                group.sinks.send(what, &group.waits, &mut turn).await;
            }
        }
    }

    /// Returns the groups that have news.
    fn take_news(&mut self) -> Vec<Arc<Group>> {
        {
            let mut rounds = lock(&self.wake_task.rounds);
            mem::swap(&mut rounds.to_wake, &mut self.to_wake);
            self.ended = rounds.groups.is_empty();
            rounds.runs = !self.ended;
        }
        self.to_wake.drain().map(|(_, group)| group).collect()
    }

    /// Advances the tick of all groups, and returns them.
    fn tick(&self) -> Vec<Arc<Group>> {
        let groups: Vec<_> = lock(&self.wake_task.rounds).groups.values().map(Arc::clone).collect();
        for group in &groups {
            let idle = lock(&group.readers).list.tick();
            group.sinks.tick();
            idle.into_iter().for_each(wake);
        }
        groups
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let Rounds { groups, to_wake, .. } = {
            let mut rounds = lock(&self.wake_task.rounds);
            for mut readers in rounds.groups.values().map(|group| lock(&group.readers)) {
                // Spawning again would panic again if the runtime has no timers.
                (readers.served, readers.direct) = (false, std::thread::panicking());
            }
            mem::take(&mut *rounds)
        };
        // Readers polled by another runtime join there.
        for group in groups.into_values().chain(to_wake.into_values()) {
            group.wake_all();
            group.sinks.give_back();
        }
    }
}

#[cfg(test)]
mod tests;
