//! Events on their way to the connection: small ones are gathered, long texts are passed on as they are.

use std::collections::VecDeque;
use std::mem;

use bytes::Bytes;

use crate::composite::CompositeId;

/// Maximum length of gathered events. With the 9-byte frame header they fit one TLS record and one HTTP/2 DATA frame.
const GATHERED: usize = (16 << 10) - 9;

/// Length from which a text is not copied.
const SHARED: usize = 4 << 10;

/// The bytes before and behind the id of an event.
const ID: &[u8] = b"id: ";
const END: &[u8] = b"\n\n";

/// The next frames of a response.
#[derive(Debug, Default)]
pub(crate) struct Frames {
    whole: VecDeque<Bytes>,
    tail: Vec<u8>,
    len: usize,
}

impl Frames {
    /// Returns whether `more` bytes may be added. The first event may have any length.
    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.len == 0 || self.len + more <= GATHERED
    }

    /// Adds an event: its lines, and the id with this topic first.
    pub(crate) fn push(&mut self, text: &[u8], id: &CompositeId, topic: usize) {
        let end = ID.len() + id.len() + END.len();
        if self.tail.is_empty() {
            // Often the only event of the frame. Memory of exactly its length needs no second allocation to be shared.
            self.tail.reserve_exact(text.len() + end);
        }
        self.tail.extend_from_slice(text);
        self.tail.extend_from_slice(ID);
        id.write(topic, &mut self.tail);
        self.tail.extend_from_slice(END);
        self.len += text.len() + end;
    }

    /// Adds an event as [`push`](Self::push) does. Its lines are in `frame`, and are not copied if they are long.
    pub(crate) fn push_part(&mut self, frame: &Bytes, text: &[u8], id: &CompositeId, topic: usize) {
        if text.len() < SHARED {
            return self.push(text, id, topic);
        }
        self.end_tail();
        self.whole.push_back(frame.slice_ref(text));
        self.len += text.len();
        self.push(&[], id, topic);
    }

    /// Adds the last bytes of the response.
    pub(crate) fn push_last(&mut self, text: &str) {
        self.tail.extend_from_slice(text.as_bytes());
    }

    /// Returns whether a frame is complete, and must be taken before events are added.
    pub(crate) fn has_whole(&self) -> bool {
        !self.whole.is_empty()
    }

    /// Returns the length of what was added since the last whole frame was taken.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.tail.is_empty()
    }

    /// Takes the next frame.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        if self.whole.is_empty() {
            self.end_tail();
            self.len = 0;
        }
        self.whole.pop_front()
    }

    fn end_tail(&mut self) {
        if !self.tail.is_empty() {
            self.whole.push_back(mem::take(&mut self.tail).into());
        }
    }
}
