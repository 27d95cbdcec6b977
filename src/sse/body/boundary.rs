//! Where the bytes of an event stream end: between two events, or inside of one.
//!
//! Lines end with LF, CR or CRLF, an empty line ends an event, and a byte order mark may precede the first line
//! ([HTML §9.2.6](https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation)).

use bytes::Bytes;

const BOM: &[u8] = b"\xef\xbb\xbf";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// At the start of the stream, or after an empty line.
    #[default]
    Between,
    Inside,
    /// After the LF at the end of a line of an event.
    AfterLf,
    /// After the CR at the end of a line of an event. A LF belongs to the same end.
    AfterCr,
}

/// The end of the bytes so far.
#[derive(Debug, Default)]
pub(super) struct Boundary {
    position: Position,
    /// Number of bytes of a byte order mark with which the stream has begun. `BOM.len()` once its first line has begun.
    bom: u8,
    /// Whether a comment precedes the stream, so that clients would not recognise its byte order mark.
    hides_bom: bool,
}

impl Boundary {
    /// Returns whether the bytes end an event, so that a comment may follow.
    pub(super) fn is_between(&self) -> bool {
        self.position == Position::Between
    }

    /// Records that a comment follows.
    pub(super) fn note_comment(&mut self) {
        self.hides_bom |= self.bom == 0;
    }

    /// Returns the maximum number of bytes that [`pass`](Self::pass) will remove.
    pub(super) fn most_removed(&self) -> u64 {
        (BOM.len() - usize::from(self.bom)) as u64
    }

    /// Records the next bytes of the stream. Returns the bytes to send, without a byte order mark after a comment.
    pub(super) fn pass(&mut self, data: Bytes) -> Bytes {
        let seen = usize::from(self.bom);
        let rest = &BOM[seen..];
        if rest.is_empty() || data.is_empty() {
            self.follow(&data);
            return data;
        }
        let same = data.iter().zip(rest).take_while(|(a, b)| a == b).count();
        if same == data.len() && same < rest.len() {
            self.bom += same as u8;
            self.position = Position::Inside;
            // Held until the next byte tells whether it is a byte order mark. At the end of the stream it is dropped:
            // clients ignore a line without an end.
            return if self.hides_bom { Bytes::new() } else { data };
        }
        self.bom = BOM.len() as u8;
        if same == rest.len() {
            let text = data.slice(same..);
            self.position = Position::Between;
            self.follow(&text);
            return if self.hides_bom { text } else { data };
        }
        self.follow(&data);
        if self.hides_bom && seen > 0 { [&BOM[..seen], &data].concat().into() } else { data }
    }

    fn follow(&mut self, data: &[u8]) {
        // The last three bytes are enough: three ends of lines include an empty line, and any other byte is inside of an
        // event.
        for byte in &data[data.len().saturating_sub(3)..] {
            self.position = match (byte, self.position) {
                (b'\n', Position::AfterCr) => Position::AfterLf,
                (b'\n', Position::Inside) => Position::AfterLf,
                (b'\r', Position::Inside) => Position::AfterCr,
                // A LF that follows the CR of an empty line only adds an empty line for clients, if a comment is between.
                (b'\n' | b'\r', _) => Position::Between,
                _ => Position::Inside,
            };
        }
    }
}

#[cfg(test)]
mod tests;
