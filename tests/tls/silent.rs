//! Clients that send nothing behind the handshake.

use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::rustls::version::TLS12;

use super::*;
use testkit::http::on_both;

/// Longer than a drain waits for a connection without a request, and shorter than the limit of a head.
const PROMPT: Duration = Duration::from_secs(5);

fn server(listener: TcpListener, limits: Limits) -> server::Server<TcpListener, testkit::serving::AnyService> {
    let service = tower::service_fn(|_: Request<RequestBody>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"answered"))))
    });
    serve(listener, service).limits(limits).tls(IDENTITIES[0].tls())
}

#[test]
fn the_limit_of_the_first_head_closes_a_connection_without_a_part_of_it_and_answers_another_with_408() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        // Far longer than the clients need for their handshake and for the part.
        let limits = Limits::default().head_time(Duration::from_secs(5));
        tokio::spawn(server(listener, limits).into_future());
        let mut clients = Vec::new();
        for alpn in [&["http/1.1"][..], &[]] {
            for part in ["", "GET / HT"] {
                let mut io = connect(addr, &client(BOTH, alpn)).await;
                tokio::io::AsyncWriteExt::write_all(&mut io, part.as_bytes()).await.unwrap();
                clients.push((alpn, part, io));
            }
        }
        for (alpn, part, mut io) in clients {
            let mut answer = Vec::new();
            io.read_to_end(&mut answer).await.expect("a close_notify");
            let (answer, answered) = (String::from_utf8(answer).unwrap(), !part.is_empty());
            assert_eq!(answer.starts_with("HTTP/1.1 408 "), answered, "{alpn:?}, {part:?}: {answer:?}");
            assert_eq!(answer.is_empty(), !answered, "{alpn:?}, {part:?}: {answer:?}");
        }
    });
}

#[test]
fn a_drain_does_not_wait_for_a_first_request_that_has_not_begun() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (drains, signal) = oneshot::channel::<()>();
        let server = tokio::spawn(server(listener, Limits::default()).drain(signal, 2 * PROMPT));
        // With TLS 1.2, the last message of a handshake is that of the server.
        let mut io = connect(addr, &client(&[&TLS12], &["http/1.1"])).await;
        drains.send(()).unwrap();
        let drained = timeout(PROMPT, server).await.expect("a prompt end").unwrap().unwrap();
        assert_eq!((drained.connections, drained.aborted), (1, 0), "{drained:?}");
        assert_eq!(io.read(&mut [0]).await.expect("a close_notify"), 0);
    });
}
