//! The events of a hub, shared by its readers.
//!
//! - `kept`: the hub of a stream, with `keeper`, which keeps the events that the ring no longer has.
//! - `leaving`: the events of a hub whose place another process takes.
//! - `permit`: admission of readers.
//! - `shared`: what a hub, its log and its readers share.
//! - `state`: what is under its lock.
//! - `ring`: the last events.

mod keeper;
mod kept;
mod leaving;
mod permit;
mod ring;
mod shared;
mod state;

pub use keeper::Keeper;
pub(super) use permit::Permit;
pub(super) use ring::Limits;
pub(super) use shared::HubShared;
pub(super) use shared::{Begin, Start};
pub use state::LagPolicy;
pub(super) use state::{Config, Cursor, Read};
