//! Clients that leave no time between two requests.

use testkit::http::{Flavour, watched};

use super::*;

/// Answers to a client after the drain has begun: one, and one more to a request that arrives while the connection
/// leaves hyper.
const MOST: usize = 2;

#[test]
fn connections_move_after_the_next_response_if_their_clients_ask_again_at_once() {
    const CLIENTS: usize = 100;
    if !moves() {
        return;
    }
    watched(|| {
        // The server has a thread of its own, so that the drain begins for all connections before it reads requests.
        let [of_clients, of_servers] = [Flavour::TwoWorkers, Flavour::CurrentThread].map(Flavour::runtime);
        of_servers.block_on(async {
            let mut servers = Servers::new(Limits::default());
            let old = servers.start(DEADLINE);
            let addr = servers.addr;
            let client = move || async move {
                let mut client = Raw::connect(addr).await;
                while asked(&mut client, "/hot").await == 1 {}
            };
            let clients: Vec<_> = (0..CLIENTS).map(|_| of_clients.spawn(client())).collect();
            let scene = Arc::clone(&old.scene);
            scene.arrived(CLIENTS * 20).await;
            let _new = servers.start(DEADLINE);
            let report = drained(old.drain()).await;
            assert_eq!((report.moved, report.connections), (CLIENTS, CLIENTS), "{report:?}");
            let answers = scene.arrived.load(Ordering::SeqCst) - scene.before.get().expect("connections move");
            assert!(answers <= CLIENTS * MOST, "{answers} answers after the first connection has moved");
            for client in clients {
                client.await.unwrap();
            }
        });
    });
}
