//! Sending events, and answering requests for them.
//!
//! - `builder`: the options.
//! - `hub`: sends events, and makes the bodies of readers. `framed`: the same in another framing.
//! - `handover`: a hub of another process takes the place of this one.
//! - `kept`: a hub over events that its user keeps.
//! - `request`: the head of a response with events.

mod builder;
mod framed;
mod handover;
mod hub;
pub(crate) mod kept;
mod request;

pub use builder::HubBuilder;
pub use framed::FramedHub;
pub use handover::{HandedEvent, HubEvents, HubHandover};
pub use hub::Hub;
