//! Unit tests of `version`.

use super::*;
use crate::net::{TcpListener, TcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn of(pieces: &[&[u8]]) -> (Version, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let send = async {
        for piece in pieces {
            client.write_all(piece).await.unwrap();
            client.flushed().await.unwrap();
            // The other side sees each piece by itself.
            tokio::task::yield_now().await;
        }
        client.shutdown().await.unwrap();
    };
    let (version, ()) = tokio::join!(version(&mut stream), send);
    assert!(pieces.is_empty() || stream.has_unread_bytes(), "no read overtakes the bytes that were given back");
    let mut all = Vec::new();
    // In small reads and large ones.
    let mut first = [0; 3];
    let n = stream.read(&mut first).await.unwrap();
    all.extend_from_slice(&first[..n]);
    stream.read_to_end(&mut all).await.unwrap();
    (version.unwrap(), all)
}

#[tokio::test]
async fn the_preface_is_told_from_everything_else_and_nothing_is_lost() {
    let long = [b"POST / HTTP/1.1\r\n".as_slice(), &[b'x'; 4000]].concat();
    let two = [PREFACE, b"frames"].concat();
    let bytewise: Vec<&[u8]> = PREFACE.chunks(1).collect();
    for (pieces, expected) in [
        (vec![b"GET / HTTP/1.1\r\n\r\n".as_slice()], Version::One),
        (vec![&long], Version::One),
        (vec![&two], Version::Two),
        (bytewise, Version::Two),
        (vec![b"PRI * HTTP/2", b".0\r\n\r\nSM\r\n\r\n\0\0\0"], Version::Two),
        (vec![b"P", b"RO", b"PFIND / HTTP/1.1\r\n"], Version::One),
        (vec![b"PRI"], Version::One),
        (vec![], Version::One),
    ] {
        let (version, all) = of(&pieces).await;
        assert_eq!(version, expected, "{pieces:?}");
        assert_eq!(all, pieces.concat());
    }
}
