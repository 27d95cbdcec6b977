//! A process that serves: waits for the next one, and gives it what it has.

use std::fmt;
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream::body::MovedBody;
use millstream::sse::HandedEvent;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch::Receiver;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::adopt::Before;
use crate::calm::Calm;
use crate::hubs::{LeavingHubs, NamedHub, Reader};
use crate::link::{GOES_ON, Link, Refusal, unexpected};
use crate::listener::{Adopted, Given};
use crate::log;
use crate::manager::announce;
use crate::queue::Queue;
use crate::record::{Record, VERSION};
use crate::rights::RIGHTS_MAX;

/// Pause after the control socket could not accept, for instance for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(50);
/// Time that a next process waits for the one before, which is less than it waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// A listener with its name.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    /// A duplicate, which keeps the queue of connections open.
    pub(crate) socket: OwnedFd,
    pub(crate) adopted: Arc<Queue<Adopted>>,
}

/// A process that serves, from [`Handoff::ready`](crate::Handoff::ready). Clones share it.
#[derive(Clone)]
pub struct Serving(Arc<ServingInner>);

struct ServingInner {
    path: PathBuf,
    control: UnixListener,
    listeners: Vec<Named>,
    hubs: Vec<NamedHub>,
    given: Arc<Queue<Given>>,
    /// Ends when this process has the connections of the one before.
    adopting: Receiver<()>,
    before: Before,
    /// Gives connections to the next process, since that is ready.
    giving: Mutex<Option<JoinHandle<io::Result<usize>>>>,
}

impl Serving {
    pub(crate) fn new(
        path: PathBuf,
        control: std::os::unix::net::UnixListener,
        listeners: Vec<Named>,
        hubs: Vec<NamedHub>,
        given: Arc<Queue<Given>>,
        adopting: Receiver<()>,
        before: Before,
    ) -> io::Result<Self> {
        control.set_nonblocking(true)?;
        let control = UnixListener::from_std(control)?;
        let giving = Mutex::default();
        Ok(Self(Arc::new(ServingInner { path, control, listeners, hubs, given, adopting, before, giving })))
    }

    /// Waits until another process is ready to take the place of this one: the signal for
    /// [`Server::drain`](millstream::server::Server::drain). A process that ends before it is ready changes nothing. Also
    /// ready if this process is to end, because the one before it goes on: [`finish`](Self::finish) says so.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future refuses a process that has connected and is not ready.
    pub fn successor(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let inner = Arc::clone(&self.0);
        async move {
            let giving = tokio::select! {
                (link, hubs, back) = inner.ready_one() => {
                    // From here on the next process delivers the events of the hubs, and sends them back.
                    let hubs = LeavingHubs::begin(&inner.hubs, &hubs);
                    tokio::spawn(give(Arc::clone(&inner), Successor { link, back, hubs }))
                }
                error = inner.before.goes_on() => tokio::spawn(close(Arc::clone(&inner), error)),
            };
            *inner.giving.lock().unwrap_or_else(PoisonError::into_inner) = Some(giving);
        }
    }

    /// Waits until the next process has the connections that the server has given away, and all events of the hubs. Call
    /// it when the server has drained. Returns the number of connections, or `None` if there is no next process. The hubs
    /// are closed then.
    ///
    /// # Errors
    ///
    /// The next process has failed or ended. The connections that it did not take are back, with their readers, and the
    /// hubs go on: serve again with the same listeners, which were never closed, and wait for another
    /// [`successor`](Self::successor).
    ///
    /// `ErrorKind::ConnectionRefused`: the process before this one goes on, because this one was too slow. End this process,
    /// since both would serve.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the result is lost.
    pub async fn finish(&self) -> io::Result<Option<usize>> {
        let giving = self.0.giving.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(giving) = giving else { return Ok(None) };
        self.0.given.push(Given::End);
        giving.await.map_err(io::Error::other)?.map(Some)
    }
}

impl ServingInner {
    /// Returns the connection of a process that is ready, the names of its hubs, and the connection for their events.
    async fn ready_one(&self) -> (Link, Vec<String>, Link) {
        loop {
            let stream = self.accept().await;
            // The process before serves again if this one ends before that has given everything.
            if timeout(PATIENCE, self.adopting.clone().changed()).await.is_err() {
                refuse(stream, "the process before this one still drains");
                continue;
            }
            match self.greet(stream).await {
                Ok(ready) => return ready,
                Err(error) => {
                    log::refused(&self.path, &error);
                    // It may have been about to be ready, and has said that it is the main process.
                    announce().await;
                }
            }
        }
    }

