//! The task of a runtime that wakes the readers there, those of all hubs with the same keep-alive.
//!
//! So a hub for each answer costs neither a task nor a timer. Senders *ring* for a group, and the herald wakes it; of
//! senders that ring before it has, all but the first do nothing.
//!
//! Invariants:
//! 1. `waiters.herald` of a group is set while, and only while, it is in `groups` of a herald that runs; it changes under both
//!    locks, that of the herald first.
//! 2. Whoever rings has brought the news before, and a reader waits after its group was added. So where nobody runs yet, the
//!    reader sees the news.

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

/// Of all runtimes. Asked when the first reader of a hub comes in a runtime.
static HERALDS: Mutex<Vec<Weak<WakeTask>>> = Mutex::new(Vec::new());

pub(super) struct WakeTask {
    runtime: Id,
    keep_alive: Option<Duration>,
    bell: Notify,
    rounds: Mutex<Rounds>,
}

/// Where it goes.
#[derive(Debug, Default)]
struct Rounds {
    runs: bool,
    /// Those with readers, by their addresses.
    groups: HashMap<usize, Arc<Group>>,
    /// Those that were rung for; empty while nobody runs.
    rung: Vec<Arc<Group>>,
}

fn address(group: &Arc<Group>) -> usize {
    Arc::as_ptr(group).addr()
}

impl WakeTask {
    /// That of a runtime.
    pub(super) fn of(runtime: Id, keep_alive: Option<Duration>) -> Arc<Self> {
        let mut heralds = HERALDS.lock().unwrap_or_else(PoisonError::into_inner);
        heralds.retain(|wake_task| wake_task.strong_count() > 0);
        let is_it = |wake_task: &Arc<Self>| wake_task.runtime == runtime && wake_task.keep_alive == keep_alive;
        heralds.iter().filter_map(Weak::upgrade).find(is_it).unwrap_or_else(|| {
            let wake_task = Arc::new(Self { runtime, keep_alive, bell: Notify::new(), rounds: Mutex::default() });
            heralds.push(Arc::downgrade(&wake_task));
            wake_task
        })
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        // What is done under the lock leaves nothing half done.
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a group woken.
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
            // Nobody waits. Reading it has the news of those who relied on us seen by who waits next.
            group.rung.swap(false, Ordering::AcqRel);
        }
    }

    /// Goes to a group from now on; called in its runtime.
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

/// A herald that runs. Dropped with the task, be it because the runtime ends, and before it has begun.
struct Round {
    wake_task: Arc<WakeTask>,
    nobody: bool,
    /// Empty, kept for its memory.
    spare: Vec<Arc<Group>>,
}

impl Round {
    /// Until no group has readers.
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
            // It would panic again: the runtime has no timers.
            if std::thread::panicking() {
                group.set_direct();
            }
            // Those polled by another runtime go on there.
            group.wake_all();
        }
    }
}

/// Not its groups, of which it is a part.
impl fmt::Debug for WakeTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runtime, keep_alive, .. } = self;
        f.debug_struct("WakeTask").field("runtime", runtime).field("keep_alive", keep_alive).finish_non_exhaustive()
    }
}
