//! The error of inserting a topic.

use std::error::Error;
use std::fmt;
use std::io;

/// The name of a topic is empty, or longer than [`TopicsBuilder::name_len`](crate::TopicsBuilder::name_len) allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameError {
    pub(crate) max: usize,
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of a topic has 1 to {} bytes, as TopicsBuilder::name_len allows", self.max)
    }
}

impl Error for NameError {}

/// `InvalidInput`.
impl From<NameError> for io::Error {
    fn from(error: NameError) -> Self {
        Self::new(io::ErrorKind::InvalidInput, error)
    }
}
