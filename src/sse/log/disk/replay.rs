//! Pages of events for readers that are behind the ring. Reading **waits for the disk**, on the blocking pool.
//!
//! A page is an unchanged range of a segment. It is not decoded. A long page is mapped, so that it is sent by
//! `sendfile`. The checksums of the records are verified before the page is returned. A reader that misses events,
//! because their segment was removed or is damaged, gets a gap with their number.

use std::fs::File;
use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::directory::Kind;
use super::error::DiskError;
use super::index::{Index, STRIDE};
use super::record::{self, RecordCheck};
use super::scan::scan;
use super::segments::{Found, Segment};
use super::shared::DiskShared;
use super::writer;
use crate::buf::origin::{Mapping, WINDOW};
use crate::fs::Metadata;
use crate::sse::log::Replay;
use crate::sys::call;
use crate::sys::fd::AsFd;
use crate::sys::file::Access;

/// Minimum length of a page that is mapped. A shorter one is copied.
const MAP_MIN: usize = 32 << 10;

/// Returns the page after `after`, up to and including `upto`, of approximately `most` bytes. `None` if the log does
/// not have these events yet.
pub(super) fn page(shared: &DiskShared, after: u64, upto: u64, most: usize) -> Result<Option<Replay>, DiskError> {
    let mut want = after + 1;
    let mut missed = 0;
    let with_gap = |replay: Replay, missed| if missed > 0 { replay.gap(Some(missed)) } else { replay };
    while want <= upto {
        let (first, found) = {
            let segments = shared.segments();
            (segments.first(), segments.find(want))
        };
        let skip_to = if want < first {
            first
        } else {
            let Some(found) = found else { return Ok(None) };
            match read(shared, &found, (want, upto), most) {
                Ok((bytes, events)) => {
                    let last = want + events - 1;
                    let replay = Replay::encoded(bytes, last.to_string(), events).more(last < upto);
                    return Ok(Some(with_gap(replay, missed)));
                }
                // Removed since it was found.
                Err(_) if shared.segments().first() > want => continue,
                Err(e @ DiskError::Damaged { .. }) => {
                    shared.stats.replay_failed(&e);
                    found.end
                }
                Err(e) => return Err(e),
            }
        };
        let to = skip_to.min(upto + 1);
        missed += to - want;
        want = to;
    }
    Ok(Some(with_gap(Replay::default(), missed)))
}

/// Reads events from `want` on, and returns their number. At least one, and none after `upto` or in another segment.
fn read(shared: &DiskShared, found: &Found, (want, upto): (u64, u64), most: usize) -> Result<(Bytes, u64), DiskError> {
    let Segment { first, len, .. } = found.segment;
    let failed = |step| shared.directory.failed(first, Kind::Events, step);
    let damaged = |offset, reason| {
        let path = shared.directory.path_of(first, Kind::Events);
        Err(DiskError::Damaged { path, offset, reason })
    };
    let open = || shared.directory.open_file(first, Kind::Events, Access::Read);
    let file = match found.segment.reading.file(open) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && !shared.directory.is_removed() => {
            return damaged(0, "the segment is missing");
        }
        file => file.map_err(failed("open the file"))?,
    };
    let (event, start) = find(shared, found, &file, want - first).map_err(failed("read"))?;
    // Events between an entry of the index and the first one of the page are skipped.
    let mut room = STRIDE as usize + most;
    loop {
        let chunk = load(&file, start, room.min((len - start) as usize), most).map_err(failed("read"))?;
        let (mut id, mut at, mut begin) = (first + event, 0, 0);
        while id <= upto && id < found.end {
            let wrong = match record::check_record(&chunk[at..], id) {
                RecordCheck::Whole(record) => {
                    if id == want {
                        begin = at;
                    } else if id > want && at + record - begin > most {
                        break;
                    }
                    at += record;
                    id += 1;
                    continue;
                }
                RecordCheck::Part(needs) if id <= want && room < at + needs && start + ((at + needs) as u64) <= len => {
                    room = at + needs;
                    break;
                }
                RecordCheck::Part(_) => "the segment ends before this record does",
                RecordCheck::Bad(wrong) => wrong,
            };
            if id <= want {
                return damaged(start + at as u64, wrong);
            }
            break;
        }
        if id > want {
            return Ok((cut_out(chunk, begin, at), id - want));
        }
    }
}

/// Returns the last entry of the index at or before `event`. Loads the index, or rebuilds it.
fn find(shared: &DiskShared, found: &Found, file: &File, event: u64) -> io::Result<(u64, u64)> {
    let Segment { first, len, .. } = found.segment;
    let mut index = found.segment.reading.index();
    if index.is_none() {
        *index = Some(match load_index(shared, first, len) {
            Some(index) => index,
            None => {
                let mut index = Index::default();
                let scanned = scan(file, len, (first, 0), |id, offset| index.add(id - first, offset))?;
                if found.is_full && scanned.wrong.is_none() {
                    writer::save(shared, first, len, &index);
                }
                index
            }
        });
    }
    Ok(index.get_or_insert_default().find(event))
}

fn load_index(shared: &DiskShared, first: u64, len: u64) -> Option<Index> {
    let file = shared.directory.open_file(first, Kind::Index, Access::Read).ok()?;
    let size = Metadata::new(&call::status(file.as_fd()).ok()?).len() as usize;
    if size > Index::len_max(len) {
        return None;
    }
    let mut bytes = vec![0; size];
    let n = fill(&file, 0, &mut bytes).ok()?;
    Index::decode(&bytes[..n], len)
}

/// Reads a range of a file, or maps it if a page of `most` bytes is worth it.
fn load(file: &Arc<File>, offset: u64, len: usize, most: usize) -> io::Result<Bytes> {
    if most >= MAP_MIN
        && (MAP_MIN..=WINDOW).contains(&len)
        && let Ok(mapping) = Mapping::new(Arc::clone(file), offset, len)
    {
        return Ok(mapping.bytes());
    }
    let mut bytes = vec![0; len];
    let n = fill(file, offset, &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes.into())
}

fn fill(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match call::read_blocking(file.as_fd(), &mut bytes[filled..], offset + filled as u64)? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

/// Returns a part of a chunk. A short one is copied, so that it holds neither a mapping nor much more memory.
fn cut_out(chunk: Bytes, from: usize, to: usize) -> Bytes {
    if to - from < MAP_MIN { Bytes::copy_from_slice(&chunk[from..to]) } else { chunk.slice(from..to) }
}
