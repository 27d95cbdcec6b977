//! Events for many readers: one ring that all read, and who is told when.
//!
//! ```text
//!  Hub::send ─▶ event ─bytes─▶ ring ◀─place─ body ─frames─▶ hyper
//!      │                        ▲             │ waits
//!      └───▶ waiters: a herald per runtime ───┘ wakes
//!  log ─Sink─▶ ring    log ─replay─▶ past ─▶ body
//! ```
//!
//! An event is encoded once. A reader keeps the number of the event it reads next, so that what is queued for it is in the
//! ring, whatever the number of readers.

mod body;
mod builder;
mod error;
mod event;
mod event_id;
mod gap;
mod hub;
pub mod log;
mod replay_cursor;
mod request;
mod ring;
mod room;
mod shared;
mod state;
mod stats;
mod wait_list;
mod wake_task;

pub use body::EventBody;
pub use builder::{HubBuilder, LagPolicy};
pub use error::{SendError, SubscribeError};
pub use event::{Event, EventParts};
pub use event_id::EventId;
pub use hub::Hub;
use shared::Shared;
pub use stats::Stats;
