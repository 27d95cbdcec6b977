//! A connection over TLS, for tokio and hyper.

use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_rustls::rustls::{HandshakeKind, ProtocolVersion, ServerConnection};
use tokio_rustls::server;

use super::records::{Records, cut};
use crate::buf::origin;
use crate::counters::log;
use crate::counters::{Counter, count};
use crate::net::{Outlet, Owed, RecordWriter, Rewind, Seal, Sent, TakeOver};

/// Bytes encrypted by one write: as many as one call sends.
const WRITE_MAX: usize = 64 << 10;
/// Slices of one write in a record. hyper passes no more.
const PIECES: usize = 64;

/// A connection over TLS, from [`Tls::accept`](super::Tls::accept) or, as the result of an upgrade, from a
/// [server](crate::server::Server::tls).
///
/// Records have at most 1400 bytes while a connection is young (64 KiB) or after it was idle (1 s), so that the peer
/// can decrypt each segment when it arrives. Otherwise records have 16 KiB (RFC 8446 §5.1). The stream below gathers
/// the records.
///
/// # Errors
///
/// Errors of the stream below. `ErrorKind::InvalidData` for data that is not TLS. Reads return
/// `ErrorKind::UnexpectedEof` if the peer ends the connection without a `close_notify`, because anyone on the network
/// path can do that. Writes return it if a mapped file shrinks during encryption. Then nothing more is sent, not even a
/// `close_notify`.
///
/// # Cancel safety
///
/// As for the stream below. `shutdown` sends a `close_notify`. A stream dropped without `shutdown` does not, so that
/// the peer detects the truncation.
pub struct TlsStream<S> {
    /// Boxed, because its size is a kilobyte and it is moved often.
    stream: Box<server::TlsStream<S>>,
    records: Records,
    /// Bytes that were received and given back by a reader.
    unread: Vec<u8>,
    /// Whether a file shrank during encryption. No more encrypted bytes are handed over then.
    torn: bool,
    /// Whether the peer has sent data that is not valid TLS. rustls has then sent its alert, and must not get more
    /// data.
    broken: bool,
    owed: Option<Arc<Owed>>,
}

impl<S> TlsStream<S> {
    pub(super) fn new(mut stream: server::TlsStream<S>) -> Self {
        // Writes are bounded here, so that the remainder of a bound does not split a record.
        stream.get_mut().1.set_buffer_limit(None);
        Self {
            stream: Box::new(stream),
            records: Records::new(Instant::now()),
            unread: Vec::new(),
            torn: false,
            broken: false,
            owed: None,
        }
    }

    /// Returns the stream below, for its addresses or its [handle](crate::net::TcpStream::handle).
    pub fn get_ref(&self) -> &S {
        self.stream.get_ref().0
    }

    /// Returns the rustls session: cipher suite, certificates of the client, exported keys.
    pub fn session(&self) -> &ServerConnection {
        self.stream.get_ref().1
    }

