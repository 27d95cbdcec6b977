//! Reads the frames of a file without blocking a runtime thread on the disk.
//!
//! ```text
//!  at most 64 KiB   one read of the cached bytes into a lease; 32 KiB if a window is there
//!  more             a slice of a window of the mapped file, once all its pages are in memory; without mapping,
//!                   as above, 256 KiB at a time
//!  not in memory    by io_uring, two reads of 256 KiB ahead of the frame; with a window they only warm its pages.
//!                   Without io_uring a job on the blocking pool warms the next step, or reads the next chunk
//! ```
//!
//! A body that leaves the page cache to other files is never mapped, and reads by 256 KiB.
//!
//! Invariant: a body has at most two reads or one job in progress, for the bytes at the front of its range.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use crate::buf::origin::{self, Mapping};
use crate::buf::pool;
use crate::counters::{Counter, count};
use crate::fs::cached::{self, Filled};
use crate::fs::read_ahead::{DEPTH, ReadAhead};
use crate::fs::{File, Step};
use crate::runtime::blocking::{self, BlockingTask};
use crate::runtime::programs;
use crate::sys::call;
use crate::sys::call::Wait;
use crate::sys::caps::is_disabled;
use crate::sys::errno::Errno;
use crate::sys::fd::AsFd;
use crate::sys::page_cache;

/// Maximum length of a range that is read, not mapped: copying so few bytes costs less than a mapping for one response,
/// 17 against 21 us for 64 KiB.
const SMALL: u64 = 64 << 10;
/// The same for a body that has a window already.
const SMALL_BESIDE_WINDOW: u64 = 32 << 10;
/// Maximum length of a frame in bytes. hyper asks for the next one only after writing most of this one.
const FRAME: u64 = 4 << 20;
/// Number of bytes that one job warms: a few milliseconds of disk time.
const STEP: u64 = 1 << 20;
/// Number of bytes whose pages are dropped together.
const DROPPED: u64 = 2 << 20;
/// Pages are at least this long.
const PAGE: u64 = 4 << 10;
/// Length of one read if files are not mapped.
const CHUNK: u64 = 256 << 10;

#[derive(Debug)]
pub(crate) struct Reader {
    file: File,
    window: Option<Window>,
    /// False if the file must not be mapped, or after a mapping has failed.
    maps: bool,
    cache: Cache,
    /// Start of the delivered bytes whose pages were not dropped yet, or have to be dropped again.
    undropped: Option<u64>,
    job: Option<BlockingTask<Bytes>>,
    read_ahead: ReadAhead,
}

/// Effect of a body on the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cache {
    /// Its pages stay, and may be mapped.
    Keep,
    /// Pages that a read has loaded are dropped after it; pages that were cached before stay (`RWF_DONTCACHE`).
    Pass,
    /// All pages are dropped behind the body, because the kernel or the file system lacks `RWF_DONTCACHE`.
    Drop,
}

#[derive(Debug)]
struct Window {
    mapping: Arc<Mapping>,
    bytes: Bytes,
    start: u64,
    /// Whether many bodies read from it.
    is_shared: bool,
}

impl Window {
    fn new(mapping: Arc<Mapping>, start: u64) -> Self {
        Self { bytes: mapping.bytes(), mapping, start, is_shared: false }
    }

    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    fn slice(&self, range: Range<u64>) -> Bytes {
        self.bytes.slice((range.start - self.start) as usize..(range.end - self.start) as usize)
    }
}

