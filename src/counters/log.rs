//! What an operator should read about, as `tracing` events under the target `millstream` (feature `tracing`). Without the
//! feature these functions are empty and cost nothing.

use std::error::Error;
use std::io;
use std::net::IpAddr;

/// Accepting pauses: out of descriptors or memory.
pub(crate) fn accept_paused(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", %error, "accepting pauses; raise RLIMIT_NOFILE or close something");
    let _ = error;
}

/// A listener has failed for good, and its caller cannot be told.
#[cfg(feature = "axum")]
pub(crate) fn listener_failed(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", %error, "the listener has failed and accepts no more connections");
    let _ = error;
}

/// A server has refused connections: so many since it last said so, the last one from `address` beyond `limit`.
pub(crate) fn connections_refused(refused: u64, address: Option<IpAddr>, limit: &'static str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "millstream",
        refused,
        address = address.map(tracing::field::display),
        limit,
        "connections refused: there are as many as http::Limits allows"
    );
    let _ = (refused, address, limit);
}

/// A response failed because its file became shorter.
pub(crate) fn file_torn() {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", "a file was truncated while it was being sent; replace files by renaming");
}

/// A connection ended with an error. Clients leave in every way there is, so this is detail.
pub(crate) fn connection_failed(error: &(dyn Error + 'static)) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "millstream", error, "connection ended");
    let _ = error;
}

/// The files of a certificate were others, and are in use now.
#[cfg(feature = "tls")]
pub(crate) fn certificate_replaced() {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "millstream", "certificate reloaded");
}

/// The files of a certificate are others, and cannot be used.
#[cfg(feature = "tls")]
pub(crate) fn certificate_kept(error: &(dyn Error + 'static)) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", error, "the old certificate stays in use");
    let _ = error;
}

/// Something this machine cannot do, and what is done instead.
pub(crate) fn unsupported(capability: &str, reason: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "millstream", capability, reason, "not supported here");
    let _ = (capability, reason);
}

/// A runtime ended before the kernel had finished with some memory.
pub(crate) fn leaked(programs: usize) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", programs, "memory leaked: the kernel did not finish with it in time");
    let _ = programs;
}

/// A ring was given up while it was in use.
pub(crate) fn ring_closed(reason: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", reason, "io_uring was given up; the blocking pool takes over");
    let _ = reason;
}

/// Threads of cores did not end in time.
pub(crate) fn cores_left(cores: &[usize]) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", ?cores, "threads left behind: a task there does not come back from its poll");
    let _ = cores;
}

/// A log in Redis has lost its connection.
#[cfg(feature = "redis")]
pub(crate) fn redis_away(address: &str, error: &dyn Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", address, error = %error, "Redis is away; events wait, and it is tried again");
    let _ = (address, error);
}

/// A log in Redis is connected again.
#[cfg(feature = "redis")]
pub(crate) fn redis_back(address: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "millstream", address, "Redis is back");
    let _ = address;
}
