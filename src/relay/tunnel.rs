//! Connections that have changed their protocol.

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;

use super::gate::Place;
use super::head_first::HeadFirst;
use super::stream::{Stream, inner};
use crate::copy::{CopyError, CopyReport, copy_bidirectional};
use crate::counters::log;
#[cfg(unix)]
use crate::net::UnixStream;
use crate::net::{Rewind, TcpStream};

/// Relays both ways between a client and the upstream, once both have changed. Keeps the place of the request.
pub(super) async fn tunnel(client: OnUpgrade, upstream: OnUpgrade, _place: Place) {
    let (client, upstream) = match (client.await, upstream.await) {
        (Ok(client), Ok(upstream)) => (client, upstream),
        (Err(error), _) | (_, Err(error)) => return log::upstream_failed(&error),
    };
    if let Err(error) = join(client, upstream).await {
        log::upstream_failed(&error);
    }
}

/// Relays between the sockets themselves, where the client's is one of this crate.
async fn join(client: Upgraded, upstream: Upgraded) -> Result<(CopyReport, CopyReport), CopyError> {
    let mut upstream = match upstream.downcast::<HeadFirst>() {
        Ok(parts) => {
            let mut stream = parts.io.into_inner();
            stream.unread(&parts.read_buf);
            stream
        }
        Err(other) => return copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(other)).await,
    };
    let client = match client.downcast::<TcpStream>() {
        Ok(mut parts) => {
            parts.io.unread(&parts.read_buf);
            return inner!(&mut upstream, upstream => copy_bidirectional(&mut parts.io, upstream).await);
        }
        Err(other) => other,
    };
    #[cfg(unix)]
    let client = match client.downcast::<UnixStream>() {
        Ok(mut parts) => {
            parts.io.unread(&parts.read_buf);
            return inner!(&mut upstream, upstream => copy_bidirectional(&mut parts.io, upstream).await);
        }
        Err(other) => other,
    };
    inner!(&mut upstream, upstream => copy_bidirectional(&mut TokioIo::new(client), upstream).await)
}
