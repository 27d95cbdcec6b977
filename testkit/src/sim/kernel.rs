//! Sockets of the kernel behind simulated connections: the server has streams of this crate, with their whole send path,
//! and the client still has a simulated network before it.
//!
//! ```text
//!  client ─▶ Socket ─ Link ─ Socket ─▶ pump ─▶ UnixStream ═ kernel ═ net::UnixStream ─▶ server::serve
//! ```
//!
//! Sockets of Unix domain pass bytes on within the system call that sends them, so that no real time passes between the
//! two sides. tokio advances a paused clock to the next timer even if the same turn has found a socket ready: [`tick`] is
//! a timer that is always near.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::poll_immediate;
use millstream::internal::socket::SocketFacts;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, ReadHalf, WriteHalf, split};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::link::Profile;
use super::net::Net;
use super::socket::{End, SimConnector, SimListener, Socket};

/// Bytes that are moved at once.
const PIECE: usize = 16 << 10;
/// Time after which a client is reset that takes nothing of what a closed socket still holds.
const STUCK: Duration = Duration::from_secs(30);
/// Time between two looks whether the client has acknowledged.
const ACKNOWLEDGED: Duration = Duration::from_millis(5);
/// Time between two probes whether the client has vanished, as of TCP.
const PROBE: Duration = Duration::from_secs(60);
/// Time between two looks whether a socket of the kernel was closed.
const LOOK: Duration = Duration::from_millis(20);
/// The step of the clock after something has arrived, and while nothing arrives.
const STEP: Duration = Duration::from_millis(1);
const QUIET: Duration = Duration::from_millis(25);

/// Connects each simulated connection to the listener at `path`, until the task is aborted.
pub async fn forward(listener: SimListener, path: PathBuf) {
    let mut pumps = JoinSet::new();
    // The listener does not fail here.
    while let Ok((socket, _)) = listener.accept_socket().await {
        while pumps.try_join_next().is_some() {}
        match UnixStream::connect(&path).await {
            Ok(kernel) => drop(pumps.spawn(pump(kernel, socket))),
            // The listener is gone: [`SimConnector::connect`] fails from now on.
            Err(_) => {
                socket.reset();
                drop(listener);
                return pumps.join_all().await.into_iter().collect();
            }
        }
    }
}

/// Connects each connection of `listener` to a simulated one, until the task is aborted: what is tested is a client, and
/// the server has a simulated network before it. `profile` chooses how the connection behaves; with `None` the socket is
/// closed at once.
pub async fn accept(listener: UnixListener, to: SimConnector, mut profile: impl FnMut() -> Option<Profile>) {
    let mut pumps = JoinSet::new();
    loop {
        let (kernel, _) = listener.accept().await.expect("a descriptor is left");
        while pumps.try_join_next().is_some() {}
        let Some(profile) = profile() else { continue };
        let to = to.clone();
        pumps.spawn(async move {
            // It fails if the server is gone.
            if let Ok(sim) = to.connect(Ipv4Addr::LOCALHOST.into(), profile).await {
                pump(kernel, sim).await;
            }
        });
    }
}

/// Lets time pass in small steps while something arrives in the network, until the task is aborted.
pub async fn tick(net: Net) {
    loop {
        let seen = net.trace(|trace| trace.events());
        for _ in 0..4 {
            sleep(STEP).await;
        }
        while net.trace(|trace| trace.events()) == seen {
            sleep(QUIET).await;
        }
    }
}

/// How a direction has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Whole,
    CannotRead,
    CannotWrite,
}

