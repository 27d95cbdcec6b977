//! Unix sockets: their names, and what differs from TCP. What is the same is in tests/stream.rs.

use std::convert::Infallible;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming};
use millstream::http::{OpenFile, serve};
use millstream::net::{UnixListener, UnixStream};
use millstream::observe::Snapshot;
use socket2::SockRef;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

mod support;
use support::family::Family;
use support::http::{Flavour, Raw, boxed, on_both, pages, sha256, watched};
use support::tree::truncate;
use support::{child, lacks, noise};

/// A directory and a name in it.
fn name() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    (dir, path)
}

/// Whether `listener` is who answers at `path`.
async fn answers(listener: &UnixListener, path: &Path) {
    let mut client = UnixStream::connect(path).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    client.write_all(b"ping").await.unwrap();
    let mut got = [0; 4];
    server.read_exact(&mut got).await.unwrap();
    server.write_all(&got).await.unwrap();
    client.read_exact(&mut got).await.unwrap();
    assert_eq!(&got, b"ping");
    assert_eq!(client.peer_addr().unwrap().as_pathname(), Some(path));
    assert!(server.peer_addr().unwrap().is_unnamed(), "{:?}", server.peer_addr());
    assert_eq!(server.local_addr().unwrap().as_pathname(), Some(path));
}

#[tokio::test]
async fn the_file_of_a_dead_server_is_replaced() {
    let (_dir, path) = name();
    // It leaves its file behind, as a process that is killed does.
    drop(StdListener::bind(&path).unwrap());
    let old = path.metadata().unwrap().ino();
    let listener = UnixListener::bind(&path).await.unwrap();
    assert_eq!(listener.local_addr().unwrap().as_pathname(), Some(&*path));
    answers(&listener, &path).await;
    println!("{old} became {}", path.metadata().unwrap().ino());
}

#[tokio::test]
async fn the_file_of_a_living_server_is_not() {
    let (_dir, path) = name();
    let first = UnixListener::builder().backlog(0).bind(&path).await.unwrap();
    let error = UnixListener::bind(&path).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()) && text.contains("a server listens there"), "{text}");
    // The one that looked whether there is a server.
    first.accept().await.unwrap();
    answers(&first, &path).await;

    // Nor if its queue is full.
    let mut waiting = Vec::new();
    let full = loop {
        match UnixStream::connect(&path).await {
            Ok(stream) => waiting.push(stream),
            Err(e) => break e,
        }
    };
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    let error = UnixListener::bind(&path).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains("queue is full"), "{error}");
    for _ in &waiting {
        first.accept().await.unwrap();
    }
    answers(&first, &path).await;
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let (dir, path) = name();
    std::fs::write(dir.path().join("file"), "precious").unwrap();
    // Behind the link is a socket that could be replaced; the link is somebody's work.
    drop(StdListener::bind(dir.path().join("stale")).unwrap());
    symlink("stale", dir.path().join("link")).unwrap();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    for other in ["file", "link", "directory"] {
        let error = UnixListener::bind(dir.path().join(other)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{other}");
        assert!(error.to_string().contains("no socket"), "{error}");
    }
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"precious");
    assert!(dir.path().join("link").is_symlink() && dir.path().join("stale").exists());
    // A socket, but of another kind.
    let datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let error = UnixListener::bind(&path).await.unwrap_err();
    assert!(error.to_string().contains("cannot tell"), "{error}");
    drop(datagrams);
    let error = UnixListener::bind(dir.path().join("none/socket")).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    let error = UnixListener::bind(dir.path().join("x".repeat(108))).await.unwrap_err();
    assert!(error.to_string().contains("bind"), "{error}");
}

#[tokio::test]
async fn the_file_goes_with_the_listener_if_it_is_its_own() {
    let (_dir, path) = name();
    drop(UnixListener::bind(&path).await.unwrap());
    assert!(!path.exists(), "removed");

    let first = UnixListener::bind(&path).await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let second = UnixListener::bind(&path).await.unwrap();
    drop(first);
    answers(&second, &path).await;

    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    drop(second);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");

    std::fs::remove_file(&path).unwrap();
    let theirs = StdListener::bind(&path).unwrap();
    let adopted = UnixListener::from_std(theirs).unwrap();
    answers(&adopted, &path).await;
    drop(adopted);
    assert!(path.exists(), "who has made it removes it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_are_started_at_once_one_gets_the_name() {
    for round in 0..30 {
        let (_dir, path) = name();
        drop(StdListener::bind(&path).unwrap());
        let servers: Vec<_> = (0..8).map(|_| tokio::spawn(UnixListener::bind(path.clone()))).collect();
        let mut winner = None;
        for server in servers {
            match server.await.unwrap() {
                Ok(listener) => assert!(winner.replace(listener).is_none(), "two listen in round {round}"),
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::AddrInUse, "{e}"),
            }
        }
        let winner = winner.expect("one of them listens");
        // Those that looked have connected, and gone.
        let mut client = UnixStream::connect(&path).await.unwrap();
        client.write_all(b"here").await.unwrap();
        let mut got = Vec::new();
        while got != b"here" {
            got.clear();
            let (mut server, _) = winner.accept().await.unwrap();
            let _ = server.read_buf(&mut got).await;
        }
    }
}

