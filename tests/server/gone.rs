//! Services learn that their client has left.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use millstream::net::TcpListener;
use millstream::server::{Limits, RequestBody};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

use testkit::HANGS;
use testkit::http::{Answer, Raw, h2_over, on_both, request};
use testkit::leaving::{self, Told};
use testkit::serving::serve;

/// Clients of each kind.
const CLIENTS: usize = 40;

async fn start() -> (SocketAddr, Told) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (service, told) = leaving::service();
    let server = serve(listener, service).limits(leaving::limits());
    tokio::spawn(server.into_future());
    (addr, told)
}

#[test]
fn clients_that_leave_are_told_of() {
    on_both(async || {
        let (addr, mut told) = start().await;
        for path in ["/waits", "/pending"] {
            for further in ["none", "at once", "later"] {
                for how in ["closes", "ends its side", "resets"] {
                    for _ in 0..CLIENTS {
                        let mut client = Raw::connect(addr).await;
                        let first = format!("GET {path} HTTP/1.1\r\nHost: mill\r\n\r\n");
                        let more = "GET / HTTP/1.1\r\nHost: mill\r\n\r\n".repeat(3);
                        client.send(if further == "at once" { format!("{first}{more}") } else { first }).await;
                        match path {
                            "/waits" => assert_eq!(told.next().await, "begun"),
                            _ => drop(client.head().await),
                        }
                        if further == "later" {
                            client.send(&more).await;
                        }
                        let leaves = async || match how {
                            "ends its side" => {
                                client.io.shutdown().await.unwrap();
                                Some(client)
                            }
                            "resets" => {
                                client.reset();
                                None
                            }
                            _ => None,
                        };
                        told.of(&format!("{path}, further requests: {further}, {how}"), leaves).await;
                    }
                }
            }
        }
        told.report("HTTP/1");
    });
}

/// The end of the client's side stands behind bytes that nobody reads during the response, and so does a reset after it.
#[test]
fn a_client_that_resets_after_its_end_is_gone() {
    on_both(async || {
        for half_close in [Duration::ZERO, HANGS] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            let (dropped, mut drops) = mpsc::channel::<Infallible>(1);
            let (dropped, begun) = (Arc::new(Mutex::new(Some(dropped))), Arc::new(Notify::new()));
            let begins = Arc::clone(&begun);
            let service = tower::service_fn(move |_: Request<RequestBody>| {
                // Dropped with the request.
                let dropped = dropped.lock().unwrap().take();
                begins.notify_one();
                async move {
                    let _dropped = dropped;
                    std::future::pending::<Result<Answer, Infallible>>().await
                }
            });
            tokio::spawn(serve(listener, service).limits(Limits::default().half_close(half_close)).into_future());
            let mut client = Raw::connect(addr).await;
            client.ask("/").await;
            begun.notified().await;
            client.send("G").await;
            client.io.shutdown().await.unwrap();
            // The server looks at the socket, which wakes nobody afterwards.
            tokio::time::sleep(Duration::from_millis(200)).await;
            client.reset();
            assert!(timeout(HANGS, drops.recv()).await == Ok(None), "{half_close:?}");
        }
    });
}

#[test]
fn connections_of_http_2_are_told_of() {
    on_both(async || {
        let (addr, mut told) = start().await;
        for path in ["/pending", "/waits"] {
            for resets in [false, true] {
                for _ in 0..CLIENTS {
                    let socket = TcpStream::connect(addr).await.unwrap();
                    if resets {
                        socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO)).unwrap();
                    }
                    let mut client = h2_over(socket).await;
                    let (sender, head) = oneshot::channel();
                    let asked = tokio::spawn(async move {
                        let mut answer = client.send_request(request(path)).await.unwrap();
                        sender.send(()).unwrap();
                        answer.frame().await
                    });
                    match path {
                        "/waits" => assert_eq!(told.next().await, "begun"),
                        _ => head.await.unwrap(),
                    }
                    told.of(&format!("{path}, resets: {resets}"), async || asked.abort()).await;
                }
            }
        }
        told.report("HTTP/2");
    });
}

#[test]
fn a_client_that_stays_is_not_gone() {
    on_both(async || {
        let (addr, mut told) = start().await;
        let mut client = Raw::connect(addr).await;
        for _ in 0..3 {
            assert_eq!(client.get("/").await, (200, b"hello".to_vec()));
            assert_eq!(told.next().await, "here");
        }
    });
}
