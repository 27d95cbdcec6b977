//! Counts for a response, for each way in which its body ends.

use super::*;

use http::StatusCode;
use http::header::CONTENT_LENGTH;
use millstream::metrics::ResponseOutcome;

/// Measures one response to `method` and returns its counts. Reads the body to its end, or drops it after `leave`
/// frames.
async fn measured(method: Method, route: &str, make: impl FnOnce() -> Answer, leave: Option<usize>) -> Responses {
    let mut make = Some(make);
    let service = tower::service_fn(|_: Request<()>| std::future::ready(Ok::<_, Infallible>((make.take().unwrap())())));
    let request = Request::builder().method(method).body(()).unwrap();
    let mut body = Box::pin(Measure::new().layer(service).oneshot(request).await.unwrap().into_body());
    assert!(leave.is_none() || of(route).is_empty(), "counted before the response ended");
    let mut seen = 0;
    // As in hyper, a body that reports its end is not polled again.
    while leave != Some(seen) && !body.is_end_stream() && body.frame().await.is_some_and(|frame| frame.is_ok()) {
        seen += 1;
    }
    drop(body);
    let mut all = of(route);
    assert_eq!(all.len(), 1, "{all:?}");
    all.pop().unwrap()
}

fn summary(responses: &Responses) -> (ResponseOutcome, f64, f64) {
    assert_eq!((responses.duration.count(), responses.body_size.count(), responses.frames.count()), (1, 1, 1));
    assert!(responses.duration.sum() > 0.0 && responses.time_to_head.sum() > 0.0);
    assert!(responses.time_to_head.sum() <= responses.duration.sum());
    (responses.outcome, responses.body_size.sum(), responses.frames.sum())
}

#[tokio::test]
async fn responses_that_end_are_complete() {
    let get = Method::GET;
    let hello = || Bytes::from("hello");
    let full = measured(get.clone(), "full", || answer("full", boxed(Full::new(hello()))), None).await;
    assert_eq!(summary(&full), (ResponseOutcome::Complete, 5.0, 1.0));
    assert_eq!((full.method, full.version, full.status, full.largest_gap.count()), ("GET", "1.1", Some(200), 0));

    let none = measured(get.clone(), "none", || answer("none", boxed(Empty::new())), None).await;
    assert_eq!(summary(&none), (ResponseOutcome::Complete, 0.0, 0.0));

    let many =
        measured(get.clone(), "many", || answer("many", frames((0..100).map(|_| Ok(Bytes::from("x"))))), None).await;
    assert_eq!((summary(&many), many.largest_gap.count()), ((ResponseOutcome::Complete, 100.0, 100.0), 1));

    let trailers = || {
        let trailed = Full::new(hello()).with_trailers(async { Some(Ok(http::HeaderMap::new())) });
        answer("trailers", boxed(trailed))
    };
    let trailers = measured(get, "trailers", trailers, Some(2)).await;
    assert_eq!(summary(&trailers), (ResponseOutcome::Complete, 5.0, 1.0));
}

#[tokio::test]
async fn a_body_that_is_not_wanted_is_not_missed() {
    let head = measured(Method::HEAD, "head", || answer("head", boxed(Full::new(Bytes::from("hello")))), Some(0)).await;
    assert_eq!((summary(&head), head.method), ((ResponseOutcome::Complete, 0.0, 0.0), "HEAD"));

    for status in [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED, StatusCode::SWITCHING_PROTOCOLS] {
        let route = status.as_str().to_owned();
        let make = || {
            let mut answer = answer(status.as_str(), frames([]));
            *answer.status_mut() = status;
            answer
        };
        let without = measured(Method::GET, &route, make, Some(0)).await;
        assert_eq!((summary(&without), without.status), ((ResponseOutcome::Complete, 0.0, 0.0), Some(status.as_u16())));
    }
}

