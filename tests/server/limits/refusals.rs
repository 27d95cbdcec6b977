//! Responses to clients that are still sending arrive.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use hyper::header::HeaderValue;
use millstream::server::Limits;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::{hello, length, start, start_for};
use testkit::HANGS;
use testkit::http::{Flavour, Raw, h2, on_both, request, whole};
use testkit::skip;

fn limited() -> Limits {
    Limits::default().body(2 << 20)
}

fn upload(len: usize, chunked: bool) -> Vec<u8> {
    let (framing, before, after) = match chunked {
        true => ("Transfer-Encoding: chunked".to_owned(), format!("{len:x}\r\n"), "\r\n0\r\n\r\n"),
        false => (format!("Content-Length: {len}"), String::new(), ""),
    };
    let head = format!("POST / HTTP/1.1\r\nHost: mill\r\n{framing}\r\n\r\n{before}");
    [head.as_bytes(), &vec![b'x'; len], after.as_bytes()].concat()
}

/// Sends all of `request` before it reads; returns the status and checks that the connection ends after the response.
async fn refused(addr: SocketAddr, request: &[u8]) -> u16 {
    let mut client = Raw::connect(addr).await;
    timeout(HANGS, client.io.write_all(request)).await.expect("the server keeps reading").expect("no reset");
    let head = timeout(HANGS, client.try_head()).await.expect("an answer").expect("no reset");
    client.io.shutdown().await.expect("no reset");
    let rest = timeout(HANGS, client.drain()).await.expect("the server closes the connection");
    assert_eq!(rest.len(), head.field("content-length").map_or(rest.len(), |len| len.parse().unwrap()));
    head.status
}

#[test]
fn a_client_that_sends_all_before_it_reads_gets_its_answer() {
    on_both(async || {
        let large = start(limited(), tower::service_fn(length)).await;
        let ignored = start(Limits::default().streaming_requests(|_| true), tower::service_fn(hello)).await;
        let head =
            |fill: usize| format!("GET / HTTP/1.1\r\nHost: mill\r\nX: {}\r\n\r\n", "x".repeat(fill)).into_bytes();
        for len in [3_000_000, 20_000_000] {
            assert_eq!(refused(large, &upload(len, false)).await, 413);
            assert_eq!(refused(large, &upload(len, true)).await, 413);
            // The same for a service that answers without reading.
            assert_eq!(refused(ignored, &upload(len, false)).await, 200);
            assert_eq!(refused(ignored, &upload(len, true)).await, 200);
        }
        assert_eq!(refused(large, &head(20_000_000)).await, 431);
        assert_eq!(refused(large, &[b"no request\r\n\r\n".as_slice(), &vec![b'x'; 20_000_000]].concat()).await, 400);
    });
}

#[test]
fn a_client_whose_head_is_late_gets_its_answer_whatever_it_sends_then() {
    on_both(async || {
        let limits = Limits::default().head_time(Duration::from_millis(100));
        let mut client = start_for("GET / HTTP/1.1\r\nX: ", limits, tower::service_fn(hello)).await;
        timeout(HANGS, client.io.readable()).await.expect("an answer").unwrap();
        client.send(vec![b'x'; 20_000_000]).await;
        assert_eq!(client.head().await.status, 408);
    });
}

#[test]
fn a_client_that_sends_for_long_after_it_was_refused_gets_its_answer() {
    on_both(async || {
        let limits = limited().head_time(Duration::from_secs(1));
        let head = "POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 1000000000\r\n\r\n";
        let mut client = start_for(head, limits, tower::service_fn(length)).await;
        // Longer than the timeouts of a connection that drains or waits for another request.
        for _ in 0..20 {
            client.send([b'x'; 1000]).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(client.head().await.status, 413);
    });
}

#[test]
fn a_client_that_goes_on_sending_is_not_read_for_ever() {
    on_both(async || {
        let addr = start(limited(), tower::service_fn(length)).await;
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 1000000000\r\n\r\n").await;
        let (mut sent, piece) = (0, vec![b'x'; 1 << 20]);
        while client.io.write_all(&piece).await.is_ok() {
            sent += piece.len();
            assert!(sent < 900_000_000, "{sent} bytes sent");
        }
        // A client that sends no body gets the response and the end of the stream.
        let mut client = Raw::connect(addr).await;
        client.send("POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 1000000000\r\n\r\n").await;
        assert_eq!(client.head().await.status, 413);
        assert_eq!(client.drain().await, b"", "the sending side is shut down");
    });
}

#[test]
fn answers_of_the_server_are_given_fields_and_a_body() {
    on_both(async || {
        let limits = limited().on_refusal(|response| {
            response.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
            response.headers_mut().insert("content-length", "7".parse().unwrap());
            *response.body_mut() = format!("refused: {}", response.status()).into();
            // The fields that frame the answer stay the server's.
            *response.status_mut() = hyper::StatusCode::NO_CONTENT;
        });
        let hasty = limits.clone().head_time(Duration::from_millis(100));
        let cases = [
            (&limits, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n".to_owned(), "400 Bad Request"),
            (&limits, format!("GET /{} HTTP/1.1\r\nHost: mill\r\n\r\n", "x".repeat(9000)), "414 URI Too Long"),
            (
                &limits,
                "POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 3000000\r\n\r\n".to_owned(),
                "413 Payload Too Large",
            ),
            (&hasty, "GET / HTTP/1.1\r\nHost:".to_owned(), "408 Request Timeout"),
        ];
        for (limits, request, status) in cases {
            let mut client = start_for(&request, limits.clone(), tower::service_fn(length)).await;
            let head = client.head().await;
            assert_eq!(head.status.to_string(), status[..3], "{status}");
            assert_eq!(head.field("access-control-allow-origin"), Some("*"), "{status}");
            assert_eq!(head.field("connection"), Some("close"), "{status}");
            let body = client.body(head.content_length()).await.unwrap();
            assert_eq!(String::from_utf8(body).unwrap(), format!("refused: {status}"));
            assert_eq!(client.drain().await, b"", "{status}");
        }
        let addr = start(limits.clone(), tower::service_fn(length)).await;
        let mut two = h2(addr).await;
        let answer = two.send_request(request(&format!("http://mill/{}", "x".repeat(9000)))).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["access-control-allow-origin"]),
            (414, &"*".parse().unwrap())
        );
        assert_eq!(whole(answer).await.unwrap(), "refused: 414 URI Too Long");
        let addr = start(limits.connections(1), tower::service_fn(length)).await;
        let mut first = Raw::connect(addr).await;
        assert_eq!(first.get("/").await.0, 200);
        assert_eq!(Raw::connect(addr).await.get("/").await, (503, b"refused: 503 Service Unavailable".to_vec()));
    });
}

