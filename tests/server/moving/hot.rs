//! Clients that leave no time between two requests.

use testkit::http::{Flavour, watched};

use super::*;

/// Answers of a server to one client after its drain has begun. One is enough, but a request that arrives while the
/// connection leaves hyper is answered too.
const MOST: usize = 5;

#[test]
fn connections_move_after_the_next_response_if_their_clients_ask_again_at_once() {
    const CLIENTS: usize = 20;
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
            let client = move |n| async move {
                let mut client = Raw::connect(addr).await;
                while asked(&mut client, "/hot").await == 1 {
                    if n % 2 == 0 {
                        sleep(Duration::from_millis(n as u64 % 5)).await;
                    }
                }
            };
            let clients: Vec<_> = (0..CLIENTS).map(|n| of_clients.spawn(client(n))).collect();
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
