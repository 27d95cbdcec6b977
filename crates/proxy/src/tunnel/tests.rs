//! Unit tests of `tunnel`.

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
