//! A relay that ends silent connections, as load balancers do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Steps in which a silence is measured. A machine that stalls has one long step.
const STEPS: u32 = 10;

/// Relays connections to `to`, and ends each from which `to` sends nothing for the time `silence`. Returns its address,
/// and how many it has ended.
pub async fn cutter(to: SocketAddr, silence: Duration) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (addr, cuts) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let counts = Arc::clone(&cuts);
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(to).await.unwrap();
            let counts = Arc::clone(&counts);
            tokio::spawn(async move {
                if is_cut(client, server, silence / STEPS).await {
                    counts.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    (addr, cuts)
}

/// Relays one connection. Returns whether it ended because of its silence.
async fn is_cut(mut client: TcpStream, mut server: TcpStream, step: Duration) -> bool {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (mut requests, mut responses) = ([0; 4096], [0; 4096]);
    let mut silent = 0;
    while silent < STEPS {
        tokio::select! {
            biased;
            read = from_server.read(&mut responses) => match read {
                Ok(n @ 1..) if to_client.write_all(&responses[..n]).await.is_ok() => silent = 0,
                _ => return false,
            },
            read = from_client.read(&mut requests) => match read {
                Ok(n @ 1..) if to_server.write_all(&requests[..n]).await.is_ok() => {}
                _ => return false,
            },
            () = sleep(step) => silent += 1,
        }
    }
    true
}
