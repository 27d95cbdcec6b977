//! Server-sent events for many readers, which share one ring of events.
//!
//! | I want to | use |
//! |---|---|
//! | send events to many readers | [`Hub`] |
//! | choose what a new or slow reader gets | [`HubBuilder`], [`LagPolicy`] |
//! | keep an answer that survives a page reload, and stop it without readers | `Streams` of the crate `millstream-resumable` |
//! | build an event | [`Event`] |
//! | send the events as JSON lines, or in a form of your own | [`Hub::framed`], [`Framing`] |
//! | keep events over restarts | [`log::Log`], `log::disk::Disk` (features `fs` and `sse`) |
//! | share events with other processes | [`log::Log`], `Redis` of the crate `millstream-redis` |
//! | send the events to WebSockets | `WebSocketHub` of the crate `millstream-websocket` |
//! | send several streams in one response | `Topics` of the crate `millstream-topics`, [`Hub::position`] |
//! | keep any other event stream alive | [`KeepAlive`], `KeepAliveLayer` of the crate `millstream-layers` |
//! | read how many readers there are | [`HubStats`] |
//!
//! An event is encoded once, and compressed once if a reader accepts gzip. A reader keeps the number of the event it
//! reads next, so queued events are in the ring, once for all readers.

// From the top down; imports run downwards only:
//
//   hub/     sending events, and answering requests for them
//   body/    a reader: its position, its replay; comments in any other event stream
//   log/     events that outlive the process, or that several processes share
//   ring/    what a hub, its log and its readers share
//   wake/    waking readers, and writing to their connections
//   event/   events and their encoded forms
//   stats, error, lock
//
//  Hub::send ─▶ event ─bytes─▶ ring ◀─cursor─ body ─frames─▶ hyper
//      └─▶ one wake_task per runtime ─▶ wait_list ┘ wakes
//  log ─Sink─▶ ring    log ─replay─▶ replay_cursor ─▶ body

mod body;
mod error;
mod event;
pub(crate) mod hub;
pub mod log;
pub(crate) mod ring;
mod stats;
mod wake;

pub use crate::body::event_body::EventBody;
pub use body::KeepAlive;
pub use error::{SendError, SubscribeError};
pub use event::EventId;
pub use event::{EndReason, Framing, FramingEnd, JsonLines, Raw};
pub use event::{Event, EventParts};
pub use hub::FramedHub;
pub use hub::Hub;
pub use hub::HubBuilder;
pub use hub::{HandedEvent, HubEvents, HubHandover};
pub use ring::LagPolicy;
pub use stats::HubStats;
