//! A copy in one direction that can be interrupted and resumed.

use std::future::poll_fn;
use std::num::NonZeroU64;

use tokio::io::{AsyncRead, AsyncWrite};

use super::CopyReport;
use super::engine::{Engine, OnProgress};
use super::error::CopyError;
use crate::counters::token_bucket::TokenBucket;

/// Copies everything from `src` to `dst`, and flushes `dst`. Starts at the positions of files and moves them.
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
/// Returns the first error of the source or the target, as an [`CopyError`]. The target is then neither flushed nor
/// shut down: **it has received only a part**. If it is a connection whose peer would take its end for the end of the
/// data, do not shut it down.
///
/// # Cancel safety
///
/// Dropping the future loses bytes that were read and not written, as with tokio's copy. A [`Copier`](Copier) loses
/// none.
pub async fn copy<S, D>(src: &mut S, dst: &mut D) -> Result<CopyReport, CopyError>
where
    S: AsyncRead + Unpin + 'static,
    D: AsyncWrite + Unpin + 'static,
{
    Copier::new().run(src, dst).await
}

/// A copy with a limit, a rate, or a progress callback, which can be interrupted and resumed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// # let (mut from, mut to) = (&b"much more than that"[..], Vec::new());
/// let mut copy = millstream::copy::Copier::new().limit(9).on_progress(|bytes, _| println!("{bytes} bytes"));
/// copy.run(&mut from, &mut to).await?;
/// assert_eq!(to, b"much more");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Copier {
    options: Options,
    /// Engine, created by the first run.
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

impl Copier {
    /// Creates a copy of everything, without limit or rate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Copies at most `bytes`; the rest stays in the source.
    #[must_use]
    pub fn limit(mut self, bytes: u64) -> Self {
        self.options.limit = Some(bytes);
        self
    }

    /// Takes at most `bytes_per_second` from the source, in bursts of up to a tenth of a second.
    ///
    /// Running it then panics on a tokio runtime without timers.
    #[must_use]
    pub fn rate(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.options.rate = Some(bytes_per_second);
        self
    }

    /// Calls `tell` after each step with the number of bytes written to the target so far, and the expected total if
    /// the source is a file with a length.
    #[must_use]
    pub fn on_progress(mut self, tell: impl FnMut(u64, Option<u64>) + Send + 'static) -> Self {
        self.options.on_progress = Some(Box::new(tell));
        self
    }

    /// Starts or resumes the copy from `src` to `dst`, and flushes `dst` at the end. Does nothing after the end.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, bytes that were read and not written are kept, and the next run with the same ends
    /// begins with them: no byte is lost or written twice. A step from file to file, of up to 8 MiB, or from a pipe
    /// into a file completes in the background and is counted by the next run; until then the files keep their previous
    /// positions. Dropping the `Copier` loses [pending](Self::pending) bytes.
    pub async fn run<S, D>(&mut self, src: &mut S, dst: &mut D) -> Result<CopyReport, CopyError>
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

    /// Returns the number of bytes taken from the source and not yet written to the target.
    pub fn pending(&self) -> u64 {
        self.engine.as_ref().map_or(0, Engine::pending)
    }

    /// Returns the report of the copy so far.
    pub fn report(&self) -> CopyReport {
        self.engine.as_ref().map(Engine::report).unwrap_or_default()
    }
}
