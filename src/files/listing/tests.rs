//! Unit tests of `listing`.

use super::*;

#[test]
fn json_is_for_clients_that_prefer_it() {
    for (accept, expected) in [
        ("", Format::Page),
        ("*/*", Format::Page),
        ("application/json", Format::Json),
        ("Application/JSON, */*;q=0.1", Format::Json),
        ("application/json, text/html", Format::Page),
        ("text/html;q=0.5, application/json;q=0.9", Format::Json),
        ("text/html, application/json;q=0.9", Format::Page),
        ("application/json;q=0", Format::Page),
        ("application/json;q=x", Format::Page),
        ("application/json; charset=utf-8; q=0.3", Format::Json),
    ] {
        let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
        assert_eq!(Format::of(&headers), expected, "{accept}");
    }
    assert_eq!(Format::of(&HeaderMap::new()), Format::Page);
}

#[tokio::test]
async fn a_reading_waits_while_many_are_in_progress() {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::open_dir(dir.path()).unwrap();
    let (bounds, uri, headers) = (Bounds::default(), Uri::from_static("/"), HeaderMap::new());
    let mut reading = Box::pin(list(root, Vec::new(), Dots::None, &bounds, &uri, &headers));
    let others = bounds.readings.try_acquire_many(READINGS as u32).unwrap();
    let polled = std::future::poll_fn(|cx| Poll::Ready(reading.as_mut().poll(cx))).await;
    assert!(polled.is_pending() && bounds.readings.try_acquire().is_err());
    drop(others);
    assert!(reading.await.is_ok());
    assert!(bounds.readings.try_acquire_many(READINGS as u32).is_ok(), "all places are free again");
}
