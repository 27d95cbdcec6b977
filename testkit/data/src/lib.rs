//! Bytes for tests, made and compared by optimised code.

/// Returns bytes without repetitions that a test could miss.
pub fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x2545_f491_4f6c_dd1du64;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

/// Returns the number of bytes before the first that differs.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Returns letters without repetitions that a test could miss.
pub fn letters(len: usize) -> String {
    noise(len).into_iter().map(|byte| char::from(b'a' + byte % 26)).collect()
}

/// Returns `len` bytes without a zero, in which all pages differ.
pub fn pages(len: usize) -> Vec<u8> {
    const PAGE: usize = 4096;
    let noise: Vec<u8> = noise(PAGE).into_iter().map(|b| b | 1).collect();
    let mut all = noise.repeat(len.div_ceil(PAGE));
    for (n, page) in all.chunks_mut(PAGE).enumerate() {
        let n = n as u32;
        page[..4].copy_from_slice(&(n | 0x8080_8080).to_le_bytes());
        page[4..8].copy_from_slice(&((n << 1) | 0x0101_0101).to_le_bytes());
    }
    all.truncate(len);
    all
}

/// Returns the bytes of responses with the value of each `Date` field replaced, which two servers may give a second apart.
pub fn without_dates(mut bytes: Vec<u8>) -> Vec<u8> {
    const DATE: &[u8] = b"date: Sun, 06 Nov 1994 08:49:37 GMT";
    for at in 0..(bytes.len() + 1).saturating_sub(DATE.len()) {
        let line = &mut bytes[at..at + DATE.len()];
        if line.starts_with(b"date: ") && line.ends_with(b" GMT") {
            line[6..].fill(b'x');
        }
    }
    bytes
}
