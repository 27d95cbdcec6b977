//! Request ids.

use http::header::HeaderName;
use millstream::internal::RequestId;

use super::scratch::{hex, value};

pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns a new id of 32 random hexadecimal digits.
pub(super) fn generate() -> RequestId {
    let mut digits = [0; 32];
    hex(&rand::random::<[u8; 16]>(), &mut digits);
    RequestId::new(value(&digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unlike() {
        let mut all: Vec<_> = (0..10_000).map(|_| generate().to_string()).collect();
        assert!(all.iter().all(|id| id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit())));
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 10_000);
    }
}
