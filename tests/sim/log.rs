//! A log of events outside of the hub, which assigns their ids and has more of them: simulated, or in a directory.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use millstream::sse::{Event, SendError};
use testkit::sim::Dice;
use tokio::time::sleep;

use crate::directory::Directory;
use crate::ground::Ground;
use crate::world::World;

/// Time that it takes for an answer, and the most events of a page.
const TAKES: Duration = Duration::from_millis(2);
const PAGE: usize = 50;
/// Longest time in which a reader gets all that a log has, unless answers take long.
const REPLAY: u64 = 200;
/// Each answer whose number this divides may take long.
const SLOW: u64 = 3;
const TAKES_LONG: Duration = Duration::from_secs(40);

/// The log of a hub.
#[derive(Clone, Debug)]
pub(crate) enum EventLog {
    Simulated(SimLog),
    /// Only on sockets of the kernel: its jobs end when the machine lets them.
    Directory(Directory),
}

impl EventLog {
    pub(crate) fn choose(dice: &mut Dice, ground: Ground) -> Self {
        if !ground.is_simulated() && dice.chance(70) {
            return Self::Directory(Directory::choose(dice));
        }
        let (history, strikes) = (*dice.pick(&[1_000, 1_000, 60]), *dice.pick(&[u64::MAX, 30]));
        Self::Simulated(SimLog::new(history, strikes, dice.chance(40)))
    }

    /// Delivers an event that was sent. Returns its id.
    pub(crate) async fn deliver(&self) -> String {
        match self {
            Self::Simulated(log) => {
                sleep(Duration::from_millis(1)).await;
                log.deliver()
            }
            Self::Directory(directory) => directory.commit().await,
        }
    }

    /// Returns the number of the oldest event that it has.
    pub(crate) fn first(&self) -> u64 {
        match self {
            Self::Simulated(log) => log.first(),
            Self::Directory(directory) => directory.first(),
        }
    }

    /// Returns the longest time in which a reader gets all events.
    pub(crate) fn replay_time(&self) -> u64 {
        match self {
            Self::Simulated(log) if log.is_slow => 1_000 * 60 * 60,
            _ => REPLAY,
        }
    }

    /// Returns whether it was unreachable for a reader.
    pub(crate) fn was_unreachable(&self) -> bool {
        matches!(self, Self::Simulated(log) if log.answers.load(Relaxed) >= log.strikes)
    }
}

/// Looks what is left of a log in a directory behind its hub.
pub(crate) async fn check(world: &World) {
    if let Some(EventLog::Directory(directory)) = &world.terms.hub.log {
        directory.check(world).await;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct SimLog {
    /// Events that it has, at most.
    history: usize,
    /// Each answer whose number this divides is that the log is unreachable.
    strikes: u64,
    is_slow: bool,
    answers: Arc<AtomicU64>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    sink: Option<Sink>,
    waiting: Vec<String>,
    /// The data of all events.
    events: Vec<String>,
}

/// Returns the id of an event.
fn id(number: u64) -> String {
    format!("{number}-0")
}

/// Returns the number of the event behind an id.
fn behind(id: &str) -> Option<u64> {
    Some(id.strip_suffix("-0")?.parse::<u64>().ok()? + 1)
}

impl SimLog {
    fn new(history: usize, strikes: u64, is_slow: bool) -> Self {
        Self { history, strikes, is_slow, answers: Arc::default(), state: Arc::default() }
    }

    /// Delivers an event that was sent. Returns its id.
    fn deliver(&self) -> String {
        let mut state = self.state.lock().unwrap();
        let data = state.waiting.remove(0);
        let id = id(state.events.len() as u64);
        let sink = state.sink.as_ref().expect("a log that runs");
        sink.deliver(&id, &Event::new().data(&*data)).expect("an open hub");
        state.events.push(data);
        id
    }

    /// Returns the number of the oldest event that it has.
    fn first(&self) -> u64 {
        self.state.lock().unwrap().events.len().saturating_sub(self.history) as u64
    }
}

impl Log for SimLog {
    fn append(&self, event: Event) -> Result<(), SendError> {
        self.state.lock().unwrap().waiting.push(event.parts().data.unwrap_or_default().to_owned());
        Ok(())
    }

    fn order(&self, id: &str, other: &str) -> Option<Ordering> {
        let id = behind(id).filter(|&id| id <= self.state.lock().unwrap().events.len() as u64 + 1)?;
        Some(id.cmp(&behind(other)?))
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        sink.start(None);
        self.state.lock().unwrap().sink = Some(sink.clone());
        Box::pin(async move { sink.closed().await })
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, bytes: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        Box::pin(async move {
            let answer = self.answers.fetch_add(1, Relaxed) + 1;
            sleep(if self.is_slow && answer.is_multiple_of(SLOW) { TAKES_LONG } else { TAKES }).await;
            if answer.is_multiple_of(self.strikes) {
                return Err(ReplayError::Unreachable("on strike".into()));
            }
            let (next, end) = (behind(after).expect("an id"), behind(upto).expect("an id"));
            let from = next.max(self.first()).min(end);
            let (mut left, state) = (bytes, self.state.lock().unwrap());
            let page = (from..end).take(PAGE).take_while(|&number| {
                let is_first = number == from;
                let len = state.events[number as usize].len();
                let fits = is_first || len <= left;
                left = left.saturating_sub(len);
                fits
            });
            let page: Vec<_> =
                page.map(|number| (id(number), Event::new().data(&*state.events[number as usize]))).collect();
            let has_more = !page.is_empty() && from + (page.len() as u64) < end;
            let replay = match page.last() {
                // As the reader gets them.
                Some((last, _)) if answer.is_multiple_of(2) => {
                    let text = page
                        .iter()
                        .map(|(id, event)| format!("data: {}\nid: {id}\n\n", event.parts().data.unwrap_or_default()));
                    Replay::encoded(text.collect::<String>(), last.clone(), page.len() as u64)
                }
                _ => Replay::new(page),
            };
            let replay = replay.more(has_more);
            Ok(if from > next { replay.gap(Some(from - next)) } else { replay })
        })
    }
}
