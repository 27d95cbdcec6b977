//! A record of a segment: one comment line with the length and the checksum, then the event.
//!
//! ```text
//!  :00000014+d5d4dd0d     ':', length of the event, '+' if the record begins a commit or ' ', checksum, line feed
//!  data: Hello
//!  id: 17
//!                         the blank line that ends the event
//! ```
//!
//! Numbers are lower-case hexadecimal. The checksum is the CRC32C of the ten bytes before it and of the event. No line
//! of an event begins with a colon and a digit. So a head after a line feed always begins a record.

use std::str;

use crate::sse::log::queue::Size;

/// Length of the comment line.
pub(super) const HEAD: usize = 19;
/// Length of the part of the comment line that the checksum covers.
const SUMMED: usize = 10;
/// Maximum length of an event.
pub(super) const EVENT_MAX: usize = 16 << 20;
/// Maximum length of the decimal number of an event.
pub(super) const ID_LEN: usize = 20;

/// Approximate memory that a waiting event needs beside its text.
const OVERHEAD: usize = 64;

/// An encoded event that waits for its id.
#[derive(Debug)]
pub(super) struct Unnumbered {
    /// Without the id at first.
    pub(super) text: Vec<u8>,
    /// Length of the text without the id.
    pub(super) fields: usize,
}

impl Unnumbered {
    pub(super) fn new(text: Vec<u8>) -> Self {
        Self { fields: text.len(), text }
    }

    /// Maximum length of its record.
    pub(super) fn record_max(&self) -> u64 {
        (HEAD + self.fields + "id: \n\n".len() + ID_LEN) as u64
    }
}

impl Size for Unnumbered {
    fn bytes(&self) -> usize {
        self.fields + OVERHEAD
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) len: usize,
    pub(super) begins_commit: bool,
    sum: u32,
}

/// Result of looking for a record at the beginning of some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordCheck {
    /// The record with the expected id, and its length.
    Whole(usize),
    /// A part of a record, which needs this many bytes.
    Part(usize),
    Bad(&'static str),
}

/// Writes the head of a record with this event.
pub(super) fn head(event: &[u8], begins_commit: bool) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[0] = b':';
    write_hex(&mut head[1..9], event.len() as u32);
    head[9] = if begins_commit { b'+' } else { b' ' };
    let sum = sum(&head, event);
    write_hex(&mut head[SUMMED..SUMMED + 8], sum);
    head[HEAD - 1] = b'\n';
    head
}

fn sum(head: &[u8; HEAD], event: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&head[..SUMMED]), event)
}

impl Head {
    pub(super) fn read(head: &[u8; HEAD]) -> Option<Self> {
        let begins_commit = match head[9] {
            b'+' => true,
            b' ' => false,
            _ => return None,
        };
        let len = read_hex(&head[1..9])? as usize;
        let sum = read_hex(&head[SUMMED..SUMMED + 8])?;
        let is_head = head[0] == b':' && head[HEAD - 1] == b'\n' && len <= EVENT_MAX + ID_LEN + 16;
        is_head.then_some(Self { len, begins_commit, sum })
    }
}

/// Reads the record at the beginning of `bytes`, which must be that of the event `id`.
pub(super) fn check_record(bytes: &[u8], id: u64) -> RecordCheck {
    match read(bytes) {
        Ok((head, event)) if read_id(event) == Some(id) => RecordCheck::Whole(HEAD + head.len),
        Ok(_) => RecordCheck::Bad("the id is not the next one"),
        Err(look) => look,
    }
}

/// Returns whether a record that begins a commit, of an event after `id`, is at the beginning of `bytes`.
pub(super) fn is_later_commit(bytes: &[u8], id: u64) -> bool {
    read(bytes).is_ok_and(|(head, event)| head.begins_commit && read_id(event).is_some_and(|found| found > id))
}

fn read(bytes: &[u8]) -> Result<(Head, &[u8]), RecordCheck> {
    let raw = bytes.first_chunk::<HEAD>().ok_or(RecordCheck::Part(HEAD))?;
    let head = Head::read(raw).ok_or(RecordCheck::Bad("this is not the head of a record"))?;
    let event = bytes.get(HEAD..HEAD + head.len).ok_or(RecordCheck::Part(HEAD + head.len))?;
    match sum(raw, event) == head.sum {
        true => Ok((head, event)),
        false => Err(RecordCheck::Bad("the checksum is wrong")),
    }
}

/// Returns the number in the last line of an event.
fn read_id(event: &[u8]) -> Option<u64> {
    let line = event.strip_suffix(b"\n\n")?.rsplit(|&b| b == b'\n').next()?;
    parse_id(str::from_utf8(line.strip_prefix(b"id: ")?).ok()?)
}

/// Parses an id as the log writes it: decimal, without a sign and leading zeros.
pub(super) fn parse_id(id: &str) -> Option<u64> {
    let is_canonical = id.bytes().all(|b| b.is_ascii_digit()) && (id.len() == 1 || !id.starts_with('0'));
    if is_canonical { id.parse().ok() } else { None }
}

fn write_hex(to: &mut [u8], mut number: u32) {
    for digit in to.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 15) as usize];
        number >>= 4;
    }
}

fn read_hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u32::from(digit))
    })
}

#[cfg(test)]
mod tests;
