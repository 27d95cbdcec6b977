//! The text of an error with its causes.
#![allow(unreachable_pub, reason = "part of examples and of testkit")]

use std::error::Error;
use std::fmt::Write;

/// Returns the text of an error and of each of its sources. Errors of millstream describe only their own level.
pub fn report(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        write!(text, ": {cause}").expect("writing to a string does not fail");
        next = cause.source();
    }
    text
}
