//! [`Injector`]: what to write, for each piece of a message that was read.

use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;

use bytes::Buf;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderName, HeaderValue};

use super::scan::Scan;

/// Default limit of a head in bytes: that of [`http::serve`](crate::server::serve()) for requests.
const DEFAULT_LIMIT: usize = 64 << 10;

/// Puts header lines into one HTTP/1 message, a response or a request, that passes by in pieces.
///
/// The lines stand in front of the empty line that ends the head, so behind every field the message has. A field of the
/// same name is neither looked for nor replaced. Each line is written `name: value` and CRLF, with the name in lower case,
/// also in a head whose own lines end with LF alone ([RFC 9112 §2.2]: a recipient may recognise those, and this one does).
/// Folded lines and empty lines in front of the message pass as they are.
///
/// Responses of the class 1xx other than 101 pass as they are, and the first one that is none gets the lines: they have no
/// body ([RFC 9110 §15.2]), so where they end is certain. Where the body of the message ends is not known here, because
/// that is told by its fields, or by the request, or by the end of the stream ([RFC 9112 §6.3]). Whatever follows the head
/// passes untouched, be it one message or many. A relay that wants every message of a connection stamped must read their
/// framing itself: it feeds a message up to its last byte, calls [`reset`](Self::reset), and goes on with the next.
///
/// Memory is allocated by [`new`](Self::new) alone. A clone shares the lines: make one for all, and clone it for each
/// connection.
///
/// ```
/// use std::io;
/// use http::{HeaderMap, HeaderValue};
/// use millstream::relay::Injector;
/// use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
///
/// /// Moves one response from `upstream` to `client`, with two lines added.
/// async fn relay(upstream: &mut (impl AsyncRead + Unpin), client: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
///     let mut fields = HeaderMap::new();
///     fields.insert("via", HeaderValue::from_static("1.1 mill"));
///     fields.insert("x-served-by", HeaderValue::from_static("mill-7"));
///     let mut injector = Injector::new(&fields);
///     let mut piece = vec![0; 16 << 10];
///     loop {
///         let n = upstream.read(&mut piece).await?;
///         if n == 0 {
///             return Ok(injector.finish()?);
///         }
///         // One vectored write, if the client takes it whole.
///         client.write_all_buf(&mut injector.feed(&piece[..n])?).await?;
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> io::Result<()> {
/// let mut upstream = &b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes"[..];
/// let mut client = Vec::new();
/// relay(&mut upstream, &mut client).await?;
/// let expected = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nvia: 1.1 mill\r\nx-served-by: mill-7\r\n\r\nbytes";
/// assert_eq!(client, expected);
/// # Ok(())
/// # }
/// ```
///
/// [RFC 9112 §2.2]: https://www.rfc-editor.org/rfc/rfc9112#section-2.2
/// [RFC 9112 §6.3]: https://www.rfc-editor.org/rfc/rfc9112#section-6.3
/// [RFC 9110 §15.2]: https://www.rfc-editor.org/rfc/rfc9110#section-15.2
#[derive(Clone, Debug)]
pub struct Injector {
    /// The lines, and behind them a CR, for when the one that begins the empty line was held back.
    lines: Arc<[u8]>,
    limit: usize,
    /// Until the head has ended.
    scan: Option<Scan>,
}

impl Injector {
    /// Adds `fields` in their order; a `&HeaderMap` will do. Heads may have 64 KiB.
    ///
    /// The types keep CR and LF out of names and values.
    ///
    /// # Panics
    ///
    /// If one of them is `Content-Length` or `Transfer-Encoding`: the body passes as it is, so a second word on where it
    /// ends would be a lie, and a way to smuggle in a message ([RFC 9112
    /// §11.2](https://www.rfc-editor.org/rfc/rfc9112#section-11.2)).
    pub fn new<'a>(fields: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> Self {
        let mut lines = Vec::new();
        for (name, value) in fields {
            assert!(*name != CONTENT_LENGTH && *name != TRANSFER_ENCODING, "{name} is not a relay's to add");
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        lines.push(b'\r');
        Self { lines: lines.into(), limit: DEFAULT_LIMIT, scan: Some(Scan::new(DEFAULT_LIMIT)) }
    }

    /// Allows heads of at most `bytes`, with the empty line at the end and empty lines in front; added lines do not count,
    /// and each interim response has a head of its own. What was fed so far is forgotten, as by [`reset`](Self::reset).
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self.reset();
        self
    }

    /// Takes a piece of the message, of any length, and says what to write for it. Does not allocate.
    ///
    /// Once the head has ended, that is the piece itself; see [`is_done`](Self::is_done).
    ///
    /// # Errors
    ///
    /// [`Error::TooLarge`] and [`Error::BareCr`]. Then nothing of the piece was taken and the injector is as it was before.
    /// What was to be written until then was written; what remains is [`held`](Self::held) and the piece, which a relay
    /// drops with the connection, or passes on by itself if an unstamped message is better than none.
    pub fn feed<'a>(&'a mut self, piece: &'a [u8]) -> Result<Output<'a>, Error> {
        let Some(scan) = self.scan.as_mut().filter(|_| !piece.is_empty()) else { return Ok(Output([piece, &[], &[]])) };
        let held = scan.holds();
        let Some(end) = scan.run(piece, self.limit)? else {
            return Ok(Output([&piece[..piece.len() - usize::from(scan.holds())], &[], &[]]));
        };
        self.scan = None;
        // The empty line: LF, behind a CR or not, and that may be the one that was held back.
        let lf = end - 1;
        let empty = lf - usize::from(lf > 0 && piece[lf - 1] == b'\r');
        let lines = &self.lines[..self.lines.len() - usize::from(!held)];
        Ok(Output([&piece[..empty], lines, &piece[empty..]]))
    }

    /// Says that no more pieces come.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] if a head has begun and not ended, or the response behind an interim one is missing. A stream that
    /// ended before a message, at most behind empty lines, is no error; nor is one that ended in a body, which cannot be
    /// told here.
    pub fn finish(&self) -> Result<(), Error> {
        if self.scan.is_some_and(|scan| scan.has_begun()) { Err(Error::Ended) } else { Ok(()) }
    }

    /// Whether the lines are in: every further piece passes untouched, and need not be fed at all. A relay may go on with
    /// `splice` or [`tokio::io::copy`] from here.
    pub fn is_done(&self) -> bool {
        self.scan.is_none()
    }

    /// What was taken from pieces and not given out yet: nothing, or a CR.
    pub fn held(&self) -> &'static [u8] {
        if self.scan.is_some_and(|scan| scan.holds()) { b"\r" } else { b"" }
    }

    /// Says that the next piece begins a new message. What is held back is forgotten.
    #[inline]
    pub fn reset(&mut self) {
        self.scan = Some(Scan::new(self.limit));
    }
}

