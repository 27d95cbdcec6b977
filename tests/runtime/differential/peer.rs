//! The other end: a blocking socket that follows instructions and records its observations.

use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::time::Duration;

use socket2::Socket;

use testkit::noise;

/// End of the stream as seen by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Not read up to the end, or closed before.
    Open,
    Eof,
    Reset,
    /// Nothing arrived for half a minute.
    Hangs,
}

#[derive(Debug)]
pub(crate) struct Seen {
    /// Number of bytes received; ignored where streams may accept more than others.
    pub(crate) len: usize,
    /// Whether the bytes match those that the stream has accepted: all of them, or a prefix of this length.
    pub(crate) bytes: Bytes,
    pub(crate) end: End,
    /// The results of its own calls.
    pub(crate) calls: Vec<Result<(), io::ErrorKind>>,
}

impl PartialEq for Seen {
    fn eq(&self, other: &Self) -> bool {
        (&self.bytes, self.end, &self.calls) == (&other.bytes, other.end, &other.calls)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    All,
    First(usize),
    Wrong { at: usize },
}

pub(crate) struct Peer {
    pub(crate) socket: Option<Socket>,
    pub(crate) got: Vec<u8>,
    end: End,
    calls: Vec<Result<(), io::ErrorKind>>,
    sent: usize,
}

impl Peer {
    pub(crate) fn new(socket: Socket) -> Self {
        // A working operation never takes this long.
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { socket: Some(socket), got: Vec::new(), end: End::Open, calls: Vec::new(), sent: 0 }
    }

    fn socket(&self) -> &Socket {
        self.socket.as_ref().expect("the script has closed the peer")
    }

    /// Writes the next `len` bytes of [`answer`].
    pub(crate) fn write(&mut self, len: usize) {
        let bytes = &answer()[self.sent..self.sent + len];
        let done = self.socket().write_all(bytes).map_err(|e| e.kind());
        self.sent += len;
        self.calls.push(done);
    }

    pub(crate) fn shutdown(&mut self, side: Shutdown) {
        self.socket().shutdown(side).unwrap();
    }

    /// Reads `len` more bytes, or up to the end.
    pub(crate) fn read(&mut self, len: usize) {
        let until = self.got.len().saturating_add(len);
        let mut buf = vec![0; 64 << 10];
        while self.got.len() < until && self.end == End::Open {
            let most = buf.len().min(until - self.got.len());
            match self.socket.as_ref().unwrap().read(&mut buf[..most]) {
                Ok(0) => self.end = End::Eof,
                Ok(n) => self.got.extend_from_slice(&buf[..n]),
                Err(e) => match e.kind() {
                    io::ErrorKind::ConnectionReset => self.end = End::Reset,
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.end = End::Hangs,
                    // A thread that has driven a ring may be interrupted by its completions.
                    io::ErrorKind::Interrupted => {}
                    kind => panic!("the peer read: {kind}"),
                },
            }
        }
    }

    /// Waits until something can be read, and reads nothing.
    pub(crate) fn wait(&mut self) {
        let peek = || self.socket().peek(&mut [MaybeUninit::uninit(); 1]);
        while peek().is_err_and(|e| e.kind() == io::ErrorKind::Interrupted) {}
    }

    pub(crate) fn reset(&mut self) {
        let socket = self.socket.take().expect("open");
        socket.set_linger(Some(Duration::ZERO)).unwrap();
    }

    /// Returns the observations, for a stream that has accepted `taken` bytes of [`payload`].
    pub(crate) fn seen(self, taken: usize) -> Seen {
        let same = testkit::common_prefix(&self.got, payload());
        let bytes = match self.got.len() {
            len if same < len || len > taken => Bytes::Wrong { at: same },
            len if len == taken => Bytes::All,
            len => Bytes::First(len),
        };
        Seen { len: self.got.len(), bytes, end: self.end, calls: self.calls }
    }
}

pub(crate) fn payload() -> &'static [u8] {
    static PAYLOAD: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    PAYLOAD.get_or_init(|| noise(1 << 20).repeat(32))
}

pub(crate) fn answer() -> &'static [u8] {
    &payload()[500_000..4 << 20]
}
