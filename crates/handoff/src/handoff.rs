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
use millstream::sse::log::Log;
use tokio::net::{ToSocketAddrs, UnixStream, lookup_host};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::activation::Activation;
use crate::adopt::{Adoption, Before};
use crate::hubs::NamedHub;
use crate::late_log::HandoffLog;
use crate::link::{Link, refused, unexpected};
use crate::listener::{Adopted, Given, HandoffListener, Passed};
use crate::manager::{announce, keep, may_be_stored};
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
    activation: Activation,
    listeners: Vec<Named>,
    hubs: Vec<NamedHub>,
    given: Arc<Queue<Given>>,
    is_stored: bool,
    /// Its sender is dropped when the process before has ended, or has given everything.
    adopting: (watch::Sender<()>, watch::Receiver<()>),
    /// All its senders are dropped when this process has everything of the one before.
    taking: watch::Sender<()>,
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
    /// goes on serving until [`ready`](Self::ready). Also takes the listeners that a service manager has passed to this
    /// process (`LISTEN_FDS`); other descriptors that it has passed are left as they are.
    ///
    /// Only processes of the same user can connect. Choose a directory that other users cannot write to.
    ///
    /// # Errors
    ///
    /// `ErrorKind::PermissionDenied` if the other process has another user. `ErrorKind::ConnectionRefused` with its words if
    /// it refuses, for instance because a third process starts as well, or because the one before it still drains. `ErrorKind::InvalidData` or `ErrorKind::TimedOut`
    /// if it does not speak the protocol. `ErrorKind::InvalidData` also for a wrong `LISTEN_PID` or `LISTEN_FDS`.
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
        Ok(Self {
            path,
            predecessor,
            activation: Activation::take()?,
            listeners: Vec::new(),
            hubs: Vec::new(),
            given: Arc::default(),
            is_stored: false,
            adopting: watch::channel(()),
            taking: watch::Sender::new(()),
        })
    }

    /// Returns whether another process serves, and has given its listeners.
    pub fn is_successor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Returns the TCP listener with this `name` of the process that serves; else the one of the service manager with this
    /// name, or with this address; else one that is bound to `addr`. An inherited listener keeps its address, so a
    /// listener with another address needs another name.
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
            None => {
                let addrs: Vec<_> = lookup_host(addr).await?.collect();
                match self.activation.tcp(name, &addrs) {
                    Some(socket) => builder.from_std(socket.into())?,
                    None => builder.bind(&*addrs).await?,
                }
            }
        };
        self.add(name, listener)
    }

    /// Returns the listener on a Unix socket with this `name` of the process that serves; else the one of the service
    /// manager with this name, or at `path`; else one that is bound to `path`.
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
        let inherited = self.inherited(name)?;
        let at = std::path::absolute(&path)?;
        let socket = match inherited.or_else(|| self.activation.unix(name, &at)) {
            Some(socket) => socket.into(),
            // The file stays when this process ends: the next one has the socket.
            None => builder.clone().bind(path).await?.into_std()?,
        };
        self.add(name, builder.from_std(socket)?)
    }

    /// Takes the place of the hub with this `name` of the process that serves, and gives the next process this one: with its
    /// events, and with the connections of its readers, which notice nothing.
    ///
    /// From [`ready`](Self::ready) on, this process delivers the events of both hubs. Events of the other one come first,
    /// so that readers continue behind the last event that they have got. A hub with a log gives only readers: the hubs
    /// of both processes read the same log. Event readers over TLS or HTTP/2, in another framing, or behind layers
    /// without [`past_layers`](millstream::sse::HubBuilder::past_layers) stay with the old process. It gets the events of this
    /// one until it has ended their streams, one after another.
    ///
    /// # Errors
    ///
    /// `ErrorKind::InvalidInput` if the name is taken or has more than 255 bytes, if the hub has been used, and for more
    /// than 10 000 hubs.
    pub fn hub(&mut self, name: &str, hub: &Hub) -> io::Result<()> {
        check_name("hub", name, self.hubs.iter().map(|hub| &*hub.name), HUBS_MAX)?;
        if self.is_successor() && !hub.expect_predecessor() {
            let why = "it has events or readers already, which those of the process before must precede";
            return Err(wrong_name("hub", name, why));
        }
        self.hubs.push(NamedHub { name: name.to_owned(), hub: hub.clone() });
        Ok(())
    }

    /// Opens the log of a hub of which only one process at a time has the files, such as
    /// [`Disk`](millstream::sse::log::disk::Disk): now, or if another process serves, when that has ended. Until then
    /// events wait in this process, at most 1000, and so do the readers of the hubs that have the log. Logs that
    /// processes share, such as those in Redis, need no such order.
    ///
    /// ```no_run
    /// # async fn f(handoff: &mut millstream_handoff::Handoff) -> std::io::Result<()> {
    /// use millstream::sse::Hub;
    /// use millstream::sse::log::disk::Disk;
    ///
    /// let log = handoff.log(async || Ok(Disk::builder("/var/lib/app/events").open().await?)).await?;
    /// let hub = Hub::builder().log(log).build();
    /// handoff.hub("news", &hub)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The old process has to drop its log, with its hubs, when it ends. `open` is called again for 10 s while it returns
    /// `ErrorKind::ResourceBusy`. After another error sends fail with it, and readers get no events.
    ///
    /// # Errors
    ///
    /// The error of `open`, if no other process serves.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub async fn log<L, F>(&mut self, open: impl Fn() -> F + Send + Sync + 'static) -> io::Result<HandoffLog<L>>
    where
        L: Log,
        F: Future<Output = io::Result<L>> + Send + 'static,
    {
        if !self.is_successor() {
            return open().await.map(HandoffLog::open);
        }
        let mut adopting = self.adopting.1.clone();
        let ended = async move { while adopting.changed().await.is_ok() {} };
        Ok(HandoffLog::open_after(ended, open, self.taking.clone()))
    }

    /// Takes the socket with this `name`, which must not be in use.
    fn inherited(&mut self, name: &str) -> io::Result<Option<OwnedFd>> {
        check_name("listener", name, self.listeners.iter().map(|listener| &*listener.name), LISTENERS_MAX)?;
        Ok(self.predecessor.as_mut().and_then(|predecessor| predecessor.sockets.remove(name)))
    }

    fn add<L: Passed>(&mut self, name: &str, listener: L) -> io::Result<HandoffListener<L>> {
        let adopted = Arc::<Queue<Adopted>>::default();
        let number = self.listeners.len() as u8;
        let socket = listener.as_fd().try_clone_to_owned()?;
        self.listeners.push(Named { name: name.to_owned(), socket, adopted: Arc::clone(&adopted) });
        Ok(HandoffListener::new(listener, number, adopted, Arc::clone(&self.given)))
    }

    /// Keeps the listeners in the service manager, under their names, from [`ready`](Self::ready) on. A process that the
    /// manager starts again, after a crash for instance, gets them, and with them the connections that wait meanwhile.
    ///
    /// With systemd the unit needs `FileDescriptorStoreMax=`, and `NotifyAccess=all` for a process that was not started by
    /// it. It drops them when the unit is stopped, not when it is restarted: they keep their addresses until then.
    pub fn store_listeners(&mut self) {
        self.is_stored = true;
    }

    /// Tells the process that serves now to stop accepting and to drain, and waits for the events of its hubs. Its
    /// connections arrive at the listeners of this process from then on. Listeners that were not claimed are closed, also
    /// those of a service manager.
    ///
    /// Tells a service manager that this process is ready, and the main one (`READY=1`, `MAINPID=`).
    ///
    /// Call it when this process can serve, and serve at once. Handle the signals that end it before: from then on the
    /// manager may send them.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), if the other process has ended meanwhile: start again. `ErrorKind::ConnectionRefused` if it
    /// no longer waits for this one: start again, too. Without another process, as
    /// [`UnixListener::bind`] of the control socket. `ErrorKind::InvalidInput` if the listeners are to be
    /// [stored](Self::store_listeners), and a name has control characters, `:`, or characters that are not ASCII.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O enabled.
    pub async fn ready(self) -> io::Result<Serving> {
        let Self { path, predecessor, activation, listeners, hubs, given, is_stored, adopting, taking } = self;
        if let Some(Named { name, .. }) = listeners.iter().find(|named| is_stored && !may_be_stored(&named.name)) {
            return Err(wrong_name("listener", name, "a service manager does not take this name"));
        }
        let claimed = |name: &str| listeners.iter().find(|listener| listener.name == *name);
        let (control, adoption, names) = match predecessor {
            Some(Predecessor { link, names, control, .. }) => {
                // Before the other process ends: a manager ends the service with its main process.
                announce().await;
                let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
                let queues = names.iter().map(|name| claimed(name).map(|named| Arc::clone(&named.adopted))).collect();
                let adoption = Adoption { link, queues, hubs: hubs.clone() };
                let own = adoption.begin().await.map_err(failed)?;
                (control.into(), own.map(|own| (adoption, own)), names)
            }
            // Only this user may connect, and hand over what it likes.
            None => {
                let control = UnixListener::builder().mode(0o600).bind(&path).await?.into_std()?;
                announce().await;
                (control, None, Vec::new())
            }
        };
        let left = activation.names().map(str::to_owned).chain(names).filter(|name| claimed(name).is_none()).collect();
        let stored = listeners.iter().filter(|_| is_stored);
        let stored =
            stored.map(|named| Ok((named.name.clone(), named.socket.try_clone()?))).collect::<io::Result<_>>()?;
        let taken = taking.subscribe();
        let (tell, before) = Before::new();
        tokio::spawn(async move {
            // Until its end the other process may be the one that goes on.
            let goes_on = match adoption {
                Some((adoption, own)) => adoption.run(own).await,
                None => None,
            };
            match goes_on {
                Some(why) => drop(tell.send_replace(Some(why))),
                None => keep(stored, left).await,
            }
            drop((adopting, taking));
        });
        Serving::new(path, control, listeners, hubs, given, taken, before)
    }
}

/// Checks the name of a further listener or hub.
fn check_name<'a>(
    kind: &str,
    name: &str,
    mut others: impl ExactSizeIterator<Item = &'a str>,
    max: usize,
) -> io::Result<()> {
    let why = match others.len() {
        count if count == max => format!("a process hands at most {max} over"),
        _ if name.len() > NAME_MAX => format!("a name has at most {NAME_MAX} bytes"),
        _ if others.any(|other| other == name) => "the name is taken".to_owned(),
        _ => return Ok(()),
    };
    Err(wrong_name(kind, name, &why))
}

fn wrong_name(kind: &str, name: &str, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{kind} {name:?}: {why}"))
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
            (Record::Refused(why), _) => Err(refused(why)),
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
