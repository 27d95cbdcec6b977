//! A response in progress that moves to another process or server with its connection.

use std::any::Any;
use std::fmt;

use super::event_body::EventBody;
#[cfg(feature = "server")]
use crate::net::Handle;

/// The events of a reader that leave with its connection: what [`Server::move_connections`] gives. The
/// [hub](crate::sse::Hub::describe) describes it for the process that goes on.
///
/// [`Server::move_connections`]: crate::server::Server::move_connections
pub struct MovedBody {
    /// The place of the reader.
    pub(crate) reader: Box<dyn Any + Send>,
    pub(crate) framing: MovedFraming,
}

/// How HTTP/1 delimits the body, and whether the connection may carry another response after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MovedFraming {
    pub(crate) is_chunked: bool,
    pub(crate) keeps_alive: bool,
}

/// The events of a reader that another process or server has served before, from
/// [`Hub::resume`](crate::sse::Hub::resume). Dropping it frees its place in the hub.
#[must_use = "the reader gets nothing until it goes on"]
pub struct ResumedBody {
    pub(crate) body: EventBody,
    pub(crate) framing: MovedFraming,
}

impl ResumedBody {
    /// Makes the server go on with the response, without a head, when it serves the connection of this handle. That is
    /// one that a listener has [adopted](crate::net::TcpListener::adopt); otherwise nothing happens.
    #[cfg(feature = "server")]
    pub fn go_on(self, connection: &Handle) {
        connection.set_resumed(Box::new(self));
    }
}

impl fmt::Debug for MovedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovedBody").field("framing", &self.framing).finish_non_exhaustive()
    }
}

impl fmt::Debug for ResumedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResumedBody").field("body", &self.body).field("framing", &self.framing).finish()
    }
}
