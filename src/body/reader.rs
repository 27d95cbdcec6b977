//! Reads the frames of a file without waiting for a disk on a runtime thread.
//!
//! ```text
//!  at most 32 KiB   one read of what the page cache holds, into a lease
//!  more             a slice of a window of the mapped file, once all its pages are in memory; where files are not mapped,
//!                   as above, 256 KiB at a time
//!  not in memory    by ring, two reads of 256 KiB ahead of the frame; where there is a window they only warm its pages.
//!                   Without a ring a job on the blocking pool warms the next step, or reads the next chunk
//! ```
//!
//! Invariant: a body has at most two reads or one job in progress, for the bytes at the front of its range.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::OpenFile;
use crate::buf::origin::{self, Mapping};
use crate::buf::pool;
use crate::counters::{Counter, count};
use crate::fs::cached::{self, Filled};
use crate::fs::read_ahead::{DEPTH, ReadAhead};
use crate::runtime::blocking::BlockingTask;
use crate::runtime::programs;
use crate::sys::call;

/// Ranges up to this many bytes are read, not mapped: a copy of so few bytes costs less than a mapping.
const SMALL: u64 = 32 << 10;
/// Longest frame in bytes. hyper asks for the next one only when it has written most of this one.
const FRAME: u64 = 4 << 20;
/// Bytes that one job warms: a few milliseconds of disk time.
const STEP: u64 = 1 << 20;
/// Bytes that are read at once where files are not mapped.
const CHUNK: u64 = 256 << 10;

/// Reads ranges of one file, front to back.
#[derive(Debug)]
pub(super) struct Reader {
    file: OpenFile,
    window: Option<Window>,
    /// False if the file must not be mapped, or after a mapping has failed.
    maps: bool,
    job: Option<BlockingTask<Bytes>>,
    read_ahead: ReadAhead,
}

/// A mapped part of the file.
#[derive(Debug)]
struct Window {
    mapping: Arc<Mapping>,
    bytes: Bytes,
    start: u64,
}

impl Window {
    fn new(mapping: Arc<Mapping>, start: u64) -> Self {
        Self { bytes: mapping.bytes(), mapping, start }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Returns the bytes of a range of the file that lies in the window.
    fn slice(&self, range: Range<u64>) -> Bytes {
        self.bytes.slice((range.start - self.start) as usize..(range.end - self.start) as usize)
    }
}

impl Reader {
    /// `whole` is a mapping of the whole file, if one exists already.
    pub(super) fn new(file: OpenFile, whole: Option<Arc<Mapping>>) -> Self {
        let window = whole.map(|mapping| Window::new(mapping, 0));
        Self { maps: file.is_mapped(), file, window, job: None, read_ahead: ReadAhead::default() }
    }

    /// Whether the latest frames lie in a mapping.
    pub(super) fn is_mapped(&self) -> bool {
        self.window.is_some()
    }

    /// Returns the error of a body whose frames lie in a torn mapping.
    pub(super) fn torn(&self) -> Option<io::Error> {
        self.window.as_ref().filter(|window| window.mapping.is_torn()).map(|_| self.file.short())
    }

    /// Takes the next frame off the front of `range`, which must not be empty, and starts to warm the bytes behind it.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>, range: &mut Range<u64>) -> Poll<io::Result<Bytes>> {
        let bytes = loop {
            if let Some(job) = &mut self.job {
                let done = ready!(Pin::new(job).poll(cx));
                self.job = None;
                break done?;
            }
            if !self.read_ahead.is_empty() {
                let read = ready!(self.read_ahead.poll_next(cx))?;
                break self.frame_of(read, range)?;
            }
            match self.ready(range)? {
                Some(bytes) => break bytes,
                None => self.fetch(cx, range)?,
            }
        };
        // Checked after a job too: another body of the same mapping may have met the end.
        if let Some(torn) = self.torn() {
            return Poll::Ready(Err(torn));
        }
        range.start += bytes.len() as u64;
        self.look_ahead(cx, range)?;
        Poll::Ready(Ok(bytes))
    }

    /// Returns the next frame, if its bytes are in memory.
    fn ready(&mut self, range: &Range<u64>) -> io::Result<Option<Bytes>> {
        if is_small(range) {
            return self.read_cached(range);
        }
        let Some(window) = self.window_at(range.start) else {
            return self.read_cached(&(range.start..range.end.min(range.start + CHUNK)));
        };
        let whole = range.start..range.end.min(window.end()).min(range.start + FRAME);
        for end in [whole.end, whole.end.min(range.start + STEP)] {
            if self.is_warm(range.start..end) {
                // All pages may be in memory although the last of them has become shorter.
                self.file.reaches(end)?;
                return Ok(self.window.as_ref().map(|window| window.slice(range.start..end)));
            }
        }
        Ok(None)
    }

