//! `server`: requests, limits, shutdown and cleanup, whatever the peers do.

mod accept;
mod assumed;
mod batch;
mod budget;
mod descriptors;
mod drain;
mod endings;
mod floods;
mod gone;
mod idle;
mod limits;
mod listeners;
mod memory;
mod serve;
mod smuggling;
mod takeover;
mod until_drain;
mod websockets;
