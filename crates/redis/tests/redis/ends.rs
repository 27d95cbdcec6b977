//! A Redis log whose hubs are closed: accepted events are appended or counted as given up, and no task waits forever.

use std::time::Duration;

use millstream::sse::log::Log;
use millstream::sse::{Event, Hub, SendError};
use millstream_redis::Redis;
use tokio::time::timeout;

use crate::server::Server;
use testkit::HANGS;
use testkit::http::{Flavour, watched};

fn run<R: Future<Output = ()>>(test: impl FnOnce(Server) -> R + Send + 'static) {
    watched(move || {
        let Some(server) = Server::start(&[]) else { return };
        Flavour::TwoWorkers.runtime().block_on(test(server));
    });
}

async fn log(url: &str) -> Redis {
    Redis::builder(url).key("test").connect().await.unwrap()
}

fn send(hub: &Hub, data: impl ToString) {
    hub.send(Event::new().data(data.to_string())).unwrap();
}

#[test]
fn what_is_queued_is_appended_when_the_hub_closes() {
    run(async |server| {
        let log = log(&server.url()).await;
        let hub = Hub::builder().log(log.clone()).build();
        (0..1000).for_each(|n| send(&hub, n));
        hub.close();
        assert!(matches!(hub.send(Event::new()), Err(SendError::Closed)));
        log.flush().await;
        assert_eq!(server.command(&["XLEN", "test"]), redis::Value::Int(1000));
        assert_eq!((log.state().appended, log.state().given_up), (1000, 0));
    });
}

#[test]
fn what_cannot_be_appended_is_given_up_when_the_last_hub_closes() {
    run(async |mut server| {
        let log = log(&server.url()).await;
        let hubs = [(); 2].map(|()| Hub::builder().log(log.clone()).build());
        server.kill();
        (0..300).for_each(|n| send(&hubs[n % 2], n));
        drop(hubs);
        timeout(HANGS, log.flush()).await.expect("`flush` does not wait for given-up events");
        let state = log.state();
        assert_eq!((state.queued, state.given_up), (0, 300), "{state:?}");
    });
}

#[test]
fn an_append_that_comes_late_is_taken_or_refused() {
    run(async |server| {
        let log = log(&server.url()).await;
        let hub = Hub::builder().log(log.clone()).build();
        send(&hub, 0);
        hub.close();
        // Appends may race with the close of the hub.
        let mut taken = 1;
        loop {
            match log.append(Event::new().data("late")) {
                Ok(()) => taken += 1,
                Err(error) => {
                    assert!(matches!(error, SendError::Closed), "{error:?}");
                    break;
                }
            }
            timeout(HANGS, log.flush()).await.expect("a taken event is appended");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(server.command(&["XLEN", "test"]), redis::Value::Int(taken));
        assert_eq!((log.state().queued, log.state().given_up), (0, 0));
        let hub = Hub::builder().log(log.clone()).build();
        send(&hub, 1);
        timeout(HANGS, log.flush()).await.expect("the event is appended");
        assert_eq!(server.command(&["XLEN", "test"]), redis::Value::Int(taken + 1));
    });
}

#[test]
fn what_a_runtime_has_not_appended_when_it_ends_is_given_up() {
    watched(|| {
        let Some(mut server) = Server::start(&[]) else { return };
        let runtime = Flavour::TwoWorkers.runtime();
        let (log, hub) = runtime.block_on(async {
            let log = log(&server.url()).await;
            let hub = Hub::builder().log(log.clone()).build();
            send(&hub, 0);
            log.flush().await;
            (log, hub)
        });
        server.kill();
        (1..4).for_each(|n| send(&hub, n));
        drop(runtime);
        Flavour::CurrentThread.runtime().block_on(async {
            timeout(HANGS, log.flush()).await.expect("`flush` returns without a task");
            let state = log.state();
            assert_eq!((state.queued, state.appended, state.given_up), (0, 1, 3), "{state:?}");
            assert!(matches!(hub.send(Event::new()), Err(SendError::Closed)));
        });
    });
}
