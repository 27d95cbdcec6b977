//! The file of a stream: its lock, its records, and its header. All calls **wait for the disk**.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use millstream::fs::Durability;
use millstream::internal::log_files::{Window, try_lock, unlock};

use super::header::{self, Field, HEADER, Header};
use super::record::{self, HEAD, Record};
use crate::end::StreamEnd;
use crate::lock::lock;
use crate::stream_log::{LogPage, LogStatus, StreamLogError};

/// Size of the events of a page.
const PAGE: usize = 256 << 10;
/// Bytes that are searched at a time.
const SEARCH: usize = 64 << 10;
/// Age of the last beat from which on no instance seems to write, in milliseconds. Only the lock decides.
const SILENT: u64 = 3000;

type LogResult<T> = Result<T, StreamLogError>;

/// Number of the next event, and offset of its record.
#[derive(Clone, Copy, Debug)]
struct Place {
    number: u64,
    offset: u64,
}

const START: Place = Place { number: 0, offset: HEADER };

/// The claim of this handle.
#[derive(Debug, Default)]
struct Claim {
    token: u64,
    /// The end of the records, once the file is locked.
    tail: Option<Place>,
    has_end: bool,
}

#[derive(Debug)]
pub(super) struct StreamFile {
    file: File,
    pub(super) epoch: u32,
    durability: Durability,
    /// When the next file has to be removed.
    due: Arc<AtomicU64>,
    claim: Mutex<Claim>,
    /// Where the last page ended. It is before the end, so that the end is found again.
    read: Mutex<Place>,
}

/// Closing alone may leave the file locked.
impl Drop for StreamFile {
    fn drop(&mut self) {
        let _ = unlock(&self.file);
    }
}

impl StreamFile {
    pub(super) fn new(file: File, epoch: u32, durability: Durability, due: Arc<AtomicU64>) -> Self {
        Self { file, epoch, durability, due, claim: Mutex::default(), read: Mutex::new(START) }
    }

    pub(super) fn claim(&self, keep: Duration) -> LogResult<Option<u64>> {
        let mut claim = lock(&self.claim);
        if claim.tail.is_some() || !try_lock(&self.file)? {
            return Ok(None);
        }
        self.check_name()?;
        let mut has_end = false;
        let tail = self.scan(START, |record| {
            has_end = record.end.is_some();
            true
        })?;
        if has_end {
            unlock(&self.file)?;
            return Ok(None);
        }
        if self.has_whole_behind(tail)? {
            // A record in the middle is damaged. The next opening removes the file and begins another stream.
            self.keep_for(Duration::ZERO)?;
            unlock(&self.file)?;
            return Err(StreamLogError::Gone);
        }
        // The rest is a part of a record, of a writer that was killed.
        self.file.set_len(tail.offset)?;
        Header::set(&self.file, Field::ClaimedAt, header::now())?;
        self.keep_for(keep)?;
        *claim = Claim { token: claim.token + 1, tail: Some(tail), has_end };
        Ok(Some(claim.token))
    }

    pub(super) fn append(
        &self,
        token: u64,
        first: u64,
        events: &[Bytes],
        end: Option<(StreamEnd, Duration)>,
    ) -> LogResult<()> {
        let mut claim = lock(&self.claim);
        let Some(tail) = claim.tail.filter(|_| claim.token == token) else { return Err(StreamLogError::Lost) };
        self.check_name()?;
        if claim.has_end {
            return Ok(());
        }
        let new = tail.number.checked_sub(first).and_then(|known| events.get(known as usize..));
        let new = new.ok_or(StreamLogError::Gone)?;
        // Always the same bytes at the same offset: a failed write is repeated over its rest.
        let mut bytes = Vec::new();
        let mut number = tail.number;
        let (plain, last) = match end {
            Some((end, _)) if end != StreamEnd::Complete && !new.is_empty() => new.split_at(new.len() - 1),
            _ => (new, &[][..]),
        };
        for event in plain {
            record::write(&mut bytes, number, event, None);
            number += 1;
        }
        if let Some((end, _)) = end {
            record::write(&mut bytes, number, last.first().map_or(&[][..], |event| event), Some(end));
            number += last.len() as u64;
        }
        self.file.write_all_at(&bytes, tail.offset)?;
        match self.durability {
            Durability::None => {}
            Durability::Data => self.file.sync_data()?,
            _ => self.file.sync_all()?,
        }
        if let Some((_, ttl)) = end {
            self.keep_for(ttl)?;
            unlock(&self.file)?;
            claim.has_end = true;
        }
        claim.tail = Some(Place { number, offset: tail.offset + bytes.len() as u64 });
        Ok(())
    }

