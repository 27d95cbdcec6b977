//! Events for operators, in `tracing` under the target `millstream`; without the feature `tracing`, empty functions.

use std::error::Error;
use std::io;
use std::net::IpAddr;

pub(crate) fn accept_paused(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", %error, "accepting pauses; raise RLIMIT_NOFILE or close connections");
    let _ = error;
}

/// A listener has failed permanently, and its caller cannot get the error.
#[cfg(feature = "axum-08")]
pub(crate) fn listener_failed(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", %error, "the listener has failed and accepts no more connections");
    let _ = error;
}

/// Reports the connections refused since the last report. The last one came from `address` and exceeded `limit`.
pub(crate) fn connections_refused(refused: u64, address: Option<IpAddr>, limit: &'static str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        target: "millstream",
        refused,
        address = address.map(tracing::field::display),
        limit,
        "connections refused: a limit of server::Limits is reached"
    );
    let _ = (refused, address, limit);
}

pub(crate) fn file_torn() {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", "a file was truncated while it was being sent; replace files by renaming");
}

/// Level `DEBUG`, because clients end connections in every way.
pub(crate) fn connection_failed(error: &(dyn Error + 'static)) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "millstream", error, "connection ended");
    let _ = error;
}

/// Level `DEBUG`, because any client can cause it.
#[cfg(feature = "server")]
pub(crate) fn request_refused(status: u16) {
    #[cfg(feature = "tracing")]
    tracing::debug!(target: "millstream", status, "the server refuses a request");
    let _ = status;
}

#[cfg(tls)]
pub(crate) fn certificate_replaced() {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "millstream", "certificate reloaded");
}

#[cfg(tls)]
pub(crate) fn certificate_kept(error: &(dyn Error + 'static)) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", error, "the old certificate stays in use");
    let _ = error;
}

#[cfg(tls)]
pub(crate) fn ticket_keys_kept(path: &std::path::Path, error: &std::io::Error) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", path = %path.display(), error = error as &dyn Error, "the old ticket keys stay in use");
    let _ = (path, error);
}

pub(crate) fn unsupported(capability: &str, reason: &str) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "millstream", capability, reason, "not supported here");
    let _ = (capability, reason);
}

pub(crate) fn streams_of_others() {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "millstream", "the listener's streams are only counted: some limits are less exact");
}

pub(crate) fn leaked(programs: usize) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", programs, "memory leaked: the kernel did not finish with it in time");
    let _ = programs;
}

pub(crate) fn ring_closed(reason: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", reason, "io_uring is no longer used; the blocking pool replaces it");
    let _ = reason;
}

pub(crate) fn cores_left(cores: &[usize]) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", ?cores, "threads did not end: a task on each does not return from its poll");
    let _ = cores;
}

#[cfg(all(feature = "fs", feature = "sse"))]
pub(crate) fn disk_failed(error: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", error, "the log of events has failed and stores nothing more; open it again");
    let _ = error;
}

#[cfg(all(feature = "fs", feature = "sse"))]
pub(crate) fn disk_full(error: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", error, "the log of events has no room; events wait for a retry");
    let _ = error;
}

#[cfg(all(feature = "fs", feature = "sse"))]
pub(crate) fn disk_not_removed(error: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", error, "an old segment of the log of events cannot be removed");
    let _ = error;
}

#[cfg(all(feature = "fs", feature = "sse"))]
pub(crate) fn disk_damaged(error: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", error, "events of the log cannot be read; a reader gets a gap");
    let _ = error;
}