impl Reader {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            window: None,
            maps: true,
            cache: Cache::Keep,
            undropped: None,
            job: None,
            read_ahead: ReadAhead::default(),
        }
    }

    pub(crate) fn set_mapped(&mut self, on: bool) {
        self.maps = on;
    }

    /// Sets whether the body leaves the page cache to other files. It is then not mapped.
    pub(crate) fn set_uncached(&mut self, on: bool) {
        static DISABLED: LazyLock<bool> = LazyLock::new(|| is_disabled("dontcache"));
        self.cache = match on {
            false => Cache::Keep,
            true if *DISABLED => Cache::Drop,
            true => Cache::Pass,
        };
        self.read_ahead.set_uncached(self.cache == Cache::Pass);
    }

    /// Reads from a mapping of the whole file that many bodies share.
    pub(crate) fn set_window(&mut self, mapping: Arc<Mapping>) {
        self.window = Some(Window { is_shared: true, ..Window::new(mapping, 0) });
    }

    pub(super) fn is_mapped(&self) -> bool {
        self.window.is_some()
    }

    /// Fails if the window is torn.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.window {
            Some(window) if window.mapping.is_torn() => Err(self.failed(self.file.short())),
            _ => Ok(()),
        }
    }

    /// Takes the next frame off the front of `range`, which must not be empty, and starts to warm the bytes behind it.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>, range: &mut Range<u64>) -> Poll<io::Result<Bytes>> {
        let bytes = ready!(self.poll_front(cx, range)).map_err(|e| self.failed(e))?;
        // Checked after a job too: another body of the same mapping may have found it torn.
        self.check()?;
        let frame = range.start..range.start + bytes.len() as u64;
        range.start = frame.end;
        self.drop_behind(frame, range.is_empty());
        self.look_ahead(cx, range).map_err(|e| self.failed(e))?;
        Poll::Ready(Ok(bytes))
    }

    fn is_small(&self, range: &Range<u64>) -> bool {
        range.end - range.start <= if self.window.is_some() { SMALL_BESIDE_WINDOW } else { SMALL }
    }

    fn failed(&self, error: io::Error) -> io::Error {
        self.file.failed(Step::Read, error).into()
    }

    fn poll_front(&mut self, cx: &mut Context<'_>, range: &Range<u64>) -> Poll<io::Result<Bytes>> {
        loop {
            if let Some(job) = &mut self.job {
                let done = ready!(Pin::new(job).poll(cx));
                self.job = None;
                return Poll::Ready(done);
            }
            if !self.read_ahead.is_empty() {
                let read = ready!(self.read_ahead.poll_next(cx))?;
                return Poll::Ready(self.frame_of(read, range));
            }
            match self.ready(range)? {
                Some(bytes) => return Poll::Ready(Ok(bytes)),
                None => self.fetch(cx, range)?,
            }
        }
    }

    /// Drops pages up to the end of `frame`, which is the last one of its range if `is_last`. On the blocking pool,
    /// because the kernel may wait for other CPUs.
    fn drop_behind(&mut self, frame: Range<u64>, is_last: bool) {
        if self.cache != Cache::Drop {
            return;
        }
        let start = *self.undropped.get_or_insert(frame.start / PAGE * PAGE);
        if is_last || frame.end - start >= DROPPED {
            let file = self.file.clone();
            blocking::detach(move || call::drop_cached(file.as_fd(), start, frame.end - start));
            // The kernel keeps pages that it is still moving between its lists, so the last ones are dropped twice.
            // The next range may be anywhere in the file.
            self.undropped = (!is_last).then(|| frame.end.saturating_sub(CHUNK).max(start) / PAGE * PAGE);
        }
    }

    fn ready(&mut self, range: &Range<u64>) -> io::Result<Option<Bytes>> {
        if self.is_small(range) {
            return self.read_cached(range);
        }
        let Some(window) = self.window_at(range.start) else {
            return self.read_cached(&(range.start..range.end.min(range.start + CHUNK)));
        };
        let whole = range.start..range.end.min(window.end()).min(range.start + FRAME);
        for end in [whole.end, whole.end.min(range.start + STEP)] {
            if self.is_warm(range.start..end) {
                // All pages may be in memory although the last of them became shorter.
                self.file.reaches(end)?;
                return Ok(self.window.as_ref().map(|window| window.slice(range.start..end)));
            }
        }
        Ok(None)
    }

    /// Returns the frame for bytes read at the front of `range`: the bytes themselves, or a slice of the warmed window.
    fn frame_of(&mut self, read: Bytes, range: &Range<u64>) -> io::Result<Bytes> {
        if read.is_empty() {
            return Err(self.file.short());
        }
        let end = range.start + read.len() as u64;
        let small = self.is_small(range);
        // A range that is read gets no window, because a window would change the limit of small ranges.
        let window = if small { None } else { self.window_at(range.start) };
        match window {
            Some(window) => Ok(window.slice(range.start..end)),
            None => Ok(read),
        }
    }

    /// Starts to load the bytes at the front of `range`; with io_uring, also the bytes behind them.
    fn fetch(&mut self, cx: &mut Context<'_>, range: &Range<u64>) -> io::Result<()> {
        // Reads started by io_uring continue by io_uring, even if the task has moved to a thread without a ring.
        let by_ring = !self.read_ahead.is_empty() || programs::has_ring();
        let small = self.is_small(range);
        let file = self.file.clone();
        let window = if small { None } else { self.window_at(range.start) };
        let end = window.map_or(range.end, |window| range.end.min(window.end()));
        let start = range.start;
        if by_ring {
            let begun = self.read_ahead.begin(cx, &file, start..end, DEPTH);
            count(Counter::ColdSteps, begun as u64);
            return Ok(());
        }
        let job = match window {
            Some(window) => {
                let end = end.min(start + STEP);
                let bytes = window.slice(start..end);
                BlockingTask::start(move || {
                    call::warm_blocking(file.as_fd(), start, end - start)?;
                    file.reaches(end)?;
                    Ok(bytes)
                })
            }
            None => {
                let uncached = self.cache == Cache::Pass;
                BlockingTask::start(move || read_whole(&file, start, (end - start).min(CHUNK) as usize, uncached))
            }
        };
        self.job = Some(job?);
        count(Counter::ColdSteps, 1);
        Ok(())
    }

    fn look_ahead(&mut self, cx: &mut Context<'_>, range: &Range<u64>) -> io::Result<()> {
        if range.is_empty() || self.is_small(range) {
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
        // A body of its own may need only a part of its window.
        if self.window.as_ref().is_some_and(|window| window.is_shared && window.mapping.is_warm()) {
            return true;
        }
        page_cache::is_resident(self.file.as_fd(), range.start, range.end - range.start)
    }

    fn window_at(&mut self, at: u64) -> Option<&Window> {
        let fits = self.window.as_ref().is_some_and(|window| (window.start..window.end()).contains(&at));
        if !fits && self.maps && self.cache == Cache::Keep {
            // Windows are aligned from the front of the file, so that ranges of one body share them.
            let start = at / origin::WINDOW as u64 * origin::WINDOW as u64;
            let len = (self.file.opened().len() - start).min(origin::WINDOW as u64) as usize;
            self.window = Mapping::new(Arc::clone(self.file.shared()), start, len).ok().map(|m| Window::new(m, start));
            self.maps = self.window.is_some();
        }
        self.window.as_ref().filter(|window| (window.start..window.end()).contains(&at))
    }

    fn read_cached(&mut self, range: &Range<u64>) -> io::Result<Option<Bytes>> {
        let len = (range.end - range.start) as usize;
        let mut lease = pool::lease(len);
        let file = self.file.as_fd();
        let filled = match self.cache {
            Cache::Pass => cached::fill_uncached(&mut lease, file, range.start, len),
            Cache::Keep | Cache::Drop => cached::fill(&mut lease, file, range.start, len),
        };
        let filled = match filled {
            Err(e) if self.cache == Cache::Pass && e.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                self.cache = Cache::Drop;
                self.read_ahead.set_uncached(false);
                return self.read_cached(range);
            }
            filled => filled?,
        };
        if filled == Filled::End {
            return Err(self.file.short());
        }
        Ok((!lease.is_empty()).then(|| lease.freeze()))
    }
}

fn read_whole(file: &File, start: u64, len: usize, uncached: bool) -> io::Result<Bytes> {
    let mut lease = pool::lease(len);
    while lease.len() < len {
        let (at, want) = (start + lease.len() as u64, len - lease.len());
        let n = lease.read_exactly_with(|spare| match uncached {
            true => call::read_uncached(file.as_fd(), &mut spare[..want], at, Wait::ForDisk),
            false => call::read_blocking(file.as_fd(), &mut spare[..want], at),
        })?;
        if n == 0 {
            return Err(file.short());
        }
    }
    Ok(lease.freeze())
}

#[cfg(test)]
mod tests;
