//! Detects the HTTP version of a client if TLS has not negotiated it (RFC 9113 §3.3).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

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

/// Reads until the version is known, and gives the bytes back to the stream. A stream that ends early is HTTP/1.
pub(in crate::server) async fn version<I: AsyncRead + Rewind + Unpin>(stream: &mut I) -> io::Result<Version> {
    let mut bytes = [0; LOOK];
    let mut buf = ReadBuf::new(&mut bytes);
    let version = loop {
        let before = buf.filled().len();
        poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buf)).await?;
        let got = buf.filled();
        if got.starts_with(PREFACE) {
            break Version::Two;
        }
        if got.len() == before || !PREFACE.starts_with(got) {
            break Version::One;
        }
    };
    stream.unread(buf.filled());
    Ok(version)
}

#[cfg(test)]
mod tests;
