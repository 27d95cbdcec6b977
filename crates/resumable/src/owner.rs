//! The owner of a stream, who may read it.

use std::fmt;
use std::sync::Arc;

use crate::error::StreamError;

/// Maximum length of a key in bytes. Keys may come from clients.
const KEY_MAX: usize = 1024;

/// The owner of a stream of [`Streams`](crate::Streams), who may read and stop it: the name of a user, or of a session.
///
/// Use the user that your service has authenticated, never the key or another value that the client chooses. An
/// empty owner finds nothing and starts nothing, so that a missing session is not an owner that all clients share.
/// `Debug` does not print it.
///
/// ```
/// use millstream_resumable::Owner;
///
/// assert_ne!(Owner::from("alice"), Owner::anyone());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner(Option<Box<[u8]>>);

impl Owner {
    /// Returns the owner of public streams. Any client that knows the key may read and stop them. Streams of other owners stay hidden
    /// from it.
    #[must_use]
    pub fn anyone() -> Self {
        Self(None)
    }

    /// Returns the name of the stream with this key: no two pairs of an owner and a key have the same.
    pub(crate) fn name(&self, key: &str) -> Result<Arc<[u8]>, StreamError> {
        if key.len() > KEY_MAX {
            return Err(StreamError::LongKey);
        }
        let (len, owner) = match &self.0 {
            Some(owner) if owner.is_empty() => return Err(StreamError::NoOwner),
            Some(owner) => (owner.len() as u64, &**owner),
            None => (0, &[][..]),
        };
        Ok([&len.to_le_bytes()[..], owner, key.as_bytes()].concat().into())
    }
}

impl From<&[u8]> for Owner {
    fn from(owner: &[u8]) -> Self {
        Self(Some(owner.into()))
    }
}

impl From<&str> for Owner {
    fn from(owner: &str) -> Self {
        owner.as_bytes().into()
    }
}

impl From<String> for Owner {
    fn from(owner: String) -> Self {
        Self(Some(owner.into_bytes().into()))
    }
}

impl From<&Self> for Owner {
    fn from(owner: &Self) -> Self {
        owner.clone()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Owner(..)" } else { "Owner(anyone)" })
    }
}

#[cfg(test)]
mod tests;
