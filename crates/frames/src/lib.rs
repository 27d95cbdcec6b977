//! Bodies exchanged with another process, in memory that both share. On Linux; elsewhere the crate is empty.
//!
//! | I want to | use |
//! |---|---|
//! | send the output of another process to clients | [`FrameReceiver`], a body |
//! | pass a body to another process | [`FrameSender`] |
//!
//! ```text
//!  other process ──memfd, sealed──▶ FrameReceiver ──slices of the mapping──▶ server ──sendfile──▶ client
//!                ◀──── credit ─────                    the last one dropped ◀─┘
//!
//!  client ──▶ server ──request body──▶ FrameSender ──memfd, sealed──▶ other process
//!                                                  ◀──── credit ─────
//! ```
//!
//! A frame is a file in memory ([memfd_create(2)](https://man7.org/linux/man-pages/man2/memfd_create.2.html)) whose
//! descriptor is sent over a Unix socket. The two ends may be programs in different languages; the
//! [protocol](https://github.com/millstream-rs/millstream/blob/main/crates/frames/PROTOCOL.md) has messages of 16
//! bytes, and `examples/shared_frames.py` is an end in Python. One connection carries the frames of one body, in one
//! direction. Frames of less than 32 KiB are copied; they go faster over a plain socket.
//!
//! # Sealed frames
//!
//! A frame is accepted only if it is sealed against writing, shrinking and growing. Its bytes then never change,
//! whatever the other process does, and so:
//!
//! 1. The bytes may be borrowed as `&[u8]`. In memory that another process can write to, that is undefined behaviour.
//! 2. The socket of the client may refer to the pages as long as it needs them. Reused memory must not be written to
//!    before the last reader has read it. On one machine, and so between containers, acknowledged bytes still refer to
//!    these pages while they are in the receive queue of the client. No system call reports when they no longer do.
//! 3. No mapping ends before its last byte, and no `SIGBUS` is raised.
//!
//! The price is a new file for each frame, whose pages the kernel allocates and frees. Where copies are cheap, a plain
//! Unix stream costs less CPU time, unless a frame goes to several clients.
//!
//! # Trust
//!
//! The other process is not trusted. One that breaks the protocol, dies, or stops in the middle loses its connection,
//! and the body fails as if its source had; nothing else is affected. The credit bounds the frames of a receiver; a
//! sender also has its own limits. The permissions of the socket control who may connect: see
//! [`UnixListenerBuilder::mode`](millstream::net::UnixListenerBuilder::mode) and
//! [`UnixStream::peer_cred`](millstream::net::UnixStream::peer_cred).

#![cfg(target_os = "linux")]

// Modules:
//  receiver  frames from another process, as a body
//  sender    bytes for another process, as frames
//  frame     the slices of a received frame
//  ledger    the frames that are held, and credit that is returned
//  link      the socket: messages and descriptors
//  message   messages of 16 bytes
//  memfd     files in memory that are sealed: their bytes never change
//  rights    descriptors sent over Unix sockets
//  credit    amounts of credit
//  error     what can go wrong

mod credit;
mod error;
mod frame;
mod ledger;
mod link;
mod memfd;
mod message;
mod receiver;
mod rights;
mod sender;

pub use error::SharedError;
pub use receiver::{FrameReceiver, FrameReceiverBuilder};
pub use sender::{FrameSender, FrameSenderBuilder};

// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