#[tokio::test]
async fn what_was_promised_and_given_is_complete() {
    for (route, promised, outcome) in
        [("as promised", 10, ResponseOutcome::Complete), ("less", 11, ResponseOutcome::Aborted)]
    {
        let make = || {
            let mut answer = answer(route, frames([Ok(Bytes::from("hello")), Ok(Bytes::from("world"))]));
            answer.headers_mut().insert(CONTENT_LENGTH, promised.into());
            answer
        };
        // hyper drops a body once it has sent as many bytes as its head declares.
        let given = measured(Method::GET, route, make, Some(2)).await;
        assert_eq!(summary(&given), (outcome, 10.0, 2.0));
    }
}

#[tokio::test]
async fn what_fails_and_what_is_given_up_are_told_apart() {
    let fails = || answer("fails", frames([Ok(Bytes::from("hello")), Err(io::Error::other("as it should"))]));
    let failed = measured(Method::GET, "fails", fails, None).await;
    assert_eq!(summary(&failed), (ResponseOutcome::Error, 5.0, 1.0));

    let endless = || answer("endless", frames(std::iter::repeat_with(|| Ok(Bytes::from("tick ")))));
    let left = measured(Method::GET, "endless", endless, Some(7)).await;
    assert_eq!(summary(&left), (ResponseOutcome::Aborted, 35.0, 7.0));
}

#[tokio::test]
async fn services_that_fail_or_are_given_up_have_no_status() {
    let request = |route| {
        let mut request = Request::new(());
        request.extensions_mut().insert(Route::new(route));
        request
    };
    let fails = tower::service_fn(async |_: Request<()>| Err::<Answer, _>(io::Error::other("as it should")));
    Measure::new().layer(fails).oneshot(request("service fails")).await.unwrap_err();
    let never = tower::service_fn(|_: Request<()>| std::future::pending::<Result<Answer, Infallible>>());
    drop(Measure::new().layer(never).oneshot(request("never polled")));
    let mut waiting = Box::pin(Measure::new().layer(never).oneshot(request("never answers")));
    assert!(futures_util::FutureExt::now_or_never(waiting.as_mut()).is_none());
    let active = || Requests::now().active.iter().map(|&(_, n)| n).sum::<u64>();
    assert!(active() > 0 && of("never answers").is_empty());
    drop(waiting);

    for (route, outcome) in [("service fails", ResponseOutcome::Error), ("never answers", ResponseOutcome::Aborted)] {
        let all = of(route);
        assert_eq!((all.len(), all[0].status, all[0].outcome), (1, None, outcome), "{all:?}");
        assert_eq!((all[0].duration.count(), all[0].time_to_head.count(), all[0].body_size.count()), (1, 0, 0));
    }
    assert!(of("never polled").is_empty(), "the service was never called");
}

#[tokio::test]
async fn gaps_are_those_between_frames() {
    let slow = || {
        let ticks = stream::unfold(0, |n| async move {
            if n > 0 {
                tokio::time::sleep(Duration::from_millis(60)).await;
            }
            (n < 3).then(|| (Ok::<_, io::Error>(Frame::data(Bytes::from("x"))), n + 1))
        });
        answer("slow", StreamBody::new(ticks).boxed_unsync())
    };
    let before = Requests::now();
    let slow = measured(Method::GET, "slow", slow, None).await;
    // The clock for gaps has ticks of up to 10 ms, and sleeps may last longer than requested.
    assert!(slow.largest_gap.count() == 1 && slow.largest_gap.sum() >= 0.05, "{slow:?}");
    let gaps = Requests::now().since(&before).frame_gap;
    assert!(gaps.count() >= 2 && gaps.sum() >= 0.1, "{gaps:?}");
    assert!(slow.duration.sum() >= 0.18 && slow.time_to_head.sum() <= slow.duration.sum() - 0.12, "{slow:?}");
}

#[tokio::test]
async fn frames_pass_untouched() {
    let data = Bytes::from(vec![7; 100_000]);
    let at = data.as_ptr();
    let sent = data.clone();
    let service = tower::service_fn(move |_: Request<()>| {
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::new(sent.clone()))))
    });
    let response = Measure::new().layer(service).oneshot(Request::new(())).await.unwrap();
    let mut body = response.into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(100_000), false));
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!((frame.as_ptr(), frame.len()), (at, 100_000), "the same memory");
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(0), true));
}