    /// Returns the frame for bytes read at the front of `range`: the bytes themselves, or a slice of the window they
    /// warmed.
    fn frame_of(&mut self, read: Bytes, range: &Range<u64>) -> io::Result<Bytes> {
        if read.is_empty() {
            return Err(self.file.short());
        }
        let end = range.start + read.len() as u64;
        match self.window_at(range.start).filter(|_| !is_small(range)) {
            Some(window) => Ok(window.slice(range.start..end)),
            None => Ok(read),
        }
    }

    /// Starts to load the bytes at the front of `range`; by ring, also the bytes behind them.
    fn fetch(&mut self, cx: &mut Context<'_>, range: &Range<u64>) -> io::Result<()> {
        // Reads that were started by ring continue by ring, even if the task has moved to a thread without one.
        let by_ring = !self.read_ahead.is_empty() || programs::has_ring();
        let small = is_small(range);
        let file = self.file.clone();
        let window = self.window_at(range.start).filter(|_| !small);
        // A frame lies within one window.
        let end = window.map_or(range.end, |window| range.end.min(window.end()));
        let start = range.start;
        if by_ring {
            let begun = self.read_ahead.begin(cx, file.file(), start..end, DEPTH);
            count(Counter::ColdSteps, begun as u64);
            return Ok(());
        }
        let job = match window {
            Some(window) => {
                let end = end.min(start + STEP);
                let bytes = window.slice(start..end);
                BlockingTask::start(move || {
                    call::warm_blocking(file.file().as_fd(), start, end - start)?;
                    file.reaches(end)?;
                    Ok(bytes)
                })
            }
            None => BlockingTask::start(move || read_whole(&file, start, (end - start).min(CHUNK) as usize)),
        };
        self.job = Some(job?);
        count(Counter::ColdSteps, 1);
        Ok(())
    }

    /// Starts to load the next bytes while the frame before them is sent, if they will be needed.
    fn look_ahead(&mut self, cx: &mut Context<'_>, range: &Range<u64>) -> io::Result<()> {
        if range.is_empty() || is_small(range) {
            return Ok(());
        }
        let next = self.read_ahead.end().unwrap_or(range.start);
        let warm = match self.window_at(range.start) {
            Some(window) => {
                let end = range.end.min(window.end()).min(next + STEP);
                next >= end || self.is_warm(next..end)
            }
            None => {
                let end = range.end.min(next + CHUNK);
                next >= end || self.is_warm(next..end)
            }
        };
        if warm { Ok(()) } else { self.fetch(cx, range) }
    }

    fn is_warm(&self, range: Range<u64>) -> bool {
        call::is_resident(self.file.file().as_fd(), range.start, range.end - range.start)
    }

    /// Returns the window that contains `at`; `None` if the file cannot be mapped.
    fn window_at(&mut self, at: u64) -> Option<&Window> {
        let fits = self.window.as_ref().is_some_and(|window| (window.start..window.end()).contains(&at));
        if !fits && self.maps {
            // Windows are aligned from the front of the file, so that ranges of one body share them.
            let start = at / origin::WINDOW as u64 * origin::WINDOW as u64;
            let len = (self.file.len() - start).min(origin::WINDOW as u64) as usize;
            self.window = Mapping::new(Arc::clone(self.file.file()), start, len).ok().map(|m| Window::new(m, start));
            self.maps = self.window.is_some();
        }
        self.window.as_ref().filter(|window| (window.start..window.end()).contains(&at))
    }

    /// Reads the cached bytes of a range that fits one lease: usually all of it.
    fn read_cached(&self, range: &Range<u64>) -> io::Result<Option<Bytes>> {
        let len = (range.end - range.start) as usize;
        let mut lease = pool::lease(len);
        if cached::fill(&mut lease, self.file.file().as_fd(), range.start, len)? == Filled::End {
            return Err(self.file.short());
        }
        Ok((!lease.is_empty()).then(|| lease.freeze()))
    }
}

/// Whether the range is read into a lease: a whole body, or the end of a longer one.
pub(super) fn is_small(range: &Range<u64>) -> bool {
    range.end - range.start <= SMALL
}

/// Reads exactly `len` bytes, waiting for the disk.
fn read_whole(file: &OpenFile, start: u64, len: usize) -> io::Result<Bytes> {
    let mut lease = pool::lease(len);
    while lease.len() < len {
        let (at, want) = (start + lease.len() as u64, len - lease.len());
        let n = lease.read_exactly_with(|spare| call::read_blocking(file.file().as_fd(), &mut spare[..want], at))?;
        if n == 0 {
            return Err(file.short());
        }
    }
    Ok(lease.freeze())
}

#[cfg(test)]
mod tests;
