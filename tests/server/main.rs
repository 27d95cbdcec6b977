//! `server`: requests, limits, shutdown and cleanup, whatever the peers do.

mod accept;
mod assumed;
mod batch;
mod budget;
#[cfg(feature = "fs")]
mod descriptors;
mod drain;
#[cfg(feature = "axum-08")]
mod drop_in;
mod endings;
mod endings2;
mod floods;
mod gone;
mod idle;
mod limits;
mod listeners;
mod memory;
#[cfg(unix)]
mod moving;
mod over;
mod serve;
mod smuggling;
mod takeover;
mod until_drain;
mod websockets;
