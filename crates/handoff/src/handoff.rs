//! The start of a process: its listeners, inherited or bound.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream::net::{TcpListener, TcpListenerBuilder, UnixListener, UnixListenerBuilder};
use millstream::sse::Hub;
use tokio::net::{ToSocketAddrs, UnixStream};
use tokio::time::sleep;

use crate::adopt::Adoption;
use crate::hubs::NamedHub;
use crate::link::{Link, unexpected};
use crate::listener::{Adopted, Given, HandoffListener, Passed};
use crate::queue::Queue;
use crate::record::{HUBS_MAX, NAME_MAX, Record, VERSION};
use crate::rights::RIGHTS_MAX;
use crate::serving::{Named, Serving};

/// Most listeners of a process. The control socket goes with them.
const LISTENERS_MAX: usize = RIGHTS_MAX - 1;
/// Errors of a process that ends while this one connects to it.
const ENDS: [io::ErrorKind; 3] =
    [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
/// How often such a process is asked, and the time between.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// A process that starts, and takes the place of the one that serves, if there is one.
///
/// See the [crate](crate).
pub struct Handoff {
    path: PathBuf,
    /// The process that serves, and what it has given.
    predecessor: Option<Predecessor>,
    listeners: Vec<Named>,
    hubs: Vec<NamedHub>,
    given: Arc<Queue<Given>>,
}

struct Predecessor {
    link: Link,
    /// The names of its listeners, by their numbers.
    names: Vec<String>,
    sockets: HashMap<String, OwnedFd>,
    control: OwnedFd,
}

impl Handoff {
    /// Connects to the process that serves now, if one listens on the control socket at `path`, and gets its listeners. It
    /// goes on serving until [`ready`](Self::ready).
    ///
    /// Only processes of the same user can connect. Choose a directory that other users cannot write to.
    ///
    /// # Errors
    ///
    /// `ErrorKind::PermissionDenied` if the other process has another user. `ErrorKind::ConnectionRefused` with its words if
    /// it refuses, for instance because a third process starts as well. `ErrorKind::InvalidData` or `ErrorKind::TimedOut`
    /// if it does not speak the protocol.
    pub async fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let mut attempts = 0;
        let predecessor = loop {
            attempts += 1;
            match Predecessor::connect(&path).await {
                Ok(predecessor) => break predecessor,
                Err(e) if ENDS.contains(&e.kind()) && attempts < ATTEMPTS => sleep(PAUSE).await,
                Err(e) => return Err(failed(e)),
            }
        };
        Ok(Self { path, predecessor, listeners: Vec::new(), hubs: Vec::new(), given: Arc::default() })
    }

    /// Returns whether another process serves, and has given its listeners.
    pub fn is_successor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Returns the TCP listener with this `name` of the process that serves, or one that is bound to `addr`. An inherited
    /// listener keeps its address, so a listener with another address needs another name.
    ///
    /// # Errors
    ///
    /// As [`TcpListener::bind`]. `ErrorKind::InvalidInput` if the name is taken or has more than 255 bytes, and for more
    /// than 63 listeners.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub async fn tcp(&mut self, name: &str, addr: impl ToSocketAddrs) -> io::Result<HandoffListener<TcpListener>> {
        self.tcp_with(name, TcpListener::builder(), addr).await
    }

    /// As [`tcp`](Self::tcp), with the options of `builder`.
    pub async fn tcp_with(
        &mut self,
        name: &str,
        builder: TcpListenerBuilder,
        addr: impl ToSocketAddrs,
    ) -> io::Result<HandoffListener<TcpListener>> {
        let listener = match self.inherited(name)? {
            Some(socket) => builder.from_std(socket.into())?,
            None => builder.bind(addr).await?,
        };
        self.add(name, listener)
    }

    /// Returns the listener on a Unix socket with this `name` of the process that serves, or one that is bound to `path`.
    ///
    /// # Errors and panics
    ///
    /// As [`tcp`](Self::tcp), and [`UnixListener::bind`].
    pub async fn unix(&mut self, name: &str, path: impl AsRef<Path>) -> io::Result<HandoffListener<UnixListener>> {
        self.unix_with(name, UnixListener::builder(), path).await
    }

    /// As [`unix`](Self::unix), with the options of `builder`.
    pub async fn unix_with(
        &mut self,
        name: &str,
        builder: UnixListenerBuilder,
        path: impl AsRef<Path>,
    ) -> io::Result<HandoffListener<UnixListener>> {
        let socket = match self.inherited(name)? {
            Some(socket) => socket.into(),
            // The file stays when this process ends: the next one has the socket.
            None => builder.clone().bind(path).await?.into_std()?,
        };
        self.add(name, builder.from_std(socket)?)
    }

    /// Takes the place of the hub with this `name` of the process that serves, and gives the next process this one: with its
    /// events, and with the connections of its readers, which notice nothing.
    ///
    /// From [`ready`](Self::ready) on, this process delivers the events of both hubs. Those of the other one come first,
    /// so that readers continue behind the last event that they have got. A hub with a log gives only readers: the hubs
    /// of both processes read the same log. Event readers over TLS or HTTP/2, in another framing, or behind layers
    /// without [`past_layers`](millstream::sse::HubBuilder::past_layers) stay with the old process, which ends their
    /// streams one after another.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput` if the name is taken or has more than 255 bytes, if the hub has been used, and for more
    /// than 10 000 hubs.
    pub fn hub(&mut self, name: &str, hub: &Hub) -> io::Result<()> {
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("hub {name:?}: {why}")));
        if self.hubs.iter().any(|hub| hub.name == name) {
            return wrong("another hub has this name");
        }
        if name.len() > NAME_MAX {
            return wrong("a name has at most 255 bytes");
        }
        if self.hubs.len() == HUBS_MAX {
            return wrong("a process hands at most 10 000 hubs over");
        }
        if self.is_successor() && !hub.expect_predecessor() {
            return wrong("it has events or readers already, which those of the process before must precede");
        }
        self.hubs.push(NamedHub { name: name.to_owned(), hub: hub.clone() });
        Ok(())
    }

    /// Takes the socket with this `name`, which must not be in use.
    fn inherited(&mut self, name: &str) -> io::Result<Option<OwnedFd>> {
        let wrong = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, format!("listener {name:?}: {why}")));
        if self.listeners.iter().any(|listener| listener.name == name) {
            return wrong("another listener has this name");
        }
        if name.len() > NAME_MAX {
            return wrong("a name has at most 255 bytes");
        }
        if self.listeners.len() == LISTENERS_MAX {
            return wrong("a process hands at most 63 listeners over");
        }
        Ok(self.predecessor.as_mut().and_then(|predecessor| predecessor.sockets.remove(name)))
    }

    fn add<L: Passed>(&mut self, name: &str, listener: L) -> io::Result<HandoffListener<L>> {
        let adopted = Arc::<Queue<Adopted>>::default();
        let number = self.listeners.len() as u8;
        let socket = listener.as_fd().try_clone_to_owned()?;
        self.listeners.push(Named { name: name.to_owned(), socket, adopted: Arc::clone(&adopted) });
        Ok(HandoffListener::new(listener, number, adopted, Arc::clone(&self.given)))
    }

    /// Tells the process that serves now to stop accepting and to drain, and waits for the events of its hubs. Its
    /// connections arrive at the listeners of this process from then on. Listeners that were not claimed by name are
    /// closed.
    ///
    /// Call it when this process can serve, and serve at once.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), if the other process has ended meanwhile: start again. Without another process, as
    /// [`UnixListener::bind`] of the control socket.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub async fn ready(self) -> io::Result<Serving> {
        let Self { path, predecessor, listeners, hubs, given } = self;
        let control = match predecessor {
            Some(Predecessor { link, names, sockets, control }) => {
                drop(sockets);
                let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
                let queues = names.iter().map(|name| {
                    listeners.iter().find(|listener| listener.name == *name).map(|named| Arc::clone(&named.adopted))
                });
                let adoption = Adoption { link, queues: queues.collect(), hubs: hubs.clone() };
                adoption.begin().await.map_err(failed)?;
                tokio::spawn(adoption.run());
                control.into()
            }
            // Only this user may connect, and hand over what it likes.
            None => UnixListener::builder().mode(0o600).bind(&path).await?.into_std()?,
        };
        Serving::new(path, control, listeners, hubs, given)
    }
}

impl Predecessor {
    /// Connects to the process that serves. Returns `None` if there is none.
    async fn connect(path: &Path) -> io::Result<Option<Self>> {
        let stream = match UnixStream::connect(path).await {
            Ok(stream) => stream,
            // A process that was killed leaves the file behind.
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let link = Link::new(stream)?;
        // Fails if it has refused already. The answer says why.
        let _ = link.send(&Record::Hello(VERSION, VERSION), &[]).await;
        match link.answer().await? {
            (Record::Listeners(names), mut sockets) => {
                let control = sockets.pop().ok_or(io::ErrorKind::InvalidData)?;
                let sockets = names.iter().cloned().zip(sockets).collect();
                Ok(Some(Self { link, names, sockets, control }))
            }
            (Record::Refused(why), _) => Err(io::Error::new(io::ErrorKind::ConnectionRefused, why)),
            (other, _) => Err(unexpected(&other)),
        }
    }
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff")
            .field("path", &self.path)
            .field("is_successor", &self.is_successor())
            .field("listeners", &self.listeners)
            .finish_non_exhaustive()
    }
}
