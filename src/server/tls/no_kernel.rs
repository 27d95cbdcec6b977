//! Replaces `kernel` in builds without kernel TLS: the session encrypts.

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_rustls::rustls::{ServerConfig, ServerConnection};
use tokio_rustls::server;

use crate::net::TcpStream;

pub(super) type Wire<S> = S;

pub(super) enum SecretLog {}

pub(super) enum Kernel {}

impl Kernel {
    pub(super) fn new(_: &ServerConnection, log: &SecretLog) -> Option<Self> {
        match *log {}
    }

    pub(super) fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        _: &mut ServerConnection,
        _: &mut TcpStream,
        _: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match *self {}
    }

    pub(super) fn poll_shutdown(&mut self, _: &mut Context<'_>, _: &mut TcpStream) -> Poll<io::Result<()>> {
        match *self {}
    }

    pub(super) fn alert(&mut self, _: &TcpStream, _: &io::Error) {
        match *self {}
    }
}

pub(super) fn wire<S>(stream: S, _: bool) -> S {
    stream
}

pub(super) fn below<S>(stream: &S) -> &S {
    stream
}

pub(super) fn mark_shaken<S>(_: &mut S) {}

pub(super) fn prepare(config: Arc<ServerConfig>, _: bool) -> (Arc<ServerConfig>, Option<Arc<SecretLog>>) {
    (config, None)
}

pub(super) fn active<'a, S>(
    _: &'a mut Option<Box<Kernel>>,
    _: &'a mut server::TlsStream<S>,
) -> Option<(&'a mut Kernel, &'a mut ServerConnection, &'a mut TcpStream)> {
    None
}

pub(super) fn poll_begin<S>(
    _: &mut Option<Box<Kernel>>,
    _: &mut server::TlsStream<S>,
    _: &mut Context<'_>,
    _: &[IoSlice<'_>],
) -> Poll<io::Result<()>> {
    Poll::Ready(Ok(()))
}
