//! Differences of Unix streams from TCP streams.

use super::*;

use testkit::alone;

#[tokio::test]
async fn a_peer_of_any_name_is_accepted() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    let (dir, path) = name();
    let listener = UnixListener::bind(&path).await.unwrap();
    let room = |len: usize| dir.path().join("x".repeat(len - dir.path().as_os_str().len() - 1));
    // `sun_path` has 108 bytes; at 108 there is no room for a NUL.
    for len in [107, 108] {
        let named = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        rustix::net::bind(&named, &SocketAddrUnix::new(room(len)).unwrap()).unwrap();
        rustix::net::connect(&named, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        let (server, peer) = listener.accept().await.unwrap();
        assert_eq!(peer.as_pathname(), (len == 107).then(|| room(len)).as_deref());
        assert_eq!(server.peer_addr().unwrap().as_pathname(), peer.as_pathname());
    }
}

#[tokio::test]
async fn the_kernel_says_who_is_at_the_other_end() {
    if testkit::portable("peers have no credentials") {
        return;
    }
    let (one, other) = UnixStream::pair().unwrap();
    for stream in [&one, &other] {
        let who = stream.peer_cred().unwrap();
        assert_eq!(who.pid(), Some(std::process::id() as i32));
        assert_eq!((who.uid(), who.gid()), (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()));
    }
    #[cfg(feature = "tonic-014")]
    {
        let info = tonic::transport::server::Connected::connect_info(&one);
        assert_eq!(info, other.peer_cred().ok());
    }
}

#[tokio::test]
async fn a_peer_that_is_gone_is_an_error_that_stays() {
    let (mut ours, theirs) = <UnixStream as Family>::pair().await;
    drop(theirs);
    ours.write_all(b"anyone there?").await.unwrap();
    assert!(ours.flushed().await.is_err());
    for _ in 0..2 {
        let error = ours.write_all(b"anyone there?").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
    assert_eq!(ours.queued(), 0);
    assert_eq!(ours.read(&mut [0; 8]).await.unwrap(), 0);

    // A peer with unread bytes resets the connection.
    let (mut ours, theirs) = <UnixStream as Family>::pair().await;
    SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
    let writer = tokio::spawn(async move { ours.write_all(&vec![1; 10 << 20]).await });
    theirs.readable().await.unwrap();
    drop(theirs);
    assert!(writer.await.unwrap().is_err(), "woken");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_reads_is_given_up_in_the_end() {
    // Without capabilities the limits on socket memory apply to this thread.
    drop_capabilities();
    let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    // The maximum size, so that the stream cannot enlarge the buffer for its queued bytes.
    SockRef::from(&ours).set_send_buffer_size(1 << 30).unwrap();
    theirs.set_nonblocking(false).unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let zeros = vec![0; 1 << 16];
    while let Ok(n) = io::Write::write(&mut ours, &zeros) {
        sent += n;
    }
    let mut ours = UnixStream::from_std(ours).unwrap();
    ours.write_all(&[8; 1000]).await.unwrap();
    drop(ours);
    // The paused clock advances only when all tasks wait.
    tokio::time::sleep(Duration::from_secs(61)).await;
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent, "only the bytes that the kernel held");
}

#[test]
fn files_go_by_sendfile_through_a_narrow_socket() {
    const LEN: usize = 3 << 20;
    on_both(async || {
        let (dir, path) = name();
        let file = dir.path().join("file");
        std::fs::write(&file, pages(LEN)).unwrap();
        let listener = UnixListener::bind(&path).await.unwrap();
        let opened = File::open(&file).await.unwrap();
        let service = tower::service_fn(move |_: Request<RequestBody>| {
            let body = boxed(FileBody::new(&opened, ..).unwrap());
            async { Ok::<_, Infallible>(Response::new(body)) }
        });
        let server = tokio::spawn(serve(listener, service).into_future());
        let before = Snapshot::now();
        for buffer in [0, 4096] {
            let stream = tokio::net::UnixStream::connect(&path).await.unwrap();
            if buffer > 0 {
                SockRef::from(&stream).set_recv_buffer_size(buffer).unwrap();
            }
            let mut client = Raw::over(stream);
            for _ in 0..2 {
                let (status, body) = client.get("/").await;
                assert_eq!((status, sha256(body)), (200, sha256(pages(LEN))));
            }
        }
        if !lacks("sendfile") && !lacks("mapping") {
            assert!(Snapshot::now().since(&before).bytes_by_sendfile >= 4 * LEN as u64);
        }
        server.abort();
        let _ = server.await;
        assert!(!path.exists(), "the listener removes its file");
    });
}

#[test]
fn a_file_that_shrinks_fails_the_stream_and_ends_it_short() {
    if lacks("mapping") {
        return;
    }
    const LEN: usize = 1 << 20;
    on_both(async || {
        let (dir, _) = name();
        let file = dir.path().join("file");
        std::fs::write(&file, pages(LEN)).unwrap();
        let opened = File::open(&file).await.unwrap();
        let frame: Bytes = FileBody::new(&opened, ..).unwrap().frame().await.unwrap().unwrap().into_data().unwrap();
        let (mut ours, mut theirs) = <UnixStream as Family>::pair().await;
        truncate(&file, 0);
        let error = ours.write_all(&frame).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).await.unwrap();
        assert!(got.is_empty(), "no zeros instead of the file");
    });
}

#[test]
fn no_descriptor_is_left_behind() {
    if alone::ran_in_child() {
        return;
    }
    let links = || std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let fds = || links().count();
    // Rings are created on first use and stay open.
    let is_socket =
        |path: PathBuf| std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    let sockets = || links().filter(|link| is_socket(link.path())).count();
    for flavour in Flavour::BOTH {
        drop(flavour.runtime());
        let before = fds();
        let runtime = flavour.runtime();
        runtime.block_on(async {
            let (_dir, path) = name();
            let listener = UnixListener::bind(&path).await.unwrap();
            let hello = tower::service_fn(async |_: Request<RequestBody>| {
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(noise(100_000)))))
            });
            let server = tokio::spawn(serve(listener, hello).into_future());
            let idle = sockets();
            for n in 0..200 {
                let mut client = Raw::over(tokio::net::UnixStream::connect(&path).await.unwrap());
                match n % 4 {
                    0 => drop(client),
                    1 => client.ask("/").await,
                    2 => assert_eq!(client.get("/").await.1.len(), 100_000),
                    _ => {
                        client.ask("/").await;
                        client.head().await;
                        client.io.shutdown().await.unwrap();
                    }
                }
            }
            for fail in 0.. {
                assert!(fail < 1000, "{} sockets, {idle} without a connection", sockets());
                if sockets() == idle {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            server.abort();
        });
        drop(runtime);
        assert_eq!(fds(), before, "on {flavour:?}");
    }
}

#[cfg(feature = "axum-08")]
#[tokio::test]
async fn axum_serves_it() {
    let (_dir, path) = name();
    let listener = UnixListener::bind(&path).await.unwrap();
    let app = axum::Router::new().route("/hello", axum::routing::get(async || "hello"));
    tokio::spawn(axum::serve(listener, app).into_future());
    let mut client = Raw::over(tokio::net::UnixStream::connect(&path).await.unwrap());
    assert_eq!(client.get("/hello").await, (200, b"hello".to_vec()));
}
