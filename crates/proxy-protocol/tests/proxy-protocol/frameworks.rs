//! The listener on several cores, and under the servers of axum and tonic.

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use millstream::runtime::Cores;
use millstream::server::serve_cores;
use millstream_proxy_protocol::ProxyPeer;
use testkit::http::{Flavour, h2_over, on_both, request, watched, whole};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::made::{LOCAL, field, tcp, v2};
use super::*;

/// Sends a header and a request. Returns the answer, and the address of this end.
async fn ask(addr: SocketAddr, header: &[u8]) -> (String, SocketAddr) {
    let mut stream = TcpStream::connect(addr).await.unwrap();
    let own = stream.local_addr().unwrap();
    stream.write_all(header).await.unwrap();
    let answer = h2_over(stream).await.send_request(request("http://mill/")).await.unwrap();
    (String::from_utf8(whole(answer).await.unwrap().to_vec()).unwrap(), own)
}

fn header() -> Vec<u8> {
    tcp(CLIENT, "10.0.0.1:443", &field(2, "mill.example"))
}

async fn listen() -> (ProxyListener<TcpListener>, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    (ProxyListener::new(listener, local()), addr)
}

#[test]
fn each_core_has_a_listener_around_its_own() {
    watched(|| {
        let cores = Cores::new(2).unwrap();
        let listeners = TcpListener::builder().bind_each("127.0.0.1:0", 2).unwrap();
        let addr = listeners.local_addr();
        let each = move || Ok(ProxyListener::new(listeners.take()?, local()));
        let server = serve_cores(&cores, each, service()).run();
        Flavour::CurrentThread.runtime().block_on(async {
            for _ in 0..20 {
                assert_eq!(ask(addr, &header()).await.0, of_header(CLIENT, "mill.example"));
            }
        });
        drop(server);
    });
}

#[test]
fn a_core_without_a_listener_ends_the_server() {
    watched(|| {
        let cores = Cores::new(2).unwrap();
        let listeners = TcpListener::builder().bind_each("127.0.0.1:0", 1).unwrap();
        let each = move || Ok(ProxyListener::new(listeners.take()?, local()));
        let ended = serve_cores(&cores, each, service()).run().wait();
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::NotFound);
    });
}

#[test]
fn handlers_of_axum_know_the_client() {
    on_both(async || {
        let whom = async |ConnectInfo(peer): ConnectInfo<ProxyPeer<SocketAddr>>| {
            let header = peer.header().and_then(ProxyHeader::authority);
            format!("{:?} {header:?} {}", peer.client(), peer.socket_addr())
        };
        let (listener, addr) = listen().await;
        assert_eq!(*axum::serve::Listener::local_addr(&listener).unwrap().socket_addr(), addr);
        let app = Router::new().route("/", get(whom));
        let app = app.into_make_service_with_connect_info::<ProxyPeer<SocketAddr>>();
        tokio::spawn(axum::serve(listener, app).into_future());
        let client: SocketAddr = CLIENT.parse().unwrap();
        let (said, own) = ask(addr, &header()).await;
        assert_eq!(said, format!("{:?} {:?} {own}", Some(client), Some("mill.example")));
        let (said, own) = ask(addr, &v2(LOCAL, 0, [])).await;
        assert_eq!(said, format!("{:?} None {own}", Some(own)));
    });
}

#[test]
fn layers_under_axums_server_know_the_client() {
    on_both(async || {
        let whom = async |ConnectInfo(connection): ConnectInfo<Connection>, other: Option<Extension<ProxyHeader>>| {
            format!("{:?} {}", connection.peer(), other.is_some())
        };
        let (listener, addr) = listen().await;
        let app = Router::new().route("/", get(whom)).into_make_service_with_connect_info::<Connection>();
        tokio::spawn(axum::serve(listener, app).into_future());
        let client: SocketAddr = CLIENT.parse().unwrap();
        assert_eq!(ask(addr, &header()).await.0, format!("{:?} false", Some(client.ip())));
    });
}

#[test]
fn services_of_tonic_know_the_client() {
    on_both(async || {
        let whom = async |request: Request<tonic::body::Body>| {
            let extensions = request.into_parts().0.extensions;
            let call = tonic::Request::from_parts(tonic::metadata::MetadataMap::new(), extensions, ());
            let text = format!("{:?} {:?}", call.remote_addr(), call.local_addr());
            Ok::<_, std::convert::Infallible>(Response::new(tonic::body::Body::new(Full::from(text))))
        };
        let (listener, addr) = listen().await;
        let server = tonic::transport::Server::builder();
        tokio::spawn(server.serve_with_incoming(tower::service_fn(whom), listener.incoming()));
        let client: SocketAddr = CLIENT.parse().unwrap();
        for (header, client) in [(header(), Some(client)), (v2(LOCAL, 0, []), None)] {
            let (said, own) = ask(addr, &header).await;
            assert_eq!(said, format!("{:?} {:?}", Some(client.unwrap_or(own)), Some(addr)));
        }
    });
}
