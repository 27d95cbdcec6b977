//! HTTP/2 windows: upload bytes in transit from a distant client.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::handshake;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream::server::Limits;
use tokio::net::TcpStream;

use super::{length, start};
use testkit::far::Far;
use testkit::http::{Flavour, watched};

const UPLOAD: usize = 4 << 20;
/// Frame headers, the request head and other HTTP/2 frames.
const BESIDES: usize = 4 << 10;

/// Returns the maximum number of upload bytes in transit to a server with `limits`.
async fn on_their_way(limits: Limits, delay: Duration) -> usize {
    let addr = start(limits.streaming_requests(|_| true), tower::service_fn(length)).await;
    let far = Far::start(addr, delay).await;
    let stream = TcpStream::connect(far.addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut client, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let upload = Request::post("http://mill/").body(Full::new(Bytes::from(vec![7; UPLOAD]))).unwrap();
    let body = client.send_request(upload).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, UPLOAD.to_string());
    far.most()
}

#[test]
fn fixed_windows_are_kept_and_adaptive_ones_grow() {
    watched(|| {
        for flavour in Flavour::BOTH {
            flavour.runtime().block_on(async {
                let delay = Duration::from_millis(5);
                let fixed = on_their_way(Limits::default(), delay).await;
                let default = (1 << 20)..=(3 << 20) + BESIDES;
                assert!(default.contains(&fixed), "{flavour:?}: {fixed} bytes of a window of 3 MiB");
                let wide = Limits::default().http2_stream_window(512 << 10);
                let wide = on_their_way(wide, delay).await;
                assert!((256 << 10..=(512 << 10) + BESIDES).contains(&wide), "{flavour:?}: {wide} of 512 KiB");
                let adaptive = on_their_way(Limits::default().http2_adaptive_window(true), delay).await;
                // How far hyper lets them grow depends on how fast this machine is at the moment.
                assert!(adaptive > (64 << 10) + BESIDES, "{flavour:?}: {adaptive} bytes of windows that grow");
            });
        }
    });
}
