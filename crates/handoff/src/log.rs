//! Events for operators.

use std::io;
use std::path::Path;

use millstream::sse::SendError;

pub(crate) fn refused(path: &Path, error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", path = %path.display(), error = error as &dyn std::error::Error, "a process that connected to the control socket gets nothing");
    let _ = (path, error);
}

pub(crate) fn adopted(connections: usize) {
    #[cfg(feature = "tracing")]
    tracing::info!(target: "millstream", connections, "connections of the process before were adopted");
    let _ = connections;
}

pub(crate) fn reader_lost(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", error = error as &dyn std::error::Error, "a reader of events is closed and has to reconnect");
    let _ = error;
}

pub(crate) fn no_events_back(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", error = error as &dyn std::error::Error, "readers that stay get no further events, and have to reconnect");
    let _ = error;
}

pub(crate) fn not_opened(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", error = error as &dyn std::error::Error, "the log of a hub was not opened after the process before");
    let _ = error;
}

pub(crate) fn event_lost(error: &SendError) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", error = error as &dyn std::error::Error, "an event that waited for the log of its hub is lost");
    let _ = error;
}

pub(crate) fn ended_early(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", error = error as &dyn std::error::Error, "the process before ended while it gave its connections");
    let _ = error;
}

pub(crate) fn two_serve(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "millstream", error = error as &dyn std::error::Error, "the handoff has failed: the process before goes on, and this one is to end");
    let _ = error;
}

pub(crate) fn not_told(error: &io::Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "millstream", error = error as &dyn std::error::Error, "the service manager was not told");
    let _ = error;
}
