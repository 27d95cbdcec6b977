//! Unit tests of `manager`: messages and descriptors, to sockets of both kinds.

use std::os::unix::net::UnixDatagram as StdDatagram;

use super::*;

/// Returns the next message, and the number of its descriptors.
fn message(manager: &StdDatagram) -> (String, usize) {
    let (mut bytes, mut fds) = ([0; 512], Vec::<OwnedFd>::new());
    let n = rights::receive(manager.as_fd(), &mut bytes, &mut fds).unwrap();
    (String::from_utf8(bytes[..n].to_vec()).unwrap(), fds.len())
}

#[tokio::test]
async fn messages_reach_a_socket_with_a_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let manager = StdDatagram::bind(&path).unwrap();
    send(Some(path.as_os_str()), "READY=1\nMAINPID=7", &[]).await.unwrap();
    assert_eq!(message(&manager), ("READY=1\nMAINPID=7".to_owned(), 0));
    let file = tempfile::tempfile().unwrap();
    send(Some(path.as_os_str()), "FDSTORE=1\nFDNAME=a", &[file.as_fd(), file.as_fd()]).await.unwrap();
    assert_eq!(message(&manager), ("FDSTORE=1\nFDNAME=a".to_owned(), 2));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn messages_reach_a_socket_with_an_abstract_name() {
    use std::os::linux::net::SocketAddrExt;

    let name = format!("millstream-{}-notify", std::process::id());
    let manager = StdDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    send(Some(OsStr::new(&format!("@{name}"))), "STATUS=fine", &[]).await.unwrap();
    assert_eq!(message(&manager), ("STATUS=fine".to_owned(), 0));
}

#[tokio::test]
async fn without_a_manager_nothing_is_sent_and_a_wrong_one_is_an_error() {
    send(None, "READY=1", &[]).await.unwrap();
    send(Some(OsStr::new("")), "READY=1", &[]).await.unwrap();
    for wrong in ["relative", "vsock:2:1234"] {
        let error = send(Some(OsStr::new(wrong)), "READY=1", &[]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let error = send(Some(dir.path().join("absent").as_os_str()), "READY=1", &[]).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    assert!(error.to_string().contains("absent"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_reads_nothing_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let _manager = StdDatagram::bind(&path).unwrap();
    let error = loop {
        if let Err(error) = send(Some(path.as_os_str()), "READY=1", &[]).await {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

#[test]
fn names_are_those_that_a_manager_takes() {
    for name in ["http", "a b.socket", &"x".repeat(255)] {
        assert!(may_be_stored(name), "{name}");
    }
    for name in ["", "a:b", "a\nMAINPID=1", "ä", &"x".repeat(256)] {
        assert!(!may_be_stored(name), "{name}");
    }
}
