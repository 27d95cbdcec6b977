//! The events of a simulation, as a number: two runs are the same if their numbers are.

use std::fmt::Write;

/// A hash of all events in their order. With `is_kept`, also their text.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    text: Option<String>,
}

impl Trace {
    pub(super) fn new(is_kept: bool) -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, events: 0, text: is_kept.then(String::new) }
    }

    pub(super) fn add(&mut self, now: u64, link: u64, what: &str, value: u64) {
        self.events += 1;
        for part in [now, link, value] {
            self.hash_in(part);
        }
        for bytes in what.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.hash_in(u64::from_le_bytes(word));
        }
        if let Some(text) = &mut self.text {
            let _ = writeln!(text, "{:>6}.{:03} s  #{link:<4} {what} {value}", now / 1000, now % 1000);
        }
    }

    fn hash_in(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns the number of events.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the text of all events, if it is kept.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }
}
