//! Search for the end of a message's head, in pieces of any size. Lines are those of [RFC 9112
//! §2.2](https://www.rfc-editor.org/rfc/rfc9112#section-2.2):
//!
//! * A line ends with CRLF or with LF alone. A recipient *may* accept the latter. It is accepted here, because the next
//!   recipient may accept it, and lines added after what it takes for the end of the head would be in its body.
//! * A CR without LF *must not* be forwarded, because recipients disagree on its meaning. It is an error.
//! * Empty lines before the start line are skipped.
//! * A line that begins with a space or a tab continues the one before it (obs-fold), even if it contains nothing else.
//!   Only a line without any byte ends the head.

use super::error::InjectError;

const CR: u8 = b'\r';
const LF: u8 = b'\n';

/// Length of the start that identifies an interim response: `HTTP/1.1 100`.
const TELLING: usize = 12;

/// Position of the next byte: before the start line, in a line, or at the start of a line. `Cr`: after a CR there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadPlace {
    Leading,
    LeadingCr,
    Line,
    LineCr,
    Start,
    StartCr,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    place: HeadPlace,
    /// Bytes left of the limit.
    room: usize,
    /// The first bytes of the message.
    first: [u8; TELLING],
    first_len: usize,
}

impl Scan {
    #[inline]
    pub(crate) fn new(limit: usize) -> Self {
        Self { place: HeadPlace::Leading, room: limit, first: [0; TELLING], first_len: 0 }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.first_len > 0
    }

    /// Returns whether the last byte was a CR that may begin the empty line of a final head.
    pub(crate) fn holds(&self) -> bool {
        self.place == HeadPlace::StartCr && !self.is_interim()
    }

    /// Scans `piece`, and returns the offset after the empty line if a final head ends in it. On error the state is
    /// unchanged. Heads of interim responses are skipped: they have no body ([RFC 9110
    /// §15.2](https://www.rfc-editor.org/rfc/rfc9110#section-15.2)).
    pub(crate) fn run(&mut self, piece: &[u8], limit: usize) -> Result<Option<usize>, InjectError> {
        let mut at = 0;
        let mut next = *self;
        if !matches!(next.place, HeadPlace::Leading | HeadPlace::LeadingCr) {
            next.note(piece);
        }
        while at < piece.len() {
            if next.place == HeadPlace::Line {
                // The place stays `Line`: skipped CRs have their LF, and a line that is not empty follows each LF.
                let rest = &piece[at..];
                let n = quiet(&rest[..rest.len().min(next.room)]);
                at += n;
                next.room -= n;
            }
            next.room = next.room.checked_sub(1).ok_or(InjectError::TooLarge { limit })?;
            let byte = piece[at];
            next.place = match (next.place, byte) {
                (HeadPlace::Leading | HeadPlace::LeadingCr, LF) => HeadPlace::Leading,
                (HeadPlace::Leading, CR) => HeadPlace::LeadingCr,
                (HeadPlace::Leading, _) => {
                    (next.first, next.first_len) = ([0; TELLING], 0);
                    next.note(&piece[at..]);
                    HeadPlace::Line
                }
                (HeadPlace::Line | HeadPlace::LineCr, LF) => HeadPlace::Start,
                (HeadPlace::Line, CR) => HeadPlace::LineCr,
                (HeadPlace::Start, CR) => HeadPlace::StartCr,
                (HeadPlace::Start | HeadPlace::StartCr, LF) if next.is_interim() => {
                    next.room = limit;
                    HeadPlace::Leading
                }
                (HeadPlace::Start | HeadPlace::StartCr, LF) => return Ok(Some(at + 1)),
                (HeadPlace::Line | HeadPlace::Start, _) => HeadPlace::Line,
                (HeadPlace::LeadingCr | HeadPlace::LineCr | HeadPlace::StartCr, _) => return Err(InjectError::BareCr),
            };
            at += 1;
        }
        *self = next;
        Ok(None)
    }

    fn note(&mut self, bytes: &[u8]) {
        let room = &mut self.first[self.first_len..];
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.first_len += n;
    }

    /// Returns whether the message is an interim response. 101 is not: another protocol follows it.
    fn is_interim(&self) -> bool {
        let [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b' ', b'1', tens, ones] = self.first else {
            return false;
        };
        [major, minor, tens, ones].iter().all(u8::is_ascii_digit) && [tens, ones] != *b"01"
    }
}

/// Returns how many bytes, starting inside a line, need no single check: all but the last, or those before the first
/// pair that may be more than the end of a line. Such a pair is a CR without LF, an LF without CR, or LF and CR.
fn quiet(bytes: &[u8]) -> usize {
    let Some(pairs) = bytes.len().checked_sub(1) else { return 0 };
    let (firsts, seconds) = (&bytes[..pairs], &bytes[1..]);
    let at = quiet_blocks::<32>(firsts, seconds);
    let at = at + quiet_blocks::<8>(&firsts[at..], &seconds[at..]);
    at + quiet_blocks::<1>(&firsts[at..], &seconds[at..])
}

/// As [`quiet`], in blocks of `N` pairs. A block has no branch, so the compiler uses a few wide comparisons.
fn quiet_blocks<const N: usize>(firsts: &[u8], seconds: &[u8]) -> usize {
    let loud = |a: u8, b: u8| ((a == CR) != (b == LF)) | ((a == LF) & (b == CR));
    let blocks = firsts.as_chunks::<N>().0.iter().zip(seconds.as_chunks::<N>().0);
    N * blocks.take_while(|(a, b)| !a.iter().zip(*b).fold(false, |any, (&a, &b)| any | loud(a, b))).count()
}

#[cfg(test)]
mod tests;
