//! A hub of another process takes the place of this one: with its events, and with its readers.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;

use super::hub::Hub;
use crate::body::event_body::EventBody;
use crate::body::moved::MovedFraming;
use crate::body::{MovedBody, ResumedBody};
use crate::sse::body::{Coding, Place};
use crate::sse::event::Gzip;
use crate::sse::ring::HubShared;

/// Version of the description of a reader.
const VERSION: u8 = 1;
/// Length of a description without the id.
const FIXED: usize = 1 + 1 + 4 + 4 + 8;
const CHUNKED: u8 = 1;
const KEEPS_ALIVE: u8 = 2;
const GZIP: u8 = 4;

/// An event on its way to the hub of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the process that receives an event makes it anew")]
pub struct HandedEvent {
    /// The id that readers see.
    pub id: String,
    /// The event as readers get it over HTTP/1, with its id.
    pub bytes: Bytes,
    /// The time since it was sent.
    pub age: Duration,
}

/// A hub while the hub of another process takes its place, from [`Hub::hand_over`]: the events of its
/// [ring](Self::ring_event), for [`Hub::prepend`]. While it exists, events that are [sent](Hub::send) come from
/// [`next_event`](Self::next_event), for [`Hub::import`]: the other process delivers them first.
/// [`deliver`](Self::deliver) brings them back, and with them those that were sent there, to the readers that have not
/// left yet. So all readers of both processes get all events in one order.
///
/// If it is dropped without [`finish`](Self::finish), the hub goes on, and delivers the events that were sent meanwhile and
/// did not come back.
pub struct HubHandover {
    events: HubEvents,
    before: String,
    /// The number of the first event behind the ring.
    end: u64,
    is_finished: bool,
}

/// The events of a hub one after another, for the hub of another process. From [`Hub::own_events`].
pub struct HubEvents {
    shared: Arc<HubShared>,
    next: u64,
}

impl Hub {
    /// Begins to give the events and the readers of this hub to the hub of another process. `None` if that has begun
    /// already.
    ///
    /// Readers leave with their connections when the server drains, see
    /// [`Server::move_connections`](crate::server::Server::move_connections). A hub with a [log](crate::sse::HubBuilder::log) gives
    /// only readers: the other one reads the same log.
    pub fn hand_over(&self) -> Option<HubHandover> {
        let shared = Arc::clone(self.shared());
        shared.leave_to_successor().then(|| {
            let (next, before) = shared.oldest();
            let end = shared.head();
            HubHandover { events: HubEvents::new(shared, next), before, end, is_finished: false }
        })
    }

    /// Returns the events of this hub from the first one that did not [precede](Self::prepend) its own, for the readers that
    /// are still at the other process. Needs [`expect_predecessor`](Self::expect_predecessor). `None` if the hub has a log,
    /// which the other process reads itself.
    pub fn own_events(&self) -> Option<HubEvents> {
        let shared = Arc::clone(self.shared());
        (!self.has_log()).then(|| HubEvents::new(Arc::clone(&shared), shared.first_own()))
    }

    /// Prepares this hub for the events of a hub of another process, which [precede](Self::prepend) its own. Call it
    /// before the hub is used. Its own events have numbers from 2³² on.
    ///
    /// Returns `false`, and changes nothing, if the hub has had events or has readers.
    pub fn expect_predecessor(&self) -> bool {
        self.has_log() || self.shared().expect_predecessor()
    }

    /// Takes the events of the [ring](HubHandover::ring_event) of the hub of another process, the oldest first: they
    /// precede those of this one, and readers may
    /// resume at any of them. `before` is [`HubHandover::before`]. Needs [`expect_predecessor`](Self::expect_predecessor).
    /// If the ring of this hub no longer has the first of its own events, they are left out, and these readers get a
    /// [gap](Self#gaps).
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidData` if an id is not valid, or the hub has a log or no room before its own events. The hub is
    /// unchanged then.
    pub fn prepend(&self, before: &str, events: Vec<HandedEvent>) -> io::Result<()> {
        self.check_no_log()?;
        self.shared().prepend(before, events.into_iter().map(|event| (event.id, event.bytes, event.age)).collect())
    }

    /// Delivers an event that the hub of another process has accepted.
    ///
    /// # Errors
    ///
    /// As [`prepend`](Self::prepend). `ErrorKind::BrokenPipe` if the hub is closed.
    pub fn import(&self, event: HandedEvent) -> io::Result<()> {
        self.check_no_log()?;
        self.shared().import(&event.id, event.bytes)
    }

    /// Describes a reader of this hub, which has left with its connection, for [`resume`](Self::resume) in another process.
    /// `None` if it is a reader of another hub.
    pub fn describe(&self, moved: &MovedBody) -> Option<Vec<u8>> {
        let place = moved.reader.downcast_ref::<Place>()?;
        Weak::ptr_eq(&place.hub, &Arc::downgrade(self.shared())).then(|| describe(place, moved.framing))
    }

    fn check_no_log(&self) -> io::Result<()> {
        if self.has_log() { Err(invalid("a hub with a log takes events only from the log")) } else { Ok(()) }
    }

    /// Returns the body of a reader that leaves another process, from its [description](Self::describe). It
    /// continues behind the last event that the reader has got, and begins with a comment if the hub
    /// [keeps connections alive](crate::sse::HubBuilder::keep_alive).
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidData` if the description is of a version that this crate does not know, or the reader needs
    /// compression that this hub does not have; as [`SubscribeError`](crate::sse::SubscribeError) if the hub is full or closed.
    /// The reader has to reconnect.
    pub fn resume(&self, description: &[u8]) -> io::Result<ResumedBody> {
        let (place, framing) =
            parse(description).ok_or_else(|| invalid("the description of the reader is not known"))?;
        let deflater = self.shared().deflater.as_ref();
        if place.sums.is_some() && deflater.is_none() {
            return Err(invalid("the reader gets compressed events, which the hub does not have"));
        }
        let gzip = place.sums.zip(deflater).map(|(sums, deflater)| Gzip::resumed(deflater, sums));
        let seat = self.seat(Some(&place.last), gzip.map_or(Coding::Plain, Coding::Gzip))?;
        Ok(ResumedBody { body: EventBody::new(seat.resumed(place.age)), framing })
    }
}

