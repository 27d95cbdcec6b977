//! Sending events, and answering requests for them.
//!
//! - `builder`: the options.
//! - `hub`: sends events, and makes the bodies of readers. `framed`: the same in another framing.
//! - `kept`: a hub over events that its user keeps.
//! - `request`: the head of a response with events.

mod builder;
mod framed;
mod hub;
pub(crate) mod kept;
mod request;

pub use builder::HubBuilder;
pub use framed::FramedHub;
pub use hub::Hub;
