//! Responses that end after each number of bytes.

use futures_util::future::join_all;
use hyper::body::Incoming;

use super::*;
use testkit::HANGS;

struct Prepared {
    head: &'static str,
    body: &'static str,
    /// What the body says.
    content: &'static str,
    /// Whether the end of the connection is that of the body.
    is_open: bool,
}

const RESPONSES: [Prepared; 5] = [
    Prepared {
        head: "HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n",
        body: "abcdefghijklmnopqrstuvwxyz",
        content: "abcdefghijklmnopqrstuvwxyz",
        is_open: false,
    },
    Prepared {
        head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        body: "5\r\nabcde\r\n00A;x=y\r\nfghijklmno\r\n0\r\n\r\n",
        content: "abcdefghijklmno",
        is_open: false,
    },
    Prepared {
        head: "HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n",
        body: "3\r\nabc\r\n0\r\nx-sum: 1\r\n\r\n",
        content: "abc",
        is_open: false,
    },
    Prepared { head: "HTTP/1.0 200 OK\r\nX-A: b\r\n\r\n", body: "abcdefgh", content: "abcdefgh", is_open: true },
    Prepared { head: "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n", body: "", content: "", is_open: false },
];

/// Returns the data of a body, its trailer, and whether it ended in order.
async fn read(mut body: Incoming) -> (Vec<u8>, Option<HeaderValue>, bool) {
    let (mut got, mut sum) = (Vec::new(), None);
    loop {
        match body.frame().await {
            None => return (got, sum, true),
            Some(Err(_)) => return (got, sum, false),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => got.extend_from_slice(&data),
                Err(frame) => sum = frame.into_trailers().unwrap().remove("x-sum"),
            },
        }
    }
}

async fn check(addr: SocketAddr, which: usize, cut: usize, by_h2: bool) {
    let Prepared { head, body, content, is_open } = RESPONSES[which];
    let path = format!("/{which}/{cut}");
    let at = format!("{head:?} cut after {cut} bytes, HTTP/2: {by_h2}");
    let answer = match by_h2 {
        true => h2(addr).await.send_request(request(&format!("http://mill{path}"))).await,
        false => h1(addr).await.send_request(request(&path)).await,
    };
    let is_whole = cut == head.len() + body.len();
    let answer = match answer {
        Ok(answer) => answer,
        // hyper drops what it has not written when a body fails, the head too.
        Err(error) => return assert!(cut >= head.len() && !is_whole && !is_open, "{at}: {error}"),
    };
    if cut < head.len() {
        return assert_eq!(answer.status(), 502, "{at}");
    }
    let expected = if body.is_empty() { 204 } else { 200 };
    assert_eq!(answer.status(), expected, "{at}");
    let (got, sum, in_order) = read(answer.into_body()).await;
    assert_eq!(in_order, is_whole || is_open, "{at}");
    match () {
        () if is_whole => assert_eq!(got, content.as_bytes(), "{at}"),
        () if is_open => assert_eq!(got, &content.as_bytes()[..cut - head.len()], "{at}"),
        () => assert!(content.as_bytes().starts_with(&got), "{at}: {got:?}"),
    }
    if by_h2 {
        assert_eq!(sum.is_some(), is_whole && head.contains("Trailer"), "{at}");
    }
}

#[test]
fn a_response_that_ends_at_any_byte_is_whole_or_broken() {
    on_both(async || {
        let upstream = raw_upstream(async |mut stream| {
            let head = head_of(&mut stream).await;
            let mut path = head.split(['/', ' ']).skip(2).map(|part| part.parse::<usize>().unwrap_or_default());
            let (which, cut) = (path.next().unwrap(), path.next().unwrap());
            let Prepared { head, body, .. } = RESPONSES[which];
            stream.write_all(&[head, body].concat().as_bytes()[..cut]).await.unwrap();
        })
        .await;
        let addr = proxy(plan(upstream, false).idle_connections(0)).await;
        for (which, Prepared { head, body, .. }) in RESPONSES.iter().enumerate() {
            let cuts = 0..=head.len() + body.len();
            let checks = cuts.flat_map(|cut| [false, true].map(|by_h2| check(addr, which, cut, by_h2)));
            timeout(HANGS, join_all(checks)).await.expect("no hang");
        }
    });
}
