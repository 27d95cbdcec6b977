//! Events and their encoded forms.
//!
//! - `event`, `event_id`: an event and its id.
//! - `gap`: tells a reader that events are missing.
//! - `piece`: bytes that all readers of one form get.
//! - `gzip`: the compressed form; `no_gzip` without the feature `compress`.
//! - `framing`: other forms than server-sent events. `coder`: all forms.

mod coder;
mod event;
mod event_id;
mod framing;
mod gap;
#[cfg_attr(not(feature = "compress"), path = "no_gzip.rs")]
mod gzip;
mod piece;

pub(super) use coder::{Coder, Form};
pub use event::{Event, EventParts};
pub(super) use event::{check_id, finish};
pub use event_id::EventId;
pub(super) use framing::Framed;
pub use framing::{EndReason, Framing, FramingEnd, JsonLines, Raw};
pub(super) use gap::Gap;
pub(super) use gzip::{Deflater, Gzip, Part, Slot};
pub(super) use piece::Piece;
