//! The forms of events, and what makes them.

use super::framing::Framed;
use super::gzip::Deflater;

/// The form of a reader's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sse) enum Form {
    Plain,
    Gzip,
    /// In the framing at this address.
    Framed(usize),
}

/// Makes a form of events.
#[derive(Clone, Copy, Debug)]
pub(in crate::sse) enum Coder<'a> {
    Plain,
    Gzip(&'a Deflater),
    Framed(&'a Framed),
}

impl Coder<'_> {
    pub(in crate::sse) fn form(self) -> Form {
        match self {
            Self::Plain => Form::Plain,
            Self::Gzip(_) => Form::Gzip,
            Self::Framed(framed) => Form::Framed(std::ptr::from_ref(framed).addr()),
        }
    }
}