/// Moves bytes and ends between a socket of the kernel, whose other side is a server's, and the server's side of a
/// simulated connection, until the server has closed its socket or the client is gone.
///
/// The kernel does not tell whether the server has closed or reset a socket of Unix domain. A client that does not take the
/// last bytes within 30 s is reset.
pub async fn pump(kernel: UnixStream, sim: Socket) {
    // Its own buffer takes what the server sends without limit otherwise.
    let _ = set_socket_send_buffer_size(&kernel, PIECE);
    let facts = sim.facts();
    let (mut from_client, mut to_client) = split(sim);
    let (from_server, mut to_server) = kernel.into_split();
    let moved = AtomicU64::new(0);
    let is_reset = {
        let up = up(&mut from_client, &mut to_server);
        let down = async {
            let ended = down(from_server.as_ref(), &mut to_client, &facts, &moved).await;
            if ended == Ended::Whole {
                closed(from_server.as_ref()).await;
            }
            ended
        };
        let stuck = async {
            closed(from_server.as_ref()).await;
            let mut seen = u64::MAX;
            while std::mem::replace(&mut seen, moved.load(Ordering::Relaxed)) != moved.load(Ordering::Relaxed) {
                sleep(STUCK).await;
            }
        };
        let vanished = async {
            while !facts.is_cut() {
                sleep(PROBE).await;
            }
        };
        let moved_all = async {
            tokio::pin!(up, down);
            tokio::select! {
                biased;
                ended = &mut down => {
                    // Bytes that the client sent before its reset are received nevertheless, as far as there is room.
                    let _ = poll_immediate(&mut up).await;
                    // A server that closes with unread bytes resets the connection.
                    ended == Ended::CannotRead
                }
                ended = &mut up => match ended {
                    Ended::Whole => down.await == Ended::CannotRead,
                    Ended::CannotRead => false,
                    // So do bytes for a socket that the server has closed.
                    Ended::CannotWrite => {
                        down.await;
                        true
                    }
                },
            }
        };
        tokio::select! {
            biased;
            is_reset = moved_all => is_reset,
            () = stuck => true,
            () = vanished => false,
        }
    };
    let sim = from_client.unsplit(to_client);
    if is_reset {
        sim.reset();
    }
}

/// Moves the bytes of the client.
async fn up(from: &mut ReadHalf<Socket>, to: &mut OwnedWriteHalf) -> Ended {
    let mut piece = [0; PIECE];
    loop {
        match from.read(&mut piece).await {
            Ok(0) => break,
            Ok(n) if to.write_all(&piece[..n]).await.is_err() => return Ended::CannotWrite,
            Ok(_) => {}
            Err(_) => return Ended::CannotRead,
        }
    }
    let _ = to.shutdown().await;
    Ended::Whole
}

/// Moves the bytes of the server, and counts them. They stay in the socket of the kernel until the client has acknowledged
/// them, because the server asks how many have left it.
async fn down(from: &UnixStream, to: &mut WriteHalf<Socket>, facts: &End, moved: &AtomicU64) -> Ended {
    let (mut buf, mut sent) = (Vec::new(), 0);
    loop {
        let mut acknowledged = sent - facts.unacknowledged().min(sent);
        sent -= acknowledged;
        while acknowledged > 0 {
            match from.try_read(&mut buf[..acknowledged]) {
                Ok(n) if n > 0 => acknowledged -= n,
                _ => return Ended::CannotRead,
            }
        }
        buf.resize(sent + PIECE, 0);
        let mut peek = || Ok(recv(from, &mut buf[..], RecvFlags::PEEK)?.0);
        let peeked = match sent {
            0 => from.async_io(Interest::READABLE, peek).await,
            _ => peek(),
        };
        let mut rest = match peeked {
            Ok(0) => break,
            Ok(n) => &buf[sent..n],
            Err(_) => return Ended::CannotRead,
        };
        if rest.is_empty() {
            if facts.is_reset() {
                return Ended::CannotWrite;
            }
            sleep(ACKNOWLEDGED).await;
        }
        while !rest.is_empty() {
            let Ok(n) = to.write(rest).await else { return Ended::CannotWrite };
            moved.fetch_add(n as u64, Ordering::Relaxed);
            sent += n;
            rest = &rest[n..];
        }
    }
    let _ = to.shutdown().await;
    Ended::Whole
}

/// Waits until the other side has closed its socket, or both sides have ended.
async fn closed(kernel: &UnixStream) {
    loop {
        let mut asked = [PollFd::new(kernel, PollFlags::empty())];
        let found = poll(&mut asked, Some(&Timespec::default()));
        if found.is_err() || asked[0].revents().contains(PollFlags::HUP) {
            return;
        }
        sleep(LOOK).await;
    }
}
