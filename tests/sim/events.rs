//! Readers of the events of a hub: each event comes once, in order and in time, over as many connections as it takes.

use std::time::Duration;

use millstream::sse::LagPolicy;
use testkit::sim::Ended;
use tokio::time::{timeout, timeout_at};

use crate::client::Talk;
use crate::decode::{Decoder, Form};
use crate::log::SimLog;
use crate::owed::Asked;
use crate::publish::text;

/// Time between a send and its arrival, besides that over the link.
const LATE: u64 = 50;
/// Time by which a stream may end late at its age.
const AGED: u64 = 2_000;
/// Bytes of the events in the largest ring, and more.
const RING: usize = 500 << 10;
/// What a stream ends with.
const RETRY: &str = "retry: 2000\n\n";
/// One byte more than the longest id.
const TOO_LONG: usize = 1_025;

/// What a client has seen of the events, in all of its connections.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The number of the next event, once one has come.
    next: Option<u64>,
    /// The number and the id of the last event.
    last: Option<(u64, String)>,
    /// Whether events are missing behind the last one, and how many is not known.
    has_lost: bool,
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
    form: Form,
    decoder: Decoder,
    /// Whether it goes on behind an id.
    is_resumed: bool,
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
    reader.has_lost = false;
    let (form, has_gzip) = (Form::choose(&mut talk.dice), talk.world.terms.hub.gzip);
    let last = match &reader.last {
        Some((_, id)) => format!("Last-Event-ID: {id}\r\n"),
        // Ignored, and counted.
        None if talk.dice.chance(10) => format!("Last-Event-ID: {}\r\n", "x".repeat(TOO_LONG)),
        None => String::new(),
    };
    let path = format!("/{}/{tag}", form.path());
    let asked = talk.ask(tag, &format!("GET {path} HTTP/1.1\r\nHost: mill\r\n{}{last}\r\n", form.fields())).await;
    let Some(head) = talk.head_of(&asked, 200).await else { return };
    if head.status == 503 {
        // The service has compared the number of readers.
        if head.field("retry-after") != Some("2") {
            talk.fault(format_args!("no time to return: {head:?}"));
        }
        return;
    }
    if !form.is_right(&head, has_gzip) {
        return talk.fault(format_args!("not the head of {form:?}: {head:?}"));
    }
    let since = talk.world.net.now();
    let leaves_at = since + talk.dice.of_any_size(1..=if talk.world.terms.is_calm { 86_400_000 } else { 300_000 });
    let mut stream = Stream {
        asked,
        is_last: head.closes(),
        since,
        heard: since,
        bytes: 0,
        form,
        decoder: Decoder::new(form, has_gzip),
        is_resumed: reader.last.is_some(),
        rest: Vec::new(),
    };
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
    if talk.line.is_steady && now > since + talk.line.time_for(RING) + LATE + talk.world.terms.hub.replay_time() {
        reader.lacks(&talk, &stream, now - talk.line.longest - LATE);
    }
    leave(talk, form).await;
}

/// A client that leaves a stream.
async fn leave(mut talk: Talk, form: Form) {
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
            let is_silent = talk.world.published.lock().unwrap().longest_silence(from, until - line.longest)
                > 2 * line.longest + LATE;
            // JSON lines are not a stream of events for the server, which waits for longer.
            if goes_on && is_silent && line.is_steady && form != Form::Lines {
                talk.fault("events for a client that has ended its side");
            }
        }
        _ => {}
    }
}

