//! Services learn that their client has left.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Request, Response};
use millstream::net::TcpListener;
use millstream::server::{Limits, Peer, RequestBody, serve};
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::http::{Answer, Raw, boxed, h2, on_both, request};

const SOON: Duration = Duration::from_secs(20);

/// Tells on drop.
struct Tells(mpsc::Sender<&'static str>);

impl Drop for Tells {
    fn drop(&mut self) {
        // The test may have ended.
        let _ = self.0.try_send("gone");
    }
}

/// Starts a service that tells when its client has left, while it waits or while its body is pending.
async fn start() -> (SocketAddr, mpsc::Receiver<&'static str>) {
    let (sender, receiver) = mpsc::channel(16);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let sender = sender.clone();
        async move {
            let peer = request.extensions().get::<Peer<SocketAddr>>().unwrap().clone();
            match request.uri().path() {
                "/waits" => {
                    sender.try_send("begun").unwrap();
                    // A service whose client has reset the connection is dropped at once.
                    let tells = Tells(sender);
                    peer.gone().await;
                    drop(tells);
                    std::future::pending().await
                }
                "/pending" => {
                    tokio::spawn(async move {
                        peer.gone().await;
                        sender.try_send("gone").unwrap();
                    });
                    let frames = stream::pending::<Result<Frame<Bytes>, Infallible>>();
                    Ok::<Answer, Infallible>(Response::new(boxed(StreamBody::new(frames))))
                }
                _ => {
                    tokio::spawn(async move {
                        let early = timeout(Duration::from_millis(50), peer.gone()).await.is_ok();
                        sender.try_send(if early { "gone" } else { "here" }).unwrap();
                    });
                    Ok(Response::new(boxed(Full::new(Bytes::from("hello")))))
                }
            }
        }
    });
    // The response outlives the end of the client's side.
    let limits = Limits::default().half_close(SOON);
    let server = serve(listener, service).limits(limits).on_connection(|extensions, peer| {
        extensions.insert(peer.clone());
    });
    tokio::spawn(server.into_future());
    (addr, receiver)
}

async fn told(receiver: &mut mpsc::Receiver<&'static str>) -> &'static str {
    timeout(SOON, receiver.recv()).await.expect("told in time").unwrap()
}

#[test]
fn clients_that_leave_are_told_of() {
    on_both(async || {
        let (addr, mut receiver) = start().await;
        for path in ["/waits", "/pending"] {
            for how in ["closes", "ends its side", "resets"] {
                let mut client = Raw::connect(addr).await;
                client.ask(path).await;
                match path {
                    "/waits" => assert_eq!(told(&mut receiver).await, "begun"),
                    _ => drop(client.head().await),
                }
                assert!(receiver.try_recv().is_err(), "the client is here");
                let mut kept = None;
                match how {
                    "closes" => drop(client),
                    "resets" => client.reset(),
                    _ => {
                        client.io.shutdown().await.unwrap();
                        kept = Some(client);
                    }
                }
                let left = Instant::now();
                assert_eq!(told(&mut receiver).await, "gone", "{path}, {how}");
                println!("{path}, {how}: after {:?}", left.elapsed());
                drop(kept);
            }
        }
    });
}

#[test]
fn connections_of_http_2_are_told_of() {
    on_both(async || {
        let (addr, mut receiver) = start().await;
        for path in ["/pending", "/waits"] {
            let mut client = h2(addr).await;
            let asked = tokio::spawn(async move {
                let answer = client.send_request(request(path)).await;
                if let Ok(mut answer) = answer {
                    let _ = answer.frame().await;
                }
                drop(client);
            });
            match path {
                "/waits" => assert_eq!(told(&mut receiver).await, "begun"),
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
            assert!(receiver.try_recv().is_err(), "the client is here");
            asked.abort();
            assert_eq!(told(&mut receiver).await, "gone", "{path}");
        }
    });
}

#[test]
fn a_client_that_stays_is_not_gone() {
    on_both(async || {
        let (addr, mut receiver) = start().await;
        let mut client = Raw::connect(addr).await;
        for _ in 0..3 {
            assert_eq!(client.get("/").await, (200, b"hello".to_vec()));
            assert_eq!(told(&mut receiver).await, "here");
        }
    });
}
