//! The sockets of a server: simulated ones, or sockets of the kernel behind them.

#[cfg(not(portable))]
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{env, fmt, io};

use millstream::fs::File;
use millstream::net::Accept;
#[cfg(not(portable))]
use millstream::net::UnixListener;
use millstream::server::Drained;
use millstream::server::tls::Tls;
use testkit::serving::{AnyService, serve};
#[cfg(not(portable))]
use testkit::sim::kernel;
use testkit::sim::{Net, SimListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::terms::Terms;
use testkit::sim::all_bytes;

/// The sockets of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ground {
    /// Simulated sockets. The same seed is the same run.
    Simulated,
    /// Sockets of the kernel, and the streams of this crate, behind the simulated ones.
    #[cfg(not(portable))]
    Kernel,
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Simulated => "simulated",
            #[cfg(not(portable))]
            Self::Kernel => "kernel",
        })
    }
}

impl Ground {
    /// Returns what the environment names.
    pub(crate) fn chosen() -> Self {
        match env::var("MILLSTREAM_SIM_GROUND").as_deref() {
            #[cfg(not(portable))]
            Ok("kernel") => Self::Kernel,
            Ok("simulated") | Err(_) => Self::Simulated,
            Ok(other) => panic!("MILLSTREAM_SIM_GROUND={other}: simulated or kernel"),
        }
    }

    pub(crate) fn is_simulated(self) -> bool {
        self == Self::Simulated
    }

    /// Returns the longest time in which clients begin something, in milliseconds. Each millisecond in which something
    /// arrives at sockets of the kernel is a turn of the runtime.
    pub(crate) fn longest(self) -> u64 {
        if self.is_simulated() { 1_500_000 } else { 120_000 }
    }

    /// Returns the time that a segment takes behind the simulated connection, at most: the longest step of the clock, and
    /// the time between two looks whether the client has acknowledged.
    pub(crate) fn hops(self) -> u64 {
        if self.is_simulated() { 0 } else { 30 }
    }

    /// Returns a runtime whose clock is paused.
    pub(crate) fn runtime(self) -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(true);
        if self.is_simulated() {
            return builder.build().unwrap();
        }
        let runtime = builder.enable_io().build().unwrap();
        // Starts the task of the runtime that flushes streams.
        runtime.block_on(async { millstream::runtime::driver_info() });
        runtime
    }

    /// Returns a file for bodies that sockets of the kernel take from the page cache.
    pub(crate) async fn file(self) -> Option<File> {
        if self.is_simulated() {
            return None;
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), all_bytes()).expect("a file that can be written");
        Some(File::open(file.path()).await.expect("a file that can be read"))
    }

    /// Starts a server. Returns also the tasks that carry its bytes.
    #[cfg_attr(portable, expect(unused_variables, reason = "there is one ground"))]
    pub(crate) async fn serve(
        self,
        net: &Net,
        listener: SimListener,
        service: AnyService,
        tls: Option<Tls>,
        terms: &Terms,
        (drain, gives): (oneshot::Receiver<()>, Option<Sender<Given>>),
    ) -> (Running, JoinSet<()>) {
        match self {
            Self::Simulated => (serve_on(listener, service, tls, terms, drain, None), JoinSet::new()),
            #[cfg(not(portable))]
            Self::Kernel => {
                static NUMBER: AtomicU64 = AtomicU64::new(0);
                let number = NUMBER.fetch_add(1, Ordering::Relaxed);
                let path = format!("\0millstream-sim-{}-{number}", std::process::id());
                let listening = UnixListener::builder();
                let listening = if let Some(pace) = &terms.pace { listening.pace_all(pace) } else { listening };
                let listening = listening.bind(&path).await.expect("a name of its own");
                let server = Narrow { listener: listening, send_buffer: terms.send_buffer };
                let mut carriers = JoinSet::new();
                carriers.spawn(kernel::forward(listener, path.into()));
                carriers.spawn(kernel::tick(net.clone()));
                (serve_on(server, service, tls, terms, drain, gives), carriers)
            }
        }
    }
}

/// A listener whose connections have send buffers of this size, so that the send path finds them full.
#[cfg(not(portable))]
struct Narrow {
    listener: UnixListener,
    send_buffer: usize,
}

#[cfg(not(portable))]
impl Accept for Narrow {
    type Stream = <UnixListener as Accept>::Stream;
    type Addr = <UnixListener as Accept>::Addr;

    async fn accept(&self) -> io::Result<(Self::Stream, Self::Addr)> {
        let (stream, addr) = Accept::accept(&self.listener).await?;
        socket2::SockRef::from(&stream).set_send_buffer_size(self.send_buffer)?;
        Ok((stream, addr))
    }
}

/// The connections that a server gives away when it drains.
#[cfg(not(portable))]
pub(crate) type Given = (std::os::fd::OwnedFd, Option<millstream::body::MovedBody>);
#[cfg(portable)]
pub(crate) type Given = ();

/// A server that runs.
pub(crate) type Running = JoinHandle<io::Result<Drained>>;

fn serve_on(
    listener: impl Accept,
    service: AnyService,
    tls: Option<Tls>,
    terms: &Terms,
    drain: oneshot::Receiver<()>,
    #[cfg_attr(portable, expect(unused_variables, reason = "no connection moves"))] gives: Option<Sender<Given>>,
) -> Running {
    let deadline = Duration::from_millis(terms.deadline);
    let server = serve(listener, service).limits(terms.limits()).takeover(terms.takes_over);
    // The length of a date depends on its digits in HPACK.
    let server = server.http2(|http2| _ = http2.auto_date_header(false));
    #[cfg(not(portable))]
    let server = match gives {
        // The next server is gone at the end of a seed.
        Some(gives) => server.move_connections(move |socket, events| _ = gives.try_send((socket, events))),
        None => server,
    };
    let server = match tls {
        Some(tls) => server.tls(tls),
        None => server,
    };
    tokio::spawn(server.drain(drain, deadline))
}
