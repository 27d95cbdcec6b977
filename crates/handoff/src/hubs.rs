//! The hubs of a process, and what the next process gets of them.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use millstream::body::{MovedBody, ResumedBody};
use millstream::sse::{HandedEvent, Hub, HubEvents, HubHandover};

use crate::link::Link;
use crate::record::Record;

/// Bytes of events in one record, unless one event is longer.
const EVENTS: usize = 256 << 10;

/// A hub with its name.
#[derive(Clone, Debug)]
pub(crate) struct NamedHub {
    pub(crate) name: String,
    pub(crate) hub: Hub,
}

/// A reader of a hub of this process.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The place of the hub in the list of this process.
    pub(crate) hub: usize,
    pub(crate) description: Vec<u8>,
}

impl Reader {
    /// Returns the reader that has left with its connection. `None` if its hub is not in the list.
    pub(crate) fn of(hubs: &[NamedHub], moved: &MovedBody) -> Option<Self> {
        let described =
            |(hub, named): (usize, &NamedHub)| named.hub.describe(moved).map(|description| Self { hub, description });
        hubs.iter().enumerate().find_map(described)
    }

    /// Returns the reader to its hub.
    pub(crate) fn resume(&self, hubs: &[NamedHub]) -> io::Result<ResumedBody> {
        hubs[self.hub].hub.resume(&self.description)
    }
}

/// The hubs whose place the next process takes. If they are dropped, they go on.
#[derive(Debug, Default)]
pub(crate) struct LeavingHubs(Vec<LeavingHub>);

#[derive(Debug)]
struct LeavingHub {
    /// Its place in the list of this process, and in that of the next one.
    own: usize,
    theirs: u16,
    has_ring: bool,
    handover: HubHandover,
}

impl LeavingHubs {
    /// Begins to give the hubs that the next process has as well. `names` are its hubs.
    pub(crate) fn begin(hubs: &[NamedHub], names: &[String]) -> Self {
        let leaving = |(own, NamedHub { name, hub }): (usize, &NamedHub)| {
            let theirs = u16::try_from(names.iter().position(|theirs| theirs == name)?).ok()?;
            Some(LeavingHub { own, theirs, has_ring: !hub.has_log(), handover: hub.hand_over()? })
        };
        Self(hubs.iter().enumerate().filter_map(leaving).collect())
    }

    /// Sends the events that the hubs have, the oldest first. They precede those of the next process.
    pub(crate) async fn send_rings(&mut self, link: &Link) -> io::Result<()> {
        for hub in self.0.iter_mut().filter(|hub| hub.has_ring) {
            send_events(link, hub.theirs, || hub.handover.ring_event()).await?;
            link.send(&Record::Prepend(hub.theirs, hub.handover.before().to_owned()), &[]).await?;
        }
        link.send(&Record::Serve, &[]).await
    }

    /// Sends the events that the hubs have accepted since.
    pub(crate) async fn send_events(&mut self, link: &Link) -> io::Result<()> {
        for hub in &mut self.0 {
            send_events(link, hub.theirs, || hub.handover.next_event()).await?;
        }
        Ok(())
    }

    /// Waits until a hub has accepted an event. Dropping the future loses none.
    pub(crate) async fn changed(&self) {
        any(self.0.iter().map(|hub| hub.handover.changed())).await;
    }

    /// Delivers events of the next process.
    pub(crate) fn deliver(&self, theirs: u16, events: Vec<HandedEvent>) -> io::Result<()> {
        let hub = self.0.iter().find(|hub| hub.theirs == theirs && hub.has_ring);
        let hub =
            hub.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "events of a hub without a place here"))?;
        events.into_iter().try_for_each(|event| hub.handover.deliver(event))
    }

    /// Returns the number of a hub of this process in the next one.
    pub(crate) fn theirs(&self, own: usize) -> Option<u16> {
        self.0.iter().find(|hub| hub.own == own).map(|hub| hub.theirs)
    }

    /// Lets sends fail from now on.
    pub(crate) fn seal(&self) {
        self.0.iter().for_each(|hub| hub.handover.seal());
    }

    /// Ends the hubs: the next process has everything.
    pub(crate) fn finish(self) {
        self.0.into_iter().for_each(|hub| hub.handover.finish());
    }
}

/// The events of hubs of this process, for the readers that are still at the process before.
#[derive(Debug)]
pub(crate) struct OwnEvents {
    pub(crate) link: Link,
    pub(crate) hubs: Vec<(u16, HubEvents)>,
}

impl OwnEvents {
    /// Sends the events until the process before does not take them.
    pub(crate) async fn send(mut self) -> io::Result<()> {
        loop {
            for (number, events) in &mut self.hubs {
                send_events(&self.link, *number, || events.next_event()).await?;
            }
            any(self.hubs.iter().map(|(_, events)| events.changed())).await;
        }
    }
}

async fn send_events(
    link: &Link,
    hub: u16,
    mut next: impl FnMut() -> io::Result<Option<HandedEvent>>,
) -> io::Result<()> {
    loop {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < EVENTS
            && let Some(event) = next()?
        {
            bytes += event.bytes.len();
            events.push(event);
        }
        if events.is_empty() {
            return Ok(());
        }
        link.send(&Record::Events(hub, events), &[]).await?;
    }
}

/// Waits for one of these, if there are any.
async fn any(waits: impl Iterator<Item = impl Future<Output = ()>>) {
    let mut waits: Vec<_> = waits.map(Box::pin).collect();
    let any = poll_fn(|cx| match waits.iter_mut().any(|wait| wait.as_mut().poll(cx).is_ready()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    any.await;
}
