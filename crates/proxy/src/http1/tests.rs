//! Unit tests of `http1`.

use http_body::Body as _;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use millstream::net::TcpListener;

const LIMITS: HeadLimits = HeadLimits { bytes: 16 << 10, fields: FIELDS };

/// Returns a connection to an upstream that takes few bytes before it reads, and the upstream.
async fn connected() -> (Http1, tokio::net::TcpStream) {
    let listener = TcpListener::builder().high_mark(4 << 10).bind("127.0.0.1:0").await.unwrap();
    socket2::SockRef::from(&listener).set_send_buffer_size(4 << 10).unwrap();
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let upstream = socket.connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    (Http1::new(Stream::Tcp(stream), LIMITS).unwrap(), upstream)
}

fn request(field: usize) -> Request<OutBody> {
    Request::get("/").header("x-long", "a".repeat(field)).body(OutBody::empty()).unwrap()
}

#[tokio::test]
async fn a_connection_stays_with_hyper_while_that_holds_a_part_of_the_request() {
    for (field, is_settled) in [(10, true), (4 << 20, false)] {
        let (mut connection, mut upstream) = connected().await;
        let early = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nend\r\n0\r\n\r\n";
        upstream.write_all(early.as_bytes()).await.unwrap();
        let mut response = connection.send(request(field)).await.map_err(TrySendError::into_error).unwrap();
        assert_eq!((connection.holds_body(), connection.is_settled()), (is_settled, is_settled), "{field}");

        // This sends the rest of the request.
        connection.release();
        let reads = tokio::spawn(async move {
            let (mut got, mut piece) = (Vec::new(), vec![0; 64 << 10]);
            while !got.ends_with(b"\r\n\r\n") {
                let n = upstream.read(&mut piece).await.unwrap();
                assert!(n > 0, "the request is cut off behind {} bytes", got.len());
                got.extend_from_slice(&piece[..n]);
            }
            got.len()
        });
        let mut data = 0;
        poll_fn(|cx| {
            loop {
                connection.poll(cx);
                match std::task::ready!(Pin::new(response.body_mut()).poll_frame(cx)) {
                    Some(frame) => data += frame.unwrap().data_ref().map_or(0, Bytes::len),
                    None if connection.is_settled() => return Poll::Ready(()),
                    None => return Poll::Pending,
                }
            }
        })
        .await;
        assert_eq!(data, 3);
        assert!(reads.await.unwrap() > field);
    }
}
