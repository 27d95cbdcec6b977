//! Compresses the data of a body. When the body has no more data for now, the peer can decode everything so far.
//!
//! Invariants:
//! 1. Decoded, the output is the data of the inner body; trailers follow the end of the coding, and an error follows
//!    all data before it.
//! 2. `Pending` is returned only if no data of the inner body is held back, or the task was woken.
//! 3. Nothing is flushed twice: a flush follows data.

mod encoder;

use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::content_coding::ContentCoding;
use crate::buf::pool;
use encoder::{Encoder, Op};

/// Maximum size of a frame of output. With its head of 9 bytes it is one HTTP/2 DATA frame for every peer (RFC 9113
/// §4.2) and one TLS record.
const FRAME_MAX: usize = (16 << 10) - 9;

/// Maximum number of bytes compressed before other tasks may run: less than a millisecond at the default levels.
const TURN: usize = 32 << 10;

thread_local! {
    /// Output buffer of the current call. It is shared, so that waiting bodies hold none.
    static OUTPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Takes data from the inner body and compresses it.
    Data,
    /// Puts out what the encoder holds back; then continues with data, or with an error.
    Flush,
    /// Puts out the end of the coding.
    Finish,
    /// Only `last` is left.
    Ended,
}

pin_project! {
    /// A body with the data of `B`, compressed.
    ///
    /// Data arrives at once: when the inner body is pending after some data, the encoder is flushed, so that the peer
    /// can decode all of it. Tokens and events are not delayed. A flush costs 5 bytes or less, and data that is ready
    /// together is flushed together. Trailers and errors pass through, after all data before them. Only a complete body
    /// gets the end of the coding, so the peer detects missing bytes.
    ///
    /// A long frame is compressed in steps of 32 KiB, between which other tasks run.
    ///
    /// The response needs the header `Content-Encoding` with the [name](ContentCoding::name) of the coding, and must
    /// have neither `Content-Length` nor a strong `ETag` of the data. `middleware::CompressLayer` does all this.
    ///
    /// # Memory
    ///
    /// The encoder is created by the first data and dropped at the end. Each holds:
    ///
    /// | coding | levels | default | memory at the default | at any level |
    /// |---|---|---|---|---|
    /// | `gzip` | 1 to 9 | 6 | 320 KiB | 360 KiB |
    /// | `br` | 1 to 6 | 4 | 1.8 MiB | 3.5 MiB |
    /// | `zstd` | 1 to 9 | 3 | 0.9 MiB | 1.2 MiB |
    ///
    /// In addition a body holds one frame of the inner body. Windows are small for that: 32 KiB for `gzip` and 128 KiB
    /// for the others. Events for many readers cost less with `sse::HubBuilder::gzip`, which compresses once for all.
    ///
    /// # Panics
    ///
    /// Polling panics if the memory of an encoder cannot be allocated.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http_body_util::{BodyExt, Full};
    /// use millstream::body::{Compress, ContentCoding};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let page = Full::new(Bytes::from("the mill turns ".repeat(1000)));
    /// let body = Compress::new(page, ContentCoding::Gzip);
    ///
    /// let bytes = body.collect().await.unwrap().to_bytes();
    /// assert!(bytes.starts_with(&[0x1f, 0x8b]) && bytes.len() < 200);
    /// # }
    /// ```
    pub struct Compress<B: Body> {
        #[pin]
        inner: B,
        // `None` for data that passes unchanged.
        coding: Option<(ContentCoding, u32)>,
        encoder: Option<Encoder>,
        stage: Stage,
        input: Bytes,
        unflushed: bool,
        // Bytes that may be compressed before other tasks run.
        turn: usize,
        // Trailers or error.
        last: Option<Result<Frame<Bytes>, B::Error>>,
    }
}

impl<B: Body<Data = Bytes>> Compress<B> {
    /// Compresses `body` at the default level of the coding.
    pub fn new(body: B, coding: ContentCoding) -> Self {
        let level = match coding {
            ContentCoding::Gzip => 6,
            ContentCoding::Brotli => 4,
            ContentCoding::Zstd => 3,
        };
        Self::with_level(body, coding, level)
    }

    /// Compresses `body` at a level from 1 (fast) to the [highest](#memory) (small). Other numbers are replaced by the
    /// nearest of these. Higher levels of `br` and `zstd` are meant for files that are compressed once.
    pub fn with_level(body: B, coding: ContentCoding, level: u32) -> Self {
        let highest = if coding == ContentCoding::Brotli { 6 } else { 9 };
        Self::with(body, Some((coding, level.clamp(1, highest))))
    }

    /// Passes `body` on unchanged, for responses that are not compressed.
    pub fn identity(body: B) -> Self {
        Self::with(body, None)
    }

