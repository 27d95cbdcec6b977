//! Connections that have changed their protocol.

use std::future::poll_fn;
use std::task::{Poll, ready};
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::events;
use super::gate::RequestPlace;
use super::head_first::HeadFirst;
use super::stream::{Stream, inner};
use millstream::copy::CopyError;
use millstream::internal::Both;
use millstream::internal::Rewind;
use millstream::internal::Silence;
use millstream::net::TcpStream;
#[cfg(unix)]
use millstream::net::UnixStream;

/// Maximum silence once one side has sent its end: the other may have gone too, or may send the rest.
const PARTING: Duration = Duration::from_secs(10);

/// Relays in both directions between a client and the upstream, once both have changed their protocol. Ends when both
/// have ended, or neither has sent anything for `limit`. Keeps the place of the request.
pub(crate) async fn tunnel(client: OnUpgrade, upstream: OnUpgrade, limit: Duration, _place: RequestPlace) {
    let (client, upstream) = match (client.await, upstream.await) {
        (Ok(client), Ok(upstream)) => (client, upstream),
        (Err(error), _) | (_, Err(error)) => return events::upstream_failed(&error),
    };
    if let Err(error) = join(client, upstream, limit).await {
        events::upstream_failed(&error);
    }
}

/// Relays between the sockets themselves, where the client's is one of this crate.
async fn join(client: Upgraded, upstream: Upgraded, limit: Duration) -> Result<(), CopyError> {
    let mut upstream = match upstream.downcast::<HeadFirst>() {
        Ok(parts) => {
            let mut stream = parts.io.into_inner();
            stream.unread(&parts.read_buf);
            stream
        }
        Err(other) => return relay(&mut TokioIo::new(client), &mut TokioIo::new(other), limit).await,
    };
    let client = match client.downcast::<TcpStream>() {
        Ok(mut parts) => {
            parts.io.unread(&parts.read_buf);
            return inner!(&mut upstream, upstream => relay(&mut parts.io, upstream, limit).await);
        }
        Err(other) => other,
    };
    #[cfg(unix)]
    let client = match client.downcast::<UnixStream>() {
        Ok(mut parts) => {
            parts.io.unread(&parts.read_buf);
            return inner!(&mut upstream, upstream => relay(&mut parts.io, upstream, limit).await);
        }
        Err(other) => other,
    };
    inner!(&mut upstream, upstream => relay(&mut TokioIo::new(client), upstream, limit).await)
}

async fn relay<A, B>(client: &mut A, upstream: &mut B, limit: Duration) -> Result<(), CopyError>
where
    A: AsyncRead + AsyncWrite + Unpin + 'static,
    B: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let mut both = Both::new();
    let (mut silence, mut parting) = (Silence::new(limit), Silence::new(limit.min(PARTING)));
    let mut seen = 0;
    poll_fn(|cx| {
        if let Poll::Ready(done) = both.poll(cx, client, upstream) {
            return Poll::Ready(done.map(drop));
        }
        let progress = both.progress();
        if std::mem::replace(&mut seen, progress) != progress {
            silence.end();
            parting.end();
        }
        let silence = if both.has_half_ended() { &mut parting } else { &mut silence };
        ready!(silence.poll(cx));
        both.give_up(client, upstream);
        Poll::Ready(Ok(()))
    })
    .await
}

#[cfg(test)]
mod tests;
