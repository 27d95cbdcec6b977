//! Sources and targets of copies, each with a peer at its other end.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use millstream::fs::{File, FileReader, FileWriter};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::unix::pipe::{self, Receiver, Sender};
use tokio::net::{TcpListener, TcpStream, UnixStream, tcp, unix};
use tokio::task::JoinHandle;

/// Task at the other end of a target. Returns all copied bytes.
pub(crate) type Got = JoinHandle<io::Result<Vec<u8>>>;

pub(crate) trait Source: Sized + AsyncRead + Unpin + Send + 'static {
    /// Opens a source that returns `bytes` and ends.
    async fn open(bytes: Vec<u8>) -> Self;
}

pub(crate) trait Target: Sized + AsyncWrite + Unpin + Send + 'static {
    async fn open() -> (Self, Got);

    async fn close(mut self) {
        self.shutdown().await.unwrap();
    }
}

pub(crate) async fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (client, listener.accept().await.unwrap().0)
}

pub(crate) async fn ours() -> (millstream::net::TcpStream, TcpStream) {
    let (ours, theirs) = tcp().await;
    (millstream::net::TcpStream::from_std(ours.into_std().unwrap()).unwrap(), theirs)
}

pub(crate) fn feed(mut to: impl AsyncWrite + Unpin + Send + 'static, bytes: Vec<u8>) {
    tokio::spawn(async move {
        // The copy may stop before the end.
        let _ = to.write_all(&bytes).await;
        let _ = to.shutdown().await;
    });
}

pub(crate) fn collect(mut from: impl AsyncRead + Unpin + Send + 'static) -> Got {
    tokio::spawn(async move {
        let mut all = Vec::new();
        from.read_to_end(&mut all).await.map(|_| all)
    })
}

impl Source for TcpStream {
    async fn open(bytes: Vec<u8>) -> Self {
        let (ours, theirs) = tcp().await;
        feed(theirs, bytes);
        ours
    }
}

impl Target for TcpStream {
    async fn open() -> (Self, Got) {
        let (ours, theirs) = tcp().await;
        (ours, collect(theirs))
    }
}

impl Source for tcp::OwnedReadHalf {
    async fn open(bytes: Vec<u8>) -> Self {
        let (ours, theirs) = tcp().await;
        let (read, write) = ours.into_split();
        feed(theirs, bytes);
        write.forget();
        read
    }
}

impl Target for tcp::OwnedWriteHalf {
    async fn open() -> (Self, Got) {
        let (ours, theirs) = tcp().await;
        (ours.into_split().1, collect(theirs))
    }
}

impl Source for UnixStream {
    async fn open(bytes: Vec<u8>) -> Self {
        let (ours, theirs) = Self::pair().unwrap();
        feed(theirs, bytes);
        ours
    }
}

impl Target for UnixStream {
    async fn open() -> (Self, Got) {
        let (ours, theirs) = Self::pair().unwrap();
        (ours, collect(theirs))
    }
}

impl Source for unix::OwnedReadHalf {
    async fn open(bytes: Vec<u8>) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        feed(theirs, bytes);
        let (read, write) = ours.into_split();
        write.forget();
        read
    }
}

impl Target for unix::OwnedWriteHalf {
    async fn open() -> (Self, Got) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (ours.into_split().1, collect(theirs))
    }
}

impl Source for millstream::net::TcpStream {
    async fn open(bytes: Vec<u8>) -> Self {
        let (ours, theirs) = ours().await;
        feed(theirs, bytes);
        ours
    }
}

impl Target for millstream::net::TcpStream {
    async fn open() -> (Self, Got) {
        let (ours, theirs) = ours().await;
        (ours, collect(theirs))
    }
}

impl Source for millstream::net::UnixStream {
    async fn open(bytes: Vec<u8>) -> Self {
        let (ours, theirs) = Self::pair().unwrap();
        feed(theirs, bytes);
        ours
    }
}

