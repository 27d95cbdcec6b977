//! A reader of events.
//!
//! - `body`: the body of its response.
//! - `shared_events`: the same events behind the bodies of layers.
//! - `seat`: its position, and the frames that follow it.
//! - `replay_cursor`: a reader whose events come from a log.
//! - `room`: how many bytes of a log its readers hold, in all.

mod body;
mod replay_cursor;
mod room;
mod seat;
mod shared_events;

pub use body::EventBody;
pub(crate) use seat::Attach;
pub(crate) use shared_events::{Digest, SharedEvents};