impl Stream {
    fn take(&mut self, talk: &Talk, reader: &mut Reader, chunk: &[u8]) {
        self.is_silent(talk);
        let (now, heard) = (talk.world.net.now(), self.heard);
        self.heard = now;
        self.bytes += chunk.len();
        let was_between = self.rest.is_empty();
        if let Err(error) = self.decoder.add(chunk, &mut self.rest) {
            return talk.fault(format_args!("not {:?}: {error}", self.form));
        }
        // A comment comes after half of the period at the earliest.
        let (line, period) = (&talk.line, talk.world.terms.hub.keep_alive);
        let is_early = line.is_steady && now + line.longest + LATE < heard + line.shortest + period / 2;
        if was_between && self.rest == b":\n" && is_early && self.form != Form::Layered {
            talk.fault(format_args!("a comment after {} ms", now - heard));
        }
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
                true => reader.gap(talk, self, &block),
                false => reader.event(talk, self, &block),
            }
        }
    }

    fn is_silent(&self, talk: &Talk) {
        let (now, terms) = (talk.world.net.now(), &talk.world.terms.hub);
        if talk.line.is_steady && now > self.heard + terms.keep_alive + talk.line.longest + LATE {
            talk.fault(format_args!("no byte of a stream in {} ms", now - self.heard));
        }
        let ends = terms.max_age.map(|age| self.since + age + AGED + talk.line.longest + LATE);
        if talk.line.is_steady && ends.is_some_and(|ends| now > ends) {
            talk.fault(format_args!("the stream of {} ms goes on", now - self.since));
        }
    }

    /// Returns whether it may still have been in the events of a log when it was told to end.
    fn may_be_replaying(&self, talk: &Talk, told: u64) -> bool {
        let hub = &talk.world.terms.hub;
        hub.log.is_some() && !(talk.line.is_steady && told > self.since + hub.replay_time())
    }

    /// Returns when the stream could end at its age, at the earliest.
    fn aged_from(&self, talk: &Talk) -> Option<u64> {
        talk.world.terms.hub.max_age.map(|age| self.asked.began + talk.line.shortest + age)
    }

    /// The stream has ended in order, behind the events that were sent before: in a drain, with the hub, at its age, or
    /// because the reader is too slow.
    async fn ends(self, mut talk: Talk, reader: &Reader) {
        let now = talk.world.net.now();
        talk.world.net.note(talk.wire.io.link(), "end of events", reader.next.unwrap_or(0));
        let aged = self.aged_from(&talk).filter(|aged| aged + talk.line.shortest <= now);
        let terms = &talk.world.terms.hub;
        let is_slow = match terms.policy {
            LagPolicy::Disconnect => {
                reader.next.is_none_or(|next| talk.world.published.lock().unwrap().may_be_late(terms, next, now))
            }
            LagPolicy::Block => talk.world.gave_up_at() >= self.asked.began,
            _ => false,
        };
        match [talk.world.drained_at(), talk.world.closed_at(), aged].into_iter().flatten().min() {
            // What is replayed from a log does not come to its end.
            Some(at) if !is_slow && !self.may_be_replaying(&talk, at) => reader.lacks(&talk, &self, at),
            None if !is_slow => return talk.fault("the events end"),
            _ => {}
        }
        let last = if self.form == Form::Lines { "" } else { RETRY };
        // A member of gzip has an end of its own.
        if self.rest != last.as_bytes() || !self.decoder.ends_well() {
            talk.fault(format_args!("not the end of events: {:?}", String::from_utf8_lossy(&self.rest)));
        }
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

impl Reader {
    /// Only who is behind by more than the ring or the queue may miss events, as few as possible, and is told how many.
    fn gap(&mut self, talk: &Talk, stream: &Stream, block: &str) {
        let missed = block.split_once("\"missed\":").and_then(|(_, missed)| missed.split_once('}'));
        let missed = missed.and_then(|(missed, _)| missed.parse::<u64>().ok());
        let (terms, now) = (&talk.world.terms.hub, talk.world.net.now());
        let published = talk.world.published.lock().unwrap();
        let is = |reason: &str| block.contains(&format!("\"reason\":\"{reason}\""));
        let is_expired = is("expired");
        // The first one that is left.
        let to = match is_expired {
            true => published.first_kept(terms, now),
            false => published.first_queued(terms, now),
        };
        let is_due = |next: u64| match is_expired {
            true => stream.is_resumed && next < to,
            false => is("slow") && terms.policy != LagPolicy::Block && published.may_be_late(terms, next, now),
        };
        let has_own_id = self.last.as_ref().is_some_and(|(number, _)| terms.id(*number).is_some());
        match self.next.zip(missed) {
            Some((next, missed)) if is_due(next) && missed > 0 && next + missed <= to => {
                self.next = Some(next + missed);
                let mut seen = talk.world.seen.lock().unwrap();
                if !is_expired {
                    (seen.slow_gaps, seen.missed) = (seen.slow_gaps + 1, seen.missed + missed);
                }
            }
            // The events of the ring follow.
            None if is("unreachable")
                && stream.is_resumed
                && terms.log.as_ref().is_some_and(SimLog::was_unreachable) =>
            {
                self.has_lost = true;
            }
            // A reader that has seen no event does not know its place, which is behind its request.
            None if self.next.is_none()
                && published.may_be_late(terms, published.since(stream.asked.began + talk.line.shortest), now) => {}
            // Nothing tells how many events were behind an id that is gone, unless it is a number.
            None if has_own_id && self.next.is_some_and(is_due) => self.has_lost = true,
            _ => {
                let published = published.len();
                talk.fault(format_args!("a gap before {:?} of {published}: {block:?}", self.next));
            }
        }
    }

    fn event(&mut self, talk: &Talk, stream: &Stream, block: &str) {
        let field = |name| block.lines().find_map(|line| line.strip_prefix(name));
        let (id, data) = (field("id: ").unwrap_or_default(), field("data: ").unwrap_or_default());
        let number = data.strip_prefix('[').and_then(|data| data.split(',').next()?.parse::<u64>().ok());
        let Some(number) = number.filter(|&number| data == text(number)) else {
            return talk.fault(format_args!("not an event: {block:?}"));
        };
        let (sent, id_sent) = {
            let published = talk.world.published.lock().unwrap();
            let sent = &published.events[number as usize];
            (sent.at, sent.id.clone())
        };
        talk.world.seen.lock().unwrap().events += 1;
        if id != id_sent {
            talk.fault(format_args!("event {number} has the id {id}, not {id_sent}"));
        }
        let expected = self.next.unwrap_or(number);
        // The events of the ring follow an unknown number of lost ones.
        if number != expected && !(self.has_lost && self.follows(talk, number)) {
            talk.fault(format_args!("event {number} in place of {expected}"));
        }
        if self.next.is_none() && sent < stream.asked.began + talk.line.shortest {
            talk.fault(format_args!("event {number} was sent before the reader came"));
        }
        (self.next, self.last, self.has_lost) = (Some(number + 1), Some((number, id.to_owned())), false);
        let replay = if stream.is_resumed { talk.world.terms.hub.replay_time() } else { 0 };
        let (now, takes) = (talk.world.net.now(), talk.line.time_for(stream.bytes) + replay);
        if talk.line.is_steady && now > sent.max(stream.since) + takes + LATE {
            talk.fault(format_args!("event {number} came {} ms after it was sent", now - sent));
        }
    }

    /// Returns whether an event may be the first one behind lost events.
    fn follows(&self, talk: &Talk, number: u64) -> bool {
        let published = talk.world.published.lock().unwrap();
        let first = published.base().max(published.first_kept(&talk.world.terms.hub, talk.world.net.now()));
        self.next.is_some_and(|next| next < number) && number <= first
    }

    /// Compares what has come with what was sent before `until`.
    fn lacks(&self, talk: &Talk, stream: &Stream, until: u64) {
        let published = talk.world.published.lock().unwrap();
        let due = published.since(until);
        // A reader that has seen none begins behind its request.
        let began = published.since(stream.since + 1);
        drop(published);
        if self.next.unwrap_or(began) < due {
            talk.fault(format_args!("no event {}: the next is {:?}", due - 1, self.next));
        }
    }
}
