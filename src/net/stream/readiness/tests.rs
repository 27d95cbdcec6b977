//! Unit tests of `readiness`.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::net::stream::stream::Rewind;
use crate::net::stream::unix::UnixStream;
use crate::runtime::{DriverBuilder, Io};

#[test]
fn bytes_that_were_given_back_come_first() {
    for io in [Io::Epoll, Io::Uring] {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            DriverBuilder::new().io(io).install().unwrap();
            let (mut ours, mut theirs) = UnixStream::pair().unwrap();
            ours.unread(b"ab");
            let mut buf = [0; 8];
            ours.readable().await.unwrap();
            assert!(ours.ready(Interest::READABLE).await.unwrap().is_readable());
            assert_eq!(ours.peek(&mut buf).await.unwrap(), 2);
            theirs.write_all(b"cd").await.unwrap();
            theirs.flushed().await.unwrap();
            while ours.peek(&mut buf).await.unwrap() < 4 {
                tokio::task::yield_now().await;
            }
            assert_eq!(&buf[..4], b"abcd");
            assert_eq!(ours.inner().duplicate().unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert_eq!(ours.try_read(&mut buf[..1]).unwrap(), 1);
            let (mut read, _write) = ours.into_split();
            read.read_exact(&mut buf[..3]).await.unwrap();
            assert_eq!(&buf[..3], b"bcd");
        });
    }
}
