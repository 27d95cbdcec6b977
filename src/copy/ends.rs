//! The two ends of a copy. This module recognises by type the ends that the kernel can copy between.

use std::any::Any;
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite};

use super::streams::Stream;
use crate::fs::{FileReader, FileWriter, Metadata, Step};
use crate::sys::errno::Errno;
use crate::sys::fd::AsFd;
use crate::sys::{call, socket, transfer};

/// An end of a copy, as the kernel can use it.
#[derive(Debug)]
pub(super) enum End<'a> {
    Stream(Stream<'a>),
    File(Handle<'a>),
    Other,
}

/// A value that may be an end known to the kernel.
pub(super) trait Known {
    /// Recognises the end by its type. No other code looks at the types of ends.
    fn end(&mut self) -> End<'_>;
}

/// The source of a copy. The engine is compiled once for all types.
pub(super) trait Source: AsyncRead + Unpin + Known {}
/// The target of a copy.
pub(super) trait Target: AsyncWrite + Unpin + Known {}

impl<T: AsyncRead + Unpin + 'static> Source for T {}
impl<T: AsyncWrite + Unpin + 'static> Target for T {}

impl<T: 'static> Known for T {
    fn end(&mut self) -> End<'_> {
        let end: &mut dyn Any = self;
        if end.is::<tokio::fs::File>() {
            return end.downcast_mut().map_or(End::Other, |file| End::File(Handle::Tokio(file)));
        }
        if end.is::<FileReader>() {
            return end.downcast_mut().map_or(End::Other, |reader| End::File(Handle::Reader(reader)));
        }
        if end.is::<FileWriter>() {
            return end.downcast_mut().map_or(End::Other, |writer| End::File(Handle::Writer(writer)));
        }
        Stream::of(end).map_or(End::Other, End::Stream)
    }
}

impl End<'_> {
    /// Returns the end as a source. A stream with bytes that were given back is not a source: they are not in the socket.
    pub(super) fn into_source(self) -> Self {
        match self {
            Self::Stream(stream) if stream.has_unread_bytes() => Self::Other,
            end => end,
        }
    }

    /// Returns the path of a file or the address of a peer, if known.
    pub(super) fn name(&self) -> Option<String> {
        let path = |file: &crate::fs::File| file.path().display().to_string();
        match self {
            Self::Stream(stream) => socket::peer_addr(&stream.fd()).ok().map(|peer| peer.to_string()),
            Self::File(Handle::Reader(reader)) => Some(path(reader.file())),
            Self::File(Handle::Writer(writer)) => Some(path(writer.file())),
            Self::File(Handle::Tokio(_)) | Self::Other => None,
        }
    }

    /// Resets the connection if the end is a TCP stream, so that the peer does not regard the received bytes as
    /// complete.
    pub(super) fn reset(&self) {
        if let Self::Stream(stream) = self {
            socket::reset_tcp(stream.fd());
        }
    }
}

#[derive(Debug)]
pub(super) enum Handle<'a> {
    Tokio(&'a mut tokio::fs::File),
    Reader(&'a mut FileReader),
    Writer(&'a mut FileWriter),
}

#[derive(Debug)]
pub(super) struct Open {
    pub(super) file: Arc<std::fs::File>,
    pub(super) position: u64,
    pub(super) len: u64,
    /// Whether the position of the handle is up to date.
    pub(super) told: bool,
}

#[derive(Debug, Default)]
pub(super) enum Settling {
    #[default]
    Flush,
    Seek,
}

impl Handle<'_> {
    /// Finishes pending operations of the handle and returns the file at its position. `None` if the handle itself must
    /// be read or written: the position does not apply, because it is not a regular file or open for appending, or no
    /// descriptor is free for a duplicate.
    pub(super) fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        at: &mut Settling,
        writes: bool,
    ) -> Poll<Result<Option<Open>, (Step, io::Error)>> {
        let open = |error| (Step::Inspect, error);
        let flush = |error| (Step::Flush, error);
        if !self.has_position(writes).map_err(open)? {
            return Poll::Ready(Ok(None));
        }
        let (file, position) = match self {
            Self::Tokio(file) => {
                let mut file = Pin::new(&mut **file);
                if let Settling::Flush = at {
                    ready!(file.as_mut().poll_flush(cx)).map_err(flush)?;
                    // Seeking to the current position discards the bytes read ahead.
                    file.as_mut().start_seek(SeekFrom::Current(0)).map_err(open)?;
                    *at = Settling::Seek;
                }
                let position = ready!(file.as_mut().poll_complete(cx)).map_err(open)?;
                // A duplicate, because work on the blocking pool may outlive the handle.
                match file.as_fd().try_clone_to_owned() {
                    Ok(shared) => (Arc::new(shared.into()), position),
                    // Reading and writing the handle needs no more descriptors.
                    Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::MFILE | Errno::NFILE)) => {
                        return Poll::Ready(Ok(None));
                    }
                    Err(e) => return Poll::Ready(Err(open(e))),
                }
            }
            Self::Reader(reader) => {
                let position = ready!(Pin::new(&mut **reader).poll_complete(cx)).map_err(open)?;
                (Arc::clone(reader.file().shared()), position)
            }
            Self::Writer(writer) => {
                ready!(Pin::new(&mut **writer).poll_flush(cx)).map_err(flush)?;
                let position = ready!(Pin::new(&mut **writer).poll_complete(cx)).map_err(open)?;
                (Arc::clone(writer.file().shared()), position)
            }
        };
        *at = Settling::default();
        let len = Metadata::new(&call::status(file.as_fd()).map_err(open)?).len();
        Poll::Ready(Ok(Some(Open { file, position, len, told: true })))
    }

    fn has_position(&self, writes: bool) -> io::Result<bool> {
        let file = match self {
            Self::Tokio(file) => file.as_fd(),
            Self::Reader(reader) => reader.file().as_fd(),
            Self::Writer(writer) => writer.file().as_fd(),
        };
        Ok(Metadata::new(&call::status(file)?).is_file() && !(writes && transfer::appends(file)?))
    }

    pub(super) fn tell(&mut self, open: &mut Open) -> io::Result<()> {
        if !open.told {
            match self {
                // tokio's file uses the position of the descriptor.
                Self::Tokio(file) => transfer::set_position(file.as_fd(), open.position)?,
                Self::Reader(reader) => reader.move_to(open.position),
                Self::Writer(writer) => writer.move_to(open.position),
            }
            open.told = true;
        }
        Ok(())
    }
}

impl Open {
    pub(super) fn left(&self) -> u64 {
        self.len.saturating_sub(self.position)
    }

    pub(super) fn advance(&mut self, n: u64) {
        self.position += n;
        self.told &= n == 0;
    }
}