impl HubEvents {
    fn new(shared: Arc<HubShared>, next: u64) -> Self {
        shared.follow(true);
        Self { shared, next }
    }

    /// Returns the next event; `None` if there is none now.
    ///
    /// # Errors
    ///
    /// `ErrorKind::NotFound` if the ring no longer has it.
    pub fn next_event(&mut self) -> io::Result<Option<HandedEvent>> {
        let next = self.shared.event_from(self.next).filter(|_| !self.shared.has_log);
        let Some((number, id, bytes, age)) = next else { return Ok(None) };
        if number > self.next {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the ring of the hub no longer has the next event"));
        }
        self.next += 1;
        Ok(Some(HandedEvent { id: id.to_string(), bytes, age }))
    }

    /// Waits until there is a next event.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn changed(&self) {
        match self.shared.has_log {
            true => std::future::pending().await,
            false => self.shared.has_event(self.next).await,
        }
    }
}

impl Drop for HubEvents {
    fn drop(&mut self) {
        self.shared.follow(false);
    }
}

impl HubHandover {
    /// Returns the id of the event before the first one, for [`Hub::prepend`].
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Returns the next event of the ring, the oldest first; `None` behind the last one.
    ///
    /// # Errors
    ///
    /// As [`HubEvents::next_event`], if events [came back](Self::deliver) before those of the ring were taken.
    pub fn ring_event(&mut self) -> io::Result<Option<HandedEvent>> {
        if self.events.next < self.end { self.events.next_event() } else { Ok(None) }
    }

    /// Returns the next event that was sent since, behind those of the ring; `None` if there is none now.
    ///
    /// # Errors
    ///
    /// As [`ring_event`](Self::ring_event).
    pub fn next_event(&mut self) -> io::Result<Option<HandedEvent>> {
        self.events.next_event()
    }

    /// Waits until there is a next event.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn changed(&self) {
        self.events.changed().await;
    }

    /// Delivers an event of the other hub, which has the place of this one: one of its [own](Hub::own_events), or one of
    /// this hub that comes back. Readers that leave later continue behind it.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidData` if the id is not valid.
    pub fn deliver(&self, event: HandedEvent) -> io::Result<()> {
        self.events.shared.deliver_back(&event.id, event.bytes)
    }

    /// Lets [`Hub::send`] fail from now on, so that no event follows those of [`next_event`](Self::next_event).
    pub fn seal(&self) {
        self.events.shared.seal();
    }

    /// Ends the hub: the other process has everything.
    pub fn finish(mut self) {
        self.is_finished = true;
        self.events.shared.close();
    }
}

impl Drop for HubHandover {
    fn drop(&mut self) {
        if !self.is_finished {
            self.events.shared.stay();
        }
    }
}

impl fmt::Debug for HubEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubEvents").field("next", &self.next).finish_non_exhaustive()
    }
}

impl fmt::Debug for HubHandover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubHandover")
            .field("before", &self.before)
            .field("events", &self.events)
            .finish_non_exhaustive()
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Version · flags · checksum and length of a compressed stream · milliseconds to the end by age · last id.
fn describe(place: &Place, framing: MovedFraming) -> Vec<u8> {
    let (crc, len) = place.sums.unwrap_or_default();
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let flags =
        flag(framing.is_chunked, CHUNKED) | flag(framing.keeps_alive, KEEPS_ALIVE) | flag(place.sums.is_some(), GZIP);
    let age = place.age.map_or(u64::MAX, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    [&[VERSION, flags][..], &crc.to_le_bytes(), &len.to_le_bytes(), &age.to_le_bytes(), place.last.as_bytes()].concat()
}

fn parse(description: &[u8]) -> Option<(Place, MovedFraming)> {
    let (fixed, last) = description.split_first_chunk::<FIXED>()?;
    let [VERSION, flags, c0, c1, c2, c3, l0, l1, l2, l3, age @ ..] = *fixed else { return None };
    if flags & !(CHUNKED | KEEPS_ALIVE | GZIP) != 0 {
        return None;
    }
    let sums = (u32::from_le_bytes([c0, c1, c2, c3]), u32::from_le_bytes([l0, l1, l2, l3]));
    let age = u64::from_le_bytes(age);
    let place = Place {
        hub: Weak::new(),
        last: str::from_utf8(last).ok()?.to_owned(),
        sums: (flags & GZIP != 0).then_some(sums),
        age: (age != u64::MAX).then(|| Duration::from_millis(age)),
    };
    let framing = MovedFraming { is_chunked: flags & CHUNKED != 0, keeps_alive: flags & KEEPS_ALIVE != 0 };
    Some((place, framing))
}

#[cfg(test)]
mod tests;
