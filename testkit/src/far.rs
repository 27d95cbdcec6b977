//! A distant server: a relay in front of it that delays every byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Maximum number of delayed pieces, one per read: more than the windows of HTTP/2 permit to send.
const PIECES: usize = 4096;

/// A relay. Only the windows of its peers limit them.
#[derive(Debug)]
pub struct Far {
    pub addr: SocketAddr,
    most: Arc<AtomicUsize>,
}

impl Far {
    /// Relays connections to `to` with `delay` in each direction, until the runtime ends.
    pub async fn start(to: SocketAddr, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = Self { addr: listener.local_addr().unwrap(), most: Arc::default() };
        let most = Arc::clone(&far.most);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(to).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                hold(from_client, to_server, delay, Arc::clone(&most));
                hold(from_server, to_client, delay, Arc::default());
            }
        });
        far
    }

    /// Returns the maximum number of bytes in flight to the server.
    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

/// Copies from `from` to `to`, each byte after `delay`, and records the maximum in flight.
fn hold(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration, most: Arc<AtomicUsize>) {
    let held = Arc::new(AtomicUsize::new(0));
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES);
    let holding = Arc::clone(&held);
    tokio::spawn(async move {
        let mut buffer = vec![0; 256 << 10];
        // An error is treated as an end.
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            most.fetch_max(holding.fetch_add(n, Ordering::Relaxed) + n, Ordering::Relaxed);
            if sender.send((Instant::now() + delay, buffer[..n].to_vec())).await.is_err() {
                break;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                break;
            }
            held.fetch_sub(piece.len(), Ordering::Relaxed);
        }
    });
}
