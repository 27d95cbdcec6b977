//! The events of a hub, shared by its readers.
//!
//! - `shared`: what a hub, its log and its readers share.
//! - `state`: what is under its lock.
//! - `ring`: the last events.

mod ring;
mod shared;
mod state;

pub(super) use ring::Limits;
pub(super) use shared::HubShared;
pub(super) use shared::{Begin, Permit, Start};
pub use state::LagPolicy;
pub(super) use state::{Config, Cursor, Read};
