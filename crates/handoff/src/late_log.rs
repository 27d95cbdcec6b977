//! A log of which only one process at a time has the files: it is opened once the process before has ended.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use millstream::sse::{Event, SendError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::log;

/// Most events that wait for the log.
const WAITING: usize = 1000;
/// How long a log is opened again that another process has, and the time between two attempts.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// A log for hubs, from [`Handoff::log`](crate::Handoff::log). Clones share it.
pub struct HandoffLog<L>(Arc<LogShared<L>>);

struct LogShared<L> {
    state: Mutex<State<L>>,
    /// Whether the state changes no more, but for the events that wait.
    is_ready: watch::Sender<bool>,
}

enum State<L> {
    /// Before it is opened, and until its first hub runs.
    Waits(VecDeque<Event>, Option<Arc<L>>),
    Open(Arc<L>),
    Failed(String),
}

impl<L: Log> HandoffLog<L> {
    /// Returns a log that is open.
    pub(crate) fn open(log: L) -> Self {
        let state = Mutex::new(State::Open(Arc::new(log)));
        Self(Arc::new(LogShared { state, is_ready: watch::Sender::new(true) }))
    }

    /// Returns a log that is opened when `ended` is ready. Drops `taking` then.
    pub(crate) fn open_after<F>(
        ended: impl Future<Output = ()> + Send + 'static,
        open: impl Fn() -> F + Send + Sync + 'static,
        taking: watch::Sender<()>,
    ) -> Self
    where
        F: Future<Output = io::Result<L>> + Send + 'static,
    {
        let state = Mutex::new(State::Waits(VecDeque::new(), None));
        let log = Self(Arc::new(LogShared { state, is_ready: watch::Sender::new(false) }));
        let opened = log.clone();
        tokio::spawn(async move {
            ended.await;
            let result = retried(open).await;
            if let Err(error) = &result {
                log::not_opened(error);
            }
            let shared = &opened.0;
            match (&mut *shared.state(), result) {
                (State::Waits(_, log), Ok(opened)) => *log = Some(Arc::new(opened)),
                (state, Err(error)) => *state = State::Failed(error.to_string()),
                (State::Open(_) | State::Failed(_), Ok(_)) => unreachable!("internal: it is opened once"),
            }
            shared.is_ready.send_replace(true);
            // A further process waits until then: it would open the log first.
            drop(taking);
        });
        log
    }
}

/// Opens a log that another process may still have.
async fn retried<L, F: Future<Output = io::Result<L>>>(open: impl Fn() -> F) -> io::Result<L> {
    let until = Instant::now() + PATIENCE;
    loop {
        match open().await {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => sleep(PAUSE).await,
            opened => return opened,
        }
    }
}

impl<L> LogShared<L> {
    fn state(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn opened(&self) -> Option<Arc<L>> {
        match &*self.state() {
            State::Waits(_, log) => log.clone(),
            State::Open(log) => Some(Arc::clone(log)),
            State::Failed(_) => None,
        }
    }
}

impl<L: Log> LogShared<L> {
    /// Appends the events that wait, and opens the log to others behind them.
    async fn append_waiting(&self, log: &Arc<L>) {
        while self.append_some(log) {
            sleep(PAUSE).await;
        }
    }

    /// Appends events until the log has no room. Returns whether there are more.
    fn append_some(&self, log: &Arc<L>) -> bool {
        let mut state = self.state();
        let State::Waits(events, _) = &mut *state else { return false };
        while let Some(event) = events.front() {
            match log.append(event.clone()) {
                Err(SendError::Full) => return true,
                Err(error) => log::event_lost(&error),
                Ok(()) => {}
            }
            events.pop_front();
        }
        *state = State::Open(Arc::clone(log));
        false
    }
}

impl<L: Log> Log for HandoffLog<L> {
    fn append(&self, event: Event) -> Result<(), SendError> {
        let log = match &mut *self.0.state() {
            State::Waits(events, _) if events.len() == WAITING => return Err(SendError::Full),
            State::Waits(events, _) => {
                events.push_back(event);
                return Ok(());
            }
            State::Open(log) => Arc::clone(log),
            State::Failed(why) => return Err(SendError::Log(why.clone().into())),
        };
        log.append(event)
    }

    fn order(&self, id: &str, other: &str) -> Option<Ordering> {
        self.0.opened()?.order(id, other)
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        // An open log accepts events from this call on.
        if let State::Open(log) = &*self.0.state() {
            return Arc::clone(log).run(sink);
        }
        Box::pin(async move {
            // The sender is not dropped before this.
            let _ = self.0.is_ready.subscribe().wait_for(|is_ready| *is_ready).await;
            let Some(log) = self.0.opened() else { return sink.closed().await };
            // It accepts events from this call on. Waiting events come before the first poll, at which a hub that is
            // closed ends.
            let runs = Arc::clone(&log).run(sink);
            let has_more = self.0.append_some(&log);
            let rest = async {
                if has_more {
                    self.0.append_waiting(&log).await
                }
            };
            tokio::join!(rest, runs);
        })
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, bytes: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        Box::pin(async move {
            let log = self.0.opened().ok_or(ReplayError::Unknown)?;
            log.replay(after, upto, bytes).await
        })
    }
}

impl<L> Clone for HandoffLog<L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<L: fmt::Debug> fmt::Debug for HandoffLog<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandoffLog").field(&self.0.opened()).finish()
    }
}

#[cfg(test)]
mod tests;
