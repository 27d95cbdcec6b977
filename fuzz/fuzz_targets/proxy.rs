//! Bytes of an upstream, cut anywhere, to a proxy: its client gets valid responses, no more than it has sent
//! requests, and the proxy goes on.
#![no_main]

use std::path::PathBuf;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use millstream_proxy::{Proxy, Upstream};
use millstream_fuzz::{Address, all_closed, http1, pieces, run, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

/// What the upstream says to the next requests.
static SAID: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

static PROXY: LazyLock<Address> = LazyLock::new(|| {
    let path: PathBuf = tempfile::Builder::new().prefix("millstream-fuzz-").tempdir().unwrap().keep().join("upstream");
    let listening = path.clone();
    let upstream: Upstream = format!("unix:{}", path.display()).parse().unwrap();
    let proxy = Proxy::builder(upstream)
        .timeout(Duration::from_millis(200))
        .body_timeout(Duration::from_millis(200))
        .response_header("x-proxy".parse().unwrap(), HeaderValue::from_static("1"));
    let proxy = start(proxy.build().unwrap(), |serve| serve);
    run(async move {
        let listener = UnixListener::bind(listening).unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut asked = Vec::new();
                    while !asked.windows(4).any(|w| w == b"\r\n\r\n") {
                        if !stream.read_buf(&mut asked).await.is_ok_and(|n| n > 0) {
                            return;
                        }
                    }
                    let said = SAID.lock().unwrap().clone();
                    for piece in said {
                        if stream.write_all(&piece).await.is_err() {
                            return;
                        }
                        tokio::task::yield_now().await;
                    }
                });
            }
        });
    });
    proxy
});

const REQUESTS: [&[u8]; 5] = [
    b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"POST /a HTTP/1.1\r\nHost: mill\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    b"GET /b HTTP/1.1\r\nHost: mill\r\nTE: trailers\r\nConnection: TE\r\n\r\n",
    b"HEAD / HTTP/1.1\r\nHost: mill\r\n\r\n",
];
const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: mill\r\nConnection: upgrade\r\nUpgrade: test\r\n\r\n";

fuzz_target!(|data: &[u8]| {
    let Some((&which, rest)) = data.split_first() else { return };
    *SAID.lock().unwrap() = pieces(rest).into_iter().map(<[u8]>::to_vec).collect();
    // Outside of the run, because it runs by itself.
    LazyLock::force(&PROXY);
    let ask = |n: u8| REQUESTS[usize::from(n) % REQUESTS.len()];
    run(async {
        match which {
            0xff => drop(PROXY.exchange(&[UPGRADE]).await),
            which => {
                let (one, other) = (ask(which % 16), ask(which / 16));
                let received = PROXY.exchange(&[one, other]).await;
                let has_head = one.starts_with(b"HEAD") || other.starts_with(b"HEAD");
                if !has_head {
                    let responses = http1::responses(&received);
                    assert!(responses.len() <= 2, "{responses:?}");
                    for response in &responses {
                        // Errors of the server itself come from no proxy.
                        assert!(response.status >= 400 || response.field("x-proxy") == Some("1"), "{response:?}");
                    }
                }
            }
        }
        *SAID.lock().unwrap() = vec![b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood".to_vec()];
        let good = http1::responses(&PROXY.exchange(&[REQUESTS[0]]).await);
        assert_eq!((good.len(), &*good[0].body), (1, &b"good"[..]), "{good:?}");
        all_closed().await;
    });
});
