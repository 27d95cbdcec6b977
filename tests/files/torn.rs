//! Files truncated while they are sent: a client never mistakes a part, or zeros, for the whole.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::body::FileBody;
use millstream::codec::Writer;
use millstream::fs::File;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::task::coop;

use testkit::http::{H2, Raw, ask, h1, h2, narrow, on_both, request, start, whole};
use testkit::tree::{Handled, KEPT, LARGE, SEND_BUFFER, believed, believing, lives, middleware, serve, tree, truncate};
use testkit::{alone, lacks};

/// Returns an HTTP/2 client with windows much smaller than a file.
async fn narrow_h2(addr: SocketAddr) -> H2 {
    let io = TokioIo::new(narrow(addr).await);
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(40_000)
        .handshake(io)
        .await
        .unwrap();
    tokio::spawn(connection);
    sender
}

/// Asserts that a body of `len` bytes was cut. Returns the received part.
async fn cut(client: &mut Raw, len: usize) -> Vec<u8> {
    client.body(len).await.map(|got| got.len()).expect_err("the file was cut, so must be the response").got
}

#[test]
fn a_file_truncated_while_it_is_sent_resets_the_connection() {
    if lacks("sendfile") {
        return;
    }
    on_both(async || {
        for left in [0, 2_000_001, LARGE - 4097, LARGE - 1] {
            let (dir, bytes) = tree();
            let addr = believing(&dir).await;
            let mut client = Raw::connect_narrow(addr).await;
            client.ask("/large").await;
            let head = client.head().await;
            assert_eq!((head.status, head.content_length()), (200, LARGE));
            truncate(&dir.path().join("large"), left);
            let got = cut(&mut client, LARGE).await;
            // The received bytes are file bytes without any zeros: sendfile stops at the end of the file.
            assert!(bytes.starts_with(&got), "wrong bytes among the first {}", got.len());
            assert!(got.len() <= left.max(1 << 20), "{} bytes of a file of {left}", got.len());
            lives(addr).await;
        }
    });
}

#[test]
fn a_kept_file_truncated_before_it_is_sent_is_no_response() {
    on_both(async || {
        for left in [0, KEPT / 2] {
            let (dir, bytes) = tree();
            let addr = believing(&dir).await;
            assert!(Raw::connect(addr).await.get("/kept").await == (200, bytes[..KEPT].to_vec()));
            let mut client = Raw::connect(addr).await;
            client.ask(&format!("/kept?cut={left}")).await;
            // Head and body are sent in one call, which may fail as a whole.
            if let Ok(head) = client.try_head().await {
                assert_eq!((head.status, head.content_length()), (200, KEPT));
                let got = cut(&mut client, KEPT).await;
                assert!(got.len() <= left.next_multiple_of(4096), "{} bytes of {left}", got.len());
            }
            lives(addr).await;
        }
    });
}

#[test]
fn a_file_truncated_before_a_middleware_copies_it_is_no_response() {
    if lacks("mapping") {
        return;
    }
    on_both(async || {
        // HTTP/1 with a known length is omitted: hyper does not poll the end of such a body.
        for (name, protocol) in [("kept", "chunked"), ("large", "chunked"), ("kept", "h2"), ("large", "h2")] {
            println!("{name} over {protocol}");
            let (dir, _) = tree();
            let path = dir.path().join(name);
            let addr = middleware(&dir, move |_, bytes| {
                truncate(&path, 0);
                Bytes::copy_from_slice(&bytes)
            })
            .await;
            let answer = match protocol {
                "chunked" => h1(addr).await.send_request(request(&format!("/{name}?chunked"))).await,
                _ => h2(addr).await.send_request(request(&format!("/{name}"))).await,
            };
            if let Ok(answer) = answer {
                let got = whole(answer).await.map(|got| got.len());
                got.expect_err("the file was cut, so must be the response");
            }
            lives(addr).await;
        }
    });
}

