//! Encryption by the kernel, for connections that send long files (`--cfg millstream_unstable_ktls`).
//!
//! - `secret`: the keys; `wire`: the number of the first record.
//!
//! The session encrypts until a write has a long slice of a file. Then the kernel gets the key and the number of the
//! next record. It encrypts all later writes, and files by `sendfile`. It keeps the keys as long as the socket lives.
//! The session continues to receive. Messages that it would send, alerts and a `KeyUpdate`, are sent here instead.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWrite;
use tokio_rustls::rustls;
use tokio_rustls::rustls::{ServerConfig, ServerConnection};
use tokio_rustls::server;

use crate::buf::origin::OriginSlice;
use crate::counters::{Counter, count, log};
use crate::net::{TakeOver, TcpStream};
use crate::sys::fd::AsFd;
use crate::sys::kernel_tls;
use secret::{SecretLog, TrafficSecret};
pub(super) use wire::Wire;

mod secret;
mod wire;

/// Minimum number of file bytes in one write for which the kernel takes over.
const LONG: usize = 256 << 10;
/// Plaintext of a full record, RFC 8446 §5.1.
const RECORD: usize = 16 << 10;

// Types of records, RFC 8446 §B.1.
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// A warning, `close_notify`, RFC 8446 §6.1.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
/// `KeyUpdate` that requests none, RFC 8446 §4.6.3.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

pub(super) struct Kernel {
    secret: TrafficSecret,
    /// Records after which the keys must be replaced, RFC 8446 §5.5. The session does so by itself.
    records_max: u64,
    encrypts: bool,
    /// At least as many records as the keys have encrypted.
    records: u64,
    update: Update,
    end: End,
}

/// State of the change to new keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Update {
    None,
    /// The peer must be notified.
    Due,
    /// The peer expects records of the new keys.
    Told,
    /// The kernel cannot.
    Failed,
}

/// State of the end of the sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    None,
    /// There is room for the last record, or there will be.
    Prepared,
    /// The last record was sent.
    Sent,
}

impl Kernel {
    /// Returns `None` if the kernel cannot take the connection over: HTTP/2, whose frames are too short, TLS 1.2, or
    /// another cipher.
    pub(super) fn new(session: &ServerConnection, log: &SecretLog) -> Option<Self> {
        let suite = session.negotiated_cipher_suite()?.tls13()?;
        let secret = TrafficSecret::new(suite, log).filter(|_| session.alpn_protocol() != Some(b"h2"))?;
        let records_max = suite.common.confidentiality_limit;
        Some(Self { secret, records_max, encrypts: false, records: 0, update: Update::None, end: End::None })
    }

    fn encrypts(&self) -> bool {
        self.encrypts
    }

    /// Returns whether a write has enough of a file for `sendfile` to pay.
    fn is_for(bufs: &[IoSlice<'_>]) -> bool {
        let files = bufs.iter().map(|buf| OriginSlice::new(buf)).filter(|slice| slice.is_sent_from_file());
        files.map(|slice| slice.bytes().len()).sum::<usize>() >= LONG
    }

    /// Returns whether the session still has its first keys. The session replaces them after a number of records
    /// without notice.
    fn has_keys_at(&self, next: u64) -> bool {
        next < self.records_max / 2
    }

    /// Hands the keys over, with the number of the next record. The kernel must have taken all earlier bytes. An error
    /// leaves the connection to the session.
    fn begin(&mut self, socket: &TcpStream, next: u64) -> io::Result<()> {
        socket.encrypt(&self.secret.keys(next))?;
        self.encrypts = true;
        self.records = next;
        count(Counter::TlsByKernel, 1);
        Ok(())
    }

    /// As `poll_write_vectored` of the socket.
    ///
    /// # Errors
    ///
    /// Those of the socket. `ErrorKind::Unsupported` if the keys must be replaced, and the kernel cannot.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        session: &mut ServerConnection,
        socket: &mut TcpStream,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if owes_update(session) {
            // The session would encrypt this message with outdated keys.
            discard_records(session)?;
            self.need_update();
        }
        if self.records >= self.records_max {
            self.need_update();
        }
        ready!(self.poll_update(cx, socket))?;
        let n = ready!(Pin::new(socket).poll_write_vectored(cx, bufs))?;
        // Queued writes may be sent in fewer, and each call may end with a short record.
        self.records = self.records.saturating_add(2 + (n / RECORD) as u64);
        Poll::Ready(Ok(n))
    }

    fn need_update(&mut self) {
        if self.update == Update::None {
            self.update = Update::Due;
        }
    }

