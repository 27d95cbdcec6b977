//! A scripted external log: several hubs on it, readers that move between them, and faults of the log.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use millstream::sse::log::{Log, LogFuture, Replay, ReplayError, Sink};
use millstream::sse::{Event, Hub, LagPolicy, SendError};
use proptest::prelude::*;
use tokio::runtime::Builder;

use crate::parse::{Hand, Seen};

/// State of the log. Events are numbers, and the id of event `n` is `n-0`.
#[derive(Debug, Default)]
struct World {
    /// Accepted, but not in the log yet.
    queue: VecDeque<String>,
    /// End of the log; its events start at `trimmed`.
    len: u64,
    trimmed: u64,
    unreachable: bool,
    page: usize,
    /// Number of polls before a replay is answered.
    slowness: usize,
    asked: usize,
}

/// One hub's connection to the log.
#[derive(Clone, Debug)]
struct Scripted {
    world: Arc<Mutex<World>>,
    sink: Arc<Mutex<Option<Sink>>>,
}

fn number(id: &str) -> Option<u64> {
    id.strip_suffix("-0")?.parse().ok()
}

impl Log for Scripted {
    fn append(&self, event: Event) -> Result<(), SendError> {
        let mut world = self.world.lock().unwrap();
        if world.queue.len() >= 50 {
            return Err(SendError::Full);
        }
        world.queue.push_back(event.parts().data.unwrap_or_default().to_owned());
        Ok(())
    }

    fn order(&self, id: &str, other: &str) -> Option<Ordering> {
        Some(number(id)?.cmp(&number(other).unwrap()))
    }

    fn run(self: Arc<Self>, sink: Sink) -> LogFuture<'static, ()> {
        *self.sink.lock().unwrap() = Some(sink.clone());
        Box::pin(async move { sink.closed().await })
    }

    fn replay<'a>(&'a self, after: &'a str, upto: &'a str, _: usize) -> LogFuture<'a, Result<Replay, ReplayError>> {
        let (after, upto) = (number(after).unwrap(), number(upto).unwrap());
        assert!(after < upto);
        let mut left = self.world.lock().unwrap().slowness;
        Box::pin(poll_fn(move |cx| {
            if left > 0 {
                left -= 1;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let mut world = self.world.lock().unwrap();
            world.asked += 1;
            if world.unreachable {
                return Poll::Ready(Err(ReplayError::Unreachable("on strike".into())));
            }
            let from = (after + 1).max(world.trimmed).min(upto + 1);
            let to = (upto + 1).min(from + world.page as u64).max(from);
            let events = (from..to).map(|n| (format!("{n}-0"), Event::new().data(n.to_string()))).collect();
            let page = Replay::new(events).more(to <= upto && to > from);
            let missed = from - (after + 1);
            Poll::Ready(Ok(if missed > 0 { page.gap(Some(missed)) } else { page }))
        }))
    }
}

struct Node {
    hub: Hub,
    sink: Sink,
    started: bool,
    /// First event not delivered yet.
    next: u64,
}

impl Node {
    fn new(world: &Arc<Mutex<World>>, replay: usize) -> Self {
        let log = Scripted { world: Arc::clone(world), sink: Arc::default() };
        let sink = Arc::clone(&log.sink);
        let runtime = Builder::new_current_thread().build().unwrap();
        let hub = runtime.block_on(async {
            let hub = Hub::builder().replay(replay).queue(replay).lag_policy(LagPolicy::DropOldest).log(log).build();
            tokio::task::yield_now().await;
            hub
        });
        let sink = sink.lock().unwrap().take().expect("the log runs");
        Self { hub, sink, started: false, next: 0 }
    }

    fn start(&mut self, world: &World) {
        if !self.started {
            self.started = true;
            self.next = world.len;
            self.sink.start(world.len.checked_sub(1).map(|last| format!("{last}-0")).as_deref());
        }
    }

    fn deliver(&mut self, world: &World, most: u64) {
        let to = world.len.min(self.next.saturating_add(most));
        for n in std::mem::replace(&mut self.next, to)..to {
            self.sink.deliver(&format!("{n}-0"), &Event::new().data(n.to_string())).unwrap();
        }
    }
}