    async fn accept(&self) -> UnixStream {
        loop {
            match self.control.accept().await {
                Ok((stream, _)) => return stream,
                Err(error) => {
                    log::refused(&self.path, &error);
                    sleep(PAUSE).await;
                }
            }
        }
    }

    /// Gives a process the listeners, and waits until it is ready.
    async fn greet(&self, stream: UnixStream) -> io::Result<(Link, Vec<String>, Link)> {
        let link = Link::new(stream)?;
        match link.answer().await? {
            (Record::Hello(low, high), _) if (low..=high).contains(&VERSION) => {}
            (Record::Hello(low, high), _) => {
                let why = format!("this process knows version {VERSION} of the protocol, the new one {low} to {high}");
                link.send(&Record::Refused(why.clone()), &[]).await?;
                return Err(io::Error::new(io::ErrorKind::Unsupported, why));
            }
            (other, _) => return Err(unexpected(&other)),
        }
        let names = self.listeners.iter().map(|listener| listener.name.clone()).collect();
        let mut sockets: Vec<_> = self.listeners.iter().map(|listener| listener.socket.as_fd()).collect();
        sockets.push(self.control.as_fd());
        link.send(&Record::Listeners(names), &sockets).await?;
        // It may be ready when nobody waits for it any more, and what it says may be unreadable.
        let mut refusal = Refusal(Some(&link));
        let ready = {
            // One future, because a record may arrive in parts.
            let mut ready = pin!(link.receive());
            loop {
                tokio::select! {
                    // First, so that a process that has ended does not count as starting.
                    biased;
                    record = &mut ready => break record,
                    stream = self.accept() => refuse(stream, "another process is starting"),
                }
            }
        };
        let (hubs, back) = match ready? {
            Some((Record::Ready(hubs), sockets)) => {
                let back = sockets.into_iter().next().ok_or(io::ErrorKind::InvalidData)?;
                (hubs, Link::from_fd(back)?)
            }
            Some((other, _)) => return Err(unexpected(&other)),
            None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process ended before it was ready")),
        };
        refusal.0 = None;
        drop(refusal);
        Ok((link, hubs, back))
    }
}

/// Refuses a process without waiting for it: it may not read.
fn refuse(stream: UnixStream, why: &str) {
    let record = Record::Refused(why.to_owned());
    tokio::spawn(async move { Link::new(stream)?.send(&record, &[]).await });
}

/// A process that is ready to take the place of this one.
struct Successor {
    link: Link,
    /// Its events come from there.
    back: Link,
    hubs: LeavingHubs,
}

/// A connection on its way to the next process.
struct Leaver {
    listener: u8,
    socket: OwnedFd,
    reader: Option<Reader>,
}

/// Gives the connections that come from the server to the next process. Returns their number.
async fn give(inner: Arc<ServingInner>, mut successor: Successor) -> io::Result<usize> {
    match successor.give_all(&inner).await {
        Ok(moved) => successor.end().await.map(|()| moved),
        Err((error, mut batch)) => {
            let Successor { link, back, hubs } = successor;
            // The hubs go on before their readers return.
            drop((back, hubs));
            // The next process has said that it is the main one. If that ends, the manager ends this one too.
            announce().await;
            loop {
                batch.into_iter().for_each(|leaver| inner.take_back(leaver));
                match inner.batch().await {
                    Some(next) => batch = next,
                    None => break,
                }
            }
            // Until here the next process serves, if it lives: this one drains.
            link.refuse(GOES_ON);
            Err(error)
        }
    }
}

/// Closes the connections of a process that is to end.
async fn close(inner: Arc<ServingInner>, error: io::Error) -> io::Result<usize> {
    while inner.batch().await.is_some() {}
    Err(error)
}

