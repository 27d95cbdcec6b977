//! Scripts: operations on a stream and by its peer, one step after the other, and their outcomes.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use super::Subject;
use super::peer::{Peer, Seen, answer, payload};

/// A step. `Peer…` steps are done by the other end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// One write of this many bytes.
    Write(usize),
    WriteAll(usize),
    Vectored(&'static [usize]),
    /// Writes pieces of 1000 bytes until the stream accepts no more.
    Fill,
    Flush,
    Shutdown,
    /// Reads this many bytes, or up to the end.
    Read(usize),
    ReadToEnd,
    /// Reads to the end in a task of its own, by the half of a [`Split`](Self::Split) stream.
    ReadAside,
    /// Reports the outcome of [`ReadAside`](Self::ReadAside).
    Joined,
    Split,
    DropReader,
    DropWriter,
    Drop,
    /// Makes the close discard bytes that the kernel holds.
    LingerZero,
    Narrow,
    /// Waits until the stream has handed all bytes to the kernel, or has failed to.
    Settle,
    /// Waits until the kernel knows that the peer is gone.
    Gone,
    /// Waits until the kernel knows that the peer takes nothing any more. An answer to bytes may be late on a loaded machine.
    Reset,
    Yield,
    PeerWrite(usize),
    PeerRead(usize),
    /// Reads in a separate thread from now on, up to the end.
    PeerReadAside,
    PeerWait,
    PeerShutdown,
    PeerShutdownRead,
    PeerClose,
    PeerReset,
}

/// The outcome of a step of the stream; steps of the peer have none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Wrote,
    Done,
    /// Read this many bytes of the peer, with the right contents.
    Read(usize),
    Failed(io::ErrorKind),
}

#[derive(Debug, PartialEq)]
pub(crate) struct Log {
    pub(crate) steps: Vec<(usize, Outcome)>,
    pub(crate) seen: Seen,
}

enum Held<S> {
    Whole(S),
    Halves(Option<ReadHalf<S>>, Option<WriteHalf<S>>),
    Gone,
}

impl<S: Subject> Held<S> {
    fn reader(&mut self) -> &mut (dyn AsyncRead + Unpin + Send) {
        match self {
            Self::Whole(stream) => stream,
            Self::Halves(reader, _) => reader.as_mut().unwrap(),
            Self::Gone => panic!("the script has dropped the stream"),
        }
    }

    fn writer(&mut self) -> &mut (dyn AsyncWrite + Unpin + Send) {
        match self {
            Self::Whole(stream) => stream,
            Self::Halves(_, writer) => writer.as_mut().unwrap(),
            Self::Gone => panic!("the script has dropped the stream"),
        }
    }

    fn whole(&self) -> &S {
        match self {
            Self::Whole(stream) => stream,
            _ => panic!("the script has split the stream"),
        }
    }
}

struct Run<S> {
    stream: Held<S>,
    /// Number of payload bytes accepted, and of answer bytes read.
    taken: usize,
    read: usize,
    aside: Option<JoinHandle<(Vec<u8>, io::Result<usize>)>>,
}

/// Runs a script, drops the stream at the end, and lets the peer read to the end.
pub(crate) async fn run<S: Subject>(steps: &[Step]) -> Log {
    let (stream, socket) = S::pair();
    let mut run = Run { stream: Held::Whole(stream), taken: 0, read: 0, aside: None };
    let mut peer = Peer::new(socket);
    let mut log = Vec::new();
    let mut reading = None;
    for (n, &step) in steps.iter().enumerate() {
        if matches!(step, Step::PeerReadAside) {
            let other = Peer::new(peer.socket.as_ref().unwrap().try_clone().unwrap());
            reading = Some(aside(std::mem::replace(&mut peer, other), |peer| peer.read(usize::MAX)));
        } else if let Some(outcome) = run.step(step).await {
            log.push((n, outcome));
        } else {
            peer = aside(peer, move |peer| peer_step(peer, step)).await.unwrap();
        }
    }
    run.stream = Held::Gone;
    let reading = match peer.socket.is_some() {
        true => reading.unwrap_or_else(|| aside(peer, |peer| peer.read(usize::MAX))),
        false => reading.unwrap_or_else(|| aside(peer, |_| {})),
    };
    Log { steps: log, seen: reading.await.unwrap().seen(run.taken) }
}

/// Runs an operation of the peer in a separate thread, while the runtime continues.
fn aside(mut peer: Peer, work: impl FnOnce(&mut Peer) + Send + 'static) -> JoinHandle<Peer> {
    tokio::task::spawn_blocking(move || {
        work(&mut peer);
        peer
    })
}

