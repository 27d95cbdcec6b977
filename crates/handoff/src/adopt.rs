//! Adopts the connections and the events of the process before.

use std::future::pending;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream::body::ResumedBody;
use millstream::sse::{HandedEvent, HubEvents};
use tokio::net::UnixStream;
use tokio::sync::watch;

use crate::hubs::{NamedHub, OwnEvents};
use crate::link::{GOES_ON, Link, refused, unexpected};
use crate::listener::Adopted;
use crate::log;
use crate::queue::Queue;
use crate::record::Record;

/// The link to the process before, and the numbers of its records.
pub(crate) struct Adoption {
    pub(crate) link: Link,
    /// The queues of the listeners, by the numbers that the process before has given them. A listener that this process
    /// does not have has no queue.
    pub(crate) queues: Vec<Option<Arc<Queue<Adopted>>>>,
    /// The hubs, by the numbers that this process has given them.
    pub(crate) hubs: Vec<NamedHub>,
}

/// Whether the process before goes on, although this one serves.
#[derive(Debug)]
pub(crate) struct Before {
    told: watch::Receiver<Option<String>>,
    is_reported: AtomicBool,
}

impl Before {
    /// Also returns what tells it.
    pub(crate) fn new() -> (watch::Sender<Option<String>>, Self) {
        let (tell, told) = watch::channel(None);
        (tell, Self { told, is_reported: AtomicBool::new(false) })
    }

    /// Waits until the other process says that it goes on. Ready once.
    pub(crate) async fn goes_on(&self) -> io::Error {
        let told = self.told.clone().wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match told {
            Some(why) if !self.is_reported.swap(true, Ordering::Relaxed) => refused(why),
            _ => pending().await,
        }
    }
}

impl Adoption {
    /// Says that this process is ready, and receives the events of the hubs that precede those of this process. Returns
    /// the events that follow them. `None` if the other process has died since: this one has its listeners, and serves
    /// without its events.
    pub(crate) async fn begin(&self) -> io::Result<Option<OwnEvents>> {
        let names = self.hubs.iter().map(|hub| hub.name.clone()).collect();
        let (ours, theirs) = UnixStream::pair()?;
        self.link.send(&Record::Ready(names), &[theirs.as_fd()]).await?;
        match self.receive_rings().await {
            Err(e) if matches!(e.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                log::ended_early(&e);
                Ok(None)
            }
            received => Ok(Some(OwnEvents { link: Link::new(ours)?, hubs: received? })),
        }
    }

    async fn receive_rings(&self) -> io::Result<Vec<(u16, HubEvents)>> {
        let mut own = Vec::new();
        let mut rings: Vec<Vec<HandedEvent>> = self.hubs.iter().map(|_| Vec::new()).collect();
        loop {
            match self.link.answer().await? {
                (Record::Events(hub, mut events), _) => {
                    rings.get_mut(usize::from(hub)).ok_or_else(no_hub)?.append(&mut events);
                }
                (Record::Prepend(hub, before), _) => {
                    let events = rings.get_mut(usize::from(hub)).map(std::mem::take).ok_or_else(no_hub)?;
                    let NamedHub { hub: ours, .. } = self.hub(hub)?;
                    ours.prepend(&before, events)?;
                    own.extend(ours.own_events().map(|events| (hub, events)));
                }
                (Record::Serve, _) => return Ok(own),
                (Record::Refused(why), _) => return Err(refused(why)),
                (other, _) => return Err(unexpected(&other)),
            }
        }
    }

    /// Passes the connections that arrive to the queues of the listeners, and the events to the hubs. Sends the `own` ones
    /// meanwhile. Returns why, if the other process goes on.
    pub(crate) async fn run(self, own: OwnEvents) -> Option<String> {
        let mut connections = 0;
        let send = async {
            if let Err(error) = own.send().await {
                log::no_events_back(&error);
            }
            pending().await
        };
        let ended = tokio::select! {
            ended = self.receive_all(&mut connections) => ended,
            ended = send => ended,
        };
        log::adopted(connections);
        match ended {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                log::two_serve(&error);
                return Some(error.to_string());
            }
            Err(error) => log::ended_early(&error),
            Ok(()) => {}
        }
        None
    }

    fn hub(&self, number: u16) -> io::Result<&NamedHub> {
        self.hubs.get(usize::from(number)).ok_or_else(no_hub)
    }

    async fn receive_all(&self, connections: &mut usize) -> io::Result<()> {
        let link = &self.link;
        loop {
            let (listener, readers, sockets) = match link.receive().await? {
                Some((Record::Connections(listener, readers), sockets)) => (listener, readers, sockets),
                Some((Record::Events(hub, events), _)) => {
                    let hub = &self.hub(hub)?.hub;
                    for event in events {
                        match hub.import(event) {
                            // The service has closed it.
                            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => break,
                            imported => imported?,
                        }
                    }
                    continue;
                }
                Some((Record::Done, _)) => {
                    let told = link.send(&Record::Taken, &[]).await;
                    // The other process may not have waited for that.
                    return if link.ended().await { told } else { Err(refused(GOES_ON.to_owned())) };
                }
                Some((Record::Refused(why), _)) => return Err(refused(why)),
                Some((other, _)) => return Err(unexpected(&other)),
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it gave not all")),
            };
            let Some(Some(queue)) = self.queues.get(usize::from(listener)) else {
                link.send(&Record::Refused("there is no such listener".to_owned()), &[]).await?;
                continue;
            };
            // Fails if the other process has ended. The next record, or the end, says whose they are.
            let _ = link.send(&Record::Taken, &[]).await;
            let is_ours = match link.receive().await {
                Ok(Some((Record::Yours, _))) => true,
                Ok(Some((Record::Keeps, _))) => false,
                Ok(Some((Record::Refused(why), _))) => return Err(refused(why)),
                Ok(Some((other, _))) => return Err(unexpected(&other)),
                // The other process decides before it ends the connection, so it has died. No other process has these sockets.
                Ok(None) => true,
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => true,
                Err(e) => return Err(e),
            };
            if is_ours {
                *connections += sockets.len();
                for (socket, reader) in sockets.into_iter().zip(readers) {
                    match reader.map(|(hub, description)| self.resume(hub, &description)).transpose() {
                        Ok(events) => queue.push(Adopted { socket, events }),
                        // Its client reconnects.
                        Err(error) => log::reader_lost(&error),
                    }
                }
            }
        }
    }

    fn resume(&self, hub: u16, description: &[u8]) -> io::Result<ResumedBody> {
        self.hub(hub)?.hub.resume(description)
    }
}

fn no_hub() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the process before has named a hub that this one does not have")
}

#[cfg(test)]
mod tests;
