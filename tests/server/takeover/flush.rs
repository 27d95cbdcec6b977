//! A response arrives whole, whatever hyper holds of it when its body is pending.
//!
//! hyper may flush a stream before it has written all that it holds. `.ci/run patched` runs this test with a hyper that does.

use std::convert::Infallible;
use std::env;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::{Request, Response};
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server::RequestBody;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::over::{ALL, Over};
use testkit::alone::ran_in_child;
use testkit::http::narrow;
use testkit::serving::serve;

/// Number of further responses over each kind of stream, of all lengths.
const RESPONSES: &str = "MILLSTREAM_FLUSH_RESPONSES";
/// Number of these lengths.
const LENGTHS: usize = 449;
/// The number of a request for an endless response.
const ENDLESS: usize = 0;
/// Time for the server to take what it can.
const LONG: Duration = Duration::from_millis(800);
/// Responses at the same time.
const AT_ONCE: usize = 32;
const FRAME: usize = 8 << 10;
const TOKENS: usize = 3;
const TOKEN: &[u8] = b"token";

fn frame(at: usize) -> Bytes {
    vec![b'a' + (at % 26) as u8; FRAME].into()
}

struct Scene {
    /// Notified when the response of that number is pending after its first part.
    pending: Vec<Notify>,
    /// Frames given of the endless response.
    given: AtomicUsize,
}

/// Serves responses of `/<frames>/<number>`.
async fn start(over: Over, scene: Arc<Scene>) -> SocketAddr {
    let service = tower::service_fn(move |request: Request<RequestBody>| {
        let mut path = request.uri().path()[1..].split('/').map(|part| part.parse::<usize>().unwrap());
        let (frames, number) = (path.next().unwrap(), path.next().unwrap());
        let scene = Arc::clone(&scene);
        let body = futures_util::stream::unfold(0, move |at| {
            let scene = Arc::clone(&scene);
            async move {
                if number == ENDLESS {
                    scene.given.fetch_add(1, Ordering::Relaxed);
                }
                if at < frames {
                    return Some((Ok::<_, Infallible>(Frame::data(frame(at))), at + 1));
                }
                scene.pending[number].notify_one();
                sleep(Duration::from_millis(20)).await;
                (at < frames + TOKENS).then(|| (Ok(Frame::data(Bytes::from_static(TOKEN))), at + 1))
            }
        });
        async move { Ok::<_, Infallible>(Response::new(StreamBody::new(body))) }
    });
    if over == Over::Tokio {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, service).into_future());
        return addr;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(over.secured(serve(listener, service)).into_future());
    addr
}

/// Decodes chunks up to the last one.
fn decode(mut rest: &[u8]) -> Result<Vec<u8>, String> {
    let mut data = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n").ok_or("the size of a chunk is cut off")?;
        let size = String::from_utf8_lossy(&rest[..end]).into_owned();
        let len = usize::from_str_radix(&size, 16).map_err(|e| format!("size {size:?}: {e}"))?;
        rest = &rest[end + 2..];
        if rest.get(len..len + 2) != Some(b"\r\n") {
            return Err(format!("a chunk of {len} bytes has another length, behind {} bytes", data.len()));
        }
        data.extend_from_slice(&rest[..len]);
        rest = &rest[len + 2..];
        if len == 0 {
            return if rest.is_empty() { Ok(data) } else { Err(format!("{} bytes follow", rest.len())) };
        }
    }
}

/// Requests a response, and reads none of it until its body is pending or the server has taken what it can.
async fn received(mut client: impl AsyncRead + AsyncWrite + Unpin, path: &str, pending: &Notify) -> Vec<u8> {
    request(&mut client, path).await;
    let _ = timeout(LONG, pending.notified()).await;
    sleep(Duration::from_millis(50)).await;
    let mut got = Vec::new();
    let _ = client.read_to_end(&mut got).await;
    got
}

async fn request(client: &mut (impl AsyncWrite + Unpin), path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: mill\r\nConnection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    client.flush().await.unwrap();
}

/// Returns how many frames a server takes for a client that does not read. hyper holds the last of them.
async fn taken_unread(addr: SocketAddr, over: Over, scene: &Scene) -> usize {
    let path = format!("/{}/{ENDLESS}", usize::MAX);
    let mut client = over.client(narrow(addr).await).await;
    request(&mut client, &path).await;
    sleep(LONG).await;
    drop(client);
    scene.given.load(Ordering::Relaxed)
}

async fn check(addr: SocketAddr, over: Over, frames: usize, number: usize, pending: &Notify) -> Result<(), String> {
    let path = format!("/{frames}/{number}");
    let client = narrow(addr).await;
    let received = async { received(over.client(client).await, &path, pending).await };
    let all = timeout(Duration::from_secs(120), received).await.map_err(|_| "the response does not end")?;
    let head = all.windows(4).position(|window| window == b"\r\n\r\n").ok_or("the head is cut off")? + 4;
    let data = decode(&all[head..])?;
    let expected = frames * FRAME + TOKENS * TOKEN.len();
    if data.len() != expected {
        return Err(format!("{} bytes instead of {expected}", data.len()));
    }
    let (first, tokens) = data.split_at(frames * FRAME);
    let is_same = first.chunks(FRAME).enumerate().all(|(at, piece)| piece == frame(at));
    if is_same && tokens == TOKEN.repeat(TOKENS) { Ok(()) } else { Err("other bytes".to_owned()) }
}

#[test]
fn responses_arrive_whole_whatever_hyper_holds() {
    let responses = env::var(RESPONSES).ok().map(|text| text.parse::<usize>().expect("a number"));
    if responses.is_none() && ran_in_child() {
        return;
    }
    testkit::http::Flavour::TwoWorkers.runtime().block_on(async {
        for over in ALL {
            let pending = (0..20 + responses.unwrap_or(0)).map(|_| Notify::new()).collect();
            let scene = Arc::new(Scene { pending, given: AtomicUsize::new(0) });
            let addr = start(over, Arc::clone(&scene)).await;
            let most = taken_unread(addr, over, &scene).await;
            // hyper holds eight frames at most, and the kernel does not always take as many.
            let near = most.saturating_sub(14)..most + 3;
            let further = (0..responses.unwrap_or(0)).map(|number| 2 * (number % LENGTHS + 1));
            let lengths: Vec<usize> = near.chain(further).collect();
            let before = Snapshot::now();
            let places = Arc::new(Semaphore::new(AT_ONCE));
            let mut clients = JoinSet::new();
            for (number, &frames) in (ENDLESS + 1..).zip(&lengths) {
                let place = Arc::clone(&places).acquire_owned().await.unwrap();
                let scene = Arc::clone(&scene);
                clients.spawn(async move {
                    let checked = check(addr, over, frames, number, &scene.pending[number]).await;
                    drop(place);
                    checked.map_err(|error| format!("{frames} frames: {error}"))
                });
            }
            let torn: Vec<String> = clients.join_all().await.into_iter().filter_map(Result::err).collect();
            let taken = Snapshot::now().since(&before).responses_taken_over;
            println!("{over:?}: {} of {} responses torn, {taken} taken over", torn.len(), lengths.len());
            assert!(torn.is_empty(), "{torn:#?}");
            assert!(taken > 0, "no response was taken over");
        }
    });
}
