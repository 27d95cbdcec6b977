//! A deploy that closes no connection of an idle client or of a reader of events: a process gives its listeners, its idle
//! HTTP connections, and the readers of its hubs to the next one.
//!
//! The new process connects to the control socket of the one that serves, gets its listeners, and starts. Once it is
//! ready, the old one stops accepting and drains. Requests in progress are answered by the old process. Idle keep-alive
//! connections of HTTP/1 move to the new one, and so do those of readers of [hubs](Handoff::hub): their clients notice
//! nothing. The queues of the listeners are never closed.
//!
//! ```no_run
//! use std::mem;
//! use std::time::Duration;
//!
//! use millstream::files::Files;
//! use millstream::server::serve;
//! use millstream_handoff::Handoff;
//! use tokio::signal::unix::{SignalKind, signal};
//!
//! #[tokio::main]
//! async fn main() -> std::io::Result<()> {
//!     let mut handoff = Handoff::open("/run/app/handoff.sock").await?;
//!     let listener = handoff.tcp("http", "0.0.0.0:8080").await?;
//!     let files = Files::new("public")?;
//!     // Before a service manager knows this process, and may end it.
//!     let mut terminate = signal(SignalKind::terminate())?;
//!     // From here on the process before drains, if there is one.
//!     let serving = handoff.ready().await?;
//!     loop {
//!         let successor = serving.successor();
//!         let mut stop = mem::replace(&mut terminate, signal(SignalKind::terminate())?);
//!         let end = async move {
//!             tokio::select! {
//!                 () = successor => {}
//!                 _ = stop.recv() => {}
//!             }
//!         };
//!         let server = serve(listener.clone(), files.clone()).move_connections(listener.give());
//!         server.drain(end, Duration::from_secs(30)).await?;
//!         match serving.finish().await {
//!             Ok(_) => return Ok(()),
//!             // The process before goes on.
//!             Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return Err(error),
//!             // The next process has failed. This one goes on.
//!             Err(error) => eprintln!("no handoff: {error}"),
//!         }
//!     }
//! }
//! ```
//!
//! # Service managers
//!
//! Under systemd a listener may also come from the manager: one of a socket unit, or one that was
//! [stored](Handoff::store_listeners) before a crash. [`Handoff::ready`] tells the manager which process is the main one. With
//! `NotifyAccess=all` the unit stays active while processes take each other's place. [`start_successor`] starts the next process, and
//! [`notify`] sends other messages. Elsewhere nothing of this has an effect.
//!
//! # Failures
//!
//! Nothing is given up before the other process has it. A process that dies before it is ready changes nothing. After
//! that, connections move in batches, in two phases: the next process says that it has a batch, and the old one says
//! that it gives it up. If the next process dies, or is too slow, the old one has everything that was not given up, and
//! serves again; a next process that lives is told to [end](Serving::finish). If the old one dies, the next one has the
//! listeners and every batch that it has taken. A process has no successor before the one before it has ended, so that at
//! most two have the same listeners.
//!
//! # Security
//!
//! The control socket has the mode 0600, and both processes check that the other one has the same user (`SO_PEERCRED`).
//! Others are refused, which the feature `tracing` reports. Between user namespaces the kernel translates the user, and one
//! without a number is 65534 there. A process that runs as 65534 in such a namespace has the mode only.
//!
//! # Limits
//!
//! Connections with TLS or HTTP/2, requests in progress, other streams and upgrades stay with the old process and drain;
//! [`Drained::stayed`](millstream::server::Drained::stayed) has their numbers. Readers of hubs among them get the events of both
//! processes until their streams end, unless the ring of a hub is too small for the events of a moment.
//! The two processes may be of different versions of a program; the [records](https://docs.rs/millstream-handoff) of the
//! control socket have a version of their own. Unix only.
#![cfg(unix)]
// Order of the files, from what is used to what uses it:
//   rights, record   descriptors over sockets; the records, which are the protocol
//   queue, log       sockets on their way to another task; events for operators
//   activation       listeners of a service manager
//   manager          what a service manager is told
//   late_log         HandoffLog: a log that is opened when the process before has ended
//   link             the connection of two processes
//   hubs             the events and readers of hubs
//   listener         HandoffListener
//   adopt            the connections of the process before
//   calm             when readers that stay get the events of the next process
//   serving          Serving: what is given to the next process
//   handoff          Handoff: the start of a process
//   successor        a process that starts the next one

mod activation;
mod adopt;
mod calm;
mod handoff;
mod hubs;
mod late_log;
mod link;
mod listener;
mod log;
mod manager;
mod queue;
mod record;
mod rights;
mod serving;
mod successor;

pub use handoff::Handoff;
pub use late_log::HandoffLog;
pub use listener::{HandoffListener, Passed};
pub use manager::notify;
pub use serving::Serving;
pub use successor::start_successor;

// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
