//! A reader of events.
//!
//! - `seat`: its position, and the frames that follow it, as the body of a response.
//! - `shared_events`: the same behind the bodies of layers.
//! - `replay_cursor`: a reader whose events come from a log.
//! - `room`: how many bytes of a log its readers hold, in all.

mod replay_cursor;
mod room;
mod seat;
mod shared_events;

pub(super) use seat::SeatState;
pub(super) use shared_events::SharedEvents;
