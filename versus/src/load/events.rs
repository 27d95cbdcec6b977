//! Server-sent events of an endless response, and the times in them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Finds events and the times in them: `data: NANOSECONDS xxx`.
#[derive(Debug, Default)]
pub(super) struct EventScanner {
    line: Vec<u8>,
}

impl EventScanner {
    /// Calls `found` with the time that has passed since that of each event.
    pub(super) fn scan(&mut self, bytes: &[u8], mut found: impl FnMut(Duration)) {
        for &byte in bytes {
            if byte != b'\n' {
                // The time stands in front.
                if self.line.len() < 40 {
                    self.line.push(byte);
                }
                continue;
            }
            let line = std::str::from_utf8(&self.line).unwrap_or_default();
            let time = line.strip_prefix("data:").and_then(|data| data.split_ascii_whitespace().next());
            if let Some(Ok(nanos)) = time.map(str::parse) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                found(now.saturating_sub(Duration::from_nanos(nanos)));
            }
            self.line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_wherever_they_are_cut() {
        let stream = format!("data: 123456789 {}\nid: 1\n\n:\ndata: 1 x\n\nretry: 5\n", "x".repeat(90));
        for cut in 0..=stream.len() {
            let (mut scanner, mut events) = (EventScanner::default(), 0);
            for piece in [&stream[..cut], &stream[cut..]] {
                scanner.scan(piece.as_bytes(), |latency| {
                    assert!(latency > Duration::from_secs(1_000_000_000));
                    events += 1;
                });
            }
            assert_eq!(events, 2, "cut at {cut}");
        }
    }
}
