//! A stream: its writers, its visible end, and the bytes that are not yet in its file.
//!
//! An append is decided and added to the journal under the lock of its stream. It becomes visible when it is on the
//! disk. Until a checkpoint or a flush its bytes are kept in `tail`, so memory is bounded by the journal.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use bytes::{Buf, Bytes, BytesMut};
use millstream::sse::log::Sink;

use super::append::{Append, Done, decide};
use super::journal::{Change, Journal, Room, lock};
use super::record::{BLOCK, Expiry, Meta, Producer, Record, Saved, sum};
use crate::live::Live;
use crate::refusal::Refusal;

/// A longer tail is written into the file before the next checkpoint.
const TAIL_MAX: usize = 256 << 10;
/// Bytes that are written into a file at a time.
const WRITE_MAX: usize = 1 << 20;
/// Bytes that are copied from memory at a time.
const COPY_MAX: usize = 256 << 10;

/// How the bytes of a stream are framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Text,
    Binary,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) meta: Meta,
    pub(crate) kind: Kind,
    /// The source of a fork.
    pub(crate) parent: Option<Arc<Self>>,
    state: Mutex<State>,
    created: Instant,
    /// Milliseconds from then to the last use. The wall clock may be set.
    used: AtomicU64,
    /// Number of the record that created it.
    born: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// With everything that is in the queue of the journal.
    pub(crate) queued: Saved,
    /// End and closure for readers.
    shown: u64,
    sealed: bool,
    purged: bool,
    /// The visible bytes that are not in the file, and the number of a record that is not behind their first one.
    tail: BytesMut,
    first: u64,
    pub(super) live: Option<Live>,
}

/// The state that readers see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    pub(crate) end: u64,
    pub(crate) closed: bool,
    pub(crate) gone: bool,
}

/// Where bytes are.
#[derive(Debug)]
pub(crate) enum Place {
    Memory(Bytes),
    File(Part),
}

/// A range of a block of the file of a stream.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) id: u64,
    pub(crate) range: Range<u64>,
    /// The block, as far as its checksum goes.
    pub(crate) block: Range<u64>,
    pub(crate) sum: u32,
}

pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

impl Stream {
    pub(crate) fn new(meta: Meta, parent: Option<Arc<Self>>) -> Self {
        let kind = match &*meta.content_type {
            "application/json" => Kind::Json,
            text if text.starts_with("text/") => Kind::Text,
            _ => Kind::Binary,
        };
        let base = meta.origin.map_or(0, |(_, at)| at);
        let queued = Saved { len: base, written: base, ..Saved::default() };
        let state = State { queued, shown: base, ..State::default() };
        let (created, used, born) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
        Self { meta, kind, parent, state: Mutex::new(state), created, used, born }
    }

    /// Returns the position of the first byte of its own.
    pub(crate) fn base(&self) -> u64 {
        self.meta.origin.map_or(0, |(_, at)| at)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(crate) fn set_born(&self, number: u64) {
        self.born.store(number, Ordering::Relaxed);
    }

    pub(crate) fn born(&self) -> u64 {
        self.born.load(Ordering::Relaxed)
    }

    pub(crate) fn view(&self) -> View {
        let state = self.state();
        View { end: state.shown, closed: state.sealed, gone: state.purged || state.queued.deleted }
    }

    /// Begins the time again after which an idle stream ends.
    pub(crate) fn touch(&self) {
        self.used.store(self.age(Instant::now()), Ordering::Relaxed);
    }

    fn age(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.created).as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) fn is_expired(&self, instant: Instant) -> bool {
        match self.meta.expiry {
            Expiry::Never => false,
            Expiry::Idle(seconds) => {
                let idle = self.age(instant).saturating_sub(self.used.load(Ordering::Relaxed));
                let is_over = idle >= seconds.saturating_mul(1000);
                if is_over && self.is_read() {
                    self.touch();
                    return false;
                }
                is_over
            }
            Expiry::At(at) => now() >= at,
        }
    }

