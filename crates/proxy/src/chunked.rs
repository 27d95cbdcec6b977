//! The chunked transfer coding (RFC 9112 §7.1), decoded in the memory into which it was read.
//!
//! A stream of tokens has one short chunk per token. hyper returns each chunk as a separate frame. Here all chunks of
//! one read become one frame.

use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::stream::{Stream, inner};
use millstream::internal::lease;

/// Length of a read while the body arrives in small pieces, and after a read that filled its buffer.
const READ: usize = 8 << 10;
const READ_MAX: usize = 64 << 10;
/// Length below which data is copied. HTTP/2 counts the data of the frames that wait, and not the memory they lie in.
pub(crate) const SHORT: usize = 2 << 10;

/// Maximum number of digits of a size.
const DIGITS: u8 = 16;

/// A connection whose next bytes are a chunked body.
pub(crate) struct Chunked {
    stream: Stream,
    decoder: Decoder,
    trailers_max: usize,
    read_len: usize,
}

impl Chunked {
    /// `extra_max` limits the total length of all extensions and trailers, `trailers_max` the number of trailers.
    pub(crate) fn new(stream: Stream, extra_max: usize, trailers_max: usize) -> Self {
        Self { stream, decoder: Decoder::new(extra_max), trailers_max, read_len: READ }
    }

    /// Reads the next data; it is empty at the end of the body.
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        while !self.decoder.has_ended() {
            let mut lease = lease(self.read_len);
            ready!(inner!(&mut self.stream, stream => lease.poll_read(cx, Pin::new(stream), self.read_len)))?;
            if lease.is_empty() {
                let text = "the upstream ended before the end of a chunked response";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::UnexpectedEof, text)));
            }
            let is_full = lease.len() == self.read_len;
            self.read_len = if is_full { READ_MAX } else { READ };
            let (data, used) = self.decoder.decode(lease.contents()).map_err(invalid)?;
            // Bytes after the body belong to no request.
            self.stream.unread(&lease.as_ref()[used..]);
            if !data.is_empty() {
                return Poll::Ready(Ok(match data.len() < SHORT {
                    true => Bytes::copy_from_slice(&lease.as_ref()[data]),
                    false => lease.freeze().slice(data),
                }));
            }
        }
        Poll::Ready(Ok(Bytes::new()))
    }

    /// Returns whether all data was read.
    pub(crate) fn has_ended(&self) -> bool {
        self.decoder.has_ended()
    }

    /// Returns the trailers.
    pub(crate) fn trailers(&self) -> io::Result<Option<HeaderMap>> {
        self.decoder.trailers(self.trailers_max).map_err(invalid)
    }

    /// Returns the connection, behind the body.
    pub(crate) fn into_stream(self) -> Stream {
        self.stream
    }
}

fn invalid(malformed: Malformed) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, malformed)
}

struct Decoder {
    place: ChunkPlace,
    /// Bytes of the chunk that have not been decoded.
    left: u64,
    /// The trailer section.
    trailers: Vec<u8>,
    /// Bytes that extensions and trailers may still have.
    room: usize,
}

/// The next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkPlace {
    /// A digit of the size, after this many digits.
    Size(u8),
    /// White space between the size and an extension or the end of the line.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
    End,
}

