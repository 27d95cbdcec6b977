//! Readers of the events of a hub: each event comes once, in order and in time, over as many connections as it takes.

use std::sync::Arc;
use std::time::Duration;

use millstream::sse::{Event, Hub};
use testkit::sim::{Dice, Ended};
use tokio::time::{sleep, timeout, timeout_at};

use crate::client::Talk;
use crate::owed::Asked;
use crate::world::World;

/// Time between a send and its arrival, besides that over the link.
const LATE: u64 = 50;
/// Longest time without a byte: the period of comments.
const SILENT: u64 = 15_000;
/// Bytes of the events in the largest ring, and more.
const RING: usize = 300 << 10;
/// What a stream ends with.
const RETRY: &str = "retry: 2000\n\n";

/// What a client has seen of the events, in all of its connections.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The number of the next event, once one has come.
    next: Option<u64>,
    /// The number and the id of the last event.
    last: Option<(u64, String)>,
}

/// One response.
struct Stream {
    asked: Asked,
    /// Whether the connection ends with it.
    is_last: bool,
    /// When its head had come.
    since: u64,
    /// When the last bytes came, and how many.
    heard: u64,
    bytes: usize,
    rest: Vec<u8>,
}

impl Reader {
    /// Returns whether it has lost a stream of events, and goes on where that ended.
    pub(crate) fn is_resuming(&self) -> bool {
        self.last.is_some()
    }
}

