//! The connection of two processes: records with descriptors, and the user at the other end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::record::{HEAD, Head, Record};
use crate::rights;

/// Time for the other process to answer, and to take a record.
const TIME: Duration = Duration::from_secs(5);

/// Bytes of a record that are received at once.
const STEP: usize = 256 << 10;

/// What a process says before it ends the connection, if it goes on: without a word it has died.
pub(crate) const GOES_ON: &str = "the process before this one goes on";

/// What it says to a process that was ready too late, or that it did not understand.
pub(crate) const NOT_AWAITED: &str = "the process before this one does not wait for it any more";

#[derive(Debug)]
pub(crate) struct Link(UnixStream);

impl Link {
    /// Takes a connection of the control socket.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` if the process at the other end has another user. It must not get sockets of this one, nor give
    /// it its own.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        check_user(stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw())?;
        Ok(Self(stream))
    }

    /// Takes a socket of the other process.
    pub(crate) fn from_fd(socket: OwnedFd) -> io::Result<Self> {
        let stream = std::os::unix::net::UnixStream::from(socket);
        stream.set_nonblocking(true)?;
        Self::new(UnixStream::from_std(stream)?)
    }

    /// Sends a record with descriptors.
    pub(crate) async fn send(&self, record: &Record, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let (bytes, mut sent) = (record.encode(fds.len())?, 0);
        let send = async {
            while sent < bytes.len() {
                // The descriptors go with the first byte.
                let fds = if sent == 0 { fds } else { &[] };
                self.0.writable().await?;
                match self.0.try_io(Interest::WRITABLE, || rights::send(self.0.as_fd(), &bytes[sent..], fds)) {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    accepted => sent += accepted?,
                }
            }
            Ok(())
        };
        timeout(TIME, send).await.unwrap_or_else(|_| Err(late("takes no record")))
    }

    /// Receives a record with its descriptors. `None` is the end of the connection.
    pub(crate) async fn receive(&self) -> io::Result<Option<(Record, Vec<OwnedFd>)>> {
        let (mut head, mut fds) = ([0; HEAD], Vec::new());
        // A record may be long in coming, but not its rest.
        let begun = self.fill(&mut head[..1], &mut fds).await?;
        if begun == 0 {
            return Ok(None);
        }
        let rest = async {
            self.fill_all(&mut head[1..], &mut fds).await?;
            let head = Head::parse(head)?;
            let mut payload = Vec::new();
            while payload.len() < head.payload {
                // In steps: the length may be garbage.
                let from = payload.len();
                payload.resize(head.payload.min(from + STEP), 0);
                self.fill_all(&mut payload[from..], &mut fds).await?;
            }
            if fds.len() != head.fds {
                let why = "not a record of a handoff: it has other descriptors than it says";
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            Ok(Some((Record::parse(head, &payload)?, fds)))
        };
        timeout(TIME, rest).await.unwrap_or_else(|_| Err(late("has sent a part of a record only")))
    }

    /// As [`receive`](Self::receive), of a record that follows at once.
    pub(crate) async fn answer(&self) -> io::Result<(Record, Vec<OwnedFd>)> {
        let answer = timeout(TIME, self.receive()).await.unwrap_or_else(|_| Err(late("does not answer")))?;
        answer.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the other process has ended"))
    }

    /// Waits for the end of the connection. Returns `false` if the other process has sent something before, which is lost.
    pub(crate) async fn ended(&self) -> bool {
        loop {
            if self.0.readable().await.is_err() {
                return true;
            }
            match self.0.try_read(&mut [0]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => return !matches!(read, Ok(1)),
            }
        }
    }

    /// Says why the other process gets nothing, if that can be said at once: this one may be about to end the connection.
    pub(crate) fn refuse(&self, why: &str) {
        if let Ok(bytes) = Record::Refused(why.to_owned()).encode(0) {
            let _ = rights::send(self.0.as_fd(), &bytes, &[]);
        }
    }

    async fn fill_all(&self, mut bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.fill(bytes, fds).await? {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the other process has ended in a record",
                    ));
                }
                n => bytes = &mut bytes[n..],
            }
        }
        Ok(())
    }

    async fn fill(&self, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
        loop {
            self.0.readable().await?;
            match self.0.try_io(Interest::READABLE, || rights::receive(self.0.as_fd(), bytes, fds)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                received => return received,
            }
        }
    }
}

/// Tells the other process, when it is dropped, that this one does not wait for it.
#[derive(Debug)]
pub(crate) struct Refusal<'a>(pub(crate) Option<&'a Link>);

impl Drop for Refusal<'_> {
    fn drop(&mut self) {
        if let Some(link) = self.0 {
            link.refuse(NOT_AWAITED);
        }
    }
}

fn check_user(theirs: u32, ours: u32) -> io::Result<()> {
    if theirs == ours {
        return Ok(());
    }
    let why = format!("the other process belongs to user {theirs}, this one to {ours}");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Returns the error for a record that was not expected.
pub(crate) fn unexpected(record: &Record) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the other process has sent {record:?} at the wrong time"))
}

/// Returns the error for a process that has been refused.
pub(crate) fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionRefused, why)
}

fn late(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the other process {what} within {} s", TIME.as_secs()))
}

#[cfg(test)]
mod tests;
