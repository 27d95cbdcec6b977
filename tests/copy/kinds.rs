//! Every kind of source to every kind of target.

use millstream::copy::{Copier, CopyPath, copy};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::net::{TcpStream, UnixStream, tcp, unix};

use super::ends::{Plain, Source, Target, ahead};
use super::noise;
use testkit::http::{on_both, sha256};

/// Lengths around every threshold: a read, a lease, a pipe, a window, a step.
const LENS: [usize; 10] =
    [0, 1, 100, (16 << 10) - 1, 16 << 10, (64 << 10) + 1, 256 << 10, (1 << 20) + 3, (2 << 20) + 5, (9 << 20) + 7];

/// Paths that may be reported for this many bytes.
type Expected = fn(usize) -> &'static [CopyPath];

async fn pair<S: Source, T: Target>(expected: Expected) {
    for len in LENS {
        let bytes = noise(len);
        let mut from = S::open(bytes.to_vec()).await;
        let (mut to, got) = T::open().await;
        let report = copy(&mut from, &mut to).await.unwrap();
        assert_eq!(report.bytes, len as u64);
        to.close().await;
        let got = got.await.unwrap().unwrap();
        assert_eq!(got.len(), len);
        assert_eq!(sha256(&got), sha256(bytes));
        assert!(expected(len).contains(&report.path), "{len} bytes: {report:?}");
        assert!(len == 0 || report.syscalls > 0, "{report:?}");
    }
}

/// Like [`pair`], with a limit: the rest stays in the source.
async fn limited<S: Source, T: Target>() {
    for (len, limit) in [(100, 0), (100, 10), (100, 100), (100, 1000), (1 << 20, 20_000), (3 << 20, (2 << 20) + 1)] {
        let bytes = noise(len);
        let mut from = S::open(bytes.to_vec()).await;
        let (mut to, got) = T::open().await;
        let report = Copier::new().limit(limit as u64).run(&mut from, &mut to).await.unwrap();
        let copied = limit.min(len);
        assert_eq!(report.bytes, copied as u64);
        to.close().await;
        assert!(got.await.unwrap().unwrap() == bytes[..copied], "{copied} of {len}");
        let mut rest = Vec::new();
        from.read_to_end(&mut rest).await.unwrap();
        assert!(rest == bytes[copied..], "the rest of {len} after {copied}: {} bytes", rest.len());
    }
}

fn lacks(name: &str) -> bool {
    testkit::lacks(name)
}

/// Temporary files usually do not share blocks; a clone is accepted as well.
fn between_files(len: usize) -> &'static [CopyPath] {
    if len == 0 || lacks("copy_file_range") {
        &[CopyPath::Pump, CopyPath::Clone]
    } else {
        &[CopyPath::CopyFileRange, CopyPath::Clone]
    }
}

fn from_file(len: usize) -> &'static [CopyPath] {
    match (len, lacks("sendfile"), lacks("splice")) {
        (0, ..) | (_, true, true) => &[CopyPath::Pump],
        (_, false, true) => &[CopyPath::Sendfile],
        (_, true, false) => &[CopyPath::Splice],
        _ => &[CopyPath::Sendfile, CopyPath::Splice],
    }
}

/// The amount per read depends on the sender.
fn from_stream(_: usize) -> &'static [CopyPath] {
    if lacks("splice") { &[CopyPath::Pump] } else { &[CopyPath::Splice, CopyPath::Pump] }
}

fn pumped(_: usize) -> &'static [CopyPath] {
    &[CopyPath::Pump]
}

macro_rules! to_all {
    ($name:ident, $source:ty, $files:expr, $streams:expr) => {
        #[test]
        fn $name() {
            on_both(|| async {
                pair::<$source, tokio::fs::File>($files).await;
                pair::<$source, millstream::fs::FileWriter>($files).await;
                pair::<$source, TcpStream>($streams).await;
                pair::<$source, tcp::OwnedWriteHalf>($streams).await;
                pair::<$source, UnixStream>($streams).await;
                pair::<$source, unix::OwnedWriteHalf>($streams).await;
                pair::<$source, Sender>($streams).await;
                pair::<$source, millstream::net::TcpStream>($streams).await;
                pair::<$source, millstream::net::UnixStream>($streams).await;
                pair::<$source, tokio::io::WriteHalf<TcpStream>>(pumped).await;
            });
            on_both(|| async {
                limited::<$source, tokio::fs::File>().await;
                limited::<$source, millstream::fs::FileWriter>().await;
                limited::<$source, TcpStream>().await;
                limited::<$source, Sender>().await;
                limited::<$source, millstream::net::TcpStream>().await;
                limited::<$source, tokio::io::WriteHalf<TcpStream>>().await;
            });
        }
    };
}

to_all!(from_a_file_of_tokio, tokio::fs::File, between_files, from_file);
to_all!(from_a_reader, millstream::fs::FileReader, between_files, from_file);
to_all!(from_tcp, TcpStream, from_stream, from_stream);
to_all!(from_half_of_tcp, tcp::OwnedReadHalf, from_stream, from_stream);
to_all!(from_unix, UnixStream, from_stream, from_stream);
to_all!(from_half_of_unix, unix::OwnedReadHalf, from_stream, from_stream);
to_all!(from_a_pipe, Receiver, from_stream, from_stream);
to_all!(from_our_tcp, millstream::net::TcpStream, from_stream, from_stream);
to_all!(from_our_unix, millstream::net::UnixStream, from_stream, from_stream);
to_all!(from_what_nobody_knows, Plain<tokio::io::ReadHalf<TcpStream>>, pumped, pumped);

#[test]
fn from_a_stream_with_bytes_that_were_given_back() {
    on_both(|| async {
        for len in LENS {
            let mut from = ahead(noise(len)).await;
            let (mut to, got) = <TcpStream as Target>::open().await;
            assert_eq!(copy(&mut from, &mut to).await.unwrap().bytes, len as u64);
            to.close().await;
            assert!(got.await.unwrap().unwrap() == noise(len));
        }
    });
}