/// Reads events for a while, from behind the last one, and leaves.
pub(crate) async fn read(mut talk: Talk, reader: &mut Reader) {
    let tag = talk.tags.next();
    // A gap without an event behind it comes again.
    reader.next = reader.last.as_ref().map(|(number, _)| number + 1);
    let last = reader.last.as_ref().map(|(_, id)| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    let asked = talk.ask(tag, &format!("GET /events/{tag} HTTP/1.1\r\nHost: mill\r\n{last}\r\n")).await;
    let Some(head) = talk.head_of(&asked, 200).await else { return };
    if head.field("content-type") != Some("text/event-stream") {
        return talk.fault(format_args!("no events: {head:?}"));
    }
    let since = talk.world.net.now();
    let leaves_at = since + talk.dice.of_any_size(1..=if talk.world.terms.is_calm { 86_400_000 } else { 300_000 });
    let mut stream = Stream { asked, is_last: head.closes(), since, heard: since, bytes: 0, rest: Vec::new() };
    loop {
        let now = talk.world.net.now();
        if now >= leaves_at {
            break;
        }
        match timeout(Duration::from_millis(leaves_at - now), talk.wire.chunk()).await {
            Err(_) => break,
            Ok(Ok(chunk)) if chunk.is_empty() => return stream.ends(talk, reader).await,
            Ok(Ok(chunk)) => stream.take(&talk, reader, &chunk),
            Ok(Err(ended)) => return stream.is_cut(&talk, ended),
        }
    }
    stream.is_silent(&talk);
    let now = talk.world.net.now();
    // Events that were sent before the reader came take their time.
    if talk.line.is_steady && now > since + talk.line.time_for(RING) + LATE {
        reader.lacks(&talk, &stream, now - talk.line.longest - LATE);
    }
    leave(talk).await;
}

/// A client that leaves a stream.
async fn leave(mut talk: Talk) {
    talk.world.net.note(talk.wire.io.link(), "leaves events", 0);
    match talk.dice.in_range(0..=3) {
        0 => talk.wire.io.reset(),
        1 => talk.wire.io.vanish(),
        2 => {
            talk.end_my_side().await;
            let (now, line) = (talk.world.net.now(), talk.line.clone());
            let (from, until) = (now + line.longest, now + 1_000 + 2 * line.longest);
            let goes_on = timeout_at(talk.world.net.at(until), talk.wire.end()).await.is_err();
            // The stream ends once it is silent for 5 ms, and all of it is acknowledged.
            let is_silent = talk.world.longest_silence(from, until - line.longest) > 2 * line.longest + LATE;
            if goes_on && is_silent && line.is_steady {
                talk.fault("events for a client that has ended its side");
            }
        }
        _ => {}
    }
}

impl Stream {
    fn take(&mut self, talk: &Talk, reader: &mut Reader, chunk: &[u8]) {
        self.is_silent(talk);
        self.heard = talk.world.net.now();
        self.bytes += chunk.len();
        self.rest.extend(chunk);
        loop {
            // Comments, which are lines of their own.
            while self.rest.starts_with(b":\n") {
                self.rest.drain(..2);
            }
            let Some(end) = self.rest.windows(2).position(|bytes| bytes == b"\n\n") else { return };
            // The last block stays, for the end of the stream.
            if self.rest.starts_with(RETRY.as_bytes()) {
                return;
            }
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            let block = String::from_utf8(block).expect("text");
            match block.contains("event: gap\n") {
                true => reader.gap(talk, &block),
                false => reader.event(talk, self, &block),
            }
        }
    }

    fn is_silent(&self, talk: &Talk) {
        let now = talk.world.net.now();
        if talk.line.is_steady && now > self.heard + SILENT + talk.line.longest + LATE {
            talk.fault(format_args!("no byte of a stream in {} ms", now - self.heard));
        }
    }

    /// The stream has ended in order: in a drain, and behind the events that were sent before.
    async fn ends(self, mut talk: Talk, reader: &Reader) {
        talk.world.net.note(talk.wire.io.link(), "end of events", reader.next.unwrap_or(0));
        let Some(drained) = talk.world.drained_at() else { return talk.fault("the events end") };
        if self.rest != RETRY.as_bytes() {
            talk.fault(format_args!("not the end of events: {:?}", String::from_utf8_lossy(&self.rest)));
        }
        reader.lacks(&talk, &self, drained);
        let now = talk.world.net.now();
        talk.answered(now, &self.asked);
        let until = if self.is_last { (0, now) } else { talk.quiet_until() };
        talk.expect_end(until, None).await;
    }

    fn is_cut(&self, talk: &Talk, ended: Ended) {
        let (at, from) = (talk.world.net.now(), talk.cut_from(&self.asked));
        // A drain ends streams in order: only what is slow is left at its deadline.
        if at < from || talk.line.is_steady || ended.is_wrong() {
            talk.fault(format_args!("{ended:?} within the events"));
        }
    }
}

impl World {
    /// Returns the longest time between two times in which no event was sent.
    fn longest_silence(&self, from: u64, until: u64) -> u64 {
        let published = self.published.lock().unwrap();
        let sent = published.iter().map(|(sent, _)| *sent).filter(|sent| (from..until).contains(sent));
        let mut last = from;
        sent.chain([until]).map(|at| at - std::mem::replace(&mut last, at)).max().unwrap_or(0)
    }
}

impl Reader {
    /// Only who is behind by more than the ring may miss events, and is told how many.
    fn gap(&mut self, talk: &Talk, block: &str) {
        let missed = block.split_once("\"missed\":").and_then(|(_, missed)| missed.split_once('}'));
        let missed = missed.and_then(|(missed, _)| missed.parse::<u64>().ok());
        let published = talk.world.published.lock().unwrap().len() as u64;
        let is_due = self.next.is_some_and(|next| published > next + talk.world.terms.ring as u64);
        match self.next.zip(missed) {
            Some((next, missed)) if is_due && missed > 0 => self.next = Some(next + missed),
            // A reader that has seen no event does not know its place.
            None if self.next.is_none() && !talk.line.is_steady => {}
            _ => talk.fault(format_args!("a gap before {:?} of {published}: {block:?}", self.next)),
        }
    }

    fn event(&mut self, talk: &Talk, stream: &Stream, block: &str) {
        let field = |name| block.lines().find_map(|line| line.strip_prefix(name));
        let (id, data) = (field("id: ").unwrap_or_default(), field("data: ").unwrap_or_default());
        let number = data.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let Some(number) = number.filter(|&number| data == text(number)) else {
            return talk.fault(format_args!("not an event: {block:?}"));
        };
        let (sent, id_sent) = talk.world.published.lock().unwrap()[number as usize].clone();
        if id != id_sent {
            talk.fault(format_args!("event {number} has the id {id}, not {id_sent}"));
        }
        let expected = self.next.unwrap_or(number);
        if number != expected {
            talk.fault(format_args!("event {number} in place of {expected}"));
        }
        if self.next.is_none() && sent < stream.asked.began + talk.line.shortest {
            talk.fault(format_args!("event {number} was sent before the reader came"));
        }
        (self.next, self.last) = (Some(number + 1), Some((number, id.to_owned())));
        let (now, takes) = (talk.world.net.now(), talk.line.time_for(stream.bytes));
        if talk.line.is_steady && now > sent.max(stream.since) + takes + LATE {
            talk.fault(format_args!("event {number} came {} ms after it was sent", now - sent));
        }
    }

    /// Compares what has come with what was sent before `until`.
    fn lacks(&self, talk: &Talk, stream: &Stream, until: u64) {
        let published = talk.world.published.lock().unwrap();
        let due = published.partition_point(|(sent, _)| *sent < until) as u64;
        // A reader that has seen none begins behind its request.
        let began = published.partition_point(|(sent, _)| *sent <= stream.since) as u64;
        drop(published);
        if self.next.unwrap_or(began) < due {
            talk.fault(format_args!("no event {}: the next is {:?}", due - 1, self.next));
        }
    }
}

/// Sends events until the end of the clients, some of them together.
pub(crate) async fn publish(world: Arc<World>, hub: Hub, mut dice: Dice) {
    let pause = world.ends_at / 1_000 + dice.of_any_size(20..=20_000);
    while !world.is_over() {
        sleep(Duration::from_millis(dice.in_range(1..=pause))).await;
        let together = if dice.chance(30) { dice.in_range(2..=5) } else { 1 };
        for _ in 0..together {
            let mut published = world.published.lock().unwrap();
            let sent = hub.send(Event::new().data(text(published.len() as u64))).expect("an event that fits");
            published.push((world.net.now(), sent.id().expect("an id of the hub")));
        }
    }
}

/// Returns the data of an event.
fn text(number: u64) -> String {
    format!("{number} {}", "x".repeat((number * 37 % 300) as usize))
}
