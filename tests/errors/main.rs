//! Errors: each level of a chain of sources has its own text, so that a report shows each text once.

use std::error::Error;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{TryStreamExt, stream};
use hyper::Uri;
use millstream::body::{FileBody, Save};
use millstream::copy::{copy, copy_bidirectional};
use millstream::files::Files;
use millstream::fs::chain::Chain;
use millstream::fs::{self, File, FileReader, OpenOptions, Prepend, PrependStrategy, Replace, Root};
use millstream::net::{Connector, UnixConnector, UnixStream};
use millstream::server::tls::TlsError;
use millstream::sse::log::ReplayError;
use millstream::sse::log::disk::{Disk, DiskError};
use millstream::sse::{SendError, SubscribeError};
use millstream_layers::TraceParent;
use millstream_proxy::{InjectError, Proxy, Upstream};
use testkit::levels::repeated;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio_rustls::rustls;
use tower::ServiceExt;

type BoxError = Box<dyn Error + Send + Sync>;

/// A stream that fails with an error of `fs` inside an [`io::Error`].
struct Failing(FileReader);

impl AsyncRead for Failing {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

/// Returns an error for reading of an open directory.
async fn directory(path: &Path) -> File {
    File::open(path).await.unwrap()
}

/// Adds the error, and the [`io::Error`] that `?` makes of it.
macro_rules! both {
    ($all:ident, $what:literal, $result:expr) => {{
        $all.push(($what, Box::new($result.map(drop).unwrap_err())));
        $all.push((concat!($what, " as io::Error"), Box::new(io::Error::from($result.map(drop).unwrap_err()))));
    }};
}

async fn of_files() -> Vec<(&'static str, BoxError)> {
    let dir = tempfile::tempdir().unwrap();
    let (here, missing, file) = (dir.path(), dir.path().join("missing"), dir.path().join("file"));
    std::fs::write(&file, "contents").unwrap();
    let mut all: Vec<(&'static str, BoxError)> = Vec::new();
    both!(all, "open", File::open(&missing).await);
    both!(all, "options", OpenOptions::new().open(&file).await);
    both!(all, "a NUL", File::open("a\0b").await);
    both!(all, "read", directory(here).await.read_at(0, 10).await);
    both!(all, "root", Root::open_dir(&missing));
    both!(all, "beneath", Root::open_dir(here).unwrap().open("missing").await);
    both!(all, "beneath, a directory", Root::open_dir("/").unwrap().open("dev").await);
    both!(all, "beneath, a device", Root::open_dir("/dev").unwrap().open("null").await);
    both!(all, "body", FileBody::new(&directory(here).await, ..));
    both!(all, "replace", fs::replace(here, "").await);
    both!(all, "prepend", fs::prepend(&missing, "header").await);
    let in_place = || Prepend::new(&file).strategy(PrependStrategy::InPlace { reserved: 3 });
    both!(all, "prepend in place", in_place().run("header").await);
    both!(all, "append", fs::append(missing.join("file"), "bytes").await);
    let contents = || stream::iter([Ok("bytes"), Err(Root::open_dir(&missing).unwrap_err())]);
    both!(all, "receive", Replace::new(&file).run_stream(contents()).await);
    both!(all, "copy of a file", fs::copy(&missing, &file).await);
    both!(all, "text", fs::read_to_string(here).await);
    both!(all, "remove", fs::remove(&missing).await);
    both!(all, "rename", fs::rename(&missing, &file).await);
    let body = || http_body_util::Full::new(bytes::Bytes::from("bytes"));
    let header = |digest: &str| {
        http::HeaderMap::from_iter([(http::HeaderName::from_static("content-md5"), digest.parse().unwrap())])
    };
    both!(all, "save", Save::new(missing.join("file")).run(body()).await);
    both!(all, "save, too large", Save::new(&file).max_len(4).run(body()).await);
    both!(all, "save, another offset", Save::new(&file).continue_at(3).run(body()).await);
    both!(all, "save, a name in use", Save::new(&file).create_new().run(body()).await);
    both!(all, "save, malformed", Save::new(&file).verify(&header("?")).run(body()).await);
    both!(all, "save, mismatch", Save::new(&file).verify(&header("AAAAAAAAAAAAAAAAAAAAAA==")).run(body()).await);
    let cut = || http_body_util::StreamBody::new(contents().map_ok(|_| hyper::body::Frame::data(bytes::Bytes::new())));
    both!(all, "save, cut", Save::new(&file).run(cut()).await);
    both!(all, "chain", Chain::new().unlink(&missing).run().await);
    both!(all, "copy", copy(&mut directory(here).await.reader(), &mut tokio::io::sink()).await);
    let failing = async || Failing(directory(here).await.reader());
    both!(all, "copy of a stream", copy(&mut failing().await, &mut tokio::io::sink()).await);
    let two = async || {
        let (mut a, mut b) = (tokio::io::join(failing().await, tokio::io::sink()), tokio::io::empty());
        copy_bidirectional(&mut a, &mut b).await
    };
    both!(all, "copy in two directions", two().await);
    all.push(("reader", Box::new(directory(here).await.reader().read_u8().await.unwrap_err())));
    all.push(("files", Box::new(Files::new(&missing).unwrap_err())));
    all
}

async fn of_connections() -> Vec<(&'static str, BoxError)> {
    let dir = tempfile::tempdir().unwrap();
    let nobody = testkit::Reserved::new();
    let port = nobody.addr.port();
    let mut all: Vec<(&'static str, BoxError)> = Vec::new();
    both!(all, "refused", Connector::new().connect_to("127.0.0.1", port).await);
    both!(all, "refused by all", Connector::new().connect_to("localhost", port).await);
    both!(all, "no such name", Connector::new().connect_to("no..name", port).await);
    both!(all, "no such family", Connector::new().local([127, 0, 0, 1].into()).connect_to("::1", port).await);
    // An address for documentation (RFC 5737): there is no route, or no answer.
    let far = Connector::new().timeout(Duration::from_millis(1));
    both!(all, "too slow", far.connect_to("192.0.2.1", port).await);
    both!(all, "not HTTP", Connector::new().oneshot(Uri::from_static("ftp://127.0.0.1/")).await);
    both!(
        all,
        "socket file",
        UnixConnector::new(dir.path().join("socket")).oneshot(Uri::from_static("http://a/")).await
    );
    all
}

fn of_values() -> Vec<(&'static str, BoxError)> {
    let cause = || -> BoxError { Box::new(Root::open_dir("/missing").unwrap_err()) };
    let io = || io::Error::from_raw_os_error(13);
    vec![
        ("send", Box::new(SendError::Log(cause()))),
        ("id", Box::new(SendError::InvalidId("is empty"))),
        ("name", Box::new(SendError::InvalidName("has a line break"))),
        ("not ours", Box::new(SendError::IdNotOurs)),
        ("full", Box::new(SendError::Full)),
        ("closed", Box::new(SendError::Closed)),
        ("too large", Box::new(SendError::TooLarge)),
        ("subscribers", Box::new(SubscribeError::Full)),
        ("closed to subscribers", Box::new(SubscribeError::Closed)),
        ("replay", Box::new(ReplayError::Unreachable(cause()))),
        ("unknown", Box::new(ReplayError::Unknown)),
        ("locked", Box::new(DiskError::Locked { path: "log".into() })),
        (
            "damaged",
            Box::new(DiskError::Damaged { path: "1.events".into(), offset: 7, reason: "the checksum is wrong" }),
        ),
        ("removed", Box::new(DiskError::Removed { path: "log".into() })),
        ("given up", Box::new(DiskError::GivenUp { path: "log".into(), events: 7 })),
        ("certificate file", Box::new(TlsError::Read("cert.pem".into(), io()))),
        ("certificate", Box::new(TlsError::Certificate("cert.pem".into(), "no PEM".into()))),
        ("key", Box::new(TlsError::Key("key.pem".into(), "no PEM".into()))),
        ("mismatch", Box::new(TlsError::Mismatch("cert.pem".into(), "key.pem".into()))),
        ("TLS", Box::new(TlsError::Setup(rustls::Error::FailedToGetRandomBytes))),
        ("no files", Box::new(TlsError::NoFiles)),
        ("head", Box::new(InjectError::Ended)),
        ("head as io::Error", Box::new(io::Error::from(InjectError::BareCr))),
        ("traceparent", Box::new("00".parse::<TraceParent>().unwrap_err())),
    ]
}

#[tokio::test]
async fn no_level_repeats_the_text_of_its_source() {
    let mut all = of_files().await;
    all.extend(of_connections().await);
    all.extend(of_values());
    all.push(("disk", Box::new(Disk::builder("/dev/null").open().await.unwrap_err())));
    let mut repeats = Vec::new();
    for (what, error) in &all {
        repeats.extend(repeated(&**error).map(|text| format!("{what}: {text}")));
    }
    assert!(repeats.is_empty(), "{}", repeats.join("\n"));
    // Errors with a cause have it as their source.
    for what in ["open", "open as io::Error", "chain", "copy", "refused", "send", "replay", "disk", "TLS", "receive"] {
        let (_, error) = all.iter().find(|(name, _)| *name == what).unwrap();
        assert!(error.source().is_some(), "{what}: {error}");
    }
}

#[tokio::test]
async fn conversion_to_an_io_error_keeps_the_kind() {
    let error = File::open("/missing").await.unwrap_err();
    assert!(error.is_not_found());
    let error = io::Error::from(error);
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.get_ref().unwrap().is::<fs::Error>());
}

/// Asserts what `?` makes of an error: an [`io::Error`] of this kind, with the error inside.
fn becomes<E: Error + Send + Sync + 'static>(error: E, kind: io::ErrorKind)
where
    io::Error: From<E>,
{
    let text = error.to_string();
    let error = io::Error::from(error);
    assert_eq!(error.kind(), kind, "{text}");
    assert!(error.get_ref().unwrap().is::<E>(), "{text}");
    assert_eq!(error.to_string(), text);
}

#[tokio::test]
async fn every_error_becomes_an_io_error_of_a_fitting_kind() {
    use io::ErrorKind::{
        BrokenPipe, InvalidData, InvalidInput, NotConnected, NotFound, Other, PermissionDenied, QuotaExceeded,
        ResourceBusy, WouldBlock,
    };
    let denied = || io::Error::from(PermissionDenied);
    let text = String::new;
    becomes(SendError::InvalidId("is empty"), InvalidInput);
    becomes(SendError::InvalidName("has a line break"), InvalidInput);
    becomes(SendError::IdNotOurs, InvalidInput);
    becomes(SendError::Full, WouldBlock);
    becomes(SendError::Closed, BrokenPipe);
    becomes(SendError::TooLarge, QuotaExceeded);
    becomes(SendError::Log(Box::new(denied())), Other);
    becomes(SubscribeError::Full, QuotaExceeded);
    becomes(SubscribeError::Closed, BrokenPipe);
    becomes(ReplayError::Unknown, NotFound);
    becomes(ReplayError::Unreachable(Box::new(denied())), NotConnected);
    becomes(DiskError::Locked { path: "log".into() }, ResourceBusy);
    becomes(DiskError::Damaged { path: "1.events".into(), offset: 7, reason: "the checksum is wrong" }, InvalidData);
    becomes(DiskError::Removed { path: "log".into() }, NotFound);
    becomes(DiskError::GivenUp { path: "log".into(), events: 7 }, Other);
    becomes(DiskError::Io { path: "log".into(), step: "open", source: denied().into() }, PermissionDenied);
    becomes(TlsError::Read("cert.pem".into(), denied()), PermissionDenied);
    becomes(TlsError::Certificate(text(), text()), InvalidData);
    becomes(TlsError::Key(text(), text()), InvalidData);
    becomes(TlsError::Mismatch(text(), text()), InvalidData);
    becomes(TlsError::ClientRoots(text(), text()), InvalidData);
    becomes(TlsError::Revocations(text(), text()), InvalidData);
    becomes(TlsError::TicketKeys(text(), text()), InvalidData);
    becomes(TlsError::Setting("reload_every", text()), InvalidInput);
    becomes(TlsError::NoCertificate, InvalidInput);
    becomes(TlsError::NoFiles, InvalidInput);
    becomes(TlsError::Setup(rustls::Error::FailedToGetRandomBytes), Other);
    becomes("00".parse::<TraceParent>().unwrap_err(), InvalidInput);
    becomes("mill".parse::<Upstream>().unwrap_err(), InvalidInput);
    becomes(Proxy::new("https://mill".parse().unwrap()).unwrap_err(), InvalidInput);
    let halves = || UnixStream::pair().unwrap().0.into_split();
    let ((read, _), (_, write)) = (halves(), halves());
    becomes(read.reunite(write).unwrap_err(), InvalidInput);
}