    fn with(inner: B, coding: Option<(ContentCoding, u32)>) -> Self {
        Self {
            inner,
            coding,
            encoder: None,
            stage: Stage::Data,
            input: Bytes::new(),
            unflushed: false,
            turn: TURN,
            last: None,
        }
    }

    /// Returns the coding of the data; `None` if it passes unchanged.
    pub fn coding(&self) -> Option<ContentCoding> {
        self.coding.map(|(coding, _)| coding)
    }

    /// Writes to `output` until it is full, or until nothing is left that can be done now. Returns the number of bytes.
    fn fill(self: Pin<&mut Self>, coding: (ContentCoding, u32), output: &mut [u8], cx: &mut Context<'_>) -> usize {
        let mut this = self.project();
        let mut filled = 0;
        let mut step = |op, input: &[u8], filled: &mut usize| {
            let encoder = this.encoder.get_or_insert_with(|| Encoder::new(coding.0, coding.1));
            let step = encoder.step(op, input, &mut output[*filled..]);
            *filled += step.written;
            (step.read, step.done, *filled == output.len())
        };
        loop {
            match *this.stage {
                Stage::Data if !this.input.is_empty() => {
                    let now = this.input.len().min(*this.turn);
                    if now == 0 {
                        break;
                    }
                    let (read, _, is_full) = step(Op::Process, &this.input[..now], &mut filled);
                    *this.unflushed = true;
                    *this.turn -= read;
                    this.input.advance(read);
                    if is_full {
                        break;
                    }
                }
                Stage::Data => match this.inner.as_mut().poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                        // Empty frames count too, so that a body that is always ready yields the thread.
                        Ok(data) if data.is_empty() && *this.turn == 0 => break,
                        Ok(data) if data.is_empty() => *this.turn -= 1,
                        Ok(data) => *this.input = data,
                        Err(trailers) => (*this.stage, *this.last) = (Stage::Finish, Some(Ok(trailers))),
                    },
                    Poll::Ready(Some(Err(error))) => (*this.stage, *this.last) = (Stage::Flush, Some(Err(error))),
                    Poll::Ready(None) => *this.stage = Stage::Finish,
                    Poll::Pending => {
                        *this.turn = TURN;
                        if !*this.unflushed {
                            break;
                        }
                        *this.stage = Stage::Flush;
                    }
                },
                Stage::Flush => {
                    let (_, done, is_full) = match *this.unflushed {
                        true => step(Op::Flush, &[], &mut filled),
                        false => (0, true, false),
                    };
                    if done {
                        *this.unflushed = false;
                        *this.stage = if this.last.is_some() { Stage::Ended } else { Stage::Data };
                    }
                    // The inner body was pending. It is polled again only if nothing came of it.
                    if is_full || filled > 0 {
                        break;
                    }
                }
                Stage::Finish => {
                    let (_, done, is_full) = step(Op::Finish, &[], &mut filled);
                    if done {
                        *this.stage = Stage::Ended;
                    }
                    if is_full {
                        break;
                    }
                }
                Stage::Ended => {
                    *this.encoder = None;
                    break;
                }
            }
        }
        filled
    }
}

impl<B: Body<Data = Bytes>> Body for Compress<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Some(coding) = self.coding else { return self.project().inner.poll_frame(cx) };
        // Taken, because the inner body may be compressed, too.
        let mut output = OUTPUT.take();
        output.resize(FRAME_MAX, 0);
        let filled = self.as_mut().fill(coding, &mut output, cx);
        let frame = (filled > 0).then(|| {
            // Leased at the needed size: with a slow reader many frames can wait at the same time.
            let mut frame = pool::lease(filled);
            frame.extend_from_slice(&output[..filled]);
            Frame::data(frame.freeze())
        });
        OUTPUT.set(output);
        let this = self.project();
        match frame {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None if *this.stage == Stage::Ended => Poll::Ready(this.last.take()),
            None => {
                if *this.turn == 0 {
                    *this.turn = TURN;
                    cx.waker().wake_by_ref();
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.coding {
            None => self.inner.is_end_stream(),
            Some(_) => self.stage == Stage::Ended && self.last.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self.coding {
            None => self.inner.size_hint(),
            Some(_) if self.stage == Stage::Ended => SizeHint::with_exact(0),
            Some(_) => SizeHint::default(),
        }
    }
}

// Written by hand, because the error of a body need not be `Debug`.
impl<B: Body + fmt::Debug> fmt::Debug for Compress<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compress")
            .field("inner", &self.inner)
            .field("coding", &self.coding)
            .field("stage", &self.stage)
            .field("input", &self.input.len())
            .field("unflushed", &self.unflushed)
            .finish_non_exhaustive()
    }
}