/// Why a body is not a valid chunked body.
#[derive(Debug, PartialEq, Eq)]
struct Malformed(&'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the upstream sent a chunked body with {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl Decoder {
    /// `room` limits the total length of all extensions and trailers.
    fn new(room: usize) -> Self {
        Self { place: ChunkPlace::Size(0), left: 0, trailers: Vec::new(), room }
    }

    /// Returns whether the body is complete.
    fn has_ended(&self) -> bool {
        self.place == ChunkPlace::End
    }

    /// Decodes the next bytes of the body. Returns the range of the decoded data, and the number of bytes that belong
    /// to the body. This number is less than `bytes.len()` only at the end of the body.
    fn decode(&mut self, bytes: &mut [u8]) -> Result<(Range<usize>, usize), Malformed> {
        let mut data = 0..0;
        let mut at = 0;
        while at < bytes.len() && self.place != ChunkPlace::End {
            if self.place == ChunkPlace::Data {
                let end =
                    usize::try_from(self.left).map_or(bytes.len(), |left| bytes.len().min(at.saturating_add(left)));
                self.left -= (end - at) as u64;
                data = join(bytes, data, at..end);
                at = end;
                if self.left == 0 {
                    self.place = ChunkPlace::DataCr;
                }
            } else {
                self.place = self.step(bytes[at])?;
                at += 1;
            }
        }
        Ok((data, at))
    }

    fn step(&mut self, byte: u8) -> Result<ChunkPlace, Malformed> {
        Ok(match (self.place, byte) {
            (ChunkPlace::Size(digits), _) if byte.is_ascii_hexdigit() => {
                if digits == DIGITS {
                    return Err(Malformed("a size of more than 16 digits"));
                }
                let digit = (byte as char).to_digit(16).unwrap_or_default();
                self.left = self.left << 4 | u64::from(digit);
                ChunkPlace::Size(digits + 1)
            }
            (ChunkPlace::Size(1..) | ChunkPlace::Space, b'\t' | b' ') => self.extra(ChunkPlace::Space)?,
            (ChunkPlace::Size(1..) | ChunkPlace::Space, b';') => self.extra(ChunkPlace::Extension)?,
            (ChunkPlace::Size(1..) | ChunkPlace::Space | ChunkPlace::Extension, b'\r') => ChunkPlace::SizeLf,
            (ChunkPlace::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.extra(ChunkPlace::Extension)?,
            (ChunkPlace::SizeLf, b'\n') if self.left == 0 => ChunkPlace::Trailers,
            (ChunkPlace::SizeLf, b'\n') => ChunkPlace::Data,
            (ChunkPlace::DataCr, b'\r') => ChunkPlace::DataLf,
            (ChunkPlace::DataLf, b'\n') => ChunkPlace::Size(0),
            (ChunkPlace::Trailers, _) => {
                self.trailers.push(byte);
                let has_ended = byte == b'\n' && (self.trailers == b"\r\n" || self.trailers.ends_with(b"\r\n\r\n"));
                self.extra(if has_ended { ChunkPlace::End } else { ChunkPlace::Trailers })?
            }
            (ChunkPlace::DataCr | ChunkPlace::DataLf, _) => {
                return Err(Malformed("a chunk that is longer than its size"));
            }
            _ => return Err(Malformed("a line that has no valid size")),
        })
    }

    /// Counts a byte that belongs neither to a size nor to the data.
    fn extra(&mut self, place: ChunkPlace) -> Result<ChunkPlace, Malformed> {
        // The empty line at the end.
        if self.trailers != b"\r" && self.trailers != b"\r\n" {
            self.room = self.room.checked_sub(1).ok_or(Malformed("extensions or trailers that are too long"))?;
        }
        Ok(place)
    }

    /// Returns the trailers; `None` if there are none. Fails if there are more than `most`.
    fn trailers(&self, most: usize) -> Result<Option<HeaderMap>, Malformed> {
        let invalid = || Malformed("an invalid trailer");
        let mut fields = HeaderMap::new();
        let text = self.trailers.strip_suffix(b"\r\n").unwrap_or_default();
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let line = line.strip_suffix(b"\r\n").ok_or_else(invalid)?;
            let colon = line.iter().position(|&byte| byte == b':').ok_or_else(invalid)?;
            let name = HeaderName::from_bytes(&line[..colon]).map_err(|_| invalid())?;
            let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).map_err(|_| invalid())?;
            fields.append(name, value);
            if fields.len() > most {
                return Err(Malformed("too many trailers"));
            }
        }
        Ok(Some(fields).filter(|fields| !fields.is_empty()))
    }
}

/// Joins two ranges of data: moves the shorter one.
fn join(bytes: &mut [u8], data: Range<usize>, next: Range<usize>) -> Range<usize> {
    if data.len() < next.len() {
        let start = next.start - data.len();
        bytes.copy_within(data, start);
        start..next.end
    } else {
        bytes.copy_within(next.clone(), data.end);
        data.start..data.end + next.len()
    }
}

#[cfg(test)]
mod tests;