    /// Returns the negotiated protocol (ALPN), `h2` or `http/1.1`; `None` if the client requested none.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.session().alpn_protocol()
    }

    /// Returns the TLS version.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.session().protocol_version()
    }

    /// Returns the server name that the client requested (SNI).
    pub fn server_name(&self) -> Option<&str> {
        self.session().server_name()
    }

    /// Returns the number of bytes that are decrypted and were not read. An error is left to the next read.
    pub(in crate::server) fn decrypted(&mut self) -> usize {
        let state = self.stream.get_mut().1.process_new_packets();
        state.map_or(0, |state| state.plaintext_bytes_to_read())
    }

    /// Returns whether the client resumed a session with a ticket, so that no certificate was needed.
    pub fn is_resumed(&self) -> bool {
        self.session().handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

impl<S: AsyncRead + AsyncWrite + TakeOver + Unpin> TlsStream<S> {
    /// Passes received bytes to `take`: those of all records that are decrypted, as far as there is room. None mean the
    /// end of the stream.
    fn poll_received(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<()>> {
        if room == 0 {
            return Poll::Ready(Ok(()));
        }
        if !self.unread.is_empty() {
            let n = room.min(self.unread.len());
            take(&self.unread[..n]);
            self.unread.drain(..n);
            if self.unread.is_empty() {
                // Frees the buffer: it is not needed again.
                self.unread = Vec::new();
            }
            return Poll::Ready(Ok(()));
        }
        let mut stream = Pin::new(&mut *self.stream);
        if self.broken {
            let error = io::Error::new(io::ErrorKind::InvalidData, "the TLS session has failed before");
            return Poll::Ready(Err(error));
        }
        let received = match ready!(stream.as_mut().poll_fill_buf(cx)) {
            Ok(received) => received,
            Err(e) => {
                self.broken = e.kind() == io::ErrorKind::InvalidData;
                return Poll::Ready(Err(e));
            }
        };
        let n = received.len().min(room);
        take(&received[..n]);
        stream.as_mut().consume(n);
        let mut reader = stream.get_mut().get_mut().1.reader();
        let mut left = room - n;
        // The next read returns an end or an error.
        while left > 0
            && let Ok(received) = reader.fill_buf()
            && !received.is_empty()
        {
            let n = received.len().min(left);
            take(&received[..n]);
            reader.consume(n);
            left -= n;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_encrypt(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let taken = self.poll_records(cx, bufs);
        Owed::wrote(self.owed.as_deref(), &taken, bufs);
        taken
    }

    /// Encrypts bytes of `bufs` in order, and returns their number. `Pending` means none.
    fn poll_records(&mut self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        // First hands over the rest of the previous write, so that at most one write waits here.
        ready!(self.poll_handed_over(cx))?;
        let taken = self.encrypt(bufs)?;
        if taken > 0 {
            // The next write, flush or shutdown offers the remaining bytes to the stream below.
            if let Poll::Ready(Err(e)) = self.poll_handed_over(cx) {
                return Poll::Ready(Err(e));
            }
        }
        Poll::Ready(Ok(taken))
    }

    /// Makes records of bytes of `bufs` in order, at most [`WRITE_MAX`], and returns the number of bytes.
    fn encrypt(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.records.begin(Instant::now());
        let mut taken = 0;
        while taken < WRITE_MAX {
            let n = self.encrypt_record(bufs, taken)?;
            if n == 0 {
                break;
            }
            self.records.wrote(n);
            taken += n;
        }
        if bufs.iter().any(|buf| origin::is_torn(buf)) {
            // The bytes of a file that shrank were encrypted as zeros.
            self.torn = true;
            count(Counter::TornFiles, 1);
            log::file_torn();
            return Err(torn());
        }
        Ok(taken)
    }

    /// Makes one record of the bytes behind the first `skip`, and returns their number.
    fn encrypt_record(&mut self, bufs: &[IoSlice<'_>], skip: usize) -> io::Result<usize> {
        let room = self.records.room().min(WRITE_MAX - skip);
        let mut writer = self.stream.get_mut().1.writer();
        // The common way needs no list of pieces.
        if let [buf] = bufs {
            let rest = &buf[skip..];
            return if rest.is_empty() { Ok(0) } else { writer.write(&rest[..rest.len().min(room)]) };
        }
        let mut pieces = [IoSlice::new(&[]); PIECES];
        match cut(bufs, skip, room, &mut pieces) {
            0 => Ok(0),
            used => writer.write_vectored(&pieces[..used]),
        }
    }

    /// As [`Seal::send_now`].
    fn seal(&mut self, below: &Outlet, mut bytes: &[u8]) -> io::Result<Sent> {
        if self.torn {
            return Err(torn());
        }
        let mut records = RecordWriter::new(below);
        while !bytes.is_empty() {
            bytes = &bytes[self.encrypt(&[IoSlice::new(bytes)])?..];
            let session = self.stream.get_mut().1;
            while session.wants_write() {
                session.write_tls(&mut records)?;
            }
        }
        Ok(records.sent)
    }

    /// Ready once the stream below has taken all bytes.
    fn poll_handed_over(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.torn {
            return Poll::Ready(Err(torn()));
        }
        Pin::new(&mut *self.stream).poll_flush(cx)
    }
}

fn torn() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file shrank while it was being sent")
}

impl<S> Rewind for TlsStream<S> {
    fn unread(&mut self, bytes: &[u8]) {
        self.unread.splice(..0, bytes.iter().copied());
    }
}

impl<S: AsyncRead + AsyncWrite + TakeOver + Unpin + Send> TakeOver for TlsStream<S> {
    fn count_writes(&mut self, owed: Arc<Owed>) {
        self.owed = Some(owed);
    }

    fn as_seal(&mut self) -> Option<&mut dyn Seal> {
        Some(self)
    }
}

impl<S: AsyncRead + AsyncWrite + TakeOver + Unpin + Send> Seal for TlsStream<S> {
    fn send_now(&mut self, bytes: &[u8]) -> Sent {
        let below = self.get_ref().outlet();
        below.and_then(|below| self.seal(&below, bytes).ok()).unwrap_or(Sent::Failed)
    }

    fn has_room(&mut self, cx: &Context<'_>) -> bool {
        // The task hands these records over, which its budget may have kept it from.
        !self.session().wants_write() && self.get_ref().outlet().is_some_and(|below| below.has_room(cx))
    }
}

impl<S: fmt::Debug> fmt::Debug for TlsStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsStream")
            .field("stream", self.get_ref())
            .field("version", &self.version())
            .field("alpn", &self.alpn().map(String::from_utf8_lossy))
            .finish_non_exhaustive()
    }
}

impl<S: AsyncRead + AsyncWrite + TakeOver + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_received(cx, buf.remaining(), |bytes| buf.put_slice(bytes))
    }
}

impl<S: AsyncRead + AsyncWrite + TakeOver + Unpin> hyper::rt::Read for TlsStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_received(cx, buf.remaining(), |bytes| buf.put_slice(bytes))
    }
}

// The two traits have the same methods.
macro_rules! writes {
    ($($write:ident)::+) => {
        impl<S: AsyncRead + AsyncWrite + TakeOver + Unpin> $($write)::+ for TlsStream<S> {
            fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.poll_encrypt(cx, &[IoSlice::new(buf)])
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.poll_encrypt(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.poll_handed_over(cx)
            }

            fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                // No `close_notify`: the peer would regard the received bytes as complete.
                if self.torn {
                    return Poll::Ready(Err(torn()));
                }
                Pin::new(&mut *self.stream).poll_shutdown(cx)
            }
        }
    };
}
writes!(AsyncWrite);
writes!(hyper::rt::Write);

#[cfg(test)]
mod tests;
