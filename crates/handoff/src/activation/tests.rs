//! Unit tests of `activation`: which listener a name and an address mean.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use super::*;

fn passed(name: &str, socket: impl Into<OwnedFd>) -> Passed {
    let socket = socket.into();
    Passed { name: name.to_owned(), address: address(&socket).unwrap(), socket }
}

fn number(socket: &OwnedFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(socket)
}

#[test]
fn a_name_is_better_than_an_address_and_both_are_best() {
    let sockets: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let addrs: Vec<_> = sockets.iter().map(|socket| socket.local_addr().unwrap()).collect();
    let numbers: Vec<_> = sockets.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let names = ["web", "web", "other"];
    let mut activation = Activation(names.iter().zip(sockets).map(|(name, socket)| passed(name, socket)).collect());
    assert!(activation.tcp("absent", &["127.0.0.1:9".parse().unwrap()]).is_none());
    assert!(activation.tcp("absent", &[]).is_none());
    assert!(activation.unix("web", Path::new("web")).is_none(), "of another kind");
    assert_eq!(number(&activation.tcp("web", &addrs[1..]).unwrap()), numbers[1], "its name and its address");
    assert_eq!(number(&activation.tcp("web", &addrs[2..]).unwrap()), numbers[0], "its name");
    assert_eq!(number(&activation.tcp("web", &addrs).unwrap()), numbers[2], "its address");
    assert!(activation.tcp("web", &addrs).is_none(), "each once");
}

#[test]
fn the_first_one_of_a_name_is_taken_first() {
    let sockets: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let numbers: Vec<_> = sockets.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let mut activation = Activation(sockets.into_iter().map(|socket| passed("web", socket)).collect());
    for expected in numbers {
        assert_eq!(number(&activation.tcp("web", &[]).unwrap()), expected);
    }
}

#[test]
fn a_socket_for_both_versions_of_ip_has_the_addresses_of_both() {
    let Ok(socket) = TcpListener::bind("[::]:0") else {
        return testkit::skip("addresses of both versions of IP", "there is no IPv6");
    };
    let port = socket.local_addr().unwrap().port();
    for (only_v6, addr, fits) in [
        (false, format!("[::]:{port}"), true),
        (false, format!("0.0.0.0:{port}"), true),
        (false, format!("127.0.0.1:{port}"), false),
        (true, format!("[::]:{port}"), true),
        (true, format!("0.0.0.0:{port}"), false),
    ] {
        let socket = socket.try_clone().unwrap().into();
        let Some(Address::Tcp { addr: bound, .. }) = address(&socket) else { panic!("no address") };
        let address = Address::Tcp { addr: bound, only_v6 };
        let mut activation = Activation(vec![Passed { name: String::new(), address, socket }]);
        let found = activation.tcp("web", &[addr.parse().unwrap()]);
        assert_eq!(found.is_some(), fits, "{addr}, only for IPv6: {only_v6}");
    }
}

#[test]
fn unix_sockets_have_a_path_or_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    let bound = || UnixListener::bind(&path).inspect(|_| std::fs::remove_file(&path).unwrap()).unwrap();
    let mut activation = Activation(vec![passed("web", bound()), passed("other", bound())]);
    assert!(activation.tcp("web", &[]).is_none(), "of another kind");
    assert!(activation.unix("absent", dir.path()).is_none());
    assert!(activation.unix("web", Path::new("elsewhere")).is_some());
    assert!(activation.unix("absent", &path).is_some());
    assert_eq!(activation.names().count(), 0);
}

#[test]
fn only_listeners_are_taken() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let datagrams = std::os::unix::net::UnixDatagram::bind(dir.path().join("datagrams")).unwrap();
    for other in [connection.into(), datagrams.into(), tempfile::tempfile().unwrap().into()] {
        assert!(address(&other).is_none());
    }
    assert!(address(&listener.into()).is_some());
}