    /// Decides about an append and adds it to the journal. Returns the number of the record after which the outcome
    /// may be told: also a refusal may depend on one that is not yet on the disk.
    pub(crate) fn append(
        self: &Arc<Self>,
        journal: &Journal,
        append: &Append<'_>,
        room: Option<Room>,
    ) -> (Result<Done, Refusal>, u64) {
        let mut state = self.state();
        let room = match (decide(&state.queued, &self.meta, append).transpose(), room) {
            (Some(outcome), _) => return (outcome, state.queued.last),
            (None, None) => return (Err(Refusal::disk_full()), 0),
            (None, Some(room)) => room,
        };
        let Append { data, close, seq, producer, .. } = *append;
        let record = Record::Append { id: self.meta.id, at: state.queued.len, close, seq, producer };
        let change = |data| Change::Data { stream: Arc::clone(self), data, close, _room: room };
        let number = journal.push(&record, data, change);
        self.apply(&mut state.queued, append, number);
        let seq = producer.map(|producer| producer.seq);
        (Ok(Done { end: state.queued.len, closed: close, seq, duplicate: false }), number)
    }

    /// Makes bytes visible that are on the disk. Returns whether the tail has just become long.
    pub(crate) fn publish(&self, data: &[u8], close: bool, number: u64) -> bool {
        let mut state = self.state();
        let before = state.tail.len();
        if before == 0 {
            state.first = number;
        }
        state.shown += data.len() as u64;
        state.sealed |= close;
        state.tail.extend_from_slice(data);
        if let Some(live) = &state.live {
            live.deliver(self.kind, state.shown, data, close);
        }
        if close {
            state.live = None;
        }
        before < TAIL_MAX && before + data.len() >= TAIL_MAX
    }

    /// Forgets the contents, and wakes readers.
    pub(crate) fn purge(&self) {
        let mut state = self.state();
        state.purged = true;
        state.tail = BytesMut::new();
        state.live = None;
    }

    /// Passes the hub of the readers to `follow`, unless no more appends will be visible.
    pub(crate) fn live<T>(&self, follow: impl FnOnce(&mut Option<Live>) -> T) -> Option<T> {
        let mut state = self.state();
        let is_over = state.sealed || state.purged || state.queued.deleted;
        (!is_over).then(|| follow(&mut state.live))
    }

    /// Begins to give appends to the hub.
    pub(crate) fn begin_live(&self, sink: &Sink) {
        let mut state = self.state();
        let State { live, shown, .. } = &mut *state;
        if let Some(live) = live {
            sink.start(Some(&shown.to_string()));
            live.sink = Some(sink.clone());
        }
    }

    /// Ends the hub and its readers.
    pub(crate) fn end_live(&self) {
        self.state().live = None;
    }

    /// Drops a hub without readers. With readers the stream is in use.
    pub(crate) fn sweep(&self) {
        let mut state = self.state();
        state.live.take_if(|live| !live.is_read());
        if state.live.is_some() {
            self.touch();
        }
    }

    /// A stream that is read is in use, also without appends.
    fn is_read(&self) -> bool {
        self.state().live.as_ref().is_some_and(Live::is_read)
    }

    /// Replays an append. Returns `None` if it does not continue the stream.
    pub(crate) fn replay(&self, at: u64, append: &Append<'_>, number: u64) -> Option<()> {
        let mut state = self.state();
        if number > state.queued.last {
            if at != state.queued.len || state.queued.closed {
                return None;
            }
            self.apply(&mut state.queued, append, number);
        }
        // The bytes before the end are in the file. A stream that was deleted while the snapshot was made may have lost bytes.
        let (shown, closed, deleted) = (state.shown, state.queued.closed, state.queued.deleted);
        drop(state);
        if at == shown {
            self.publish(append.data, closed, number);
        }
        (at <= shown || deleted).then_some(())
    }

    /// Returns the number of a record, before which none has bytes that are not in the file.
    pub(crate) fn first(&self) -> u64 {
        let state = self.state();
        if state.tail.is_empty() { u64::MAX } else { state.first }
    }

