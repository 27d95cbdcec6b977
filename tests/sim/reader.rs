//! The events of a hub as a client sees them, over all of its connections and both versions of HTTP.

use millstream::sse::LagPolicy;

use crate::decode::{Decoder, Form};
use crate::line::Line;
use crate::log::EventLog;
use crate::publish::text;
use crate::world::World;

/// Time between a send and its arrival, besides that over the link.
pub(crate) const LATE: u64 = 50;
/// Time by which a stream may end late at its age.
const AGED: u64 = 2_000;
/// Bytes of the events in the largest ring, and more.
const RING: usize = 500 << 10;
/// The end of a stream.
const RETRY: &str = "retry: 2000\n\n";

/// The connection over which a client sees events.
pub(crate) struct View<'a> {
    pub(crate) world: &'a World,
    pub(crate) line: &'a Line,
    pub(crate) link: u64,
    /// Bytes of other answers that the connection carries.
    pub(crate) others: usize,
}

impl View<'_> {
    fn fault(&self, what: impl std::fmt::Display) {
        self.world.fault(self.link, what);
    }

    /// Returns the time in which what the server had sent until `since` has come, and all that has come since. What came
    /// shortly before still takes room then, because it is not acknowledged at the server.
    fn time_since(&self, since: u64) -> u64 {
        let taken = self.world.net.heard_since(self.link, since.saturating_sub(self.line.longest));
        self.line.time_for(self.others + taken)
    }
}

/// The events that a client has seen, in all of its connections.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The number of the next event, once one has come.
    next: Option<u64>,
    /// The number and the id of the last event.
    last: Option<(u64, String)>,
    lost: Lost,
}

/// Whether events are missing behind the last one, and how many is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Lost {
    #[default]
    None,
    /// The events of the ring follow.
    ToRing,
    /// The reader was too slow for those of the ring.
    ToQueue,
}

/// One response.
pub(crate) struct Stream {
    /// When its request was sent.
    began: u64,
    /// When its head had come.
    since: u64,
    /// When the last bytes came.
    heard: u64,
    form: Form,
    decoder: Decoder,
    /// Whether it goes on behind an id.
    is_resumed: bool,
    rest: Vec<u8>,
}

impl Stream {
    /// Begins a stream whose head has come at `since`.
    pub(crate) fn new(view: &View<'_>, reader: &Reader, form: Form, began: u64, since: u64) -> Self {
        let decoder = Decoder::new(form, view.world.terms.hub.gzip);
        let is_resumed = reader.is_resuming();
        Self { began, since, heard: since, form, decoder, is_resumed, rest: Vec::new() }
    }

