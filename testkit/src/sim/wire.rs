//! Messages of HTTP/1, read from a simulated socket as fast as its side chooses, and the bytes of their bodies.

use std::io::ErrorKind;
use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::carrier::Carrier;
use crate::noise;

/// Longer than every limit of a server in these tests.
const HANGS: Duration = Duration::from_secs(100_000);

/// Longest body.
const LONGEST: usize = 1 << 20;

/// Returns the bytes of which all bodies are parts.
pub fn all_bytes() -> &'static [u8] {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    NOISE.get_or_init(|| noise(LONGEST + 4_099))
}

/// Returns where the body of the message with this tag begins in [`all_bytes`].
pub fn from(tag: u64) -> usize {
    (tag % 4_099) as usize
}

/// Returns the body of the message with this tag: a part of bytes that do not repeat.
pub fn bytes_of(tag: u64, len: usize) -> Vec<u8> {
    all_bytes()[from(tag)..from(tag) + len].to_vec()
}

/// How a connection ended before the bytes that were waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By the end of the server's bytes.
    Finished,
    Reset,
    /// Without a `close_notify` of TLS before the end.
    Truncated,
    /// By bytes that are not TLS, or by an alert.
    Garbled,
    /// Not within any limit.
    Hangs,
}

impl Ended {
    /// Returns whether a correct server ends no connection of a correct client in this way.
    pub fn is_wrong(self) -> bool {
        matches!(self, Self::Garbled | Self::Hangs)
    }
}

/// How fast a client reads.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub piece: usize,
    pub pause: Duration,
}

impl Pace {
    pub const FAST: Self = Self { piece: 64 << 10, pause: Duration::ZERO };
}

/// The head of a response.
#[derive(Debug)]
pub struct Head {
    pub status: u16,
    fields: Fields,
}

/// The head of a request.
#[derive(Debug)]
pub struct RequestHead {
    /// Its first line.
    pub line: String,
    fields: Fields,
}

#[derive(Debug)]
struct Fields(String);

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        let mut fields = self.0.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns whether nothing tells the length of the body.
    fn are_unbounded(&self) -> bool {
        self.get("transfer-encoding").is_none() && self.get("content-length").is_none()
    }
}

impl Head {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }

    /// Returns whether only the end of the connection ends the body.
    pub fn is_unbounded(&self) -> bool {
        self.fields.are_unbounded()
    }

    pub fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

impl RequestHead {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)
    }
}

/// A body, as far as it came.
#[derive(Debug)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// How it ended, if it is not complete.
    pub cut: Option<Ended>,
}

/// A side of a connection.
pub struct Wire {
    pub io: Carrier,
    buf: Vec<u8>,
    pub pace: Pace,
    /// The number of `100 Continue` so far.
    pub continues: u32,
    /// The trailer fields of the last body.
    pub trailers: String,
    /// A head that was read in place of `100 Continue`.
    early: Option<Head>,
}

impl Wire {
    pub fn new(io: impl Into<Carrier>, pace: Pace) -> Self {
        Self { io: io.into(), buf: Vec::new(), pace, continues: 0, trailers: String::new(), early: None }
    }