#[test]
fn a_file_truncated_under_http2_fails_its_stream() {
    on_both(async || {
        for left in [0, 1_000_001] {
            let (dir, _) = tree();
            let addr = believing(&dir).await;
            let answer = narrow_h2(addr).await.send_request(request("/large")).await.unwrap();
            truncate(&dir.path().join("large"), left);
            whole(answer).await.expect_err("the file was cut, so must be the response");
            lives(addr).await;
        }
        let (dir, bytes) = tree();
        let addr = believing(&dir).await;
        let mut client = h2(addr).await;
        assert!(whole(client.send_request(request("/kept")).await.unwrap()).await.unwrap() == bytes[..KEPT]);
        if let Ok(answer) = client.send_request(request("/kept?cut=0")).await {
            let got = whole(answer).await.map(|got| got.len());
            got.expect_err("the file was cut, so must be the response");
        }
        lives(addr).await;
    });
}

/// Consumes the task's cooperative budget.
fn exhaust(cx: &mut Context<'_>) {
    while let Poll::Ready(step) = coop::poll_proceed(cx) {
        step.made_progress();
    }
}

#[test]
fn a_torn_copy_fails_its_own_connection_even_if_that_must_yield_first() {
    if lacks("mapping") {
        return;
    }
    on_both(async || {
        let (dir, _) = tree();
        let path = dir.path().join("kept");
        let bystander = Arc::new(Notify::new());
        let wake = Arc::clone(&bystander);
        let addr = middleware(&dir, move |cx, bytes| {
            truncate(&path, 0);
            // The other task must run between this poll and the next.
            wake.notify_one();
            exhaust(cx);
            Bytes::copy_from_slice(&bytes)
        })
        .await;
        let listener = millstream::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut other = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut ours, _) = listener.accept().await.unwrap();
        let task = tokio::spawn(async move {
            bystander.notified().await;
            ours.write_all(b"unharmed").await.unwrap();
            ours.shutdown().await.unwrap();
        });
        if let Ok(answer) = h1(addr).await.send_request(request("/kept?chunked")).await {
            let got = whole(answer).await.map(|got| got.len());
            got.expect_err("the file was cut, so must be the response");
        }
        task.await.unwrap();
        let mut got = Vec::new();
        other.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"unharmed");
        lives(addr).await;
    });
}

#[test]
fn a_file_truncated_before_another_thread_copies_it_is_no_response() {
    if lacks("mapping") {
        return;
    }
    on_both(async || {
        for (name, protocol) in [("kept", "h2"), ("large", "h2"), ("kept", "chunked"), ("large", "chunked")] {
            println!("{name} over {protocol}");
            let (dir, _) = tree();
            let path = dir.path().join(name);
            let addr = middleware(&dir, move |_, bytes| {
                truncate(&path, 0);
                // On another thread, as a compressor may do.
                std::thread::scope(|scope| scope.spawn(|| Bytes::copy_from_slice(&bytes)).join().unwrap())
            })
            .await;
            let uri = format!("/{name}");
            let answer = match protocol {
                "chunked" => h1(addr).await.send_request(request(&format!("{uri}?chunked"))).await,
                _ => h2(addr).await.send_request(request(&uri)).await,
            };
            if let Ok(answer) = answer {
                let got = whole(answer).await.map(|got| got.len());
                got.expect_err("the file was cut, so must be the response");
            }
            lives(addr).await;
        }
    });
}

#[test]
fn zeros_that_one_response_met_do_not_end_another() {
    if lacks("mapping") {
        return;
    }
    on_both(async || {
        let (dir, bytes) = tree();
        let path = dir.path().join("kept");
        let addr = serve(&dir, SEND_BUFFER, move |_, bytes| {
            truncate(&path, 0);
            Bytes::copy_from_slice(&bytes)
        })
        .await;
        let mut slow = Raw::connect_narrow(addr).await;
        slow.ask("/kept?plain").await;
        assert_eq!(slow.head().await.content_length(), KEPT);
        // Both are sent from one mapping. The layer of the second reads beyond the end of the file and gets zeros.
        if let Ok(answer) = h1(addr).await.send_request(request("/kept?chunked")).await {
            whole(answer).await.map(|got| got.len()).expect_err("the file was cut, so must be the response");
        }
        let got = cut(&mut slow, KEPT).await;
        // On two threads the zeros may appear while the kernel copies. They are sent then, but only in a body that is
        // cut.
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            assert!(bytes.starts_with(&got), "zeros among the first {}", got.len());
        }
        lives(addr).await;
    });
}