#[tokio::test]
async fn a_server_that_is_about_to_listen_keeps_its_name() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    let (dir, path) = name();
    let lock = std::fs::File::open(dir.path()).unwrap();
    lock.lock().unwrap();
    // Bound, and not listening yet: whoever connects is refused as by a dead one.
    let first = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&first, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let second = tokio::spawn(UnixListener::bind(path.clone()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    rustix::net::listen(&first, 1).unwrap();
    drop(lock);
    let error = second.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("a server listens there"), "{error}");
}

#[test]
fn a_listener_that_nobody_waits_for_any_more_leaves_no_file() {
    watched(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let (_dir, path) = name();
            for _ in 0..20 {
                tokio::select! {
                    biased;
                    _ = UnixListener::bind(&path) => panic!("not at once"),
                    () = async {} => {}
                }
            }
            // The pool has one thread and a queue in order.
            tokio::task::spawn_blocking(|| {}).await.unwrap();
            assert!(!path.exists());
        });
    });
}

#[tokio::test]
async fn the_mode_is_what_was_asked_for() {
    let (_dir, path) = name();
    for mode in [0o600, 0o666, 0o660] {
        let listener = UnixListener::builder().mode(mode).bind(&path).await.unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, mode);
        drop(listener);
    }
}

#[tokio::test]
async fn abstract_names_have_no_file() {
    let abstract_name = format!("\0millstream-{}-unix", std::process::id());
    let listener = UnixListener::bind(&abstract_name).await.unwrap();
    let error = UnixListener::bind(&abstract_name).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    let client = UnixStream::connect(&abstract_name).await.unwrap();
    let (_server, _) = listener.accept().await.unwrap();
    let expected = <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(
        &abstract_name.as_bytes()[1..],
    );
    assert_eq!(format!("{:?}", client.peer_addr().unwrap()), format!("{:?}", expected.unwrap()));
    drop(listener);
    let error = UnixStream::connect(&abstract_name).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_peer_of_any_name_is_accepted() {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

    let (dir, path) = name();
    let listener = UnixListener::bind(&path).await.unwrap();
    let room = |len: usize| dir.path().join("x".repeat(len - dir.path().as_os_str().len() - 1));
    // The kernel takes 108 bytes, which leaves no room for a NUL.
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
    let (one, other) = UnixStream::pair().unwrap();
    for stream in [&one, &other] {
        let who = stream.peer_cred().unwrap();
        assert_eq!(who.pid, std::process::id() as i32);
        assert_eq!((who.uid, who.gid), (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()));
    }
    #[cfg(feature = "tonic")]
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

    // One that has not read what was sent resets.
    let (mut ours, theirs) = <UnixStream as Family>::pair().await;
    SockRef::from(&ours).set_send_buffer_size(4096).unwrap();
    let writer = tokio::spawn(async move { ours.write_all(&vec![1; 10 << 20]).await });
    theirs.readable().await.unwrap();
    drop(theirs);
    assert!(writer.await.unwrap().is_err(), "woken");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_reads_is_given_up_in_the_end() {
    let (mut ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(false).unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(n) = io::Write::write(&mut ours, &[7; 1000]) {
        sent += n;
    }
    let mut ours = UnixStream::from_std(ours).unwrap();
    ours.write_all(&[8; 1000]).await.unwrap();
    drop(ours);
    // Virtual time: it passes when there is nothing else to do.
    tokio::time::sleep(Duration::from_secs(61)).await;
    let mut got = Vec::new();
    theirs.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent, "what the kernel had, and nothing of what waited");
}

#[test]
fn files_go_by_sendfile_through_a_narrow_socket() {
    const LEN: usize = 3 << 20;
    on_both(async || {
        let (dir, path) = name();
        let file = dir.path().join("file");
        std::fs::write(&file, pages(LEN)).unwrap();
        let listener = UnixListener::bind(&path).await.unwrap();
        let opened = OpenFile::open(&file).await.unwrap();
        let service = tower::service_fn(move |_: Request<Incoming>| {
            let body = boxed(opened.body(..));
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
        assert!(!path.exists(), "the file went with the listener");
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
        let opened = OpenFile::open(&file).await.unwrap();
        let frame: Bytes = opened.body(..).frame().await.unwrap().unwrap().into_data().unwrap();
        let (mut ours, mut theirs) = <UnixStream as Family>::pair().await;
        truncate(&file, 0);
        let error = ours.write_all(&frame).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).await.unwrap();
        assert!(got.is_empty(), "no zeros in place of the file");
    });
}

#[test]
fn no_descriptor_is_left_behind() {
    const NAME: &str = "no_descriptor_is_left_behind";
    if child::told().is_none() {
        child::run(&mut child::command(NAME, ""));
        return;
    }
    let links = || std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let fds = || links().count();
    // Rings are made when they are asked for, and stay.
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
            let hello = tower::service_fn(async |_: Request<Incoming>| {
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
                assert!(fail < 1000, "{} sockets, {idle} without connections", sockets());
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

#[cfg(feature = "axum")]
#[tokio::test]
async fn axum_serves_it() {
    let (_dir, path) = name();
    let listener = UnixListener::bind(&path).await.unwrap();
    let app = axum::Router::new().route("/hello", axum::routing::get(async || "hello"));
    tokio::spawn(axum::serve(listener, app).into_future());
    let mut client = Raw::over(tokio::net::UnixStream::connect(&path).await.unwrap());
    assert_eq!(client.get("/hello").await, (200, b"hello".to_vec()));
}