    pub(crate) fn take(&mut self, view: &View<'_>, reader: &mut Reader, chunk: &[u8]) {
        self.is_silent(view);
        let (now, heard) = (view.world.net.now(), self.heard);
        self.heard = now;
        let was_between = self.rest.is_empty();
        if let Err(error) = self.decoder.add(chunk, &mut self.rest) {
            return view.fault(format_args!("not {:?}: {error}", self.form));
        }
        // A comment is sent after half of the period at the earliest: what came before was on its way then, at the latest.
        let silent = now.saturating_sub(view.line.shortest + view.world.terms.hub.keep_alive / 2);
        let is_early = view.line.is_steady && heard > silent + view.time_since(silent) + LATE;
        if was_between && self.rest == b":\n" && is_early && self.form != Form::Layered {
            view.fault(format_args!("a comment after {} ms", now - heard));
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
                true => reader.gap(view, self, &block),
                false => reader.event(view, self, &block),
            }
        }
    }

    fn is_silent(&self, view: &View<'_>) {
        let (now, terms) = (view.world.net.now(), &view.world.terms.hub);
        if view.line.is_steady && now > self.heard + terms.keep_alive + view.line.time_for(view.others) + LATE {
            view.fault(format_args!("no byte of a stream in {} ms", now - self.heard));
        }
        let ends = terms.max_age.map(|age| self.since + age + AGED + view.line.time_for(view.others) + LATE);
        if view.line.is_steady && ends.is_some_and(|ends| now > ends) {
            view.fault(format_args!("the stream of {} ms goes on", now - self.since));
        }
    }

    /// Returns whether it may still have been in the events of a log when it was told to end.
    fn may_be_replaying(&self, view: &View<'_>, told: u64) -> bool {
        let hub = &view.world.terms.hub;
        hub.log.is_some() && !(view.line.is_steady && told > self.since + hub.replay_time())
    }

    /// Returns when the stream could end at its age, at the earliest.
    fn aged_from(&self, view: &View<'_>) -> Option<u64> {
        view.world.terms.hub.max_age.map(|age| self.began + view.line.shortest + age)
    }

    /// The stream has ended in order, behind the events that were sent before: in a drain, with the hub, at its age, or
    /// because the reader is too slow.
    pub(crate) fn ends(self, view: &View<'_>, reader: &Reader) {
        let now = view.world.net.now();
        view.world.net.note(view.link, "end of events", reader.next.unwrap_or(0));
        let aged = self.aged_from(view).filter(|aged| aged + view.line.shortest <= now);
        let terms = &view.world.terms.hub;
        let is_slow = match terms.policy {
            LagPolicy::Disconnect => {
                reader.next.is_none_or(|next| view.world.published.lock().unwrap().may_be_late(terms, next, now))
            }
            LagPolicy::Block => view.world.gave_up_at() >= self.began,
            _ => false,
        };
        let told = [view.world.drained_at(), view.world.closed_at(), aged].into_iter().flatten().min();
        // A stream that is told to end does so behind what was sent, and at once while it waits for a log.
        if let Some(at) = told.map(|at| at.max(self.began)).filter(|_| view.line.is_steady) {
            let late = if aged == told { AGED } else { LATE };
            if now > at + view.line.longest + view.time_since(at) + late {
                view.fault(format_args!("the stream has ended at {now} ms, and was told to at {at} ms"));
            }
        }
        match told {
            // The replay of a log does not come to its end.
            Some(at) if !is_slow && !self.may_be_replaying(view, at) => reader.lacks(view, &self, at),
            None if !is_slow => return view.fault("the events end"),
            _ => {}
        }
        let last = if self.form == Form::Lines { "" } else { RETRY };
        // A member of gzip has an end of its own.
        if self.rest != last.as_bytes() || !self.decoder.ends_well() {
            view.fault(format_args!("not the end of events: {:?}", String::from_utf8_lossy(&self.rest)));
        }
    }

    /// The client leaves.
    pub(crate) fn leaves(&self, view: &View<'_>, reader: &Reader) {
        self.is_silent(view);
        let now = view.world.net.now();
        view.world.net.note(view.link, "leaves events", 0);
        // Events that were sent before the reader came take their time.
        let takes = view.line.time_for(RING + view.others) + view.world.terms.hub.replay_time();
        if view.line.is_steady && now > self.since + takes + LATE {
            reader.lacks(view, self, now - view.line.time_for(view.others) - LATE);
        }
    }
}

impl Reader {
    /// Returns whether it has lost a stream of events, and goes on where that ended.
    pub(crate) fn is_resuming(&self) -> bool {
        self.last.is_some()
    }

    /// Begins a stream behind the last event. Returns the id of that.
    pub(crate) fn resumes(&mut self) -> Option<&str> {
        // A gap without an event behind it comes again.
        self.next = self.last.as_ref().map(|(number, _)| number + 1);
        self.lost = Lost::None;
        self.last.as_ref().map(|(_, id)| &**id)
    }