/// A reader that moves between hubs and checks its events.
struct Reader {
    hand: Hand,
    last: Option<String>,
    next: Option<u64>,
    gaps: Vec<String>,
    /// It has moved to a hub that its id reaches only after more events than the queue holds: the hub may call it
    /// unknown.
    far_ahead: bool,
}

impl Reader {
    fn take(&mut self, seen: Vec<Seen>) {
        for seen in seen {
            if seen.name == "gap" {
                self.gaps.push(seen.reason().to_owned());
                // The length of a "lost" gap may include events that this reader got from another hub.
                let known = seen.missed().filter(|_| seen.reason() != "lost");
                self.next = self.next.zip(known).map(|(next, missed)| next + missed);
                continue;
            }
            let n: u64 = seen.data.parse().unwrap();
            assert_eq!(n, self.next.unwrap_or(n), "lost, doubled or out of order, after {:?}", self.gaps);
            assert_eq!(seen.id, format!("{n}-0"));
            self.next = Some(n + 1);
            self.last = Some(seen.id);
        }
    }

    fn read(&mut self, frames: usize) {
        for _ in 0..frames {
            let Some(seen) = self.hand.frame() else { break };
            self.take(seen);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize, u64),
    Start(usize),
    Deliver(usize, u64),
    Lose(usize, u64),
    Trim(u64),
    Reachable(bool),
    Slowness(usize),
    Frames(usize, usize),
    Move(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..2, 1u64..15).prop_map(|(hub, count)| Step::Send(hub, count)),
        1 => (0usize..2).prop_map(Step::Start),
        4 => (0usize..2, 1u64..20).prop_map(|(hub, most)| Step::Deliver(hub, most)),
        1 => (0usize..2, 1u64..3).prop_map(|(hub, count)| Step::Lose(hub, count)),
        1 => (0u64..10).prop_map(Step::Trim),
        1 => prop::sample::select(vec![true, true, false]).prop_map(Step::Reachable),
        1 => (0usize..4).prop_map(Step::Slowness),
        6 => (0usize..3, 1usize..10).prop_map(|(reader, frames)| Step::Frames(reader, frames)),
        3 => (0usize..3, 0usize..2).prop_map(|(reader, hub)| Step::Move(reader, hub)),
    ];
    prop::collection::vec(step, 1..100)
}

fn subscribe(node: &Node, last: Option<&str>) -> Hand {
    Hand::new(node.hub.subscribe_from(last).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("MILLSTREAM_HUB_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400),
    ))]

    #[test]
    fn over_all_hubs_every_event_once_in_order_or_a_gap(steps in steps(), replay in 1usize..12, page in 1usize..5) {
        let world = Arc::new(Mutex::new(World { page, ..World::default() }));
        let mut nodes = [Node::new(&world, replay), Node::new(&world, replay)];
        let mut readers: Vec<_> = (0..3)
            .map(|n| Reader { hand: subscribe(&nodes[n % 2], None), last: None, next: None, gaps: Vec::new(), far_ahead: false })
            .collect();
        let mut troubled = false;
        for step in steps {
            match step {
                Step::Send(hub, count) => for _ in 0..count {
                    // Event data follow the order of the log.
                    let n = { let world = world.lock().unwrap(); world.len + world.queue.len() as u64 };
                    nodes[hub].hub.send(Event::new().data(n.to_string())).unwrap();
                    let mut world = world.lock().unwrap();
                    world.queue.pop_front().unwrap();
                    world.len += 1;
                },
                Step::Start(hub) => nodes[hub].start(&world.lock().unwrap()),
                Step::Deliver(hub, most) => {
                    let world = world.lock().unwrap();
                    nodes[hub].start(&world);
                    nodes[hub].deliver(&world, most);
                }
                Step::Lose(hub, count) => {
                    let world = world.lock().unwrap();
                    if nodes[hub].started && nodes[hub].next + count <= world.len {
                        nodes[hub].next += count;
                        nodes[hub].sink.gap(Some(count));
                        troubled = true;
                    }
                }
                Step::Trim(count) => {
                    let mut world = world.lock().unwrap();
                    world.trimmed = world.len.min(world.trimmed + count);
                    troubled = true;
                }
                Step::Reachable(reachable) => {
                    world.lock().unwrap().unreachable = !reachable;
                    troubled |= !reachable;
                }
                Step::Slowness(polls) => world.lock().unwrap().slowness = polls,
                Step::Frames(reader, frames) => readers[reader].read(frames),
                Step::Move(reader, hub) => {
                    let reader = &mut readers[reader];
                    let last = reader.last.clone();
                    reader.hand = subscribe(&nodes[hub], last.as_deref());
                    reader.next = last.map(|last| number(&last).unwrap() + 1);
                    let reached = nodes[hub].next + replay as u64;
                    reader.far_ahead |= nodes[hub].started && reader.next.is_some_and(|next| next > reached);
                }
            }
        }
        {
            let mut world = world.lock().unwrap();
            world.unreachable = false;
            nodes.iter_mut().for_each(|node| node.start(&world));
            // A reader whose id may be among the events that a hub has lost is told with the next event.
            world.len += 1;
            for node in &mut nodes {
                node.deliver(&world, u64::MAX);
            }
        }
        let len = world.lock().unwrap().len;
        for reader in &mut readers {
            // Pending replays need several polls.
            (0..1000).for_each(|_| reader.read(1));
            prop_assert!(reader.next.is_none_or(|next| next == len), "{:?} of {len}, gaps {:?}", reader.next, reader.gaps);
            if !troubled {
                let expected = |reason: &String| reason == "slow" || reason == "expired" && reader.far_ahead;
                prop_assert!(reader.gaps.iter().all(expected), "{:?}", reader.gaps);
            }
        }
    }
}

