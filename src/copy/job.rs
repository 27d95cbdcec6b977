//! A copy in one direction, as a value that can be interrupted.

use std::future::poll_fn;
use std::num::NonZeroU64;

use tokio::io::{AsyncRead, AsyncWrite};

use super::Report;
use super::engine::{Engine, OnProgress};
use super::error::Error;
use crate::counters::token_bucket::TokenBucket;

/// Copies everything from `src` to `dst`, and flushes `dst`. The positions of files count, and have moved afterwards.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let (a, b) = (dir.path().join("a"), dir.path().join("b"));
/// # std::fs::write(&a, "some bytes")?;
/// let mut from = tokio::fs::File::open(&a).await?;
/// let mut to = tokio::fs::File::create(&b).await?;
/// let report = millstream::copy::copy(&mut from, &mut to).await?;
/// assert_eq!(report.bytes, 10);
/// println!("by {}", report.path);
/// # assert_eq!(std::fs::read(&b)?, b"some bytes");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// The first of the source or the target, as an [`Error`]. The target is neither flushed nor shut down then: **what it has
/// is a part**, and if it is a connection whose peer would take its end for that of the whole, do not shut it down.
///
/// # Cancellation
///
/// Dropping the future loses what was read and not written by then, as with tokio's copy. A [`Copy`](struct@Copy) loses nothing.
pub async fn copy<S, D>(src: &mut S, dst: &mut D) -> Result<Report, Error>
where
    S: AsyncRead + Unpin + 'static,
    D: AsyncWrite + Unpin + 'static,
{
    Copy::new().run(src, dst).await
}

/// A copy with a limit, a rate, or somebody who watches, which can be interrupted and resumed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let (mut from, mut to) = (&b"much more than that"[..], Vec::new());
/// let mut copy = millstream::copy::Copy::new().limit(9).on_progress(|bytes, _| println!("{bytes} bytes"));
/// copy.run(&mut from, &mut to).await?;
/// assert_eq!(to, b"much more");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Copy {
    options: Options,
    /// Since it first ran.
    engine: Option<Engine>,
}

#[derive(Default)]
struct Options {
    limit: Option<u64>,
    rate: Option<NonZeroU64>,
    on_progress: Option<OnProgress>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("limit", &self.limit).field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl Copy {
    /// A copy of everything, as fast as it goes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Copies `bytes` at most; the source keeps the rest.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.options.limit = Some(bytes);
        self
    }

    /// Takes at most `bytes_per_second` from the source, of which those of a tenth of a second may come at once.
    ///
    /// Running it then panics on a tokio runtime without timers.
    #[must_use]
    pub fn rate(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.options.rate = Some(bytes_per_second);
        self
    }

    /// Calls `tell` after each step with the bytes the target has taken so far, and how many there are if the source is a
    /// file with a length.
    #[must_use]
    pub fn on_progress(mut self, tell: impl FnMut(u64, Option<u64>) + Send + 'static) -> Self {
        self.options.on_progress = Some(Box::new(tell));
        self
    }

    /// Copies, or goes on to copy, from `src` to `dst`, and flushes `dst` at the end. Once it has ended it does nothing.
    ///
    /// # Errors
    ///
    /// As [`copy`].
    ///
    /// # Cancellation
    ///
    /// What was read and not written when the future is dropped is kept, and the next run with the same ends begins with
    /// it: no byte is lost or written twice. A step from file to file, of up to 8 MiB, or from a pipe into a file ends by
    /// itself and is counted by the next run; until then the positions of files are those before it. Dropping the `Copy`
    /// loses what is [pending](Self::pending).
    pub async fn run<S, D>(&mut self, src: &mut S, dst: &mut D) -> Result<Report, Error>
    where
        S: AsyncRead + Unpin + 'static,
        D: AsyncWrite + Unpin + 'static,
    {
        let Self { options, engine } = self;
        let engine = engine.get_or_insert_with(|| {
            Engine::new(options.limit, options.rate.map(TokenBucket::new), options.on_progress.take())
        });
        engine.renew();
        poll_fn(|cx| engine.poll(cx, src, dst)).await?;
        Ok(engine.report())
    }

    /// Bytes that were taken from the source and that the target has not got yet.
    pub fn pending(&self) -> u64 {
        self.engine.as_ref().map_or(0, Engine::pending)
    }

    /// What was done so far.
    pub fn report(&self) -> Report {
        self.engine.as_ref().map(Engine::report).unwrap_or_default()
    }
}
