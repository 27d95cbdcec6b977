//! Replaces `ingress` in builds without the feature `uring-net`: no stream receives by a ring.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::recv_buf::RecvBuf;
use crate::net::egress::{Egress, HeldOpen};
use crate::runtime::Turn;

pub(super) enum Ingress {}

impl Ingress {
    pub(in crate::net) fn new(_: &Arc<Egress>, _: Arc<Turn>) -> Option<Arc<Self>> {
        None
    }

    pub(super) fn poll_receive<B: RecvBuf>(
        self: &Arc<Self>,
        _: Option<&mut Context<'_>>,
        _: &mut B,
    ) -> Poll<io::Result<()>> {
        match **self {}
    }

    pub(super) fn is_idle(&self) -> bool {
        match *self {}
    }

    pub(in crate::net) fn abandon(&self) -> Option<HeldOpen> {
        match *self {}
    }
}
