//! Differences of Unix streams from TCP streams.

use super::*;

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
