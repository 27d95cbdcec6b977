//! Bodies that can be written to the client's stream by a task other than that of the connection.
//!
//! The server attaches such a body when it is pending and all earlier bytes were written. While the body is attached,
//! the other task writes it with its framing, and the task of the connection sleeps.

use std::any::Any;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::net::Outlet;
use crate::sync::Mutex;

/// A body that another task can write to the stream of the client.
pub(crate) trait Attach: Send {
    /// Lets the other task write the body to `outlet`. This task then waits in [`poll_returned`](Self::poll_returned).
    /// `chunked` selects the framing of HTTP/1.1. Called after the body was pending.
    fn attach(&mut self, outlet: Outlet, chunked: bool, cx: &Context<'_>) -> AttachOutcome;

    /// Ready when the body must be polled again, because the other task no longer writes it.
    fn poll_returned(&mut self) -> Poll<()>;

    /// Returns the place of the reader for another process, once it can leave: all its bytes were written, and the process
    /// that takes its place has the events. No task writes the body then.
    fn leave(&mut self) -> Option<Box<dyn Any + Send>>;

    /// Records data that the layers around the body have passed on.
    fn passed(&mut self, _data: &[u8]) {}
}

/// Whether another task writes a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachOutcome {
    Attached,
    /// It does not. The task of the connection is woken as before.
    Waits,
    /// It does not, and the body must be polled now.
    News,
    /// It never will: the layers change the body, or poll it in another task.
    Refused,
}

/// A body that layers have wrapped. The server finds this handle in the extensions of the response.
#[derive(Clone)]
pub(crate) struct LayeredAttach {
    pub(crate) body: Arc<Mutex<dyn Attach>>,
    /// Whether the body has a coding, so that the response has a `Content-Encoding`.
    pub(crate) is_encoded: bool,
}
