//! Responses of HTTP/1.1, in pieces of any length.

use std::io;

/// Longest head of a response.
const HEAD_MAX: usize = 16 << 10;

/// Position in a response.
#[derive(Debug, Default)]
pub struct Response {
    place: Place,
    head: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    /// Bytes left of a body of known length.
    Body(u64),
    /// In a line with the size of a chunk: what was read of it, and whether its digits have ended.
    Size(u64, bool),
    Chunk(u64),
    /// In the line end after a chunk.
    End,
    /// In the trailers: whether the current line has bytes.
    Trailers(bool),
    Done,
}

fn invalid(text: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_string())
}

impl Response {
    pub fn is_done(&self) -> bool {
        self.place == Place::Done
    }

    /// Returns how many bytes of the body are certain to follow next, and may be discarded unread.
    pub fn body_left(&self) -> u64 {
        match self.place {
            Place::Body(left) => left,
            _ => 0,
        }
    }

    /// Counts bytes of the body that were discarded, at most as many as [`body_left`](Self::body_left) says.
    pub fn skip(&mut self, n: u64) {
        if let Place::Body(left) = self.place {
            self.place = if left == n { Place::Done } else { Place::Body(left - n) };
        }
    }

    /// Parses the next bytes of the connection and passes on those of the body. Returns the number of bytes used: all,
    /// unless the response ends before.
    pub fn take(&mut self, bytes: &[u8], mut body: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut used = 0;
        while used < bytes.len() && !self.is_done() {
            let rest = &bytes[used..];
            used += match self.place {
                Place::Head => self.take_head(rest)?,
                Place::Body(left) => {
                    let n = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    body(&rest[..n]);
                    self.skip(n as u64);
                    n
                }
                Place::Chunk(left) => {
                    let n = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    body(&rest[..n]);
                    self.place = if left == n as u64 { Place::End } else { Place::Chunk(left - n as u64) };
                    n
                }
                _ => {
                    self.place = self.after(rest[0])?;
                    1
                }
            };
        }
        Ok(used)
    }

    /// Returns the place after a byte of the framing of chunks.
    fn after(&self, byte: u8) -> io::Result<Place> {
        Ok(match (self.place, byte) {
            (Place::Size(0, _), b'\n') => Place::Trailers(false),
            (Place::Size(size, _), b'\n') => Place::Chunk(size),
            (Place::Size(size, true), _) => Place::Size(size, true),
            (Place::Size(size, false), b';' | b'\r' | b' ') => Place::Size(size, true),
            (Place::Size(size, false), digit) => {
                let digit = char::from(digit).to_digit(16).ok_or_else(|| invalid("a chunk without a size"))?;
                if size >> 56 != 0 {
                    return Err(invalid("a chunk of an absurd size"));
                }
                Place::Size(size << 4 | u64::from(digit), false)
            }
            (Place::End, b'\n') => Place::Size(0, false),
            (Place::End, b'\r') => Place::End,
            (Place::Trailers(false), b'\n') => Place::Done,
            (Place::Trailers(_), b'\n') => Place::Trailers(false),
            (Place::Trailers(line), b'\r') => Place::Trailers(line),
            (Place::Trailers(_), _) => Place::Trailers(true),
            _ => return Err(invalid("a chunk without an end")),
        })
    }

    fn take_head(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.head.len();
        self.head.extend_from_slice(&bytes[..bytes.len().min(HEAD_MAX + 1 - before.min(HEAD_MAX))]);
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        let len = match response.parse(&self.head).map_err(invalid)? {
            httparse::Status::Complete(len) => len,
            httparse::Status::Partial if self.head.len() > HEAD_MAX => return Err(invalid("a head without an end")),
            httparse::Status::Partial => return Ok(self.head.len() - before),
        };
        if !matches!(response.code, Some(200..=299)) {
            return Err(invalid(format!("answered {}", response.code.unwrap_or(0))));
        }
        let field = |name: &str| response.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        let length = field("content-length").map(|field| {
            let text = std::str::from_utf8(field.value).unwrap_or_default();
            text.trim().parse().map_err(|_| invalid("a wrong content-length"))
        });
        self.place = match length.transpose()? {
            Some(0) => Place::Done,
            Some(len) => Place::Body(len),
            None if field("transfer-encoding").is_some() => Place::Size(0, false),
            None if response.code == Some(204) => Place::Done,
            None => return Err(invalid("a response whose end is that of the connection")),
        };
        self.head.clear();
        Ok(len - before)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8], cuts: usize) -> io::Result<(Vec<u8>, usize)> {
        let (mut response, mut body, mut used) = (Response::default(), Vec::new(), 0);
        for piece in bytes.chunks(cuts.max(1)) {
            let n = response.take(piece, |bytes| body.extend_from_slice(bytes))?;
            used += n;
            if n < piece.len() {
                break;
            }
        }
        assert!(response.is_done(), "{response:?}");
        Ok((body, used))
    }

    proptest! {
        #[test]
        fn bodies_come_out_as_they_went_in(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..6),
                                           cut in 1usize..80, trailer in any::<bool>()) {
            let whole = chunks.concat();
            let mut chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            for chunk in &chunks {
                chunked.extend(format!("{:x};a=b\r\n", chunk.len()).into_bytes());
                chunked.extend(chunk);
                chunked.extend(b"\r\n");
            }
            chunked.extend(if trailer { &b"0\r\nx: y\r\n\r\n"[..] } else { b"0\r\n\r\n" });
            let mut sized = format!("HTTP/1.1 201 Made\r\ncontent-length: {}\r\n\r\n", whole.len()).into_bytes();
            sized.extend(&whole);
            for bytes in [chunked, sized] {
                let len = bytes.len();
                let next = [bytes, b"HTTP/1.1 ".to_vec()].concat();
                prop_assert_eq!(parse(&next, cut).unwrap(), (whole.clone(), len));
            }
        }
    }

    #[test]
    fn what_is_no_success_is_an_error() {
        for wrong in [
            "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nabc",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11111111111111111\r\n",
            "nonsense\r\n\r\n",
        ] {
            assert!(parse(wrong.as_bytes(), 1000).is_err(), "{wrong}");
        }
        assert!(parse(&[b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'a'; 20 << 10]].concat(), 1000).is_err());
    }
}
