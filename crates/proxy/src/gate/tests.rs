//! Unit tests of `gate`.

use super::*;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

#[tokio::test(start_paused = true)]
async fn requests_wait_in_order_and_for_a_time() {
    let gate = Gate::new(1, 2, Duration::from_secs(5));
    let place = gate.try_enter().unwrap();
    assert!(gate.try_enter().is_none());
    let mut cx = Context::from_waker(Waker::noop());
    let (mut first, mut second) = (pin!(gate.enter()), Box::pin(gate.enter()));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert_eq!((gate.in_progress(), gate.waiting()), (1, 2));
    assert_eq!(gate.enter().await.unwrap_err(), Full, "the third waiting one");
    assert_eq!((gate.refused(), gate.waiting()), (1, 2));
    drop(place);
    assert!(gate.try_enter().is_none(), "the place is that of the first");
    let Poll::Ready(Ok(place)) = first.as_mut().poll(&mut cx) else { panic!("the first has no place") };
    assert_eq!(second.await.unwrap_err(), Full, "in time");
    assert_eq!((gate.refused(), gate.waiting()), (2, 0));
    drop(place);
    assert_eq!(gate.in_progress(), 0);
}
