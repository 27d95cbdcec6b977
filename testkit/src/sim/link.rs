//! One simulated connection: what each side has sent, received and acknowledged. Without time: the network decides when
//! something arrives.
//!
//! It behaves as a socket of Linux (tried over loopback, kernel 6.18). After a reset by the peer, the bytes that were
//! received before it are still read. The error is reported once, by the next read or write: `ECONNRESET`, or `EPIPE` if
//! the end of the peer had arrived, which reads report as the end. After it, reads return the end, writes `EPIPE`, and
//! `shutdown` fails with `ENOTCONN`, which the streams of tokio and of this crate take for success. The bytes that were
//! not acknowledged stay counted. A socket that resets its connection itself (`connect` to no address) drops what it has
//! received.

use std::io::{self, IoSlice};
use std::ops::RangeInclusive;
use std::task::Waker;

use bytes::{Bytes, BytesMut};

use super::dice::Dice;

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// How a connection behaves. Times are in milliseconds.
#[derive(Clone, Debug)]
pub struct Profile {
    /// Time from one side to the other.
    pub latency: u64,
    /// Added to the latency, chosen for each segment.
    pub jitter: u64,
    /// Percentage of segments that are delayed by `stall`, and all that follow with them.
    pub stalls: u64,
    pub stall: RangeInclusive<u64>,
    /// Longest segment.
    pub segment: u64,
    /// Whether each segment has a length of its own.
    pub chops: bool,
    /// Whether writes accept a part of what they could.
    pub accepts_parts: bool,
    /// Bytes that are accepted and not acknowledged, at most.
    pub send_buffer: usize,
    /// Bytes that are received and not read, at most.
    pub receive_buffer: usize,
}

impl Default for Profile {
    /// A fast connection that loses no time.
    fn default() -> Self {
        Self {
            latency: 1,
            jitter: 0,
            stalls: 0,
            stall: 0..=0,
            segment: 64 << 10,
            chops: false,
            accepts_parts: false,
            send_buffer: 128 << 10,
            receive_buffer: 128 << 10,
        }
    }
}

/// An arrival at a side.
#[derive(Debug)]
pub(super) enum Arrival {
    Bytes(Bytes),
    /// The other side sends no more bytes.
    End,
    /// The other side has received this many bytes.
    Acknowledged(usize),
    Reset,
}

/// Something that a side has sent, and the time that it takes.
pub(super) struct Sent {
    pub(super) to: Side,
    pub(super) arrival: Arrival,
    pub(super) after: u64,
}

/// The consequences of a change of a link.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) sent: Vec<Sent>,
    /// Tasks to wake, not under a lock.
    pub(super) woken: Vec<Waker>,
}

impl Effects {
    fn send(&mut self, to: Side, arrival: Arrival, after: u64) {
        self.sent.push(Sent { to, arrival, after });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    No,
    /// Behind the bytes that were accepted.
    Asked,
    Sent,
    Arrived,
}

/// The bytes in one direction.
#[derive(Debug)]
struct Direction {
    unsent: BytesMut,
    /// Bytes that were sent and have not arrived.
    flying: usize,
    /// Bytes that were accepted and not acknowledged.
    unacknowledged: usize,
    received: BytesMut,
    end: End,
}

impl Direction {
    fn new() -> Self {
        Self { unsent: BytesMut::new(), flying: 0, unacknowledged: 0, received: BytesMut::new(), end: End::No }
    }
}

/// The tasks of a side.
#[derive(Debug, Default)]
struct Tasks {
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// Waits until the other side has closed.
    watcher: Option<Waker>,
}

#[derive(Debug, Default)]
struct Place {
    tasks: Tasks,
    /// The socket is closed.
    is_closed: bool,
    is_reset: bool,
    /// The error of a reset that no call has reported.
    error: Option<io::ErrorKind>,
    /// When bytes have arrived, and how many until then.
    heard: Vec<(u64, usize)>,
    /// When the end of the other side, or its reset, has arrived.
    ended_at: Option<u64>,
}

/// The operations that are possible for a side now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Now<T> {
    Done(T),
    Waits,
    Fails(io::ErrorKind),
}

#[derive(Debug)]
pub(super) struct Link {
    profile: Profile,
    dice: Dice,
    /// Bytes from the client, and from the server.
    directions: [Direction; 2],
    places: [Place; 2],
    /// Whether nothing arrives any more.
    pub(super) is_cut: bool,
}

impl Link {
    pub(super) fn new(profile: Profile, dice: Dice) -> Self {
        let directions = [Direction::new(), Direction::new()];
        Self { profile, dice, directions, places: Default::default(), is_cut: false }
    }

