//! Numbers of system calls. Counters are per process, so each test runs in its own.

use millstream::metrics::Snapshot;
use tokio::runtime::{Handle, RuntimeFlavor};

use super::*;
use testkit::http::{on_both, sha256};
use testkit::{alone, counted_since};

#[test]
fn tokens_of_a_turn_leave_in_one_call_though_each_is_a_record() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        let mut client = Raw::over(connect(server.addr, &client(BOTH, &["http/1.1"])).await);
        assert_eq!(client.get("/fine").await.1, b"fine");
        let before = Snapshot::now();
        client.ask("/tokens").await;
        assert_eq!(client.head().await.status, 200);
        let chunked =
            [b"28\r\n", TOKEN, b"\r\n"].concat().repeat(TOKENS).into_iter().chain(*b"0\r\n\r\n").collect::<Vec<_>>();
        let got = client.body(chunked.len()).await.unwrap();
        assert_eq!(sha256(got), sha256(&chunked));
        let counted = counted_since(&before, |counted| counted.gathered >= TOKENS as u64 / 2).await;
        // With several workers, a turn may end between any two tokens.
        let most = if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread { TOKENS / 5 } else { TOKENS };
        assert!(counted.writes <= most as u64, "{counted}");
    });
}

#[test]
fn a_file_leaves_in_calls_of_several_records() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        let mut client = Raw::over(connect(server.addr, &client(BOTH, &["http/1.1"])).await);
        let before = Snapshot::now();
        assert_eq!(sha256(client.get("/large").await.1), sha256(&server.bytes));
        let counted = Snapshot::now().since(&before);
        // A partial write needs one more call.
        let whole = counted.writes - counted.partial_writes;
        assert!(whole <= (LARGE >> 16) as u64 + 10, "{counted}");
    });
}

#[test]
fn handshakes_are_counted() {
    if alone::ran_in_child() {
        return;
    }
    on_both(async || {
        let server = Server::start(IDENTITIES[0].tls()).await;
        let config = client(BOTH, &["http/1.1"]);
        let before = Snapshot::now();
        for _ in 0..3 {
            assert_eq!(get(server.addr, &config, "/fine").await.0, 200);
        }
        let counted = Snapshot::now().since(&before);
        assert_eq!((counted.tls_handshakes, counted.tls_resumed, counted.tls_failures), (1, 2, 0), "{counted}");
    });
}
