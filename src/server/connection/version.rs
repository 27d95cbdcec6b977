//! Detects the HTTP version of a client if TLS has not negotiated it (RFC 9113 §3.3).

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use crate::net::Rewind;

/// Start of every HTTP/2 connection, and of no other.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of the first read: enough for most requests, so that they need no other read.
const LOOK: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Version {
    One,
    Two,
}

/// Reads until the version is known, and gives the bytes back to the stream. A stream that ends early is HTTP/1. While the
/// client is silent, there is no buffer.
pub(in crate::server) async fn version<I: AsyncRead + Rewind + Unpin>(stream: &mut I) -> io::Result<Version> {
    // A part of the preface, and its length.
    let (mut early, mut len) = ([0; PREFACE.len()], 0);
    poll_fn(|cx| {
        loop {
            let mut bytes = [MaybeUninit::uninit(); LOOK];
            let mut buf = ReadBuf::uninit(&mut bytes);
            buf.put_slice(&early[..len]);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf))?;
            let got = buf.filled();
            let version = if got.starts_with(PREFACE) {
                Version::Two
            } else if got.len() == len || !PREFACE.starts_with(got) {
                Version::One
            } else {
                len = got.len();
                early[..len].copy_from_slice(got);
                continue;
            };
            stream.unread(got);
            return Poll::Ready(Ok(version));
        }
    })
    .await
}

#[cfg(test)]
mod tests;
