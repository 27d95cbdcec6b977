//! Clients that leave no time between two requests.

use testkit::http::{Flavour, watched};

use super::*;

/// Most answers of the old server to one client: until its drain has begun, and then one.
const MOST: usize = 10;

/// The tasks take turns on one thread, so that the number of answers does not depend on time.
#[test]
fn a_connection_moves_after_the_next_response_if_its_client_asks_again_at_once() {
    const CLIENTS: usize = 50;
    if !moves() {
        return;
    }
    watched(|| {
        Flavour::CurrentThread.runtime().block_on(async {
            let mut servers = Servers::new(Limits::default());
            let old = servers.start(DEADLINE);
            let addr = servers.addr;
            let clients: Vec<_> = (0..CLIENTS)
                .map(|n| {
                    tokio::spawn(async move {
                        let mut client = Raw::connect(addr).await;
                        while asked(&mut client, "/hot").await == 1 {
                            // Half of them leave a little.
                            if n % 2 == 0 {
                                tokio::task::yield_now().await;
                            }
                        }
                        client
                    })
                })
                .collect();
            let scene = Arc::clone(&old.scene);
            scene.arrived(CLIENTS * MOST).await;
            let _new = servers.start(DEADLINE);
            let before = scene.arrived.load(Ordering::SeqCst);
            let report = drained(old.drain()).await;
            assert_eq!((report.moved, report.connections), (CLIENTS, CLIENTS), "{report:?}");
            let answers = scene.arrived.load(Ordering::SeqCst) - before;
            assert!(answers <= CLIENTS * MOST, "{answers} answers of the server that drains");
            for client in clients {
                client.await.unwrap();
            }
        });
    });
}