/// Returns a log with `len` events, and a hub that starts after them.
fn started(len: u64, replay: usize) -> (Arc<Mutex<World>>, Node) {
    let world = Arc::new(Mutex::new(World { page: 7, len, ..World::default() }));
    let mut node = Node::new(&world, replay);
    node.start(&world.lock().unwrap());
    (world, node)
}

#[test]
fn what_the_ring_has_lost_comes_from_the_log() {
    let (world, mut node) = started(100, 10);
    world.lock().unwrap().len = 200;
    node.deliver(&world.lock().unwrap(), u64::MAX);
    let mut reader = subscribe(&node, Some("5-0"));
    assert!(reader.data().into_iter().eq((6..200).map(|n| n.to_string())));
    // 184 events up to the ring, in pages of 7.
    assert_eq!(world.lock().unwrap().asked, 27);
    assert_eq!((node.hub.stats().delivered, node.hub.stats().gaps), (194, 0));
}

#[test]
fn what_the_ring_loses_meanwhile_is_asked_for_again() {
    let (world, mut node) = started(100, 10);
    let mut reader = subscribe(&node, Some("50-0"));
    let mut seen = Vec::new();
    for n in 100..1000 {
        world.lock().unwrap().len += 1;
        node.deliver(&world.lock().unwrap(), 1);
        if n % 3 == 0 {
            seen.extend(reader.frame().unwrap_or_default());
        }
    }
    seen.extend(reader.read());
    assert!(seen.into_iter().map(|seen| seen.data).eq((51..1000).map(|n| n.to_string())));
}

#[test]
fn a_log_that_cannot_be_asked_is_a_gap_and_the_stream_goes_on() {
    let (world, mut node) = started(100, 10);
    world.lock().unwrap().unreachable = true;
    let mut reader = subscribe(&node, Some("50-0"));
    let seen = reader.read();
    assert_eq!((seen.len(), seen[0].reason(), seen[0].missed()), (1, "unreachable", None));
    world.lock().unwrap().len += 1;
    node.deliver(&world.lock().unwrap(), 1);
    assert_eq!(reader.data(), ["100"]);
    // An id that is not of this log.
    let seen = subscribe(&node, Some("nonsense")).read();
    assert_eq!((seen.len(), seen[0].reason()), (2, "expired"));
}

#[test]
fn a_reader_that_is_ahead_of_the_hub_waits_for_it() {
    let (world, mut node) = started(100, 10);
    world.lock().unwrap().len = 105;
    let mut ahead = subscribe(&node, Some("103-0"));
    let mut forged = subscribe(&node, Some("999999-0"));
    assert!(ahead.read().is_empty());
    node.deliver(&world.lock().unwrap(), 3);
    assert!(ahead.read().is_empty() && forged.read().is_empty());
    node.deliver(&world.lock().unwrap(), 2);
    assert_eq!((ahead.data(), ahead.woken()), (vec!["104".to_owned()], 2));
    // An id that does not arrive within the next ten events is invalid.
    world.lock().unwrap().len = 120;
    node.deliver(&world.lock().unwrap(), 15);
    let seen = forged.read();
    assert_eq!((seen[0].reason(), seen.len()), ("expired", 11));
}