    /// Returns whether both sides have closed, so that nothing can happen.
    pub(super) fn is_over(&self) -> bool {
        self.places.iter().all(|place| place.is_closed)
    }

    pub(super) fn is_reset(&self, side: Side) -> bool {
        self.places[side as usize].is_reset
    }

    pub(super) fn heard_at(&self, side: Side) -> u64 {
        self.places[side as usize].heard.last().map_or(0, |&(at, _)| at)
    }

    /// Returns the bytes that have arrived at a side since a time.
    pub(super) fn heard_since(&self, side: Side, since: u64) -> usize {
        let heard = &self.places[side as usize].heard;
        let until = |count: usize| count.checked_sub(1).map_or(0, |last| heard[last].1);
        until(heard.len()) - until(heard.partition_point(|&(at, _)| at < since))
    }

    pub(super) fn ended_at(&self, side: Side) -> Option<u64> {
        self.places[side as usize].ended_at
    }

    pub(super) fn unacknowledged(&self, side: Side) -> usize {
        self.directions[side as usize].unacknowledged
    }

    pub(super) fn unread(&self, side: Side) -> usize {
        self.directions[side.other() as usize].received.len()
    }

    /// Returns whether the socket of a side is open.
    pub(super) fn is_open(&self, side: Side) -> bool {
        !self.places[side as usize].is_closed
    }

    /// Returns whether the other side has ended its bytes, and the end has arrived.
    pub(super) fn has_ended(&self, side: Side) -> bool {
        self.directions[side.other() as usize].end == End::Arrived
    }

    /// Returns whether the connection is over: reset, or ended by both sides (`POLLHUP`). Received bytes may wait.
    pub(super) fn has_hung_up(&self, side: Side) -> bool {
        self.is_reset(side) || (self.has_ended(side) && self.directions[side as usize].end != End::No)
    }

    pub(super) fn wait_to_read(&mut self, side: Side, waker: &Waker) {
        self.places[side as usize].tasks.reader = Some(waker.clone());
    }

    pub(super) fn wait_to_write(&mut self, side: Side, waker: &Waker) {
        self.places[side as usize].tasks.writer = Some(waker.clone());
    }

    pub(super) fn wait_for_end(&mut self, side: Side, waker: &Waker) {
        self.places[side as usize].tasks.watcher = Some(waker.clone());
    }

