//! A response, from the service to hyper or to the stream.
//!
//! - `answer`: the body of a response, which records when it is finished.
//! - `framing`: how hyper frames a body of HTTP/1.
//! - `refusal`: what the server answers itself.
//! - `takeover`: a pending body, written in this framing.

mod answer;
mod framing;
mod refusal;
mod takeover;

pub(super) use answer::{Answered, answered, bare, refused};
pub(super) use framing::{Exchange, tokens};
pub use framing::{Framing, is_events, is_plain_events, takes_comments};
pub(super) use refusal::unparsed;
pub(super) use takeover::resumed;