#[test]
fn before_the_log_has_started_readers_wait() {
    let world = Arc::new(Mutex::new(World { page: 7, len: 100, ..World::default() }));
    let mut node = Node::new(&world, 10);
    let mut reader = subscribe(&node, Some("90-0"));
    assert!(reader.read().is_empty());
    node.start(&world.lock().unwrap());
    assert_eq!(reader.woken(), 1);
    assert!(reader.data().into_iter().eq((91..100).map(|n| n.to_string())));
}

#[test]
fn what_the_log_does_not_take_is_refused() {
    let (_world, node) = started(0, 10);
    let refused = node.hub.send(Event::new().id("mine"));
    assert!(matches!(refused, Err(SendError::IdNotOurs)), "{refused:?}");
    assert_eq!(node.hub.send(Event::new().data("x")).unwrap().id(), None);
    (1..50).for_each(|_| drop(node.hub.send(Event::new().data("x")).unwrap()));
    assert!(matches!(node.hub.send(Event::new().data("x")), Err(SendError::Full)));
    for id in ["a\nb", "1-0 ", "1\u{1}0"] {
        assert!(matches!(node.sink.deliver(id, &Event::new()), Err(SendError::InvalidId(_))), "{id:?}");
    }
    node.hub.close();
    assert!(matches!(node.hub.send(Event::new()), Err(SendError::Closed)));
    assert!(matches!(node.sink.deliver("1-0", &Event::new()), Err(SendError::Closed)));
}

#[tokio::test]
async fn the_log_is_told_when_the_hub_is_gone() {
    let log = Scripted { world: Arc::default(), sink: Arc::default() };
    let sink = Arc::clone(&log.sink);
    let hub = Hub::builder().log(log).build();
    while sink.lock().unwrap().is_none() {
        tokio::task::yield_now().await;
    }
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 1);
    drop(hub);
    let sink = sink.lock().unwrap().take().unwrap();
    sink.closed().await;
    while tokio::runtime::Handle::current().metrics().num_alive_tasks() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(matches!(sink.deliver("1-0", &Event::new()), Err(SendError::Closed)));
}

#[test]
fn a_reader_that_is_ahead_of_a_gap_is_told_with_the_next_event() {
    let (world, mut node) = started(10, 8);
    let mut reader = subscribe(&node, Some("11-0"));
    world.lock().unwrap().len = 13;
    // The log has lost the event of the reader and the next one.
    node.next += 3;
    node.sink.gap(Some(3));
    assert_eq!(reader.read(), []);
    world.lock().unwrap().len = 14;
    node.deliver(&world.lock().unwrap(), 1);
    let seen = reader.read();
    assert_eq!((seen[0].reason(), seen[1].data.as_str(), seen.len()), ("lost", "13", 2));
}

#[test]
fn the_position_of_a_hub_with_a_log_is_one_of_the_log_or_its_own_start() {
    let world = Arc::new(Mutex::new(World { page: 7, ..World::default() }));
    let mut node = Node::new(&world, 10);
    // Before the log has started, and while it is empty, nothing else can name the place before the first event.
    let early = node.hub.position();
    let mut reader = subscribe(&node, Some(&early));
    assert!(reader.read().is_empty());
    node.start(&world.lock().unwrap());
    assert_eq!(node.hub.position(), early);
    world.lock().unwrap().len = 3;
    node.deliver(&world.lock().unwrap(), 3);
    assert_eq!(reader.data(), ["0", "1", "2"]);
    assert_eq!(subscribe(&node, Some(&early)).data(), ["0", "1", "2"], "no gap");
    assert_eq!(node.hub.position(), "2-0");
    node.sink.gap(Some(1));
    assert_eq!(node.hub.position(), "2-0", "a gap belongs to the event before it");
    // Once the first event is gone, the start is an unknown id.
    world.lock().unwrap().len = 20;
    node.next = 4;
    node.deliver(&world.lock().unwrap(), u64::MAX);
    assert_eq!(subscribe(&node, Some(&early)).read()[0].reason(), "expired");
    let (_world, node) = started(5, 10);
    assert_eq!(node.hub.position(), "4-0", "where the log has started");
}
