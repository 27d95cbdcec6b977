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

/// Relays both ways between a client and the upstream, once both have changed, until both have ended or none has sent anything
/// for `limit`. Keeps the place of the request.
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
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    /// Returns the ends of the client and of the upstream, and the tunnel between them.
    fn tunnel(limit: Duration) -> (DuplexStream, DuplexStream, JoinHandle<Result<(), CopyError>>) {
        let ((client, mut a), (upstream, mut b)) = (duplex(100), duplex(100));
        (client, upstream, tokio::spawn(async move { relay(&mut a, &mut b, limit).await }))
    }

    const LIMIT: Duration = Duration::from_secs(60);

    async fn ended(tunnel: JoinHandle<Result<(), CopyError>>) {
        let ended = tokio::time::timeout(LIMIT * 100, tunnel).await;
        ended.expect("the tunnel does not end").unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_ends_after_a_silence() {
        let (mut client, mut upstream, tunnel) = tunnel(LIMIT);
        let began = Instant::now();
        for _ in 0..3 {
            sleep(LIMIT / 2).await;
            client.write_all(b"x").await.unwrap();
            upstream.read_exact(&mut [0]).await.unwrap();
            sleep(LIMIT / 2).await;
            upstream.write_all(b"y").await.unwrap();
            client.read_exact(&mut [0]).await.unwrap();
        }
        ended(tunnel).await;
        assert!(began.elapsed() >= LIMIT * 4 && began.elapsed() < LIMIT * 5, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tunnel_ends_soon_once_one_side_has_ended() {
        for client_ends in [true, false] {
            let (mut ending, mut other, tunnel) = tunnel(LIMIT);
            if !client_ends {
                std::mem::swap(&mut ending, &mut other);
            }
            let began = Instant::now();
            ending.shutdown().await.unwrap();
            for _ in 0..5 {
                sleep(PARTING / 2).await;
                other.write_all(b"x").await.unwrap();
                ending.read_exact(&mut [0]).await.unwrap();
            }
            ended(tunnel).await;
            assert!(began.elapsed() < PARTING * 4, "{:?}", began.elapsed());
        }
    }
}