#[test]
fn a_mapping_that_was_torn_stays_so_when_its_file_grows_again() {
    on_both(async || {
        for (name, len) in [("kept", KEPT), ("large", LARGE)] {
            let (dir, bytes) = tree();
            let (files, path, again) = (believed(&dir), dir.path().join(name), bytes[..len].to_vec());
            let addr = start(move |request| {
                let (files, path, again) = (files.clone(), path.clone(), again.clone());
                async move {
                    let answer = ask(&files, &request, |inner| Handled::new(inner, copy)).await;
                    // Another reader reads the truncated file between the response and its first byte.
                    let other = files.get(request.method(), request.uri(), request.headers()).await;
                    let frame = other.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
                    truncate(&path, 0);
                    std::thread::scope(|scope| scope.spawn(|| assert_eq!(frame[..], vec![0; frame.len()])).join())
                        .unwrap();
                    std::fs::write(&path, again).unwrap();
                    answer
                }
            })
            .await;
            if let Ok(answer) = h1(addr).await.send_request(request(&format!("/{name}"))).await
                && let Ok(got) = whole(answer).await
            {
                assert!(got == bytes[..len], "zeros for a whole {name}");
            }
        }
    });
}

#[test]
fn a_connection_is_not_failed_for_a_file_that_it_does_not_send() {
    if lacks("mapping") {
        return;
    }
    on_both(async || {
        let (dir, _) = tree();
        for name in ["kept", "large"] {
            let (files, path) = (believed(&dir), dir.path().join(name));
            let (mut ours, mut theirs) = testkit::pair().await;
            let request = request(&format!("/{name}"));
            let answer = files.get(request.method(), request.uri(), request.headers()).await;
            let frame = answer.into_body().frame().await.unwrap().unwrap().into_data().unwrap();
            truncate(&path, 0);
            // Read, but not sent to any connection.
            assert!(frame.iter().all(|&b| b == 0));
            let mut writer = Writer::new(Vec::new());
            writer.write_all(b"unharmed").await.unwrap();
            writer.flush().await.unwrap();
            ours.write_all(b"unharmed").await.unwrap();
            ours.shutdown().await.unwrap();
            let mut got = Vec::new();
            theirs.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"unharmed");
        }
    });
}

async fn read_torn() {
    let (dir, _) = tree();
    let file = File::open(dir.path().join("large")).await.unwrap();
    let frame = FileBody::new(&file, ..).unwrap().frame().await.unwrap().unwrap().into_data().unwrap();
    truncate(&dir.path().join("large"), 0);
    assert!(frame.iter().all(|&b| b == 0));
}

/// Sends `SIGBUS` to this thread from another process. kill(2) with a thread id prefers that thread, so the signal is
/// handled before this returns.
fn send_sigbus() {
    let thread = rustix::thread::gettid();
    let sent = std::process::Command::new("kill").args(["-BUS", &thread.as_raw_nonzero().to_string()]).status();
    assert!(sent.unwrap().success());
}

#[test]
fn a_signal_from_outside_does_not_take_the_guard_away() {
    if alone::ran_in_child() {
        return;
    }
    if lacks("mapping") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        read_torn().await;
        for _ in 0..3 {
            send_sigbus();
            read_torn().await;
        }
    });
}

fn copy(_: &mut Context<'_>, bytes: Bytes) -> Bytes {
    Bytes::copy_from_slice(&bytes)
}
