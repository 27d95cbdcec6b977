//! Finds where the head of a message ends, in pieces of any size.
//!
//! What a line is, by [RFC 9112 §2.2](https://www.rfc-editor.org/rfc/rfc9112#section-2.2):
//!
//! * A line ends with CRLF, or with LF alone. A recipient *may* recognise the latter; here it is, because the next one
//!   may, and a stamp behind what it takes for the end of the head would be in its body.
//! * A CR that no LF follows *must not* be forwarded as it is: some take it for the end of a line and some do not. It is
//!   an error.
//! * Empty lines in front of the start line belong to no message and are passed over.
//! * A line that begins with a space or a tab continues the one before it (obs-fold), be there anything else in it or not.
//!   It is like every other line: only one without any byte ends the head.

use super::injector::Error;

const CR: u8 = b'\r';
const LF: u8 = b'\n';

/// Bytes at the start of a message that tell what it is: `HTTP/1.1 100`.
const TELLING: usize = 12;

/// Where the next byte lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In front of the start line.
    Leading,
    /// There, behind a CR.
    LeadingCr,
    /// In a line, behind a byte of it.
    Line,
    /// There, behind a CR.
    LineCr,
    /// Behind the end of a line.
    Start,
    /// There, behind a CR.
    StartCr,
}

/// How far the search for the end of the head has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan {
    place: Place,
    /// Bytes that this head may still have.
    room: usize,
    /// What the message began with, as far as it has come.
    first: [u8; TELLING],
    first_len: usize,
}

impl Scan {
    /// For a head of at most `limit` bytes.
    #[inline]
    pub(super) fn new(limit: usize) -> Self {
        Self { place: Place::Leading, room: limit, first: [0; TELLING], first_len: 0 }
    }

    /// Whether a message has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.first_len > 0
    }

    /// Whether the last byte was a CR that may begin the empty line behind a head that is to be stamped.
    pub(super) fn holds(&self) -> bool {
        self.place == Place::StartCr && !self.is_interim()
    }

    /// Goes on with `piece`; if the head ends in it, says where: behind the LF of the empty line. With an error it stays
    /// where it was.
    ///
    /// A response of the class 1xx has no body and another behind it ([RFC 9110
    /// §15.2](https://www.rfc-editor.org/rfc/rfc9110#section-15.2)), so its end is not the end that is looked for.
    pub(super) fn run(&mut self, piece: &[u8], limit: usize) -> Result<Option<usize>, Error> {
        let mut at = 0;
        let mut next = *self;
        if !matches!(next.place, Place::Leading | Place::LeadingCr) {
            next.note(piece);
        }
        while at < piece.len() {
            if next.place == Place::Line {
                // Still in a line: behind a CR lies its LF and behind an LF a line that is not empty, or `quiet` ends there.
                let rest = &piece[at..];
                let n = quiet(&rest[..rest.len().min(next.room)]);
                at += n;
                next.room -= n;
            }
            next.room = next.room.checked_sub(1).ok_or(Error::TooLarge { limit })?;
            let byte = piece[at];
            next.place = match (next.place, byte) {
                (Place::Leading | Place::LeadingCr, LF) => Place::Leading,
                (Place::Leading, CR) => Place::LeadingCr,
                (Place::Leading, _) => {
                    (next.first, next.first_len) = ([0; TELLING], 0);
                    next.note(&piece[at..]);
                    Place::Line
                }
                (Place::Line | Place::LineCr, LF) => Place::Start,
                (Place::Line, CR) => Place::LineCr,
                (Place::Start, CR) => Place::StartCr,
                (Place::Start | Place::StartCr, LF) if next.is_interim() => {
                    next.room = limit;
                    Place::Leading
                }
                (Place::Start | Place::StartCr, LF) => return Ok(Some(at + 1)),
                (Place::Line | Place::Start, _) => Place::Line,
                (Place::LeadingCr | Place::LineCr | Place::StartCr, _) => return Err(Error::BareCr),
            };
            at += 1;
        }
        *self = next;
        Ok(None)
    }

    /// Keeps what the message begins with.
    fn note(&mut self, bytes: &[u8]) {
        let room = &mut self.first[self.first_len..];
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.first_len += n;
    }

    /// Whether the message is a response that another one follows. 101 is none: behind it lies another protocol.
    fn is_interim(&self) -> bool {
        let [b'H', b'T', b'T', b'P', b'/', major, b'.', minor, b' ', b'1', tens, ones] = self.first else {
            return false;
        };
        [major, minor, tens, ones].iter().all(u8::is_ascii_digit) && [tens, ones] != *b"01"
    }
}

/// How many bytes, of some that begin inside a line, can be passed over without a look at each: all but the last, or those
/// in front of the first that, with the one behind it, may be more than the end of a line. Nothing is where CR and LF
/// always stand together and no CR stands behind them.
fn quiet(bytes: &[u8]) -> usize {
    let Some(pairs) = bytes.len().checked_sub(1) else { return 0 };
    let (firsts, seconds) = (&bytes[..pairs], &bytes[1..]);
    let at = quiet_blocks::<32>(firsts, seconds);
    let at = at + quiet_blocks::<8>(&firsts[at..], &seconds[at..]);
    at + quiet_blocks::<1>(&firsts[at..], &seconds[at..])
}

/// As [`quiet`], by blocks of `N` pairs. No branch in a block: the compiler makes a few wide comparisons of it.
fn quiet_blocks<const N: usize>(firsts: &[u8], seconds: &[u8]) -> usize {
    let loud = |a: u8, b: u8| ((a == CR) != (b == LF)) | ((a == LF) & (b == CR));
    let blocks = firsts.as_chunks::<N>().0.iter().zip(seconds.as_chunks::<N>().0);
    N * blocks.take_while(|(a, b)| !a.iter().zip(*b).fold(false, |any, (&a, &b)| any | loud(a, b))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_bytes_end_in_front_of_what_is_loud() {
        for len in 0..100 {
            assert_eq!(quiet(&vec![b'a'; len]), len.saturating_sub(1));
            let lines: Vec<u8> = b"abc\r\n".iter().copied().cycle().take(len).collect();
            assert_eq!(quiet(&lines), len.saturating_sub(1));
            for (loud, at) in [(&b"\r\n\r"[..], 1), (b"\r\r", 0), (b"\rx", 0), (b"x\n", 0)] {
                for behind in [0, 70] {
                    let bytes = [&vec![b'a'; len], loud, &vec![b'a'; behind]].concat();
                    assert_eq!(quiet(&bytes), len + at, "{loud:?}");
                }
            }
        }
    }

    #[test]
    fn interim_responses_are_told_by_their_start_line() {
        let interim = |text: &[u8]| {
            let mut scan = Scan::new(100);
            assert_eq!(scan.run(text, 100).unwrap(), None);
            scan.is_interim()
        };
        for text in ["HTTP/1.1 100 Continue", "HTTP/1.0 199", "HTTP/1.1 103 Early Hints\r\nLink: x", "HTTP/1.1 102\r\n"]
        {
            assert!(interim(text.as_bytes()), "{text}");
        }
        for text in [
            "HTTP/1.1 101 Switching Protocols",
            "HTTP/1.1 200 OK",
            "HTTP/1.1 10",
            "GET /1.1 100",
            "http/1.1 100",
            "HTTP/x.1 100",
            "HTTP/1.1 1x0",
        ] {
            assert!(!interim(text.as_bytes()), "{text}");
        }
    }
}