    /// Replaces the keys if that is due.
    fn poll_update(&mut self, cx: &mut Context<'_>, socket: &TcpStream) -> Poll<io::Result<()>> {
        if self.update == Update::Due {
            if !kernel_tls::replaces_keys() {
                self.update = Update::Failed;
            } else {
                ready!(socket.poll_send_record(cx, HANDSHAKE, &KEY_UPDATE))?;
                self.secret.update();
                self.update = Update::Told;
            }
        }
        if self.update == Update::Told {
            ready!(socket.poll_drained(cx))?;
            socket.encrypt(&self.secret.keys(0))?;
            self.update = Update::None;
            self.records = 0;
        }
        if self.update == Update::Failed {
            let why = "the keys of this connection must be replaced, which the kernel's TLS can do since Linux 6.14";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::Unsupported, why)));
        }
        Poll::Ready(Ok(()))
    }

    /// Sends `close_notify`, and then shuts the socket down as its `poll_shutdown` does. After data that could not be
    /// sent, no `close_notify` is sent.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>, socket: &mut TcpStream) -> Poll<io::Result<()>> {
        if self.end != End::Sent && matches!(self.update, Update::None | Update::Due) {
            ready!(socket.poll_drained(cx))?;
            if self.end == End::None {
                kernel_tls::make_room(socket.as_fd());
                self.end = End::Prepared;
            }
            ready!(socket.poll_send_last_record(cx, ALERT, &CLOSE_NOTIFY))?;
            self.end = End::Sent;
        }
        Pin::new(socket).poll_shutdown(cx)
    }

    /// Sends an alert with the reason why the received data is not valid TLS, if the socket has room. Nothing follows
    /// the alert.
    pub(super) fn alert(&mut self, socket: &TcpStream, error: &io::Error) {
        // RFC 8446 §6.2.
        let description = match error.get_ref().and_then(|error| error.downcast_ref()) {
            // The peer has ended the connection.
            Some(rustls::Error::AlertReceived(_)) => return,
            Some(rustls::Error::DecryptError) => rustls::AlertDescription::BadRecordMac,
            Some(rustls::Error::PeerSentOversizedRecord) => rustls::AlertDescription::RecordOverflow,
            Some(rustls::Error::InvalidMessage(_)) => rustls::AlertDescription::DecodeError,
            _ => rustls::AlertDescription::UnexpectedMessage,
        };
        const FATAL: u8 = 2;
        if self.update != Update::Told {
            socket.try_send_record(ALERT, &[FATAL, description.into()]);
        }
        self.end = End::Sent;
    }
}

/// Returns the stream below a session. With `by_kernel` it counts the session's records.
pub(super) fn wire<S>(stream: S, by_kernel: bool) -> Wire<S> {
    Wire::new(stream, by_kernel)
}

pub(super) fn below<S>(wire: &Wire<S>) -> &S {
    wire.get_ref()
}

pub(super) fn mark_shaken<S>(wire: &mut Wire<S>) {
    wire.mark_shaken();
}

/// Returns the configuration of one connection, and the log of its secret if the kernel may encrypt.
pub(super) fn prepare(config: Arc<ServerConfig>, by_kernel: bool) -> (Arc<ServerConfig>, Option<Arc<SecretLog>>) {
    // The kernel's records have any length.
    if !by_kernel || config.max_fragment_size.is_some() {
        return (config, None);
    }
    let (config, log) = SecretLog::of(&config);
    (config, Some(log))
}

/// Returns the parts that send on a connection if the kernel encrypts.
pub(super) fn active<'a, S: TakeOver>(
    kernel: &'a mut Option<Box<Kernel>>,
    stream: &'a mut server::TlsStream<Wire<S>>,
) -> Option<(&'a mut Kernel, &'a mut ServerConnection, &'a mut TcpStream)> {
    let kernel = kernel.as_deref_mut().filter(|kernel| kernel.encrypts())?;
    let (wire, session) = stream.get_mut();
    Some((kernel, session, wire.socket()?))
}

/// Lets the kernel encrypt if `bufs` are better sent by it. All records of the session were handed over.
pub(super) fn poll_begin<S: TakeOver>(
    kernel: &mut Option<Box<Kernel>>,
    stream: &mut server::TlsStream<Wire<S>>,
    cx: &mut Context<'_>,
    bufs: &[IoSlice<'_>],
) -> Poll<io::Result<()>> {
    let Some(candidate) = kernel else { return Poll::Ready(Ok(())) };
    let (wire, session) = stream.get_mut();
    let next = wire.records().filter(|&next| candidate.has_keys_at(next) && !owes_update(session));
    let (Some(next), Some(socket)) = (next, wire.socket()) else {
        *kernel = None;
        return Poll::Ready(Ok(()));
    };
    if Kernel::is_for(bufs) {
        ready!(socket.poll_drained(cx))?;
        match candidate.begin(socket, next) {
            Ok(()) => wire.discard(),
            Err(e) => {
                log::kernel_tls_refused(&e);
                *kernel = None;
            }
        }
    }
    Poll::Ready(Ok(()))
}

/// Discards what the session would send.
fn discard_records(session: &mut ServerConnection) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(&mut io::sink())?;
    }
    Ok(())
}

/// Returns whether the session must send a `KeyUpdate` before its next data: the peer has requested it.
fn owes_update(session: &mut ServerConnection) -> bool {
    // The session queues the message when data is written, even if that is none.
    let _ = io::Write::write(&mut session.writer(), &[]);
    session.wants_write()
}

#[cfg(test)]
mod tests;
