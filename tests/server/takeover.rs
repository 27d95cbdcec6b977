//! The same bytes on the wire, whether the server or hyper writes the bodies of responses.

mod flush;
#[cfg(all(tls, feature = "sse"))]
mod sealed;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, TRAILER, TRANSFER_ENCODING};
use hyper::{Request, Response, StatusCode, Version};
use millstream::metrics::Snapshot;
use millstream::net::TcpListener;
use millstream::server::{RequestBody, serve};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::over::{ALL, Over};
use testkit::alone::ran_in_child;
use testkit::http::{BoxError, Flavour, narrow, on_both, without_dates};
use testkit::noise;

/// A step of a [`Scripted`] body.
#[derive(Clone, Debug)]
enum Step {
    /// Bytes in this many slices.
    Data(usize, usize),
    /// Pending for a turn of the runtime.
    Yield,
    /// Pending for longer than a turn.
    Sleep,
    Trailers,
    Error,
}

/// Bytes in several slices.
#[derive(Clone, Debug)]
struct Slices(std::collections::VecDeque<Bytes>);

impl Slices {
    fn new(len: usize, count: usize) -> Self {
        let bytes = Bytes::from(noise(len));
        let size = len.div_ceil(count.max(1)).max(1);
        Self((0..len).step_by(size).map(|at| bytes.slice(at..(at + size).min(len))).collect())
    }
}

impl Buf for Slices {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |slice| slice)
    }

    fn chunks_vectored<'a>(&'a self, to: &mut [io::IoSlice<'a>]) -> usize {
        self.0.iter().zip(to).map(|(slice, to)| *to = io::IoSlice::new(slice)).count()
    }

    fn advance(&mut self, mut n: usize) {
        while n > 0 {
            let front = &mut self.0[0];
            let step = n.min(front.len());
            front.advance(step);
            n -= step;
            if front.is_empty() {
                self.0.pop_front();
            }
        }
    }
}

/// A body of unknown length, unless it is set.
struct Scripted {
    length: Option<u64>,
    steps: std::vec::IntoIter<Step>,
    sleep: Option<Pin<Box<tokio::time::Sleep>>>,
    /// Whether `is_end_stream` tells the end.
    tells: bool,
    /// As if another thread ended the body: whether `is_end_stream` was asked at the end, which it tells from then on.
    late: Option<AtomicBool>,
}

impl Scripted {
    fn new(steps: Vec<Step>, tells: bool) -> Self {
        Self { length: None, steps: steps.into_iter(), sleep: None, tells, late: None }
    }
}

