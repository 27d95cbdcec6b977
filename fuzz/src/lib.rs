//! What the targets share: a runtime that is kept over runs, a server of this process, exchanges with a deadline, and
//! bytes cut into pieces.

use std::error::Error;
use std::future::Future;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use millstream::metrics::Snapshot;
use millstream::server::{HttpService, Server, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

pub mod events;
pub mod http1;
pub mod service;

/// Longer than a run takes on a busy machine, and shorter than the limit that libFuzzer is given.
const DEADLINE: Duration = Duration::from_secs(9);

pub type BoxError = Box<dyn Error + Send + Sync>;
pub type AnyBody = UnsyncBoxBody<Bytes, BoxError>;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(runtime);

fn runtime() -> Runtime {
    // As the standard library does before `main`, which is libFuzzer's here.
    // SAFETY: this sets no handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs a future on the runtime of this process. Tasks that it spawns go on with the next run.
///
/// # Panics
///
/// If the future takes longer than nine seconds, which is a hang.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let deadline = async { timeout(DEADLINE, future).await };
    RUNTIME.block_on(deadline).unwrap_or_else(|_| panic!("the run hangs"))
}

/// As [`run`], on a runtime of its own: the tasks of the run end with it.
pub fn run_alone<T>(future: impl Future<Output = T>) -> T {
    let runtime = runtime();
    let deadline = async { timeout(DEADLINE, future).await };
    runtime.block_on(deadline).unwrap_or_else(|_| panic!("the run hangs"))
}

pub fn boxed<B>(body: B) -> AnyBody
where
    B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Returns the whole body of a response, or `None` if it fails.
pub async fn whole<B: http_body::Body<Data = Bytes>>(response: Response<B>) -> Option<Bytes> {
    Some(response.into_body().collect().await.ok()?.to_bytes())
}

/// Cuts bytes at places that they name themselves: the first byte is the number of cuts, up to 7; two bytes for each
/// follow.
pub fn pieces(data: &[u8]) -> Vec<&[u8]> {
    let Some((&number, rest)) = data.split_first() else { return Vec::new() };
    let number = usize::from(number % 8).min(rest.len() / 2);
    let (places, rest) = rest.split_at(number * 2);
    let mut places: Vec<usize> =
        places.chunks(2).map(|place| usize::from(place[0]) << 8 | usize::from(place[1])).collect();
    places.iter_mut().for_each(|place| *place %= rest.len() + 1);
    places.push(rest.len());
    places.sort_unstable();
    let mut from = 0;
    places.into_iter().map(|to| &rest[std::mem::replace(&mut from, to)..to]).collect()
}

/// A listening Unix socket without a file.
pub struct Address(SocketAddr);

impl Address {
    pub fn listen() -> (Self, UnixListener) {
        // An autobind address is one that the kernel chooses, so processes beside this one have others.
        let name = format!("millstream-fuzz-{}-{:p}", std::process::id(), &DEADLINE);
        for number in 0.. {
            let address = SocketAddr::from_abstract_name(format!("{name}-{number}")).expect("a short name");
            match UnixListener::bind_addr(&address) {
                Ok(listener) => {
                    listener.set_nonblocking(true).expect("a socket that does not block");
                    return (Self(address), listener);
                }
                Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
                Err(e) => panic!("no Unix socket: {e}"),
            }
        }
        unreachable!()
    }

    pub fn connect(&self) -> tokio::net::UnixStream {
        let stream = UnixStream::connect_addr(&self.0).expect("the listener accepts");
        stream.set_nonblocking(true).expect("a socket that does not block");
        tokio::net::UnixStream::from_std(stream).expect("inside the runtime")
    }

    /// Sends the pieces one after the other, ends this side, and returns what has come until the other side ended, too.
    pub async fn exchange(&self, pieces: &[&[u8]]) -> Vec<u8> {
        let mut received = Vec::new();
        let (mut reader, mut writer) = self.connect().into_split();
        let send = async {
            for piece in pieces {
                // The other side may have ended.
                if writer.write_all(piece).await.is_err() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let _ = writer.shutdown().await;
        };
        // A reset ends the connection as well.
        let receive = async { drop(reader.read_to_end(&mut received).await) };
        tokio::join!(send, receive);
        received
    }
}

/// Starts a server on a Unix socket, for as long as the process runs.
pub fn start<S: HttpService>(
    service: S,
    configure: impl FnOnce(Server<millstream::net::UnixListener, S>) -> Server<millstream::net::UnixListener, S>,
) -> Address {
    let _inside = RUNTIME.enter();
    let (address, listener) = Address::listen();
    let listener = millstream::net::UnixListener::from_std(listener).expect("a listener");
    let server = configure(serve(listener, service)).into_future();
    RUNTIME.spawn(async move { panic!("the server ends: {:?}", server.await) });
    address
}

/// Waits until no server of this process has a connection.
pub async fn all_closed() {
    while Snapshot::now().open_connections > 0 {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
}
