//! The socket file: binding, replacement and removal.

use super::*;

/// Leaves a socket file behind, as a process that was killed. The socket never listens: a child process of another test
/// may hold a copy of it for a while.
fn stale(path: &Path) {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, socket};

    let socket = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
}

/// Checks that `listener` accepts connections to `path`.
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
    stale(&path);
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
    // The second `bind` connected to probe for a server.
    first.accept().await.unwrap();
    answers(&first, &path).await;

    // A full queue belongs to a living server too.
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
    // The link leads to a stale socket, which could be replaced, but the link itself must stay.
    stale(&dir.path().join("stale"));
    symlink("stale", dir.path().join("link")).unwrap();
    std::fs::create_dir(dir.path().join("directory")).unwrap();
    for other in ["file", "link", "directory"] {
        let error = UnixListener::bind(dir.path().join(other)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{other}");
        assert!(error.to_string().contains("no socket"), "{error}");
    }
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"precious");
    assert!(dir.path().join("link").is_symlink() && dir.path().join("stale").exists());
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
    assert!(path.exists(), "a file made elsewhere stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_that_are_started_at_once_one_gets_the_name() {
    for round in 0..30 {
        let (_dir, path) = name();
        stale(&path);
        let servers: Vec<_> = (0..8).map(|_| tokio::spawn(UnixListener::bind(path.clone()))).collect();
        let mut winner = None;
        for server in servers {
            match server.await.unwrap() {
                Ok(listener) => assert!(winner.replace(listener).is_none(), "two listeners in round {round}"),
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::AddrInUse, "{e}"),
            }
        }
        let winner = winner.expect("one listener");
        // The queue also holds connections of the other servers' probes.
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
    // Bound but not listening yet: connecting is refused as with a dead server.
    let first = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&first, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    let second = tokio::spawn(UnixListener::bind(path.clone()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    rustix::net::listen(&first, 1).unwrap();
    drop(lock);
    let error = second.await.unwrap().unwrap_err();
    assert!(error.to_string().contains("a server listens there"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_somebody_keeps_locked_is_bound_in_all_the_same() {
    let (dir, path) = name();
    let lock = std::fs::File::open(dir.path()).unwrap();
    lock.lock().unwrap();
    let listener = UnixListener::bind(&path).await.unwrap();
    answers(&listener, &path).await;
    drop(listener);
    stale(&path);
    answers(&UnixListener::bind(&path).await.unwrap(), &path).await;
    drop(lock);
}

#[test]
fn a_listener_that_nobody_waits_for_any_more_leaves_no_file() {
    watched(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
        runtime.unwrap().block_on(async {
            let (_dir, path) = name();
            let mut given_up = 0;
            for _ in 0..20 {
                tokio::select! {
                    biased;
                    // The thread of the pool may have been faster than this one.
                    listener = UnixListener::bind(&path) => drop(listener.unwrap()),
                    () = async {} => given_up += 1,
                }
            }
            assert!(given_up > 0, "always bound at once");
            // The blocking pool has one thread and runs its queue in order.
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
    if testkit::portable("sockets have no abstract names") {
        return;
    }
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
    let since = std::time::Instant::now();
    let error = loop {
        match UnixStream::connect(&abstract_name).await {
            Err(error) => break error,
            // A child process of another test may hold a copy of the listener for a while.
            Ok(_) => assert!(since.elapsed() < testkit::HANGS, "the listener is open"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}