/// What to write for a piece that was read: at most three slices, those of the piece not copied.
///
/// As a [`Buf`] it goes into `write_all_buf` of tokio, which makes one vectored write of it as long as the socket takes it
/// whole, and goes on behind what was taken where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output<'a>([&'a [u8]; 3]);

impl<'a> Output<'a> {
    /// The slices in their order, empty ones among them.
    #[inline]
    pub fn slices(&self) -> [IoSlice<'a>; 3] {
        self.0.map(IoSlice::new)
    }
}

impl Buf for Output<'_> {
    fn remaining(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.iter().find(|part| !part.is_empty()).map_or(&[], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = self.0.iter().filter(|part| !part.is_empty());
        slices.iter_mut().zip(parts).map(|(slice, part)| *slice = IoSlice::new(part)).count()
    }

    fn advance(&mut self, mut n: usize) {
        for part in &mut self.0 {
            let here = n.min(part.len());
            *part = &part[here..];
            n -= here;
        }
        assert_eq!(n, 0, "advanced beyond the end");
    }
}

/// Why a message cannot be stamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The head does not end within the limit.
    #[non_exhaustive]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// A CR in the head is not followed by LF. [RFC 9112 §2.2](https://www.rfc-editor.org/rfc/rfc9112#section-2.2) forbids
    /// to forward it.
    BareCr,
    /// The stream ended in the head.
    Ended,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { limit } => write!(f, "the head of the message is larger than {limit} bytes"),
            Self::BareCr => f.write_str("the head of the message has a CR without LF"),
            Self::Ended => f.write_str("the stream ended in the head of a message"),
        }
    }
}

impl std::error::Error for Error {}

/// `UnexpectedEof` for [`Error::Ended`], else `InvalidData`.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Ended => io::ErrorKind::UnexpectedEof,
            Error::TooLarge { .. } | Error::BareCr => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
