//! Descriptors on Windows, where sockets and files are handles with different functions. A descriptor here is either of
//! them.

#![allow(unreachable_pub, reason = "the bound of public functions, which users need not name")]

use std::fmt;
use std::fs::File;
use std::io;
use std::os::windows::io::{AsHandle, AsSocket, BorrowedHandle, BorrowedSocket, OwnedHandle, OwnedSocket};
use std::sync::Arc;

/// An open socket or file.
#[derive(Debug)]
pub(crate) enum OwnedFd {
    Socket(OwnedSocket),
    File(OwnedHandle),
}

/// A borrowed socket or file.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum BorrowedFd<'a> {
    /// A socket.
    Socket(BorrowedSocket<'a>),
    /// A file, a pipe or a console.
    File(BorrowedHandle<'a>),
}

impl BorrowedFd<'_> {
    pub(crate) fn try_clone_to_owned(&self) -> io::Result<OwnedFd> {
        Ok(match self {
            Self::Socket(socket) => OwnedFd::Socket(socket.try_clone_to_owned()?),
            Self::File(file) => OwnedFd::File(file.try_clone_to_owned()?),
        })
    }
}

/// Returns the number of a descriptor, for messages.
pub(crate) fn number(fd: BorrowedFd<'_>) -> impl fmt::Display {
    use std::os::windows::io::{AsRawHandle, AsRawSocket};
    match fd {
        BorrowedFd::Socket(socket) => socket.as_raw_socket() as usize,
        BorrowedFd::File(file) => file.as_raw_handle().addr(),
    }
}

impl OwnedFd {
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.as_fd().try_clone_to_owned()
    }
}

/// A socket or a file; corresponds to `AsFd` of Unix.
pub trait AsFd {
    /// Borrows it.
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Socket(socket) => BorrowedFd::Socket(socket.as_socket()),
            Self::File(file) => BorrowedFd::File(file.as_handle()),
        }
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl<T: AsFd + ?Sized> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

impl<T: AsFd + ?Sized> AsFd for Arc<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (**self).as_fd()
    }
}

/// Implements `AsFd` for types that are sockets or files.
macro_rules! borrowed {
    ($kind:ident $as:ident: $($type:ty),*) => {$(
        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                BorrowedFd::$kind(self.$as())
            }
        }
    )*};
}
borrowed!(Socket as_socket: std::net::TcpListener, std::net::TcpStream);
borrowed!(Socket as_socket: tokio::net::TcpListener, tokio::net::TcpSocket, tokio::net::TcpStream);
borrowed!(File as_handle: File, io::Stdin, io::Stdout, io::Stderr);

macro_rules! owned {
    ($kind:ident: $($type:ty),*) => {$(
        impl From<$type> for OwnedFd {
            fn from(from: $type) -> Self {
                Self::$kind(from.into())
            }
        }
    )*};
}
owned!(Socket: std::net::TcpListener, std::net::TcpStream, socket2::Socket);
owned!(File: File);

#[cfg(feature = "fs")]
borrowed!(File as_handle: tokio::fs::File);

/// Panics if it is a socket.
impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        match fd {
            OwnedFd::File(file) => file.into(),
            OwnedFd::Socket(socket) => panic!("internal: {socket:?} is no file"),
        }
    }
}

impl AsSocket for BorrowedFd<'_> {
    /// Panics if it is a file.
    fn as_socket(&self) -> BorrowedSocket<'_> {
        match self {
            Self::Socket(socket) => *socket,
            Self::File(file) => panic!("internal: {file:?} is no socket"),
        }
    }
}

impl From<OwnedFd> for OwnedSocket {
    /// Panics if it is a file.
    fn from(fd: OwnedFd) -> Self {
        match fd {
            OwnedFd::Socket(socket) => socket,
            OwnedFd::File(file) => panic!("internal: {file:?} is no socket"),
        }
    }
}

impl From<OwnedFd> for std::net::TcpStream {
    fn from(fd: OwnedFd) -> Self {
        OwnedSocket::from(fd).into()
    }
}

impl From<OwnedFd> for std::net::TcpListener {
    fn from(fd: OwnedFd) -> Self {
        OwnedSocket::from(fd).into()
    }
}

/// Implements `AsFd`, and `AsSocket` for others, for a public type by its field.
macro_rules! as_fd {
    ($name:ident, $field:ident) => {
        impl $crate::sys::fd::AsFd for $name {
            fn as_fd(&self) -> $crate::sys::fd::BorrowedFd<'_> {
                self.$field.as_fd()
            }
        }

        impl std::os::windows::io::AsSocket for $name {
            fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
                match $crate::sys::fd::AsFd::as_fd(self) {
                    $crate::sys::fd::BorrowedFd::Socket(socket) => socket,
                    $crate::sys::fd::BorrowedFd::File(file) => panic!("internal: {file:?} is no socket"),
                }
            }
        }
    };
}
pub(crate) use as_fd;

/// Implements `AsFd`, and `AsHandle` for others, for a public type by its field.
macro_rules! file_as_fd {
    ($name:ident, $($field:tt)+) => {
        impl $crate::sys::fd::AsFd for $name {
            fn as_fd(&self) -> $crate::sys::fd::BorrowedFd<'_> {
                self.$($field)+.as_fd()
            }
        }

        impl std::os::windows::io::AsHandle for $name {
            fn as_handle(&self) -> std::os::windows::io::BorrowedHandle<'_> {
                self.$($field)+.as_handle()
            }
        }
    };
}
pub(crate) use file_as_fd;
