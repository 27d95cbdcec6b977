//! Sending events, and answering requests for them.
//!
//! - `builder`: the options.
//! - `hub`: sends events, and makes the bodies of readers.
//! - `kept`: a hub over events that its user keeps.
//! - `request`: the head of a response with events.

mod builder;
mod hub;
pub(crate) mod kept;
mod request;

pub use builder::HubBuilder;
pub use hub::Hub;
