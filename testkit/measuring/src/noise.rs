//! Bytes without repetitions that a check could miss.

use std::io::{self, Write};
use std::sync::OnceLock;

/// Number of bytes after which they repeat. It is odd, so swapped, lost or repeated pieces show, unless their length is a
/// multiple of it.
pub const PERIOD: usize = (256 << 10) - 5;

fn period() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut x = 0x2545_f491_4f6c_dd1du64;
        let next = |_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        };
        (0..PERIOD).map(next).collect()
    })
}

/// Returns the first `len` bytes.
pub fn noise(len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    write(&mut bytes, len as u64).expect("memory takes all");
    bytes
}

/// Writes the first `len` bytes.
pub fn write(to: &mut impl Write, mut len: u64) -> io::Result<()> {
    while len > 0 {
        let n = len.min(PERIOD as u64) as usize;
        to.write_all(&period()[..n])?;
        len -= n as u64;
    }
    Ok(())
}

/// Returns whether `bytes` stand at this offset.
pub fn is_at(mut offset: u64, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let from = (offset % PERIOD as u64) as usize;
        let n = bytes.len().min(PERIOD - from);
        if bytes[..n] != period()[from..from + n] {
            return false;
        }
        bytes = &bytes[n..];
        offset += n as u64;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_recognised_wherever_it_is_cut() {
        let mut bytes = noise(600_000);
        assert_eq!(bytes.len(), 600_000);
        for at in [0, 1, PERIOD - 1, PERIOD, 2 * PERIOD, 599_999] {
            assert!(is_at(at as u64, &bytes[at..]), "{at}");
            assert!(!is_at(at as u64 + 1, &bytes[at..]), "{at}");
        }
        bytes[400_000] ^= 1;
        assert!(!is_at(0, &bytes));
    }
}
