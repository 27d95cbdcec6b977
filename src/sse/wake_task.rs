//! The task of a runtime that wakes the readers there, for all hubs with the same keep-alive.
//!
//! A hub for each response thus costs neither a task nor a timer. Senders *ring* for a group, and the wake task wakes
//! it; further rings before that have no effect.
//!
//! Invariants:
//! 1. `wait_list.wake_task` of a group is set if and only if the group is in `groups` of a running wake task; it
//!    changes under both locks, that of the wake task first.
//! 2. Senders publish before they ring, and readers wait after their group was added. So if no task runs, the reader
//!    sees the news.

use std::collections::HashMap;
use std::fmt;
use std::mem;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::wait_list::{Group, TICKS};

/// Wake tasks of all runtimes. Searched when the first reader of a hub joins in a runtime.
static WAKE_TASKS: Mutex<Vec<Weak<WakeTask>>> = Mutex::new(Vec::new());

pub(super) struct WakeTask {
    runtime: Id,
    keep_alive: Option<Duration>,
    bell: Notify,
    rounds: Mutex<Rounds>,
}

#[derive(Debug, Default)]
struct Rounds {
    runs: bool,
    groups: HashMap<usize, Arc<Group>>,
    /// Empty while no task runs.
    rung: Vec<Arc<Group>>,
}

fn address(group: &Arc<Group>) -> usize {
    Arc::as_ptr(group).addr()
}

impl WakeTask {
    pub(super) fn of(runtime: Id, keep_alive: Option<Duration>) -> Arc<Self> {
        let mut wake_tasks = WAKE_TASKS.lock().unwrap_or_else(PoisonError::into_inner);
        wake_tasks.retain(|wake_task| wake_task.strong_count() > 0);
        let is_it = |wake_task: &Arc<Self>| wake_task.runtime == runtime && wake_task.keep_alive == keep_alive;
        wake_tasks.iter().filter_map(Weak::upgrade).find(is_it).unwrap_or_else(|| {
            let wake_task = Arc::new(Self { runtime, keep_alive, bell: Notify::new(), rounds: Mutex::default() });
            wake_tasks.push(Arc::downgrade(&wake_task));
            wake_task
        })
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        // A panic under the lock leaves the state consistent.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ring(&self, group: &Arc<Group>) {
        if group.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut rounds = self.rounds();
        if rounds.runs {
            rounds.rung.push(Arc::clone(group));
            drop(rounds);
            self.bell.notify_one();
        } else {
            // No reader waits. The swap makes the news of skipped senders visible to the next waiting reader.
            group.rung.swap(false, Ordering::AcqRel);
        }
    }

    /// Serves a group from now on; called in its runtime.
    pub(super) fn add(self: &Arc<Self>, group: &Arc<Group>, runtime: &Handle) {
        let mut rounds = self.rounds();
        rounds.groups.insert(address(group), Arc::clone(group));
        group.wait_list().wake_task = true;
        if !mem::replace(&mut rounds.runs, true) {
            drop(rounds);
            let mut round = Round { wake_task: Arc::clone(self), nobody: false, spare: Vec::new() };
            drop(runtime.spawn(async move { round.run().await }));
        }
    }
}

/// A running wake task. Dropped with the task, also if the runtime ends or before the first poll.
struct Round {
    wake_task: Arc<WakeTask>,
    nobody: bool,
    spare: Vec<Arc<Group>>,
}

impl Round {
    async fn run(&mut self) {
        let wake_task = Arc::clone(&self.wake_task);
        let mut ticks = wake_task.keep_alive.map(|keep_alive| {
            let period = (keep_alive / TICKS as u32).max(Duration::from_millis(1));
            let mut ticks = interval_at(Instant::now() + period, period);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        while !self.nobody {
            let mut bell = pin!(wake_task.bell.notified());
            let rung = std::future::poll_fn(|cx| {
                if bell.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(true);
                }
                match ticks.as_mut().map(|ticks| ticks.poll_tick(cx)) {
                    Some(Poll::Ready(_)) => Poll::Ready(false),
                    _ => Poll::Pending,
                }
            });
            match rung.await {
                true => self.wake(),
                false => self.tick(),
            }
        }
    }

    fn wake(&mut self) {
        let spare = mem::take(&mut self.spare);
        let mut rung = mem::replace(&mut self.wake_task.rounds().rung, spare);
        for group in &rung {
            group.rung.swap(false, Ordering::AcqRel);
            group.wake_all();
        }
        let mut rounds = self.wake_task.rounds();
        for group in &rung {
            let mut wait_list = group.wait_list();
            if wait_list.is_empty() {
                wait_list.wake_task = false;
                rounds.groups.remove(&address(group));
            }
        }
        self.nobody = rounds.groups.is_empty() && rounds.rung.is_empty();
        rounds.runs = !self.nobody;
        drop(rounds);
        rung.clear();
        self.spare = rung;
    }

    fn tick(&self) {
        let groups: Vec<_> = self.wake_task.rounds().groups.values().map(Arc::clone).collect();
        groups.iter().for_each(|group| group.tick());
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        if self.nobody {
            return;
        }
        let groups: Vec<_> = {
            let mut rounds = self.wake_task.rounds();
            rounds.runs = false;
            let Rounds { groups, rung, .. } = &mut *rounds;
            let groups = groups.drain().map(|(_, group)| group).chain(rung.drain(..));
            let left = |group: &Arc<Group>| {
                group.rung.swap(false, Ordering::AcqRel);
                group.wait_list().wake_task = false;
            };
            groups.inspect(left).collect()
        };
        for group in groups {
            // Spawning again would panic again: the runtime has no timers.
            if std::thread::panicking() {
                group.set_direct();
            }
            // Readers polled by another runtime join there.
            group.wake_all();
        }
    }
}

/// Omits the groups, which contain this task.
impl fmt::Debug for WakeTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, keep_alive, .. } = self;
        f.debug_struct("WakeTask").field("runtime", runtime).field("keep_alive", keep_alive).finish_non_exhaustive()
    }
}
