//! Addresses of clients, as services of axum and tonic receive them.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use axum::serve::ListenerExt as _;
use http_body_util::BodyExt;
use millstream::net::{TcpListener, UnixListener, UnixStream};
use millstream::server::serve;
use tokio::net::TcpStream;

use testkit::http::{Raw, h1_over, h2_over, on_both, request};

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (listener, addr)
}

async fn answers(addr: SocketAddr) -> Vec<(SocketAddr, String)> {
    let mut answers = Vec::new();
    for version in [1, 2] {
        let stream = TcpStream::connect(addr).await.unwrap();
        let mine = stream.local_addr().unwrap();
        let answer = match version {
            1 => h1_over(stream).await.send_request(request("/")).await.unwrap(),
            _ => {
                let mut request = request("http://mill/");
                request.headers_mut().clear();
                h2_over(stream).await.send_request(request).await.unwrap()
            }
        };
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        answers.push((mine, String::from_utf8(body.to_vec()).unwrap()));
    }
    answers
}

#[test]
fn an_axum_application_knows_its_clients() {
    on_both(async || {
        let app = Router::new().route("/", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.to_string()));
        let (listener, addr) = listen().await;
        tokio::spawn(serve(listener, app.clone()).into_future());
        let (listener, by_axum) = listen().await;
        let make = app.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(axum::serve(listener.tap_io(|_| {}), make).into_future());
        for addr in [addr, by_axum] {
            for (client, told) in answers(addr).await {
                assert_eq!(told, client.to_string());
            }
        }
    });
}

#[test]
fn an_axum_application_on_a_unix_socket_is_told_its_address() {
    use std::os::unix::net::SocketAddr;
    on_both(async || {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let app = Router::new()
            .route("/", get(async |ConnectInfo(peer): ConnectInfo<SocketAddr>| peer.is_unnamed().to_string()));
        tokio::spawn(serve(UnixListener::bind(&path).await.unwrap(), app).into_future());
        let mut client = Raw::over(UnixStream::connect(&path).await.unwrap());
        assert_eq!(client.get("/").await, (200, b"true".to_vec()));
    });
}

#[cfg(feature = "tonic-014")]
mod tonic_services {
    use std::convert::Infallible;

    use http::{Request, Response};
    use http_body_util::Full;
    use millstream::net::Credentials;
    use tonic::metadata::MetadataMap;

    use super::*;

    /// Answers with the addresses available to a service of tonic.
    async fn remote<B>(request: Request<B>) -> Result<Response<tonic::body::Body>, Infallible> {
        let call = tonic::Request::from_parts(MetadataMap::new(), request.into_parts().0.extensions, ());
        let (remote, local) = (call.remote_addr().unwrap(), call.local_addr().unwrap());
        Ok(Response::new(tonic::body::Body::new(Full::from(format!("{remote} at {local}")))))
    }

    #[test]
    fn a_tonic_service_knows_its_clients() {
        on_both(async || {
            let (listener, addr) = listen().await;
            tokio::spawn(serve(listener, tower::service_fn(remote)).into_future());
            let (listener, by_tonic) = listen().await;
            let server = tonic::transport::Server::builder().accept_http1(true);
            tokio::spawn(server.serve_with_incoming(tower::service_fn(remote), listener.incoming()));
            for addr in [addr, by_tonic] {
                for (client, told) in answers(addr).await {
                    assert_eq!(told, format!("{client} at {addr}"));
                }
            }
        });
    }

    #[test]
    fn a_tonic_service_on_a_unix_socket_knows_who_it_is_that_calls() {
        if testkit::portable("peers have no credentials") {
            return;
        }
        on_both(async || {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            let service = tower::service_fn(async |request: Request<millstream::server::RequestBody>| {
                let who = request.extensions().get::<Option<Credentials>>().unwrap().unwrap();
                Ok::<_, Infallible>(Response::new(Full::<bytes::Bytes>::from(who.pid().unwrap().to_string())))
            });
            tokio::spawn(serve(UnixListener::bind(&path).await.unwrap(), service).into_future());
            let mut client = Raw::over(UnixStream::connect(&path).await.unwrap());
            assert_eq!(client.get("/").await, (200, std::process::id().to_string().into_bytes()));
        });
    }
}