impl Body for Scripted {
    type Data = Slices;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Slices>, BoxError>>> {
        if let Some(sleep) = &mut self.sleep {
            std::task::ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
        }
        Poll::Ready(match self.steps.next() {
            None => None,
            Some(Step::Data(len, slices)) => Some(Ok(Frame::data(Slices::new(len, slices)))),
            Some(Step::Trailers) => {
                let fields = [("x-sum", "1"), ("x-other", "2"), ("x-sum", "3"), ("content-length", "4")];
                let fields = fields.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
                Some(Ok(Frame::trailers(fields.into_iter().fold(HeaderMap::new(), |mut map, (name, value)| {
                    let name: hyper::header::HeaderName = name;
                    map.append(name, value);
                    map
                }))))
            }
            Some(Step::Error) => Some(Err("the body failed".into())),
            Some(Step::Yield) => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(Step::Sleep) => {
                let mut sleep = Box::pin(sleep(Duration::from_millis(2)));
                // A timer may expire at once.
                if sleep.as_mut().poll(cx).is_ready() {
                    cx.waker().wake_by_ref();
                } else {
                    self.sleep = Some(sleep);
                }
                return Poll::Pending;
            }
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    fn is_end_stream(&self) -> bool {
        let has_ended = self.sleep.is_none() && self.steps.len() == 0;
        let tells_late = || self.late.as_ref().is_some_and(|asked| asked.swap(true, Ordering::Relaxed));
        has_ended && (self.tells || tells_late())
    }
}

/// The heads of the responses, by path.
fn head(path: &str, length: usize) -> hyper::http::response::Builder {
    let head = Response::builder().header("date", "fixed");
    match path {
        "/close" => head.header(CONNECTION, "x, Close"),
        "/length" => head.header(CONTENT_LENGTH, length),
        "/length/more" => head.header(CONTENT_LENGTH, length + 7).header("x-path", "/more"),
        "/length/less" => head.header(CONTENT_LENGTH, length.saturating_sub(7)),
        "/trailer" => head.header(TRAILER, "x-sum, content-length"),
        "/coded" => head.header(TRANSFER_ENCODING, "gzip"),
        "/old" => head.version(Version::HTTP_10),
        "/none" => head.status(StatusCode::NO_CONTENT),
        "/same" => head.status(StatusCode::NOT_MODIFIED),
        _ => head,
    }
}

#[derive(Clone, Debug)]
struct Served {
    steps: Vec<Step>,
    tells: bool,
    reads_body: bool,
}

impl Served {
    fn of(steps: &[Step]) -> Self {
        Self { steps: steps.to_vec(), tells: false, reads_body: true }
    }

    fn length(&self) -> usize {
        self.steps.iter().map(|step| if let Step::Data(len, _) = step { *len } else { 0 }).sum()
    }

    async fn start(&self, takeover: bool, over: Over) -> SocketAddr {
        let served = self.clone();
        let service = tower::service_fn(move |request: Request<RequestBody>| {
            let served = served.clone();
            async move {
                let (parts, body) = request.into_parts();
                if served.reads_body {
                    // A client may leave before the end.
                    let _ = body.collect().await;
                }
                let mut body = Scripted::new(served.steps.clone(), served.tells);
                match parts.uri.path() {
                    "/known" => body.length = Some(served.length() as u64),
                    "/late" => {
                        body = Scripted::new(vec![Step::Data(5, 1)], false);
                        body.late = Some(AtomicBool::new(false));
                    }
                    _ => {}
                }
                Ok::<_, Infallible>(head(parts.uri.path(), served.length()).body(body).unwrap())
            }
        });
        if over == Over::Tokio {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let addr = listener.local_addr().unwrap();
            tokio::spawn(serve(listener, service).takeover(takeover).into_future());
            return addr;
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(over.secured(serve(listener, service).takeover(takeover)).into_future());
        addr
    }
}

/// The steps of a client, in order.
#[derive(Clone, Debug)]
enum Act {
    Send(String),
    Wait,
    /// Reads this many bytes at least, or what arrives.
    Read(usize),
    HalfClose,
}

/// Returns all received bytes.
async fn played(addr: SocketAddr, acts: &[Act], slow: bool, over: Over) -> Vec<u8> {
    let socket = if slow { narrow(addr).await } else { TcpStream::connect(addr).await.unwrap() };
    let mut client = over.client(socket).await;
    let mut got = Vec::new();
    let mut piece = vec![0; if slow { 5000 } else { 64 << 10 }];
    for act in acts {
        match act {
            // The server may have closed the connection.
            Act::Send(bytes) => drop(client.write_all(bytes.as_bytes()).await),
            Act::Wait => sleep(Duration::from_millis(5)).await,
            Act::HalfClose => drop(client.shutdown().await),
            Act::Read(n) => {
                let until = got.len() + n;
                while got.len() < until {
                    match timeout(Duration::from_millis(20), client.read(&mut piece)).await {
                        Err(_) => break,
                        Ok(Ok(0) | Err(_)) => return got,
                        Ok(Ok(n)) => got.extend_from_slice(&piece[..n]),
                    }
                }
            }
        }
    }
    loop {
        match client.read(&mut piece).await {
            Ok(0) | Err(_) => return got,
            Ok(n) => got.extend_from_slice(&piece[..n]),
        }
    }
}

fn get(path: &str, fields: &str) -> Act {
    Act::Send(format!("GET {path} HTTP/1.1\r\nHost: mill\r\n{fields}\r\n"))
}

const LAST: &str = "Connection: close\r\n";

/// Plays the script with takeover on and off, and returns the bytes and the number of responses taken over.
async fn same(served: &Served, acts: &[Act], slow: bool, over: Over) -> (Vec<u8>, u64) {
    let limited = |addr| timeout(Duration::from_secs(30), played(addr, acts, slow, over));
    let hangs = |takeover| move |_| panic!("no end, takeover {takeover}: {served:?} {acts:?}, {over:?}");
    let addr = served.start(false, over).await;
    let expected = without_dates(limited(addr).await.unwrap_or_else(hangs(false)));
    let before = Snapshot::now();
    let addr = served.start(true, over).await;
    let got = without_dates(limited(addr).await.unwrap_or_else(hangs(true)));
    // A response that fails ends its connection. Frames before the error, which hyper has not written yet, are lost, and
    // so is what the client has not read if requests were left unread.
    let fails = served.steps.iter().any(|step| matches!(step, Step::Error | Step::Trailers))
        || acts.iter().any(|act| text(act).contains("/more"));
    let is_part = got.starts_with(&expected) || expected.starts_with(&got);
    let show = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(2000)]).into_owned();
    assert!(
        got == expected || (fails && is_part),
        "{served:?} {acts:?}\n{} bytes: {}\ninstead of {}: {}",
        got.len(),
        show(&got),
        expected.len(),
        show(&expected),
    );
    (got, Snapshot::now().since(&before).responses_taken_over)
}

fn bodies() -> Vec<(&'static str, Vec<Step>)> {
    use Step::{Data, Error, Sleep, Trailers, Yield};
    vec![
        ("at once", vec![Data(10, 1), Data(300, 3)]),
        ("empty", vec![]),
        ("empty later", vec![Sleep]),
        ("later", vec![Sleep, Data(10, 1)]),
        ("in pieces", vec![Data(5, 1), Yield, Data(0, 1), Data(17, 2), Sleep, Data(70_000, 20), Yield]),
        ("in many slices", vec![Sleep, Data(5000, 100), Data(1, 1)]),
        ("long", vec![Sleep, Data(3 << 20, 7), Sleep, Data(100_000, 1)]),
        ("with trailers", vec![Data(5, 1), Sleep, Data(5, 1), Trailers]),
        ("trailers only", vec![Sleep, Trailers]),
        ("failing", vec![Data(5, 1), Sleep, Data(6, 1), Sleep, Error]),
        ("failing with bytes", vec![Data(5, 1), Sleep, Data(6, 1), Error]),
    ]
}

#[test]
fn bodies_are_framed_as_by_hyper() {
    on_both(|| async {
        for (name, steps) in bodies() {
            let mut all = 0;
            for tells in [false, true] {
                let served = Served { tells, ..Served::of(&steps) };
                for path in ["/", "/close", "/length", "/length/more", "/length/less", "/trailer", "/coded", "/old"] {
                    for fields in [LAST, "TE: gzip, trailers\r\nConnection: close\r\n"] {
                        println!("{name}, {path}");
                        let (_, taken) = same(&served, &[get(path, fields)], false, Over::Ours).await;
                        all += taken;
                    }
                }
            }
            assert!(all > 0 || ["at once", "empty"].contains(&name), "{name}: nothing was taken over");
        }
    });
}

#[test]
fn responses_without_a_body_and_old_clients() {
    on_both(|| async {
        for (_, steps) in bodies() {
            let served = Served::of(&steps);
            for acts in [
                vec![get("/none", LAST)],
                vec![get("/same", LAST)],
                vec![Act::Send(format!("HEAD / HTTP/1.1\r\nHost: mill\r\n{LAST}\r\n"))],
                vec![Act::Send("GET / HTTP/1.0\r\n\r\n".to_owned())],
                vec![Act::Send("GET /length HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned()), Act::HalfClose],
                vec![Act::Send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_owned())],
            ] {
                same(&served, &acts, false, Over::Ours).await;
            }
        }
    });
}

#[test]
fn connections_go_on_afterwards() {
    on_both(|| async {
        for (name, steps) in bodies() {
            if name == "long" {
                continue;
            }
            let served = Served::of(&steps);
            let post = "POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\n\r\nhello".to_owned();
            let chunked =
                "POST / HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n\r\n".to_owned();
            let both =
                "POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
                    .to_owned();
            for acts in [
                // One after another.
                vec![get("/", ""), Act::Wait, get("/length", ""), Act::Wait, get("/", LAST)],
                // Together.
                vec![Act::Send(format!("{}{}", text(&get("/", "")), text(&get("/", LAST))))],
                // During the response.
                vec![get("/", ""), Act::Read(1), get("/length/less", ""), Act::Read(1), get("/", LAST)],
                // In parts.
                vec![
                    get("/", ""),
                    Act::Wait,
                    Act::Send("GET / HT".into()),
                    Act::Wait,
                    Act::Send(format!("TP/1.1\r\nHost: mill\r\n{LAST}\r\n")),
                ],
                // With bodies.
                vec![Act::Send(post.clone()), Act::Wait, get("/", LAST)],
                vec![Act::Send(chunked.clone()), Act::Wait, get("/", LAST)],
                vec![Act::Send(format!("{post}{chunked}")), get("/", LAST)],
                vec![Act::Send(both)],
                // With an end.
                vec![get("/", ""), Act::HalfClose],
                vec![get("/", ""), get("/", ""), Act::HalfClose],
                vec![get("/", ""), Act::Wait, Act::Send("nonsense\r\n\r\n".into())],
            ] {
                // Other streams than ours end with the client's side, at any point of the response.
                let ends = acts.iter().any(|act| matches!(act, Act::HalfClose));
                for over in ALL.into_iter().filter(|over| !ends || *over == Over::Ours) {
                    same(&served, &acts, false, over).await;
                }
            }
        }
    });
}

fn text(act: &Act) -> &str {
    if let Act::Send(text) = act { text } else { "" }
}

#[test]
fn slow_readers_get_everything() {
    on_both(|| async {
        let steps = [Step::Sleep, Step::Data(300_000, 9), Step::Sleep, Step::Data(200_000, 1), Step::Data(9, 1)];
        for tells in [false, true] {
            let served = Served { tells, ..Served::of(&steps) };
            for over in ALL {
                for path in ["/", "/length"] {
                    let acts = [get(path, ""), Act::Read(20_000), get("/", LAST), Act::Read(20_000)];
                    let (_, taken) = same(&served, &acts, true, over).await;
                    assert!(taken > 0, "{path}");
                }
            }
        }
    });
}

#[test]
fn a_request_whose_body_is_not_read_stays_with_hyper() {
    if ran_in_child() {
        return;
    }
    on_both(|| async {
        let served = Served { reads_body: false, ..Served::of(&[Step::Data(5, 1), Step::Sleep, Step::Data(6, 1)]) };
        let post = "POST / HTTP/1.1\r\nHost: mill\r\nContent-Length: 5\r\n\r\nhello".to_owned();
        let (_, taken) = same(&served, &[Act::Send(post), get("/", LAST)], false, Over::Ours).await;
        assert!(taken <= 1, "only the second");
    });
}

#[test]
fn what_came_before_on_a_connection_keeps_no_response_from_being_taken_over() {
    if ran_in_child() {
        return;
    }
    on_both(|| async {
        // Each pause is another chance, if two threads run so unevenly that one is over at once.
        let served =
            Served::of(&std::array::from_fn::<_, 20, _>(|at| if at % 2 == 0 { Step::Data(5, 1) } else { Step::Sleep }));
        let length = "Content-Length: 5\r\n\r\nhello";
        for (first, taken_first) in [
            ("HEAD / HTTP/1.1\r\nHost: mill\r\n\r\n".to_owned(), 0),
            ("GET /none HTTP/1.1\r\nHost: mill\r\n\r\n".to_owned(), 0),
            ("GET /same HTTP/1.1\r\nHost: mill\r\n\r\n".to_owned(), 0),
            ("GET /known HTTP/1.1\r\nHost: mill\r\n\r\n".to_owned(), 0),
            ("GET /late HTTP/1.1\r\nHost: mill\r\n\r\n".to_owned(), 0),
            ("GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n".to_owned(), 1),
            ("POST / HTTP/1.1\r\nHost: mill\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n0\r\n\r\n".to_owned(), 0),
            (format!("POST / HTTP/1.1\r\nHost: mill\r\nExpect: 100-continue\r\n{length}"), 1),
            (format!("POST /length HTTP/1.1\r\nHost: mill\r\n{length}"), 1),
        ] {
            for over in ALL {
                let acts = [Act::Send(first.clone()), Act::Wait, get("/", LAST)];
                let (_, taken) = same(&served, &acts, false, over).await;
                assert_eq!(taken, taken_first + 1, "{first:?} {over:?}");
            }
        }
    });
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..20_000, 1usize..40).prop_map(|(len, slices)| Step::Data(len, slices)),
        2 => (0usize..40, 1usize..3).prop_map(|(len, slices)| Step::Data(len, slices)),
        4 => Just(Step::Yield),
        2 => Just(Step::Sleep),
        1 => Just(Step::Trailers),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0usize..5, any::<bool>()).prop_map(|(path, trailers)| {
            get(["/", "/length", "/trailer", "/", "/"][path], if trailers { "TE: trailers\r\n" } else { "" })
        }),
        1 => Just(Act::Wait),
        1 => (1usize..2000).prop_map(Act::Read),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn any_exchange_has_the_same_bytes(
        steps in proptest::collection::vec(step(), 0..8), tells: bool, slow: bool, over in 0..ALL.len(),
        mut acts in proptest::collection::vec(act(), 0..4),
    ) {
        acts.insert(0, get("/", ""));
        acts.push(get("/", LAST));
        let served = Served { steps, tells, reads_body: true };
        Flavour::TwoWorkers.runtime().block_on(same(&served, &acts, slow, ALL[over]));
    }
}
