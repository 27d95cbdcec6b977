//! Measuring a request allocates nothing.

use super::*;

use allocation_counter::measure;
use futures_util::FutureExt;

fn exchange<S, B>(service: &S)
where
    S: tower::Service<Request<()>, Response = Response<B>, Error = Infallible> + Clone,
    B: Body<Data = Bytes> + Unpin,
{
    let response = service.clone().oneshot(Request::new(())).now_or_never().expect("ready at once").unwrap();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().now_or_never().expect("ready at once") {
        assert!(frame.is_ok());
    }
}

#[test]
fn a_request_allocates_nothing_for_it() {
    let inner = tower::service_fn(|_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello")))))
    });
    let measured = Measure::new().layer(inner);
    // A thread allocates its counters on its first response of a set of labels.
    exchange(&measured);
    let without = measure(|| (0..100).for_each(|_| exchange(&inner)));
    let with = measure(|| (0..100).for_each(|_| exchange(&measured)));
    assert_eq!(with.count_total, without.count_total);
}
