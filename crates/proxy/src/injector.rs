//! [`Injector`]: adds header lines to a relayed message.

use std::io::IoSlice;
use std::sync::Arc;

use bytes::Buf;
use http::{HeaderName, HeaderValue};

use super::builder::check_fields;
use super::error::{ConfigError, InjectError};
use super::scan::Scan;

/// Default limit of a head in bytes, that of [`server::serve`](millstream::server::serve()) for requests.
const DEFAULT_LIMIT: usize = 64 << 10;

/// Adds header lines to one HTTP/1 message, a response or a request, that is relayed in pieces.
///
/// The lines are inserted before the empty line that ends the head, as `name: value` and CRLF with the name in lower
/// case. Fields of the same name are not replaced. The message's own lines may end with LF alone ([RFC 9112 §2.2]).
/// Folded lines and empty lines before the message pass unchanged.
///
/// Interim responses (1xx except 101) pass unchanged; the first final response gets the lines. Interim responses have
/// no body ([RFC 9110 §15.2]), so their end is known. The end of other bodies depends on fields, on the request or on
/// the end of the stream ([RFC 9112 §6.3]): all bytes after the head pass unchanged. To add lines to every message of a
/// connection, the caller parses the framing, feeds a message up to its last byte, and calls [`reset`](Self::reset).
///
/// Only [`new`](Self::new) allocates. Clones share the lines: create one injector and clone it for each connection.
///
/// ```
/// use http::{HeaderMap, HeaderValue};
/// use millstream_proxy::Injector;
///
/// let mut fields = HeaderMap::new();
/// fields.insert("via", HeaderValue::from_static("1.1 mill"));
/// let mut injector = Injector::new(&fields)?;
/// let mut sent = Vec::new();
/// for piece in [&b"HTTP/1.1 200 OK\r\nContent-"[..], b"Length: 5\r\n\r\nbytes"] {
///     // To a socket: `write_all_buf(&mut injector.feed(piece)?)`.
///     injector.feed(piece)?.slices().iter().for_each(|slice| sent.extend_from_slice(slice));
/// }
/// injector.finish()?;
/// assert_eq!(sent, b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nvia: 1.1 mill\r\n\r\nbytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [RFC 9112 §2.2]: https://www.rfc-editor.org/rfc/rfc9112#section-2.2
/// [RFC 9112 §6.3]: https://www.rfc-editor.org/rfc/rfc9112#section-6.3
/// [RFC 9110 §15.2]: https://www.rfc-editor.org/rfc/rfc9110#section-15.2
#[derive(Clone, Debug)]
pub struct Injector {
    /// The lines, followed by a CR. The CR is used if the CR of the empty line was held back.
    lines: Arc<[u8]>,
    limit: usize,
    /// `None` after the end of the head.
    scan: Option<Scan>,
}

impl Injector {
    /// Creates an injector of `fields`, in their order, for heads of up to 64 KiB. Their types exclude CR and LF.
    ///
    /// # Errors
    ///
    /// If a field is `Content-Length` or `Transfer-Encoding`: the body is relayed unchanged, and a second, wrong length
    /// allows request smuggling ([RFC 9112 §11.2](https://www.rfc-editor.org/rfc/rfc9112#section-11.2)).
    pub fn new<'a>(fields: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>) -> Result<Self, ConfigError> {
        let mut lines = Vec::new();
        for (name, value) in fields {
            check_fields("fields", [name])?;
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        lines.push(b'\r');
        Ok(Self { lines: lines.into(), limit: DEFAULT_LIMIT, scan: Some(Scan::new(DEFAULT_LIMIT)) })
    }

    /// Sets the limit of a head to `bytes`, including the empty line at its end and empty lines before it. Added lines
    /// do not count; each interim response has its own head. Resets the injector, as [`reset`](Self::reset) does.
    pub fn limit(mut self, bytes: usize) -> Self {
        self.limit = bytes;
        self.reset();
        self
    }

    /// Takes a piece of the message, of any length, and returns the slices to write for it. Does not allocate. After
    /// the end of the head, it returns the piece itself; see [`is_done`](Self::is_done).
    ///
    /// # Errors
    ///
    /// [`InjectError::TooLarge`] and [`InjectError::BareCr`]. The piece is not taken, and the state is unchanged. The
    /// caller drops [`held`](Self::held) and the piece with the connection, or writes them if an unmodified message is
    /// acceptable.
    pub fn feed<'a>(&'a mut self, piece: &'a [u8]) -> Result<Output<'a>, InjectError> {
        let Some(scan) = self.scan.as_mut().filter(|_| !piece.is_empty()) else { return Ok(Output([piece, &[], &[]])) };
        let held = scan.holds();
        let Some(end) = scan.run(piece, self.limit)? else {
            return Ok(Output([&piece[..piece.len() - usize::from(scan.holds())], &[], &[]]));
        };
        self.scan = None;
        // The empty line is LF alone or CRLF. The CR may have been held back.
        let lf = end - 1;
        let empty = lf - usize::from(lf > 0 && piece[lf - 1] == b'\r');
        let lines = &self.lines[..self.lines.len() - usize::from(!held)];
        Ok(Output([&piece[..empty], lines, &piece[empty..]]))
    }

    /// Checks that the input did not end within a head.
    ///
    /// # Errors
    ///
    /// [`InjectError::Ended`] if a head is incomplete, or the response after an interim one is missing. The end of the
    /// stream before a message, or after empty lines only, is no error; nor is the end in a body, which is not detected
    /// here.
    pub fn finish(&self) -> Result<(), InjectError> {
        if self.scan.is_some_and(|scan| scan.has_begun()) { Err(InjectError::Ended) } else { Ok(()) }
    }

    /// Returns whether the lines are inserted. Further pieces pass unchanged and need not be fed: the caller may
    /// continue with `splice` or [`tokio::io::copy`].
    pub fn is_done(&self) -> bool {
        self.scan.is_none()
    }

    /// Returns the bytes that were taken from pieces and not yet returned: none, or a CR.
    pub fn held(&self) -> &'static [u8] {
        if self.scan.is_some_and(|scan| scan.holds()) { b"\r" } else { b"" }
    }

    /// Starts a new message. A byte held back is discarded.
    #[inline]
    pub fn reset(&mut self) {
        self.scan = Some(Scan::new(self.limit));
    }
}

/// The slices to write for a piece, at most three. The bytes of the piece are not copied. `write_all_buf` of tokio
/// writes them with one vectored write if the socket accepts all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Output<'a>([&'a [u8]; 3]);

impl<'a> Output<'a> {
    /// Returns the slices in their order. Some may be empty.
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
        assert_eq!(n, 0, "cannot advance beyond the end");
    }
}
