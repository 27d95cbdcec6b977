//! Server-sent events for many readers, which share one ring of events.
//!
//! | I want to | use |
//! |---|---|
//! | send events to many readers | [`Hub`] |
//! | choose what a new or slow reader gets | [`HubBuilder`], [`LagPolicy`] |
//! | build an event | [`Event`] |
//! | keep events over restarts | [`log::Log`], `log::disk::Disk` (features `fs` and `sse`) |
//! | share events with other processes | [`log::Log`], `Redis` of the crate `millstream-redis` |
//! | read how many readers there are | [`HubStats`] |
//!
//! An event is encoded once, and compressed once if a reader takes it so. A reader keeps the number of the event it reads
//! next, so queued events are in the ring, once for all readers.

//  Hub::send ─▶ event ─bytes─▶ ring ◀─cursor─ body ─frames─▶ hyper
//      └─▶ one wake_task per runtime ─▶ wait_list ┘ wakes
//  log ─Sink─▶ ring    log ─replay─▶ replay_cursor ─▶ body

mod body;
mod builder;
mod error;
mod event;
mod event_id;
mod gap;
mod groups;
#[cfg_attr(not(feature = "compress"), path = "no_gzip.rs")]
mod gzip;
mod hub;
mod lock;
pub mod log;
mod piece;
mod replay_cursor;
mod request;
mod ring;
mod room;
mod seat;
mod shared;
mod shared_events;
mod sinks;
mod state;
mod stats;
mod wait_list;
mod wake_task;

pub use body::EventBody;
pub use builder::HubBuilder;
pub use error::{SendError, SubscribeError};
pub use event::{Event, EventParts};
pub use event_id::EventId;
pub use hub::Hub;
pub(crate) use seat::Attach;
use shared::HubShared;
pub(crate) use shared_events::{Digest, SharedEvents};
pub use state::LagPolicy;
pub use stats::HubStats;
