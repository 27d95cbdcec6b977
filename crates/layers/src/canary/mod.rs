//! Sends a share of the responses by another path, and disables the path while it performs worse.

mod answer;
mod breaker;
mod handle;
mod layer;
mod request_guard;
mod service;
mod shared;
mod shares;
mod strategies;
mod token;

pub use answer::{CanaryBody, CanaryFuture};
pub use breaker::{BreakerState, Thresholds};
pub use handle::{BreakerPin, CanaryHandle, CanaryState, PathState};
pub use layer::{CanaryBuilder, CanaryLayer};
pub use service::Canary;
pub use shares::ShareUnit;