fn peer_step(peer: &mut Peer, step: Step) {
    match step {
        Step::PeerWrite(len) => peer.write(len),
        Step::PeerRead(len) => peer.read(len),
        Step::PeerWait => peer.wait(),
        Step::PeerShutdown => peer.shutdown(Shutdown::Write),
        Step::PeerShutdownRead => peer.shutdown(Shutdown::Read),
        Step::PeerClose => peer.socket = None,
        Step::PeerReset => peer.reset(),
        _ => {}
    }
}

impl<S: Subject> Run<S> {
    /// Returns `None` for a step without an outcome of the stream.
    async fn step(&mut self, step: Step) -> Option<Outcome> {
        let rest = &payload()[self.taken..];
        let wrote = |taken: &mut usize, done: io::Result<usize>| {
            Some(match done {
                Ok(n) => {
                    *taken += n;
                    Outcome::Wrote
                }
                Err(e) => Outcome::Failed(e.kind()),
            })
        };
        let done = |done: io::Result<()>| Some(done.map_or_else(|e| Outcome::Failed(e.kind()), |()| Outcome::Done));
        match step {
            Step::Write(len) => {
                let n = self.stream.writer().write(&rest[..len]).await;
                wrote(&mut self.taken, n)
            }
            Step::WriteAll(len) => {
                let all = self.stream.writer().write_all(&rest[..len]).await;
                wrote(&mut self.taken, all.map(|()| len))
            }
            Step::Vectored(lens) => {
                let mut at = 0;
                let pieces = lens.iter().map(|len| {
                    at += len;
                    IoSlice::new(&rest[at - len..at])
                });
                let n = self.stream.writer().write_vectored(&pieces.collect::<Vec<_>>()).await;
                wrote(&mut self.taken, n)
            }
            Step::Fill => loop {
                let piece = &payload()[self.taken..][..1000];
                let Ok(n) = tokio::time::timeout(Duration::from_millis(50), self.stream.writer().write(piece)).await
                else {
                    break Some(Outcome::Wrote);
                };
                if let Some(failed @ Outcome::Failed(_)) = wrote(&mut self.taken, n) {
                    break Some(failed);
                }
            },
            Step::Flush => done(self.stream.writer().flush().await),
            Step::Shutdown => done(self.stream.writer().shutdown().await),
            Step::Read(len) => {
                let mut got = Vec::new();
                let read = self.stream.reader().take(len as u64).read_to_end(&mut got).await;
                Some(self.outcome(&got, read))
            }
            Step::ReadToEnd => {
                let mut got = Vec::new();
                let read = self.stream.reader().read_to_end(&mut got).await;
                Some(self.outcome(&got, read))
            }
            Step::ReadAside => {
                let Held::Halves(reader, _) = &mut self.stream else { panic!("not split") };
                let mut reader = reader.take().unwrap();
                self.aside = Some(tokio::spawn(async move {
                    let mut got = Vec::new();
                    let read = reader.read_to_end(&mut got).await;
                    (got, read)
                }));
                None
            }
            Step::Joined => {
                let (got, read) = self.aside.take().unwrap().await.unwrap();
                Some(self.outcome(&got, read))
            }
            Step::Split => {
                let Held::Whole(stream) = std::mem::replace(&mut self.stream, Held::Gone) else { panic!("twice") };
                let (reader, writer) = tokio::io::split(stream);
                self.stream = Held::Halves(Some(reader), Some(writer));
                None
            }
            Step::DropReader | Step::DropWriter => {
                let Held::Halves(reader, writer) = &mut self.stream else { panic!("not split") };
                match step {
                    Step::DropReader => drop(reader.take()),
                    _ => drop(writer.take()),
                }
                None
            }
            Step::Drop => {
                self.stream = Held::Gone;
                None
            }
            Step::LingerZero => {
                SockRef::from(self.stream.whole()).set_linger(Some(Duration::ZERO)).unwrap();
                None
            }
            Step::Narrow => {
                SockRef::from(self.stream.whole()).set_send_buffer_size(4096).unwrap();
                None
            }
            Step::Settle => {
                while self.stream.whole().waits() > 0 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                None
            }
            Step::Gone => self.becomes(PollFlags::RDHUP).await,
            Step::Reset => self.becomes(PollFlags::HUP).await,
            Step::Yield => {
                tokio::task::yield_now().await;
                None
            }
            _ => None,
        }
    }

    /// Waits until the socket has one of `events`, which poll(2) returns.
    async fn becomes(&mut self, events: PollFlags) -> Option<Outcome> {
        loop {
            let mut fd = [PollFd::new(self.stream.whole(), events)];
            rustix::event::poll(&mut fd, Some(&Default::default())).unwrap();
            if fd[0].revents().intersects(events) {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn outcome(&mut self, got: &[u8], read: io::Result<usize>) -> Outcome {
        assert!(got == &answer()[self.read..self.read + got.len()], "what the peer wrote comes as it is");
        self.read += got.len();
        match read {
            Ok(_) => Outcome::Read(got.len()),
            Err(e) => Outcome::Failed(e.kind()),
        }
    }
}