    /// Accepts bytes of `bufs`. Returns their number; `None` if the side was shut down.
    pub(super) fn write(&mut self, side: Side, bufs: &[IoSlice<'_>], effects: &mut Effects) -> Now<Option<usize>> {
        let profile = &self.profile;
        let direction = &mut self.directions[side as usize];
        let place = &mut self.places[side as usize];
        if place.is_reset {
            return Now::Fails(place.error.take().unwrap_or(io::ErrorKind::BrokenPipe));
        }
        if direction.end != End::No {
            return Now::Done(None);
        }
        let offered: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut n = offered.min(profile.send_buffer.saturating_sub(direction.unacknowledged));
        if n == 0 && offered > 0 {
            return Now::Waits;
        }
        if profile.accepts_parts && n > 1 {
            n = self.dice.in_range(1..=n as u64) as usize;
        }
        let mut left = n;
        for buf in bufs {
            direction.unsent.extend_from_slice(&buf[..left.min(buf.len())]);
            left -= left.min(buf.len());
        }
        direction.unacknowledged += n;
        self.send(side, effects);
        Now::Done(Some(n))
    }

    /// Returns received bytes, at most `most`; none at the end.
    pub(super) fn read(&mut self, side: Side, most: usize, effects: &mut Effects) -> Now<Bytes> {
        let direction = &mut self.directions[side.other() as usize];
        if !direction.received.is_empty() {
            let n = most.min(direction.received.len());
            let bytes = direction.received.split_to(n).freeze();
            self.send(side.other(), effects);
            return Now::Done(bytes);
        }
        let place = &mut self.places[side as usize];
        match (direction.end, place.error.take_if(|_| direction.end != End::Arrived)) {
            (_, Some(error)) => Now::Fails(error),
            (End::Arrived, None) => Now::Done(Bytes::new()),
            (_, None) if place.is_reset => Now::Done(Bytes::new()),
            (_, None) => Now::Waits,
        }
    }

    /// Ends the bytes of a side, behind the accepted ones.
    pub(super) fn shut_down(&mut self, side: Side, effects: &mut Effects) {
        let direction = &mut self.directions[side as usize];
        if direction.end == End::No {
            direction.end = End::Asked;
            self.send(side, effects);
        }
    }

    /// Closes the socket of a side. Unread bytes reset the connection ([RFC 2525, section
    /// 2.17](https://www.rfc-editor.org/rfc/rfc2525#section-2.17)); others are sent.
    pub(super) fn close(&mut self, side: Side, effects: &mut Effects) {
        self.places[side as usize].is_closed = true;
        self.wake(side, effects);
        if self.places[side as usize].is_reset {
            return;
        }
        match self.directions[side.other() as usize].received.is_empty() {
            true => self.shut_down(side, effects),
            false => self.reset(side, effects),
        }
    }

    /// Ends the connection at once. Accepted bytes that were not sent are lost.
    pub(super) fn reset(&mut self, side: Side, effects: &mut Effects) {
        if !self.places[side as usize].is_reset {
            self.fail(side, effects);
            self.directions[side.other() as usize].received.clear();
            self.directions[side as usize].unacknowledged = 0;
            effects.send(side.other(), Arrival::Reset, self.profile.latency);
        }
    }

    /// Sends what the window of the other side allows.
    fn send(&mut self, side: Side, effects: &mut Effects) {
        let Self { profile, dice, directions, .. } = self;
        let direction = &mut directions[side as usize];
        let delay = |dice: &mut Dice| {
            let stall = if dice.chance(profile.stalls) { dice.in_range(profile.stall.clone()) } else { 0 };
            profile.latency + dice.in_range(0..=profile.jitter) + stall
        };
        while !direction.unsent.is_empty() {
            let room = profile.receive_buffer.saturating_sub(direction.received.len() + direction.flying);
            let segment = if profile.chops { dice.in_range(1..=profile.segment) } else { profile.segment } as usize;
            let n = direction.unsent.len().min(room).min(segment);
            if n == 0 {
                return;
            }
            direction.flying += n;
            let bytes = direction.unsent.split_to(n).freeze();
            effects.send(side.other(), Arrival::Bytes(bytes), delay(dice));
        }
        if direction.end == End::Asked {
            direction.end = End::Sent;
            effects.send(side.other(), Arrival::End, delay(dice));
        }
    }

    /// Takes what arrives at a side.
    pub(super) fn arrive(&mut self, now: u64, side: Side, arrival: Arrival, effects: &mut Effects) {
        let latency = self.profile.latency;
        let other = side.other();
        let place = &mut self.places[side as usize];
        let is_gone = place.is_closed || place.is_reset;
        if matches!(arrival, Arrival::End | Arrival::Reset) {
            place.ended_at.get_or_insert(now);
        }
        match arrival {
            Arrival::Bytes(bytes) => {
                let direction = &mut self.directions[other as usize];
                direction.flying = direction.flying.saturating_sub(bytes.len());
                if is_gone {
                    // Nothing is there that could read it.
                    return effects.send(other, Arrival::Reset, latency);
                }
                effects.send(other, Arrival::Acknowledged(bytes.len()), latency);
                direction.received.extend_from_slice(&bytes);
                let heard = place.heard.last().map_or(0, |&(_, bytes)| bytes);
                place.heard.push((now, heard + bytes.len()));
                effects.woken.extend(place.tasks.reader.take().into_iter().chain(place.tasks.watcher.take()));
            }
            Arrival::End => {
                self.directions[other as usize].end = End::Arrived;
                effects.woken.extend(place.tasks.reader.take().into_iter().chain(place.tasks.watcher.take()));
            }
            Arrival::Acknowledged(bytes) => {
                let direction = &mut self.directions[side as usize];
                direction.unacknowledged = direction.unacknowledged.saturating_sub(bytes);
                effects.woken.extend(place.tasks.writer.take());
            }
            Arrival::Reset => self.fail(side, effects),
        }
    }

    /// Marks a side as reset.
    fn fail(&mut self, side: Side, effects: &mut Effects) {
        let had_ended = self.has_ended(side);
        let place = &mut self.places[side as usize];
        if !place.is_reset {
            let error = if had_ended { io::ErrorKind::BrokenPipe } else { io::ErrorKind::ConnectionReset };
            (place.is_reset, place.error) = (true, Some(error));
        }
        self.wake(side, effects);
        let out = &mut self.directions[side as usize];
        out.end = End::Sent;
        out.unsent.clear();
    }

    fn wake(&mut self, side: Side, effects: &mut Effects) {
        let Tasks { reader, writer, watcher } = std::mem::take(&mut self.places[side as usize].tasks);
        effects.woken.extend([reader, writer, watcher].into_iter().flatten());
    }
}
