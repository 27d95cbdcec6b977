//! The events of a hub as a client sees them, over all of its connections and both versions of HTTP.

use crate::line::Line;
use crate::world::World;

/// Time between a send and its arrival, besides that over the link.
pub(crate) const LATE: u64 = 50;
/// Longest time without a byte: the period of comments.
const SILENT: u64 = 15_000;
/// Bytes of the events in the largest ring, and more.
const RING: usize = 300 << 10;
/// What a stream ends with.
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
}

/// What a client has seen of the events, in all of its connections.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The number of the next event, once one has come.
    next: Option<u64>,
    /// The number and the id of the last event.
    last: Option<(u64, String)>,
}

/// One response.
pub(crate) struct Stream {
    /// When its request was sent.
    began: u64,
    /// When its head had come.
    since: u64,
    /// When the last bytes came, and how many.
    heard: u64,
    bytes: usize,
    rest: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(began: u64, since: u64) -> Self {
        Self { began, since, heard: since, bytes: 0, rest: Vec::new() }
    }

    pub(crate) fn take(&mut self, view: &View<'_>, reader: &mut Reader, chunk: &[u8]) {
        self.is_silent(view);
        self.heard = view.world.net.now();
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
                true => reader.gap(view, &block),
                false => reader.event(view, self, &block),
            }
        }
    }

    fn is_silent(&self, view: &View<'_>) {
        let now = view.world.net.now();
        if view.line.is_steady && now > self.heard + SILENT + view.line.time_for(view.others) + LATE {
            view.fault(format_args!("no byte of a stream in {} ms", now - self.heard));
        }
    }

    /// The stream has ended in order: in a drain, and behind the events that were sent before.
    pub(crate) fn ends(&self, view: &View<'_>, reader: &Reader) {
        view.world.net.note(view.link, "end of events", reader.next.unwrap_or(0));
        let Some(drained) = view.world.drained_at() else { return view.fault("the events end") };
        if self.rest != RETRY.as_bytes() {
            view.fault(format_args!("not the end of events: {:?}", String::from_utf8_lossy(&self.rest)));
        }
        reader.lacks(view, self, drained);
    }

    /// The client leaves.
    pub(crate) fn leaves(&self, view: &View<'_>, reader: &Reader) {
        self.is_silent(view);
        let now = view.world.net.now();
        view.world.net.note(view.link, "leaves events", 0);
        // Events that were sent before the reader came take their time.
        if view.line.is_steady && now > self.since + view.line.time_for(RING + view.others) + LATE {
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
        self.last.as_ref().map(|(_, id)| &**id)
    }

    /// Only who is behind by more than the ring may miss events, and is told how many.
    fn gap(&mut self, view: &View<'_>, block: &str) {
        let missed = block.split_once("\"missed\":").and_then(|(_, missed)| missed.split_once('}'));
        let missed = missed.and_then(|(missed, _)| missed.parse::<u64>().ok());
        let published = view.world.published.lock().unwrap().len() as u64;
        let is_due = self.next.is_some_and(|next| published > next + view.world.terms.ring as u64);
        match self.next.zip(missed) {
            Some((next, missed)) if is_due && missed > 0 => self.next = Some(next + missed),
            // A reader that has seen no event does not know its place.
            None if self.next.is_none() && !view.line.is_steady => {}
            _ => view.fault(format_args!("a gap before {:?} of {published}: {block:?}", self.next)),
        }
    }

    fn event(&mut self, view: &View<'_>, stream: &Stream, block: &str) {
        let field = |name| block.lines().find_map(|line| line.strip_prefix(name));
        let (id, data) = (field("id: ").unwrap_or_default(), field("data: ").unwrap_or_default());
        let number = data.split(' ').next().and_then(|number| number.parse::<u64>().ok());
        let Some(number) = number.filter(|&number| data == text(number)) else {
            return view.fault(format_args!("not an event: {block:?}"));
        };
        let (sent, id_sent) = view.world.published.lock().unwrap()[number as usize].clone();
        if id != id_sent {
            view.fault(format_args!("event {number} has the id {id}, not {id_sent}"));
        }
        let expected = self.next.unwrap_or(number);
        if number != expected {
            view.fault(format_args!("event {number} in place of {expected}"));
        }
        if self.next.is_none() && sent < stream.began + view.line.shortest {
            view.fault(format_args!("event {number} was sent before the reader came"));
        }
        (self.next, self.last) = (Some(number + 1), Some((number, id.to_owned())));
        let (now, takes) = (view.world.net.now(), view.line.time_for(stream.bytes + view.others));
        if view.line.is_steady && now > sent.max(stream.since) + takes + LATE {
            view.fault(format_args!("event {number} came {} ms after it was sent", now - sent));
        }
    }

    /// Compares what has come with what was sent before `until`.
    fn lacks(&self, view: &View<'_>, stream: &Stream, until: u64) {
        let published = view.world.published.lock().unwrap();
        let due = published.partition_point(|(sent, _)| *sent < until) as u64;
        // A reader that has seen none begins behind its request.
        let began = published.partition_point(|(sent, _)| *sent <= stream.since) as u64;
        drop(published);
        if self.next.unwrap_or(began) < due {
            view.fault(format_args!("no event {}: the next is {:?}", due - 1, self.next));
        }
    }
}

/// Returns the data of an event.
pub(crate) fn text(number: u64) -> String {
    format!("{number} {}", "x".repeat((number * 37 % 300) as usize))
}
