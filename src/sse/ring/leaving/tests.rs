//! Unit tests of `leaving`.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use super::*;
use crate::sse::{Event, Hub};
use crate::sync::Mutex;

/// Notes at each wake-up whether the state of the hub is unlocked.
struct Looks(Arc<HubShared>, Mutex<Vec<bool>>);

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0.state.try_lock().is_ok());
    }
}

#[test]
fn the_one_that_follows_is_woken_without_the_lock() {
    let shared = Arc::new(HubShared::new(Hub::builder().config, true));
    let looks = Arc::new(Looks(Arc::clone(&shared), Mutex::default()));
    let waker = Waker::from(Arc::clone(&looks));
    shared.follow(true);
    let sends: [&dyn Fn(); 3] = [
        &|| drop(shared.send(Event::new().data("a")).unwrap()),
        &|| shared.deliver("id", &Event::new()).unwrap(),
        // The event that was sent while the hub left is delivered here.
        &|| {
            shared.leave_to_successor();
            shared.state().leaving.as_mut().unwrap().late.push_back((Bytes::from("data: b\n\n"), Name::Numbered));
            shared.stay();
        },
    ];
    for (number, send) in (0..).zip(sends) {
        let mut follows = pin!(shared.has_event(number));
        assert!(follows.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        send();
        assert!(follows.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    }
    assert_eq!(*looks.1.lock().unwrap(), [true; 3]);
}
