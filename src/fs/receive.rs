//! Contents that arrive piece by piece, written in jobs while the next pieces arrive.
//!
//! ```text
//!  stream ─▶ batch of 448 KiB ─▶ job on the blocking pool: inspect, write
//!            gathered while the batch before it is written
//! ```
//!
//! Invariants:
//! 1. One job runs at a time, so pieces are written in order.
//! 2. The stream is polled only while less than 1 MiB is gathered or being written.
//! 3. Contents that fit one batch are opened, written and published by one job.

use std::fmt;
use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;

use super::change::Change;
use super::chunk_batch::{ChunkBatch, FULL};
use super::error::{Error, Result};
use super::sink::FileSink;
pub(crate) use super::sink::{SinkMode, WrongOffset};
use super::work::{Caller, Job};
use crate::runtime::blocking;

/// Maximum number of bytes that are gathered or being written. Above it the stream is not polled.
const MEMORY: usize = 1 << 20;

/// Sees the pieces on their way to the file, on the blocking pool.
pub(crate) trait Inspect: Send + 'static {
    fn see(&mut self, pieces: &[Bytes]);
}

impl Inspect for () {
    fn see(&mut self, _: &[Bytes]) {}
}

/// Contents on their way into a file. Dropping it removes a new file, on the blocking pool.
pub(crate) struct Receiver<I: Inspect> {
    path: Arc<Path>,
    /// `None` while a job runs, and after one has failed.
    work: Option<Box<Work<I>>>,
    job: Option<Job<Box<Work<I>>>>,
    /// Bytes of the running job.
    in_flight: usize,
    written: u64,
}

struct Work<I> {
    change: Change,
    place: SinkMode,
    expected: u64,
    /// Opened by the first job.
    sink: Option<FileSink>,
    inspect: I,
}

#[derive(Debug)]
pub(crate) enum Stopped<E> {
    File(Error),
    /// The stream has failed, after these pieces.
    Stream(E, Vec<Bytes>),
}

impl<I: Inspect> Work<I> {
    fn write(&mut self, pieces: &[Bytes], caller: &Caller) -> Result<()> {
        let sink = match &mut self.sink {
            Some(sink) => sink,
            None => {
                let sink = self.sink.insert(FileSink::open(&self.change, self.place)?);
                let len: usize = pieces.iter().map(Bytes::len).sum();
                if self.expected > len as u64 {
                    sink.reserve(self.expected)?;
                }
                sink
            }
        };
        self.inspect.see(pieces);
        sink.write(pieces, caller)
    }
}

impl<I: Inspect> Receiver<I> {
    /// `expected` is the announced length of the contents, or 0.
    pub(super) fn of(change: Change, place: SinkMode, expected: u64, inspect: I) -> Self {
        let path = change.path.as_path().into();
        let work = Box::new(Work { change, place, expected, sink: None, inspect });
        Self { path, work: Some(work), job: None, in_flight: 0, written: 0 }
    }

    /// Opens the file and allocates space for all contents, if they do not fit one batch. Otherwise the job that writes
    /// them does this.
    pub(crate) async fn open(&mut self) -> Result<()> {
        match self.work.as_ref().is_some_and(|work| work.expected >= FULL as u64) {
            true => {
                self.start(Vec::new())?;
                poll_fn(|cx| self.poll_job(cx)).await
            }
            false => Ok(()),
        }
    }

