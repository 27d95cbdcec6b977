//! Services learn that their client has left.

use millstream::server::serve;
use tokio::io::AsyncWriteExt;

use super::*;
use testkit::http::on_both;
use testkit::leaving;

/// Clients of each kind.
const CLIENTS: usize = 10;

#[test]
fn clients_that_leave_are_told_of() {
    on_both(async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (service, mut told) = leaving::service();
        let server = serve(listener, service).tls(IDENTITIES[0].tls());
        tokio::spawn(server.into_future());
        let config = client(BOTH, &["http/1.1"]);
        for path in ["/waits", "/pending"] {
            for further in [0, 3] {
                for how in ["closes", "says so and closes", "resets"] {
                    for _ in 0..CLIENTS {
                        let mut client = Raw::over(connect(addr, &config).await);
                        let more = "GET / HTTP/1.1\r\nHost: mill\r\n\r\n".repeat(further);
                        client.send(format!("GET {path} HTTP/1.1\r\nHost: mill\r\n\r\n{more}")).await;
                        match path {
                            "/waits" => assert_eq!(told.next().await, "begun"),
                            _ => drop(client.head().await),
                        }
                        let leaves = async || match how {
                            "closes" => drop(client),
                            "resets" => {
                                socket2::SockRef::from(client.io.get_ref().0).set_linger(Some(Duration::ZERO)).unwrap();
                            }
                            _ => client.io.shutdown().await.unwrap(),
                        };
                        told.of(&format!("{path}, {further} further requests, {how}"), leaves).await;
                    }
                }
            }
        }
        told.report("HTTP/1 over TLS");
    });
}