    /// Returns bytes that the file does not have, without the first `skip` of them, and their place in it.
    pub(crate) fn unwritten(&self, skip: usize) -> Option<(u64, Bytes)> {
        let state = self.state();
        let rest = state.tail.get(skip..).filter(|rest| !rest.is_empty())?;
        let bytes = Bytes::copy_from_slice(&rest[..rest.len().min(WRITE_MAX)]);
        Some((state.queued.written - self.base() + skip as u64, bytes))
    }

    /// Takes the first bytes of the tail for written. They end where an append ends, and have the records before `next`.
    pub(crate) fn wrote(&self, len: usize, next: u64) {
        let State { queued, purged: false, tail, first, .. } = &mut *self.state() else { return };
        sum(&mut queued.sums, queued.written - self.base(), &tail[..len]);
        queued.written += len as u64;
        *first = next;
        tail.advance(len);
        if tail.is_empty() {
            *tail = BytesMut::new();
        }
    }

    /// Finds bytes between two positions, or the first of them. Bytes in memory are copied, a few at a time. A fork has the
    /// bytes before its base from its source.
    pub(crate) fn find(&self, at: u64, mut end: u64) -> Place {
        let mut stream = self;
        while let (Some(parent), true) = (&stream.parent, at < stream.base()) {
            end = end.min(stream.base());
            stream = parent;
        }
        let State { queued: Saved { written, sums, .. }, tail, .. } = &*stream.state();
        if at < *written {
            let (start, len) = (at - stream.base(), written - stream.base());
            let begin = start / BLOCK * BLOCK;
            let block = begin..len.min(begin + BLOCK);
            let range = start..block.end.min(end - stream.base());
            return Place::File(Part { id: stream.meta.id, range, block, sum: sums[(begin / BLOCK) as usize] });
        }
        let place = |at: u64| usize::try_from(at - written).unwrap_or(usize::MAX).min(tail.len());
        let (from, until) = (place(at), place(end));
        Place::Memory(Bytes::copy_from_slice(&tail[from..until.min(from + COPY_MAX)]))
    }

    /// Takes the state from a snapshot. Its last bytes may be in the journal.
    pub(crate) fn restore(&self, queued: Saved) {
        *self.state() = State { shown: queued.written, sealed: queued.closed, queued, ..State::default() };
    }

    /// Returns the length that the file must have.
    pub(crate) fn file_len(&self) -> u64 {
        self.state().queued.written - self.base()
    }

    /// Returns whether its bytes were found.
    pub(crate) fn is_whole(&self) -> bool {
        let state = self.state();
        state.shown == state.queued.len
    }

    pub(crate) fn apply(&self, queued: &mut Saved, append: &Append<'_>, number: u64) {
        queued.len += append.data.len() as u64;
        queued.last = number;
        if let Some(seq) = append.seq {
            queued.seq = Some(seq.into());
        }
        if let Some(Producer { id, epoch, seq }) = append.producer {
            match queued.producers.get_mut(id) {
                Some(known) => *known = (epoch, seq),
                None => drop(queued.producers.insert(id.into(), (epoch, seq))),
            }
        }
        if append.close {
            queued.closed = true;
            queued.closer = append.producer.map(|Producer { id, epoch, seq }| (id.into(), epoch, seq));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn idle_time_is_not_read_from_the_wall_clock() {
        let meta = |expiry| Meta { id: 0, path: "/".into(), content_type: "".into(), expiry, origin: None };
        let stream = Stream::new(meta(Expiry::Idle(60)), None);
        let after = |seconds| stream.created + Duration::from_secs(seconds);
        assert!(!stream.is_expired(after(59)) && stream.is_expired(after(60)));
        stream.used.store(30_000, Ordering::Relaxed);
        assert!(!stream.is_expired(after(89)) && stream.is_expired(after(90)));
        assert!(!Stream::new(meta(Expiry::Idle(u64::MAX)), None).is_expired(after(1 << 30)));
        assert!(Stream::new(meta(Expiry::At(now())), None).is_expired(Instant::now()));
    }
}
