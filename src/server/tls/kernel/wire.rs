//! The stream below a TLS session: it counts the session's records, so that the kernel can continue them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::{TakeOver, TcpStream};

/// Bytes before the contents of a record, RFC 8446 §5.1.
const HEAD: usize = 5;
/// Type of all encrypted records, §5.2.
const APPLICATION_DATA: u8 = 23;

pub(in crate::server::tls) struct Wire<S> {
    stream: S,
    sends: Sends,
}

enum Sends {
    /// Sends what the session writes.
    All,
    /// Also counts its records.
    Counted(Records),
    /// Sends nothing: the kernel makes the records.
    Nothing,
}

/// Counts encrypted records in a stream of bytes.
#[derive(Default)]
struct Records {
    /// Records since the last read of the handshake. That read is the client's `Finished`. The server's first records
    /// with the keys of the connection follow it.
    count: u64,
    shaken: bool,
    head: [u8; HEAD],
    /// Bytes of `head` that are known.
    known: usize,
    /// Bytes of the current record that are to come.
    rest: usize,
}

impl Records {
    fn wrote(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.rest.min(bytes.len());
            self.rest -= skipped;
            bytes = &bytes[skipped..];
            let n = (HEAD - self.known).min(bytes.len());
            self.head[self.known..self.known + n].copy_from_slice(&bytes[..n]);
            self.known += n;
            bytes = &bytes[n..];
            if self.known == HEAD {
                self.known = 0;
                self.rest = usize::from(u16::from_be_bytes([self.head[3], self.head[4]]));
                self.count += u64::from(self.head[0] == APPLICATION_DATA);
            }
        }
    }

    fn read(&mut self) {
        if !self.shaken {
            self.count = 0;
        }
    }
}

impl<S> Wire<S> {
    pub(super) fn new(stream: S, counts: bool) -> Self {
        Self { stream, sends: if counts { Sends::Counted(Records::default()) } else { Sends::All } }
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Records the end of the handshake.
    pub(super) fn mark_shaken(&mut self) {
        if let Sends::Counted(records) = &mut self.sends {
            records.shaken = true;
        }
    }

    /// Returns how many records were sent with the keys of the connection, if they are counted.
    pub(in crate::server::tls) fn records(&self) -> Option<u64> {
        match &self.sends {
            Sends::Counted(records) => Some(records.count),
            Sends::All | Sends::Nothing => None,
        }
    }

    /// Discards what the session writes from now on.
    pub(super) fn discard(&mut self) {
        self.sends = Sends::Nothing;
    }

    fn wrote<'a>(&mut self, mut n: usize, bufs: impl IntoIterator<Item = &'a [u8]>) {
        let Sends::Counted(records) = &mut self.sends else { return };
        for buf in bufs {
            let part = n.min(buf.len());
            records.wrote(&buf[..part]);
            n -= part;
        }
    }
}

impl<S: TakeOver> Wire<S> {
    /// Returns the stream, if its socket can encrypt.
    pub(super) fn socket(&mut self) -> Option<&mut TcpStream> {
        self.stream.as_socket()?.downcast_mut()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Sends::Counted(records) = &mut self.sends {
            records.read();
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if matches!(self.sends, Sends::Nothing) {
            return Poll::Ready(Ok(buf.len()));
        }
        let n = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.wrote(n, [buf]);
        Poll::Ready(Ok(n))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if matches!(self.sends, Sends::Nothing) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        let n = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs))?;
        self.wrote(n, bufs.iter().map(|buf| &**buf));
        Poll::Ready(Ok(n))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_wherever_the_bytes_are_cut() {
        let record = |kind: u8, len: u16| {
            let mut record = vec![kind, 3, 3];
            record.extend(len.to_be_bytes());
            // Contents that look like heads.
            record.resize(HEAD + usize::from(len), APPLICATION_DATA);
            record
        };
        let bytes =
            [record(23, 1), record(20, 1), record(23, 300), record(23, 0), record(22, 40), record(23, 5)].concat();
        for step in 1..=bytes.len() {
            let mut records = Records::default();
            bytes.chunks(step).for_each(|chunk| records.wrote(chunk));
            assert_eq!((records.count, records.rest, records.known), (4, 0, 0), "{step} bytes at once");
        }
    }
}