    pub(super) fn beat(&self, token: Option<u64>, is_read: bool) -> LogResult<LogStatus> {
        let now = header::now();
        if let Some(token) = token {
            let claim = lock(&self.claim);
            if claim.token != token {
                return Err(StreamLogError::Lost);
            }
            Header::set(&self.file, Field::ClaimedAt, now)?;
        }
        self.check_name()?;
        if is_read {
            Header::set(&self.file, Field::ReadAt, now)?;
        }
        let header = Header::read(&self.file)?.filter(|header| header.epoch() == self.epoch);
        let header = header.ok_or(StreamLogError::Gone)?;
        let since = |field| now.saturating_sub(header.get(field));
        let read_at = header.get(Field::ReadAt);
        Ok(LogStatus {
            is_claimed: since(Field::ClaimedAt) < SILENT,
            stops: header.get(Field::Stops) != 0,
            unread: (read_at > 0).then(|| Duration::from_millis(since(Field::ReadAt))),
        })
    }

    pub(super) fn read(&self, from: u64) -> LogResult<LogPage> {
        let mut place = lock(&self.read);
        if place.number != from {
            *place = START;
        }
        let (mut page, mut size, mut number, mut end) = (LogPage::default(), 0, place.number, None);
        let next = self.scan(*place, |record| {
            if let Some(event) = record.event {
                if number >= from {
                    size += event.len();
                    page.events.push(Bytes::copy_from_slice(event));
                }
                number += 1;
            }
            end = record.end;
            size < PAGE
        })?;
        page.more = size >= PAGE && end.is_none();
        if end.is_none() {
            *place = next;
        }
        if let Some(end) = end {
            let header = Header::read(&self.file)?.ok_or(StreamLogError::Gone)?;
            let left = header.get(Field::RemoveAt).saturating_sub(header::now());
            page.end = Some((end, Duration::from_millis(left)));
        }
        Ok(page)
    }

    pub(super) fn request_stop(&self) -> LogResult<()> {
        self.check_name()?;
        Ok(Header::set(&self.file, Field::Stops, 1)?)
    }

    /// Returns whether records may follow the last one that was read. On a local file system this does not wait.
    pub(super) fn has_grown(&self) -> bool {
        // A job that reads holds it while it waits for the disk.
        let Ok(read) = self.read.try_lock() else { return true };
        self.len().is_ok_and(|len| len > read.offset)
    }

    /// Sets the time of the removal, from now on.
    fn keep_for(&self, time: Duration) -> io::Result<()> {
        let remove_at = header::now().saturating_add(header::millis(time));
        Header::set(&self.file, Field::RemoveAt, remove_at)?;
        self.due.fetch_min(remove_at, Ordering::AcqRel);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Fails if the file was removed.
    fn check_name(&self) -> LogResult<()> {
        let is_there = self.file.metadata()?.nlink() > 0;
        if is_there { Ok(()) } else { Err(StreamLogError::Gone) }
    }

    /// Returns whether a whole record with a greater number is behind the one at `place`, which is not whole.
    ///
    /// It is searched at the end of the bad one, and behind blank lines, where events end. No event has one before its
    /// end, so a sender cannot forge a record.
    fn has_whole_behind(&self, place: Place) -> io::Result<bool> {
        let len = self.len()?;
        let mut window = Window::new(&self.file, len, place.offset);
        if let Some(head) = window.get(place.offset, HEAD)?.first_chunk::<HEAD>() {
            let next = place.offset + record::len(head) as u64;
            if is_whole(&mut Window::new(&self.file, len, next), next, len, place.number)? {
                return Ok(true);
            }
        }
        let mut at = place.offset;
        while at < len {
            let bytes = window.get(at, SEARCH)?;
            let Some(found) = bytes.windows(2).position(|two| two == b"\n\n") else {
                // The last byte may begin a blank line.
                at += (bytes.len() as u64).saturating_sub(1).max(1);
                continue;
            };
            at += found as u64 + 1;
            if is_whole(&mut window, at + 1, len, place.number)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Passes whole records to `found` as long as it returns `true`. Returns the place behind them.
    fn scan(&self, mut place: Place, mut found: impl FnMut(Record<'_>) -> bool) -> io::Result<Place> {
        let mut window = Window::new(&self.file, self.len()?, place.offset);
        loop {
            let Some(head) = window.get(place.offset, HEAD)?.first_chunk::<HEAD>() else { return Ok(place) };
            let len = record::len(head);
            let bytes = window.get(place.offset, len)?.get(..len);
            let Some(record) = bytes.and_then(|bytes| record::read(bytes, place.number)) else { return Ok(place) };
            place.offset += len as u64;
            place.number += u64::from(record.event.is_some());
            let is_last = record.end.is_some();
            if !found(record) || is_last {
                return Ok(place);
            }
        }
    }
}

/// Returns whether a whole record begins at `offset` of a file with `end` bytes, with a number above `number`.
fn is_whole(window: &mut Window<'_>, offset: u64, end: u64, number: u64) -> io::Result<bool> {
    let Some(head) = window.get(offset, HEAD)?.first_chunk::<HEAD>() else { return Ok(false) };
    let (len, found) = (record::len(head), record::number(head));
    if found <= number || offset.saturating_add(len as u64) > end {
        return Ok(false);
    }
    Ok(window.get(offset, len)?.get(..len).is_some_and(|bytes| record::read(bytes, found).is_some()))
}

#[cfg(test)]
mod tests;
