//! A request in progress.

use std::sync::Arc;

use super::conn_state::{ConnState, Protocol, Registered};
use crate::body::GracefulClose;

/// A request whose response is not complete. Belongs to the service's call first, then to the response.
#[derive(Debug)]
pub(in crate::server) struct Open {
    conn_state: Arc<ConnState>,
    ending: Option<Registered>,
    owes: bool,
}

impl Open {
    pub(in crate::server) fn begin(conn_state: &Arc<ConnState>) -> Self {
        conn_state.requests.begin();
        Self { conn_state: Arc::clone(conn_state), ending: None, owes: false }
    }

    pub(in crate::server) fn conn_state(&self) -> &Arc<ConnState> {
        &self.conn_state
    }

    /// Returns the request for a frame of its response over HTTP/2. The response may end before the frame is sent.
    pub(in crate::server) fn frame(&self) -> Option<Self> {
        (self.conn_state.protocol() == Protocol::Two).then(|| {
            self.conn_state.requests.begin_frame();
            let mut frame = Self { conn_state: Arc::clone(&self.conn_state), ending: None, owes: false };
            frame.set_owes(true);
            frame
        })
    }

    /// Calls `ending` when the connection drains, until the request is answered.
    pub(in crate::server) fn register_ending(&mut self, ending: GracefulClose) {
        self.ending = Some(self.conn_state.register_ending(ending));
    }

    /// Records that the response was polled for a frame, and whether it returned one.
    pub(in crate::server) fn asked(&mut self, gave: bool) {
        if self.conn_state.protocol() == Protocol::Two {
            self.conn_state.requests.ask();
            self.set_owes(gave);
        }
    }

    pub(in crate::server) fn passed(&self, bytes: usize) {
        // Only streams of HTTP/2 wait for windows.
        if self.conn_state.protocol() == Protocol::Two {
            self.conn_state.requests.pass(bytes);
        }
    }

    /// Records that the body has failed. Resets the connection if the client would otherwise regard the response as
    /// complete.
    pub(in crate::server) fn failed(&self) {
        if self.conn_state.requests.ends_by_close() {
            self.conn_state.handle.reset();
        }
    }

    fn set_owes(&mut self, owes: bool) {
        if owes != self.owes {
            self.owes = owes;
            self.conn_state.requests.set_owes(owes);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.set_owes(false);
        self.conn_state.requests.end();
    }
}
