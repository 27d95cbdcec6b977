//! A reader of events.
//!
//! - `seat`: its position, and the frames that follow it, as the body of a response.
//! - `shared_events`: the same, for a body that layers have wrapped.
//! - `replay_cursor`: a reader whose events come from a log.
//! - `room`: limits the bytes of log pages that all readers hold together.

mod replay_cursor;
mod room;
mod seat;
mod shared_events;

pub(super) use seat::SeatState;
pub(super) use shared_events::SharedEvents;