impl Successor {
    /// Gives the connections until the server has drained.
    ///
    /// # Errors
    ///
    /// The process has failed. It has not taken this batch.
    async fn give_all(&mut self, inner: &ServingInner) -> Result<usize, (io::Error, Vec<Leaver>)> {
        let Self { link, back, hubs } = self;
        let (back, mut moved) = (&*back, 0);
        let mut returning = pin!(returned(back, true));
        let mut calm = Calm::new();
        hubs.send_rings(link).await.map_err(|error| (error, Vec::new()))?;
        loop {
            let batch = tokio::select! {
                batch = inner.batch() => batch,
                () = hubs.changed() => Some(Vec::new()),
                () = calm.begins(), if !calm.is_calm() => continue,
                events = &mut returning, if calm.is_calm() => {
                    let delivered = events.and_then(|(hub, events)| hubs.deliver(hub, events));
                    returning.set(returned(back, delivered.is_ok()));
                    if let Err(error) = delivered {
                        log::no_events_back(&error);
                    }
                    continue;
                }
            };
            let Some(batch) = batch else { return Ok(moved) };
            // Before the readers that may have got them.
            if let Err(error) = hubs.send_events(link).await {
                return Err((error, batch));
            }
            if batch.is_empty() {
                continue;
            }
            calm.disturb();
            match give_batch(link, hubs, &batch).await {
                Ok(true) => moved += batch.len(),
                Ok(false) => batch.into_iter().for_each(|leaver| inner.take_back(leaver)),
                Err(error) => return Err((error, batch)),
            }
        }
    }

    /// Gives the last events, and ends the hubs.
    async fn end(mut self) -> io::Result<()> {
        self.hubs.seal();
        match self.give_rest().await {
            Ok(()) => self.hubs.finish(),
            Err(error) => {
                announce().await;
                self.link.refuse(GOES_ON);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn give_rest(&mut self) -> io::Result<()> {
        self.hubs.send_events(&self.link).await?;
        // Without an answer the next process may have ended, so that no process serves.
        self.link.send(&Record::Done, &[]).await?;
        match self.link.answer().await? {
            (Record::Taken, _) => Ok(()),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

/// Receives events of the next process, unless it sends no more.
async fn returned(back: &Link, is_open: bool) -> io::Result<(u16, Vec<HandedEvent>)> {
    if !is_open {
        return pending().await;
    }
    match back.receive().await? {
        Some((Record::Events(hub, events), _)) => Ok((hub, events)),
        Some((other, _)) => Err(unexpected(&other)),
        None => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the next process sends no further events")),
    }
}

/// Gives connections. Returns `false` if the process has no such listener.
///
/// # Errors
///
/// The process has not taken them, and they are still this one's.
async fn give_batch(link: &Link, hubs: &LeavingHubs, batch: &[Leaver]) -> io::Result<bool> {
    let sockets: Vec<BorrowedFd<'_>> = batch.iter().map(|leaver| leaver.socket.as_fd()).collect();
    let reader = |reader: &Reader| hubs.theirs(reader.hub).map(|hub| (hub, reader.description.clone()));
    let readers = batch.iter().map(|leaver| leaver.reader.as_ref().and_then(reader)).collect();
    let taken = async {
        link.send(&Record::Connections(batch[0].listener, readers), &sockets).await?;
        match link.answer().await? {
            (Record::Taken, _) => Ok(true),
            (Record::Refused(_), _) => Ok(false),
            (other, _) => Err(unexpected(&other)),
        }
    };
    match taken.await {
        Ok(true) => link.send(&Record::Yours, &[]).await.map(|()| true),
        Ok(false) => Ok(false),
        Err(error) => {
            // It may take them late. A process that has ended does not hear it.
            let _ = link.send(&Record::Keeps, &[]).await;
            Err(error)
        }
    }
}

impl ServingInner {
    /// Returns the next connections of one listener; `None` at their end.
    async fn batch(&self) -> Option<Vec<Leaver>> {
        let Given::Connection(listener, socket, events) = self.given.pop().await else { return None };
        let leaver = |socket, events: Option<MovedBody>| {
            let reader = events.and_then(|events| Reader::of(&self.hubs, &events));
            Leaver { listener, socket, reader }
        };
        let mut batch = vec![leaver(socket, events)];
        while batch.len() < RIGHTS_MAX
            && let Some(Given::Connection(_, socket, events)) =
                self.given.pop_if(|next| matches!(next, Given::Connection(number, ..) if *number == listener))
        {
            batch.push(leaver(socket, events));
        }
        Some(batch)
    }

    /// Keeps a connection that the next process has not taken.
    fn take_back(&self, leaver: Leaver) {
        let Leaver { listener, socket, reader } = leaver;
        let events = match reader.map(|reader| reader.resume(&self.hubs)).transpose() {
            Ok(events) => events,
            // Its client reconnects.
            Err(error) => return log::reader_lost(&error),
        };
        self.listeners[usize::from(listener)].adopted.push(Adopted { socket, events });
    }
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("path", &self.0.path)
            .field("listeners", &self.0.listeners)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
