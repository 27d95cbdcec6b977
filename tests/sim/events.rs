//! Readers of the events of a hub.

use std::time::Duration;

use tokio::time::timeout;

use crate::answer::Ended;
use crate::client::Talk;
use crate::world::event;

/// Time between a send and its arrival, besides the latency.
const LATE: u64 = 50;

/// Reads events for a while, and leaves.
pub(crate) async fn read(mut talk: Talk) {
    let link = talk.wire.io.link();
    if talk.wire.send(b"GET /events HTTP/1.1\r\nHost: mill\r\n\r\n").await.is_err() {
        return;
    }
    let Ok(head) = talk.wire.head().await else { return };
    if head.status != 200 || head.field("content-type") != Some("text/event-stream") {
        if talk.world.drained_at().is_none() && talk.is_steady {
            talk.fault(format_args!("no events: {head:?}"));
        }
        return;
    }
    let leaves_at =
        talk.world.net.now() + talk.dice.of_any_size(1..=if talk.world.terms.is_calm { 86_400_000 } else { 300_000 });
    let mut reader = Reader { next: None, since: talk.world.net.now(), rest: Vec::new() };
    loop {
        let now = talk.world.net.now();
        if now >= leaves_at {
            break;
        }
        // A pace that reads more slowly than the hub sends would miss events.
        match timeout(Duration::from_millis(leaves_at - now), talk.wire.chunk()).await {
            Err(_) => break,
            Ok(Ok(chunk)) if chunk.is_empty() => {
                talk.world.net.note(link, "end of events", reader.next.unwrap_or(0));
                if talk.world.drained_at().is_none() {
                    talk.fault("the events end");
                }
                return;
            }
            Ok(Ok(chunk)) => reader.take(&talk, &chunk),
            Ok(Err(ended)) => {
                if (talk.is_steady && talk.world.drained_at().is_none()) || ended == Ended::Hangs {
                    talk.fault(format_args!("{ended:?} within the events"));
                }
                return;
            }
        }
    }
    reader.lacks(&talk);
    talk.world.net.note(link, "leaves events", reader.next.unwrap_or(0));
    match talk.dice.in_range(0..=3) {
        0 => talk.wire.io.reset(),
        1 => talk.wire.io.vanish(),
        2 => {
            talk.end_my_side().await;
            // Silent streams end at once, others with the next event.
            let (_, ended) = talk.wire.end().await;
            if ended == Ended::Hangs {
                talk.fault("events for a client that has ended its side");
            }
        }
        _ => {}
    }
}

struct Reader {
    /// The number of the next event, once one has come.
    next: Option<u64>,
    /// When the stream began.
    since: u64,
    rest: Vec<u8>,
}

impl Reader {
    fn take(&mut self, talk: &Talk, chunk: &[u8]) {
        self.rest.extend(chunk);
        while let Some(end) = self.rest.windows(2).position(|bytes| bytes == b"\n\n") {
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            let block = String::from_utf8(block).expect("text");
            let missed = block.split_once("event: gap\n").and_then(|(_, gap)| gap.split_once("\"missed\":"));
            if let Some((_, missed)) = missed {
                // Only a reader that is slow may miss events, and it is told how many.
                let missed: u64 = missed.trim_end_matches("}\n\n").parse().expect("a number");
                if talk.is_steady {
                    talk.fault(format_args!("missed events: {block:?}"));
                }
                self.next = self.next.map(|next| next + missed);
            } else if let Some(data) = block.lines().find_map(|line| line.strip_prefix("data: ")) {
                self.event(talk, data);
            }
        }
    }

    fn event(&mut self, talk: &Talk, data: &str) {
        let number = data.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let Some(number) = number.filter(|&number| data == event(number)) else {
            return talk.fault(format_args!("not an event: {data:?}"));
        };
        let expected = self.next.unwrap_or(number);
        self.next = Some(number + 1);
        if number != expected {
            talk.fault(format_args!("event {number} in place of {expected}"));
        }
        let sent = talk.world.published.lock().unwrap()[number as usize];
        let now = talk.world.net.now();
        if talk.is_steady && now > sent.max(self.since) + talk.latency + LATE {
            talk.fault(format_args!("event {number} came {} ms after it was sent", now - sent));
        }
    }

    /// Compares what has come with what was sent.
    fn lacks(&self, talk: &Talk) {
        let now = talk.world.net.now();
        let published = talk.world.published.lock().unwrap();
        let due = published.iter().rposition(|&sent| sent + talk.latency + LATE < now && sent > self.since);
        if let Some(due) = due.filter(|_| talk.is_steady) {
            drop(published);
            if self.next.is_none_or(|next| next <= due as u64) {
                talk.fault(format_args!("no event {due}: the next is {:?}", self.next));
            }
        }
    }
}
