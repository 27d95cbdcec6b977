//! Ids of stream entries, which are the ids of events on the wire.

use std::fmt;

/// `milliseconds-sequence`: [the id of an entry](https://redis.io/docs/latest/develop/data-types/streams/#entry-ids).
/// The order of the ids is the order of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id {
    ms: u64,
    seq: u64,
}

impl Id {
    /// Id before every entry; no entry has it.
    pub(crate) const ZERO: Self = Self { ms: 0, seq: 0 };

    /// Parses an id. Returns `None` unless it is exactly in the format of Redis.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (ms, seq) = text.split_once('-')?;
        Some(Self { ms: number(ms)?, seq: number(seq)? })
    }

    pub(crate) fn before(self) -> Option<Self> {
        match self {
            Self { ms: 0, seq: 0 } => None,
            Self { ms, seq: 0 } => Some(Self { ms: ms - 1, seq: u64::MAX }),
            Self { ms, seq } => Some(Self { ms, seq: seq - 1 }),
        }
    }
}

/// Parses a decimal without sign and leading zeros, so that each id has one text.
fn number(digits: &str) -> Option<u64> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    digits.parse().ok().filter(|_| plain)
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_id_has_one_text() {
        for text in ["0-0", "1-0", "1763740800000-12", "18446744073709551615-18446744073709551615"] {
            assert_eq!(Id::parse(text).unwrap().to_string(), text);
        }
        let wrong = ["", "-", "1", "1-", "-1", "+1-0", "1-+0", "01-0", "1-00", "1-0-0", "1 -0", "a-0", "7\u{660}-0"];
        for text in wrong.into_iter().chain(["18446744073709551616-0", "$", "*", "+"]) {
            assert_eq!(Id::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn ids_are_ordered_as_numbers() {
        let ids = ["0-0", "0-9", "0-10", "9-18446744073709551615", "10-0"].map(|text| Id::parse(text).unwrap());
        assert!(ids.is_sorted());
        assert_eq!(ids[4].before(), Some(ids[3]));
        assert_eq!(ids[2].before(), Some(ids[1]));
        assert_eq!(Id::ZERO.before(), None);
    }
}