impl Target for millstream::net::UnixStream {
    async fn open() -> (Self, Got) {
        let (ours, theirs) = Self::pair().unwrap();
        (ours, collect(theirs))
    }
}

/// Returns a stream of ours whose first bytes were read and given back, so nothing else may read from it.
pub(crate) async fn ahead(bytes: &[u8]) -> millstream::net::TcpStream {
    use millstream::internal::Rewind;

    let (mut ours, theirs) = ours().await;
    feed(theirs, bytes.to_vec());
    let mut first = vec![0; bytes.len().min(1000)];
    ours.read_exact(&mut first).await.unwrap();
    ours.unread(&first);
    ours
}

impl Source for Receiver {
    async fn open(bytes: Vec<u8>) -> Self {
        let (sender, receiver) = pipe::pipe().unwrap();
        feed(sender, bytes);
        receiver
    }
}

impl Target for Sender {
    async fn open() -> (Self, Got) {
        let (sender, receiver) = pipe::pipe().unwrap();
        (sender, collect(receiver))
    }

    async fn close(self) {
        drop(self);
    }
}

/// Returns an unlinked file with these bytes.
pub(crate) fn file(bytes: &[u8]) -> std::fs::File {
    let mut file = tempfile::tempfile().unwrap();
    io::Write::write_all(&mut file, bytes).unwrap();
    io::Seek::rewind(&mut file).unwrap();
    file
}

/// Returns the contents of a file once the target is dropped.
fn contents(file: &std::fs::File) -> Got {
    let fd = OwnedFd::from(file.try_clone().unwrap());
    tokio::spawn(async move {
        let mut all = Vec::new();
        let file = std::fs::File::from(fd);
        // Until no other descriptor exists, which is when the target was dropped.
        while !is_last(&file) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        io::Seek::rewind(&mut &file)?;
        io::Read::read_to_end(&mut &file, &mut all)?;
        Ok(all)
    })
}

/// Returns whether this process has no other descriptor of the file.
fn is_last(file: &std::fs::File) -> bool {
    use std::os::unix::fs::MetadataExt;

    // Sockets and pipes have inode numbers of their own, so the number alone does not identify a file.
    let identity = |m: &std::fs::Metadata| (m.dev(), m.ino());
    let ours = identity(&file.metadata().unwrap());
    let same = |path: std::path::PathBuf| std::fs::metadata(path).is_ok_and(|m| identity(&m) == ours);
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| Some(fd.ok()?.path()));
    fds.filter(|fd| same(fd.clone())).count() == 1
}

impl Source for tokio::fs::File {
    async fn open(bytes: Vec<u8>) -> Self {
        Self::from_std(file(&bytes))
    }
}

impl Target for tokio::fs::File {
    async fn open() -> (Self, Got) {
        let file = file(b"");
        let got = contents(&file);
        (Self::from_std(file), got)
    }
}

impl Source for FileReader {
    async fn open(bytes: Vec<u8>) -> Self {
        File::from_std(file(&bytes)).unwrap().reader()
    }
}

impl Target for FileWriter {
    async fn open() -> (Self, Got) {
        let file = file(b"");
        let got = contents(&file);
        (File::from_std(file).unwrap().writer(), got)
    }
}

/// Hides the type of a stream.
#[derive(Debug)]
pub(crate) struct Plain<T>(pub(crate) T);

impl<T: AsyncRead + Unpin> AsyncRead for Plain<T> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl Source for Plain<ReadHalf<TcpStream>> {
    async fn open(bytes: Vec<u8>) -> Self {
        let (read, write) = tokio::io::split(<TcpStream as Source>::open(bytes).await);
        drop(write);
        Self(read)
    }
}

impl Target for WriteHalf<TcpStream> {
    async fn open() -> (Self, Got) {
        let (ours, theirs) = tcp().await;
        (tokio::io::split(ours).1, collect(theirs))
    }
}