    /// Only who is behind by more than the ring or the queue may miss events, as few as possible, and is told how many.
    fn gap(&mut self, view: &View<'_>, stream: &Stream, block: &str) {
        let missed = block.split_once("\"missed\":").and_then(|(_, missed)| missed.split_once('}'));
        let missed = missed.and_then(|(missed, _)| missed.parse::<u64>().ok());
        let (terms, now) = (&view.world.terms.hub, view.world.net.now());
        let published = view.world.published.lock().unwrap();
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
                // Behind a gap of unknown length, this is only the least.
                if self.lost != Lost::None {
                    self.lost = Lost::ToQueue;
                }
                let mut seen = view.world.seen.lock().unwrap();
                if !is_expired {
                    (seen.slow_gaps, seen.missed) = (seen.slow_gaps + 1, seen.missed + missed);
                }
            }
            None if is("unreachable")
                && stream.is_resumed
                && terms.log.as_ref().is_some_and(EventLog::was_unreachable) =>
            {
                self.lost = Lost::ToRing;
            }
            // A reader that has seen no event does not know its place, which is behind its request.
            None if self.next.is_none()
                && published.may_be_late(terms, published.since(stream.began + view.line.shortest), now) => {}
            // Nothing tells how many events were behind an id that is gone, unless it is a number.
            None if has_own_id && self.next.is_some_and(is_due) => self.lost = Lost::ToRing,
            _ => {
                let published = published.len();
                view.fault(format_args!("a gap before {:?} of {published}: {block:?}", self.next));
            }
        }
    }

    fn event(&mut self, view: &View<'_>, stream: &Stream, block: &str) {
        let field = |name| block.lines().find_map(|line| line.strip_prefix(name));
        let (id, data) = (field("id: ").unwrap_or_default(), field("data: ").unwrap_or_default());
        let number = data.strip_prefix('[').and_then(|data| data.split(',').next()?.parse::<u64>().ok());
        let Some(number) = number.filter(|&number| data == text(number)) else {
            return view.fault(format_args!("not an event: {block:?}"));
        };
        let (sent, id_sent) = {
            let published = view.world.published.lock().unwrap();
            let sent = &published.events[number as usize];
            (sent.at, sent.id.clone())
        };
        view.world.seen.lock().unwrap().events += 1;
        if id != id_sent {
            view.fault(format_args!("event {number} has the id {id}, not {id_sent}"));
        }
        let expected = self.next.unwrap_or(number);
        if number != expected && !self.follows_lost(view, number) {
            view.fault(format_args!("event {number} in place of {expected}"));
        }
        if self.next.is_none() && sent < stream.began + view.line.shortest {
            view.fault(format_args!("event {number} was sent before the reader came"));
        }
        (self.next, self.last, self.lost) = (Some(number + 1), Some((number, id.to_owned())), Lost::None);
        let replay = if stream.is_resumed { view.world.terms.hub.replay_time() } else { 0 };
        let (now, since) = (view.world.net.now(), sent.max(stream.since));
        if view.line.is_steady && now > since + view.time_since(since) + replay + LATE {
            view.fault(format_args!("event {number} came {} ms after it was sent", now - sent));
        }
    }

    /// Returns whether an event may be the first one behind an unknown number of lost events.
    fn follows_lost(&self, view: &View<'_>, number: u64) -> bool {
        let published = view.world.published.lock().unwrap();
        let (terms, now) = (&view.world.terms.hub, view.world.net.now());
        let first = match self.lost {
            Lost::None => return false,
            Lost::ToRing => published.first_in_ring(terms, now),
            Lost::ToQueue => published.first_queued(terms, now),
        };
        self.next.is_some_and(|next| next < number) && number <= first
    }

    /// Compares what has come with what was sent before `until`.
    fn lacks(&self, view: &View<'_>, stream: &Stream, until: u64) {
        let published = view.world.published.lock().unwrap();
        let due = published.since(until);
        // A reader that has seen none begins behind its request.
        let began = published.since(stream.since + 1);
        drop(published);
        if self.next.unwrap_or(began) < due {
            view.fault(format_args!("no event {}: the next is {:?}", due - 1, self.next));
        }
    }
}
