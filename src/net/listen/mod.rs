//! Listeners.
//!
//! - `tcp`, `unix`: the listeners and their builders.
//! - `name`: the socket file of a Unix listener.
//! - `listeners`: several listeners on one port, and what gives each core its listener.
//! - `listener`: the accept loop of all of them.
//! - `inherited`: options that connections inherit from their listener.
//! - `accept_failures`: errors that do not end the loop.
//! - `accept`: the trait of listeners that a server takes.
//! - `incoming`: a listener as a stream of connections.

mod accept;
mod accept_failures;
#[cfg(feature = "tonic-014")]
mod incoming;
mod inherited;
mod listener;
mod listeners;
#[cfg(unix)]
mod name;
mod tcp;
#[cfg(unix)]
mod unix;

pub use accept::{Accept, Transport};
#[cfg(feature = "tonic-014")]
pub use incoming::Incoming;
pub use listeners::{EachListener, Listeners};
pub use tcp::{TcpListener, TcpListenerBuilder};
#[cfg(unix)]
pub use unix::{UnixListener, UnixListenerBuilder};
