//! Connections reset in the middle of a copy: the error names the end, and no part is mistaken for the whole.

use std::io::ErrorKind;
use std::time::Duration;

use millstream::copy::{Direction, copy, copy_bidirectional};
use millstream::fs::Step;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ends::{feed, file, ours, tcp};
use super::noise;
use testkit::http::on_both;

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[test]
fn a_server_that_dies_is_an_error_to_the_client() {
    on_both(|| async {
        for len in [100, 300_000] {
            let ((mut a, mut client), (mut b, mut server)) = (tcp().await, tcp().await);
            let peer = b.peer_addr().unwrap().to_string();
            let relay = tokio::spawn(async move {
                let relayed = copy_bidirectional(&mut a, &mut b).await;
                // Dropped in order, as after any error.
                drop((a, b));
                relayed
            });
            server.write_all(noise(len)).await.unwrap();
            let mut got = vec![0; len];
            client.read_exact(&mut got).await.unwrap();
            reset(server);
            assert_eq!(client.read(&mut got).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
            let error = relay.await.unwrap().unwrap_err();
            assert_eq!((error.direction(), error.step()), (Some(Direction::BToA), Step::Read), "{error}");
            assert_eq!((error.kind(), error.raw_os_error()), (ErrorKind::ConnectionReset, Some(104)));
            assert_eq!((error.report().bytes, error.other_report().unwrap().bytes), (len as u64, 0));
            // The address is usually unknown after the connection is gone.
            assert!(error.end().is_none_or(|end| end == peer), "{error}");
        }
    });
}

#[test]
fn a_client_that_dies_is_an_error_to_the_server() {
    on_both(|| async {
        let ((mut a, client), (mut b, mut server)) = (ours().await, ours().await);
        let relay =
            tokio::spawn(async move { copy_bidirectional(&mut a, &mut b).await.map_err(|e| (e, drop((a, b)))) });
        let mut client = client;
        client.write_all(b"half a request").await.unwrap();
        let mut got = [0; 14];
        server.read_exact(&mut got).await.unwrap();
        reset(client);
        assert_eq!(server.read(&mut got).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let (error, ()) = relay.await.unwrap().unwrap_err();
        assert_eq!((error.direction(), error.step()), (Some(Direction::AToB), Step::Read), "{error}");
    });
}

#[test]
fn a_reader_that_dies_in_a_flood_ends_the_copy() {
    on_both(|| async {
        // From each kind of source, to a connection that has read a part.
        let (from, feeder) = tcp().await;
        feed(feeder, noise(10 << 20).to_vec());
        dies(from).await;
        dies(tokio::fs::File::from_std(file(noise(10 << 20)))).await;
        dies(noise(10 << 20)).await;
    });
}

async fn dies<S: tokio::io::AsyncRead + Unpin + Send + 'static>(mut from: S) {
    let (mut to, mut reader) = tcp().await;
    let peer = to.peer_addr().unwrap().to_string();
    let copying = tokio::spawn(async move {
        let copied = copy(&mut from, &mut to).await;
        (copied, to)
    });
    reader.read_exact(&mut vec![0; 100_000]).await.unwrap();
    reset(reader);
    let (copied, _to) = copying.await.unwrap();
    let error = copied.unwrap_err();
    assert_eq!(error.step(), Step::Write, "{error}");
    assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
    assert!(error.report().bytes >= 100_000 && error.report().bytes < 10 << 20, "{error}");
    assert!(error.end().is_none_or(|end| end == peer), "{error}");
    assert!(error.direction().is_none() && error.other_report().is_none());
}

#[test]
fn a_disk_that_is_full_is_told_with_its_path() {
    on_both(|| async {
        let mut to = millstream::fs::File::options().write(true).open("/dev/full").await.unwrap().writer();
        let error = copy(&mut &noise(1000)[..], &mut to).await.unwrap_err();
        assert_eq!((error.step(), error.raw_os_error()), (Step::Flush, Some(28)), "{error}");
        assert!(error.is_no_space());
        assert_eq!((error.kind(), error.end()), (ErrorKind::StorageFull, Some("/dev/full")), "{error}");
    });
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_by_every_way() {
    on_both(|| async {
        let readable = || tokio::fs::File::from_std(std::fs::File::open("/proc/self/exe").unwrap());
        let error = copy(&mut readable(), &mut readable()).await.unwrap_err();
        assert_eq!((error.step(), error.raw_os_error()), (Step::Move, Some(9)), "{error}");
        let mut from = <TcpStream as super::ends::Source>::open(noise(1 << 20).to_vec()).await;
        let error = copy(&mut from, &mut readable()).await.unwrap_err();
        assert!(matches!(error.step(), Step::Write | Step::Flush), "{error}");
    });
}