    /// Writes the items of the stream, except for the last ones, which are returned for [`finish`](Self::finish).
    /// Calls `on_written` with the number of all bytes after each job.
    pub(crate) async fn pump<S, B, E>(
        &mut self,
        mut stream: Pin<&mut S>,
        mut on_written: impl FnMut(u64),
    ) -> std::result::Result<Vec<Bytes>, Stopped<E>>
    where
        S: Stream<Item = std::result::Result<B, E>>,
        B: Into<Bytes>,
    {
        let mut batch = ChunkBatch::default();
        loop {
            let filled = poll_fn(|cx| {
                // The error of a full disk must not wait for a slow client. Also makes room in memory.
                if self.job.is_some()
                    && let Poll::Ready(done) = self.poll_job(cx)
                {
                    done.map_err(Stopped::File)?;
                    on_written(self.written);
                }
                match batch.poll_fill(cx, stream.as_mut(), MEMORY.saturating_sub(self.in_flight)) {
                    Poll::Ready(Err(e)) => {
                        Poll::Ready(Err(Stopped::Stream(e, std::mem::take(&mut batch).into_pieces())))
                    }
                    Poll::Ready(Ok(ended)) => Poll::Ready(Ok(ended)),
                    Poll::Pending => Poll::Pending,
                }
            });
            let ended = filled.await?;
            if self.job.is_some() {
                poll_fn(|cx| self.poll_job(cx)).await.map_err(Stopped::File)?;
                on_written(self.written);
            }
            if ended {
                return Ok(batch.into_pieces());
            }
            if !batch.is_empty() {
                self.start(std::mem::take(&mut batch).into_pieces()).map_err(Stopped::File)?;
            }
        }
    }

    /// Writes the last pieces, asks `last`, and gives a new file its name. Returns the number of all bytes. Removes
    /// what was written if `last` fails.
    pub(crate) async fn finish<T, E>(
        mut self,
        pieces: Vec<Bytes>,
        last: impl FnOnce(I) -> std::result::Result<T, E> + Send + 'static,
    ) -> std::result::Result<(u64, T), E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let len = len_of(&pieces) as u64;
        let mut work = self.work.take().expect("internal: no job runs, and none has failed");
        let job = Job::start(Arc::clone(&self.path), move |caller| {
            work.write(&pieces, caller)?;
            let Work { sink, inspect, .. } = *work;
            let sink = sink.expect("internal: opened by the first write");
            match last(inspect) {
                Ok(said) => sink.finish(caller).map(|()| Ok(said)),
                Err(e) => sink.undo().map(|()| Err(e)),
            }
        });
        let said = job?.await?;
        said.map(|said| (self.written + len, said))
    }

    /// Ends without the rest of the contents. A new file is removed before this returns. If an existing file is
    /// extended, `pieces`, which arrived before the failure, are appended to it. Returns the number of all bytes.
    pub(crate) async fn stop(&mut self, pieces: Vec<Bytes>) -> Result<u64> {
        poll_fn(|cx| self.poll_job(cx)).await?;
        let Some(mut work) = self.work.take() else { return Ok(self.written) };
        let ends = matches!(work.place, SinkMode::End(_));
        let len = if ends { len_of(&pieces) } else { 0 };
        let job = Job::start(Arc::clone(&self.path), move |caller| match ends {
            true => work.write(&pieces, caller),
            false => Ok(()),
        });
        job?.await?;
        Ok(self.written + len as u64)
    }

    fn start(&mut self, pieces: Vec<Bytes>) -> Result<()> {
        let mut work = self.work.take().expect("internal: no job runs, and none has failed");
        self.in_flight = len_of(&pieces);
        let job = move |caller: &Caller| {
            work.write(&pieces, caller)?;
            Ok(work)
        };
        self.job = Some(Job::start(Arc::clone(&self.path), job)?);
        Ok(())
    }

    fn poll_job(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(job) = &mut self.job {
            let done = ready!(Pin::new(job).poll(cx));
            self.job = None;
            self.work = Some(done?);
            self.written += std::mem::take(&mut self.in_flight) as u64;
        }
        Poll::Ready(Ok(()))
    }
}

fn len_of(pieces: &[Bytes]) -> usize {
    pieces.iter().map(Bytes::len).sum()
}

impl<I: Inspect> Drop for Receiver<I> {
    fn drop(&mut self) {
        // Closing or removing a large file blocks on the disk. A job drops its work itself.
        if let Some(work) = self.work.take().filter(|work| work.sink.is_some()) {
            blocking::dispose(work);
        }
    }
}

impl<I: Inspect> fmt::Debug for Receiver<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("path", &self.path).field("written", &self.written).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
