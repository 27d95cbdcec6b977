//! A record: 16 bytes with the length, the checksum and the number, then the event.
//!
//! The last record has the name of the end before its event, which may be empty. So the end and its event are there
//! together or not at all.

use crate::end::StreamEnd;

pub(super) const HEAD: usize = 16;
/// Bit of the length that marks the record of the end.
const END: u32 = 1 << 31;

/// A whole record.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// `None` for an end without an event.
    pub(super) event: Option<&'a [u8]>,
    pub(super) end: Option<StreamEnd>,
}

pub(super) fn write(to: &mut Vec<u8>, number: u64, event: &[u8], end: Option<StreamEnd>) {
    let name = end.map_or("", StreamEnd::as_str);
    let mark = if end.is_some() { END } else { 0 };
    let prefix = if end.is_some() { 1 + name.len() } else { 0 };
    let len = ((prefix + event.len()) as u32 | mark).to_le_bytes();
    let start = to.len();
    to.extend_from_slice(&len);
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&number.to_le_bytes());
    if end.is_some() {
        to.push(name.len() as u8);
        to.extend_from_slice(name.as_bytes());
    }
    to.extend_from_slice(event);
    let sum = sum(&to[start..]);
    to[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
}

fn sum(record: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..])
}

/// Returns the length of the record with this head.
pub(super) fn len(head: &[u8; HEAD]) -> usize {
    HEAD + (word(head, 0) & !END) as usize
}

/// Returns the number in a head. The head may not belong to a record.
pub(super) fn number(head: &[u8; HEAD]) -> u64 {
    head[8..].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Reads the record of the event `number`; `None` if it is not that, or not whole.
pub(super) fn read(record: &[u8], number: u64) -> Option<Record<'_>> {
    let head = record.first_chunk::<HEAD>()?;
    let is_whole = record.len() == len(head) && head[8..] == number.to_le_bytes() && word(head, 4) == sum(record);
    let payload = record.get(HEAD..).filter(|_| is_whole)?;
    if word(head, 0) & END == 0 {
        return Some(Record { event: Some(payload), end: None });
    }
    let (&name, rest) = payload.split_first()?;
    let (name, event) = rest.split_at_checked(name.into())?;
    let end = StreamEnd::from_name(str::from_utf8(name).ok()?)?;
    Some(Record { event: Some(event).filter(|event| !event.is_empty()), end: Some(end) })
}

fn word(head: &[u8; HEAD], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

#[cfg(test)]
mod tests;
