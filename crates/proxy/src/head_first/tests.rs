//! Unit tests of `head_first`.

use super::*;

#[test]
fn only_a_whole_head_of_chunks_is_cut_off() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nx: y\r\n\r\n";
    assert_eq!(chunked_head(head.as_bytes()), Some(head.len()));
    assert_eq!(chunked_head(format!("{head}1\r\na\r\n\r\n").as_bytes()), Some(head.len()));
    for other in [
        &head[..head.len() - 1],
        "HTTP/1.1 200 OK\r\nx: y\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\n1\r\na\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nTransfer-Encoding: chunked\r\n\r\n",
        "\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        assert_eq!(chunked_head(other.as_bytes()), None, "{other:?}");
    }
}

#[tokio::test]
async fn a_response_is_read_although_the_upstream_takes_no_more() {
    use millstream::net::Connector;
    use std::future::poll_fn;
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let stream = Connector::new().connect_to("127.0.0.1", port).await.unwrap();
    let (mut upstream, _) = listener.accept().unwrap();
    let mut connection = HeadFirst::new(Stream::Tcp(stream), BodyHold::new());
    let mut connection = Pin::new(&mut connection);
    let answer = b"HTTP/1.1 413 Content Too Large\r\n\r\n";
    upstream.write_all(answer).unwrap();
    // The response is read after the connection was reset, because bytes arrived after its end.
    drop(upstream);
    for _ in 0..100 {
        let written = poll_fn(|cx| rt::Write::poll_write(connection.as_mut(), cx, b"upload")).await;
        assert_eq!(written.unwrap(), 6);
        poll_fn(|cx| rt::Write::poll_flush(connection.as_mut(), cx)).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert!(connection.is_deaf);
    let mut got = [0; 100];
    let mut buf = rt::ReadBuf::new(&mut got);
    poll_fn(|cx| rt::Read::poll_read(connection.as_mut(), cx, buf.unfilled())).await.unwrap();
    assert_eq!(buf.filled(), answer);
    poll_fn(|cx| rt::Write::poll_shutdown(connection.as_mut(), cx)).await.unwrap();
}
