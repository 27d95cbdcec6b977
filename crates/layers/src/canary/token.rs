//! The secret that a request needs to select a path.

use std::fmt;
use std::io;

use subtle::ConstantTimeEq;

const LEN_MIN: usize = 16;
const LEN_MAX: usize = 128;

/// A token, padded to full length, so that the time of a comparison does not depend on its length.
#[derive(Clone)]
pub(super) struct Token {
    bytes: [u8; LEN_MAX],
    len: u8,
}

impl Token {
    pub(super) fn new(token: &str) -> io::Result<Self> {
        let visible = token.bytes().all(|b| b.is_ascii_graphic());
        Self::padded(token.as_bytes()).filter(|_| visible && token.len() >= LEN_MIN).ok_or_else(|| {
            let message = format!("the token of a canary: use {LEN_MIN} to {LEN_MAX} visible ASCII characters");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })
    }

    fn padded(token: &[u8]) -> Option<Self> {
        let mut bytes = [0; LEN_MAX];
        bytes.get_mut(..token.len())?.copy_from_slice(token);
        Some(Self { bytes, len: token.len() as u8 })
    }

    /// Compares in constant time.
    pub(super) fn is(&self, given: &[u8]) -> bool {
        Self::padded(given).is_some_and(|given| (given.bytes.ct_eq(&self.bytes) & given.len.ct_eq(&self.len)).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = Token::new("0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in ["", "0", "0123456789abcde", "0123456789abcdef0", "0123456789abcdeF", "0123456789abcdef\0"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong:?}");
        }
        assert!(!token.is(&[b'x'; 129]));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn tokens_are_long_and_visible() {
        for wrong in ["", "0123456789abcde", "0123456789 abcdef", "0123456789abcdé", &"x".repeat(129)] {
            assert_eq!(Token::new(wrong).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{wrong}");
        }
        let longest = "x".repeat(128);
        assert!(Token::new(&longest).unwrap().is(longest.as_bytes()));
    }
}
