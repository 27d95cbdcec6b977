//! Size of TLS records.
//!
//! A record can be decrypted once all of it has arrived. On a new connection, or after an idle period, TCP's congestion
//! window is a few segments: a record of 16 KiB would be unusable for several round trips. A record that fits one
//! segment is usable at once. Later, full records cost less.

use std::io::IoSlice;
use std::time::Duration;

use tokio::time::Instant;

/// Bytes in a full record, RFC 8446 §5.1.
const FULL: usize = 16 << 10;
/// Bytes in a record of at most 1400 bytes, with a header of 5 and 17 (TLS 1.3) or 24 (TLS 1.2) for encryption.
const SMALL: usize = 1400 - 5 - 24;
/// Bytes sent in small records: about what a connection has sent once its window has grown.
const YOUNG: usize = 64 << 10;
/// Idle time after which the window may have shrunk: TCP's first retransmission timeout (RFC 9293 §3.8.6, RFC 6298).
const IDLE: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Records {
    /// Bytes sent since the start or the last idle period.
    sent: usize,
    last: Instant,
}

impl Records {
    pub(super) fn new(now: Instant) -> Self {
        Self { sent: 0, last: now }
    }

    pub(super) fn begin(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last) >= IDLE {
            self.sent = 0;
        }
        self.last = now;
    }

    pub(super) fn room(&self) -> usize {
        if self.sent < YOUNG { SMALL } else { FULL }
    }

    pub(super) fn wrote(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(bytes);
    }
}

/// Fills `pieces` with at most `room` bytes of `bufs`, after the first `skip`. Returns the number of pieces.
pub(super) fn cut<'a>(bufs: &'a [IoSlice<'_>], mut skip: usize, mut room: usize, pieces: &mut [IoSlice<'a>]) -> usize {
    let mut used = 0;
    for buf in bufs {
        if room == 0 || used == pieces.len() {
            break;
        }
        let rest = &buf[skip.min(buf.len())..];
        skip -= buf.len() - rest.len();
        if !rest.is_empty() {
            let piece = &rest[..rest.len().min(room)];
            room -= piece.len();
            pieces[used] = IoSlice::new(piece);
            used += 1;
        }
    }
    used
}

#[cfg(test)]
mod tests;