    /// Sends bytes. They may be lost if the server has ended the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        let sent = async {
            self.io.write_all(bytes).await?;
            // TLS takes more than it has handed over.
            self.io.flush().await
        };
        match timeout(HANGS, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Ended::Reset),
            Err(_) => Err(Ended::Hangs),
        }
    }

    async fn fill(&mut self) -> Result<(), Ended> {
        if !self.pace.pause.is_zero() {
            sleep(self.pace.pause).await;
        }
        let mut piece = vec![0; self.pace.piece];
        match timeout(HANGS, self.io.read(&mut piece)).await {
            Ok(Ok(0)) if self.io.is_sealed() => Err(Ended::Finished),
            Ok(Ok(0)) if self.is_reset() => Err(Ended::Reset),
            Ok(Ok(0)) => Err(Ended::Finished),
            Ok(Ok(n)) => {
                self.buf.extend(&piece[..n]);
                Ok(())
            }
            Ok(Err(error)) if error.kind() == ErrorKind::InvalidData => Err(Ended::Garbled),
            Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof && !self.is_reset() => Err(Ended::Truncated),
            Ok(Err(_)) => Err(Ended::Reset),
            Err(_) => Err(Ended::Hangs),
        }
    }

    /// Returns whether the connection was reset. An earlier call may have reported the error.
    fn is_reset(&self) -> bool {
        self.io.is_reset() && !self.io.has_ended()
    }

    /// Reads to the end of the connection. Returns the bytes before it.
    pub async fn end(&mut self) -> (Vec<u8>, Ended) {
        loop {
            if let Err(ended) = self.fill().await {
                return (std::mem::take(&mut self.buf), ended);
            }
        }
    }

    async fn line(&mut self, end: &str) -> Result<String, Ended> {
        let end = end.as_bytes();
        loop {
            if let Some(at) = self.buf.windows(end.len()).position(|bytes| bytes == end) {
                let line = self.buf.drain(..at + end.len()).take(at).collect();
                return Ok(String::from_utf8(line).expect("fields in ASCII"));
            }
            self.fill().await?;
        }
    }

    /// Reads the head of a response. `100 Continue` is counted and skipped, `103 Early Hints` is skipped.
    pub async fn head(&mut self) -> Result<Head, Ended> {
        loop {
            let head = self.any_head().await?;
            match head.status {
                100 => self.continues += 1,
                103 => {}
                _ => return Ok(head),
            }
        }
    }

    /// Waits for `100 Continue`. Fails if another head comes, which is the next one then, or the end.
    pub async fn wait_for_100(&mut self) -> Result<(), Ended> {
        let head = self.any_head().await?;
        if head.status != 100 {
            self.early = Some(head);
            return Err(Ended::Finished);
        }
        self.continues += 1;
        Ok(())
    }

    async fn any_head(&mut self) -> Result<Head, Ended> {
        if let Some(head) = self.early.take() {
            return Ok(head);
        }
        let text = self.line("\r\n\r\n").await?;
        let (status, fields) = text.split_once("\r\n").unwrap_or((&text, ""));
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status line");
        Ok(Head { status, fields: Fields(fields.to_owned()) })
    }

    /// Reads the head of a request.
    pub async fn request(&mut self) -> Result<RequestHead, Ended> {
        let text = self.line("\r\n\r\n").await?;
        let (line, fields) = text.split_once("\r\n").unwrap_or((&text, ""));
        Ok(RequestHead { line: line.to_owned(), fields: Fields(fields.to_owned()) })
    }

    /// Reads the body behind the head of a request.
    pub async fn request_body(&mut self, head: &RequestHead) -> Body {
        let mut bytes = Vec::new();
        // Without a length it has none, RFC 9112 §6.3.
        let cut = match head.fields.are_unbounded() {
            true => None,
            false => self.body_into(&head.fields, &mut bytes).await.err(),
        };
        Body { bytes, cut }
    }

    /// Takes `most` bytes at most, and one at least.
    pub async fn some(&mut self, most: usize) -> Result<Vec<u8>, Ended> {
        if self.buf.is_empty() {
            self.fill().await?;
        }
        let n = most.min(self.buf.len());
        Ok(self.buf.drain(..n).collect())
    }

    async fn exactly(&mut self, mut left: usize, into: &mut Vec<u8>) -> Result<(), Ended> {
        while left > 0 {
            let some = self.some(left).await?;
            left -= some.len();
            into.extend(some);
        }
        Ok(())
    }

    /// Reads the next piece of a body in chunks; an empty one is the end.
    pub async fn chunk(&mut self) -> Result<Vec<u8>, Ended> {
        let len = usize::from_str_radix(&self.line("\r\n").await?, 16).expect("the length of a chunk");
        let mut chunk = Vec::new();
        self.exactly(len, &mut chunk).await?;
        // Trailer fields are behind the last one.
        self.trailers.clear();
        loop {
            let line = self.line("\r\n").await?;
            if line.is_empty() {
                break;
            }
            assert_eq!(len, 0, "behind a chunk: {line}");
            self.trailers += &line;
            self.trailers += "\r\n";
        }
        Ok(chunk)
    }

    /// Reads the body behind `head`.
    pub async fn body(&mut self, head: &Head) -> Body {
        let mut bytes = Vec::new();
        let cut = self.body_into(&head.fields, &mut bytes).await.err();
        Body { bytes, cut }
    }

    async fn body_into(&mut self, fields: &Fields, bytes: &mut Vec<u8>) -> Result<(), Ended> {
        if fields.get("transfer-encoding") == Some("chunked") {
            loop {
                let chunk = self.chunk().await?;
                if chunk.is_empty() {
                    return Ok(());
                }
                bytes.extend(chunk);
            }
        }
        if let Some(len) = fields.get("content-length") {
            return self.exactly(len.parse().expect("a length"), bytes).await;
        }
        loop {
            match self.some(usize::MAX).await {
                Ok(some) => bytes.extend(some),
                Err(Ended::Finished) => return Ok(()),
                Err(ended) => return Err(ended),
            }
        }
    }
}
