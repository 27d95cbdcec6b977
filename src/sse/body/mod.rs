//! A reader of events.
//!
//! - `seat`: its position, and the frames that follow it, as the body of a response.
//! - `sink`: the same, while the hub writes its connection.
//! - `coding`: the form in which it gets events.
//! - `shared_events`: the same, for a body that layers have wrapped.
//! - `replay_cursor`: a reader whose events come from a log.
//! - `keep_alive`: any body, with comments while it is silent.
//! - `boundary`: where an event of such a body ends.
//! - `room`: limits the bytes of log pages that all readers hold together.

mod boundary;
mod coding;
mod keep_alive;
mod replay_cursor;
mod room;
mod seat;
mod shared_events;
mod sink;

pub(super) use coding::Coding;
pub use keep_alive::KeepAlive;
pub(super) use seat::{Place, SeatState};
pub(super) use shared_events::SharedEvents;
