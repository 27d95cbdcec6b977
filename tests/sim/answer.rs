//! Responses of HTTP/1, read from a simulated socket as fast as the client chooses.

use std::time::Duration;

use testkit::sim::Socket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

/// Longer than every limit of a server in these tests.
const HANGS: Duration = Duration::from_secs(100_000);

/// How a connection ended before the bytes that were waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// By the end of the server's bytes.
    Finished,
    Reset,
    /// Not within any limit.
    Hangs,
}

/// How fast a client reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) piece: usize,
    pub(crate) pause: Duration,
}

impl Pace {
    pub(crate) const FAST: Self = Self { piece: 64 << 10, pause: Duration::ZERO };
}

#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    fields: String,
}

impl Head {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Returns whether only the end of the connection ends the body.
    pub(crate) fn is_unbounded(&self) -> bool {
        self.field("transfer-encoding").is_none() && self.field("content-length").is_none()
    }

    pub(crate) fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// A body, as far as it came.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// How it ended, if it is not complete.
    pub(crate) cut: Option<Ended>,
}

/// A client's side of a connection.
pub(crate) struct Wire {
    pub(crate) io: Socket,
    buf: Vec<u8>,
    pub(crate) pace: Pace,
    /// The number of `100 Continue` so far.
    pub(crate) continues: u32,
    /// A head that was read in place of `100 Continue`.
    early: Option<Head>,
}

impl Wire {
    pub(crate) fn new(io: Socket, pace: Pace) -> Self {
        Self { io, buf: Vec::new(), pace, continues: 0, early: None }
    }

    /// Sends bytes. They may be lost if the server has ended the connection.
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> Result<(), Ended> {
        match timeout(HANGS, self.io.write_all(bytes)).await {
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
            // An earlier call has reported the error of the reset.
            Ok(Ok(0)) if self.io.is_reset() && !self.io.has_ended() => Err(Ended::Reset),
            Ok(Ok(0)) => Err(Ended::Finished),
            Ok(Ok(n)) => {
                self.buf.extend(&piece[..n]);
                Ok(())
            }
            Ok(Err(_)) => Err(Ended::Reset),
            Err(_) => Err(Ended::Hangs),
        }
    }

    /// Reads to the end of the connection. Returns the bytes before it.
    pub(crate) async fn end(&mut self) -> (Vec<u8>, Ended) {
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

    /// Reads a head. `100 Continue` is counted and skipped.
    pub(crate) async fn head(&mut self) -> Result<Head, Ended> {
        loop {
            let head = self.any_head().await?;
            if head.status != 100 {
                return Ok(head);
            }
            self.continues += 1;
        }
    }

    /// Waits for `100 Continue`. Fails if another head comes, which is the next one then, or the end.
    pub(crate) async fn wait_for_100(&mut self) -> Result<(), Ended> {
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
        Ok(Head { status, fields: fields.to_owned() })
    }

    /// Takes `most` bytes at most, and one at least.
    async fn some(&mut self, most: usize) -> Result<Vec<u8>, Ended> {
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
    pub(crate) async fn chunk(&mut self) -> Result<Vec<u8>, Ended> {
        let len = usize::from_str_radix(&self.line("\r\n").await?, 16).expect("the length of a chunk");
        let mut chunk = Vec::new();
        self.exactly(len, &mut chunk).await?;
        assert_eq!(self.line("\r\n").await?, "", "behind a chunk");
        Ok(chunk)
    }

    /// Reads the body behind `head`.
    pub(crate) async fn body(&mut self, head: &Head) -> Body {
        let mut bytes = Vec::new();
        let cut = self.body_into(head, &mut bytes).await.err();
        Body { bytes, cut }
    }

    async fn body_into(&mut self, head: &Head, bytes: &mut Vec<u8>) -> Result<(), Ended> {
        if head.field("transfer-encoding") == Some("chunked") {
            loop {
                let chunk = self.chunk().await?;
                if chunk.is_empty() {
                    return Ok(());
                }
                bytes.extend(chunk);
            }
        }
        if let Some(len) = head.field("content-length") {
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
