//! Sending events, and answering requests for them.
//!
//! - `builder`: the options.
//! - `hub`: sends events, and makes the bodies of readers.
//! - `request`: the head of a response with events.

mod builder;
mod hub;
pub(super) mod request;

pub use builder::HubBuilder;
pub use hub::Hub;