/// RFC 9110 section 6.6.1. The server writes these responses without hyper.
#[test]
fn responses_to_a_late_head_and_to_one_connection_too_many_have_one_date() {
    const OURS: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    on_both(async || {
        let with_ours = Limits::default()
            .on_refusal(|answer| drop(answer.headers_mut().insert("date", HeaderValue::from_static(OURS))));
        let date = async |mut client: Raw, status: &str| {
            let got = String::from_utf8(client.drain().await).unwrap();
            assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{got}");
            let fields = got.lines().filter_map(|line| line.split_once(": "));
            let dates: Vec<_> = fields.filter(|(name, _)| name.eq_ignore_ascii_case("date")).collect();
            assert!(dates.len() == 1 && httpdate::parse_http_date(dates[0].1).is_ok(), "{got}");
            dates[0].1 == OURS
        };
        for (limits, is_ours) in [(Limits::default(), false), (with_ours, true)] {
            let hasty = limits.clone().head_time(Duration::from_millis(100));
            let late = start_for("GET / HTTP/1.1\r\nHost:", hasty, tower::service_fn(hello)).await;
            assert_eq!(date(late, "408").await, is_ours);
            let full = start(limits.connections(1), tower::service_fn(hello)).await;
            let mut first = Raw::connect(full).await;
            assert_eq!(first.get("/").await.0, 200);
            let mut second = Raw::connect(full).await;
            second.ask("/").await;
            assert_eq!(date(second, "503").await, is_ours);
        }
    });
}

fn run(program: &str, command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            skip(program, error);
            None
        }
    }
}

/// Runs each case 100 times if `MILLSTREAM_SLOW` is set, else 3 times.
#[test]
fn installed_clients_read_413() {
    let count = if std::env::var_os("MILLSTREAM_SLOW").is_some() { 100 } else { 3 };
    let (runtime, dir) = (Flavour::TwoWorkers.runtime(), tempfile::tempdir().unwrap());
    let addr = runtime.block_on(start(limited(), tower::service_fn(length)));
    let (clients, port) = (dir.path().join("clients"), addr.port().to_string());
    std::fs::create_dir(&clients).unwrap();
    std::fs::write(clients.join("upload.go"), include_str!("clients/upload.go")).unwrap();
    std::fs::write(clients.join("upload.py"), include_str!("clients/upload.py")).unwrap();
    let client = dir.path().join("upload");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&client).arg(clients.join("upload.go")).env("GOFLAGS", "-mod=mod");
    let built = run("go", &mut build).inspect(|built| assert!(built.status.success(), "{built:?}")).is_some();
    for len in [3_000_000, 20_000_000] {
        let (bytes, times) = (len.to_string(), count.to_string());
        let body = dir.path().join("body");
        std::fs::write(&body, vec![0; len]).unwrap();
        let told = |output: Output| String::from_utf8(output.stdout).unwrap().trim().to_owned();
        let mut python = Command::new("python3");
        if let Some(output) = run("python3", python.arg(clients.join("upload.py")).args([&port, &bytes, &times])) {
            assert_eq!(told(output), format!("413:{count}"), "Python's http.client, {len} bytes");
        }
        if built && let Some(output) = run("go", Command::new(&client).args([&port, &bytes, &times])) {
            assert_eq!(told(output), format!("413:{count}"), "Go's net/http, {len} bytes");
        }
        // With and without `Expect: 100-continue`, with and without a length.
        for fields in [&["Expect;"][..], &[], &["Expect;", "Transfer-Encoding: chunked"]] {
            for _ in 0..count {
                let mut curl = Command::new("curl");
                curl.args(["--silent", "--show-error", "--max-time", "60", "--http1.1", "--output", "/dev/null"]);
                curl.args(["--write-out", "%{http_code}", "--data-binary"]).arg(format!("@{}", body.display()));
                curl.args(fields.iter().flat_map(|field| ["--header", field])).arg(format!("http://{addr}/"));
                let Some(output) = run("curl", &mut curl) else { break };
                assert_eq!(told(output.clone()), "413", "curl, {len} bytes, {fields:?}: {output:?}");
            }
        }
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
}
