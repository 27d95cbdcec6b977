//! Route labels come from the service, never from client input.

use super::*;

#[tokio::test]
async fn neither_paths_nor_methods_of_clients_make_labels() {
    let service = Measure::new()
        .layer(tower::service_fn(async |_: Request<()>| Ok::<_, Infallible>(answer("bounded", boxed(Empty::new())))));
    for n in 0..500 {
        let method = Method::from_bytes(format!("METHOD{n}").as_bytes()).unwrap();
        let request = Request::builder().method(method).uri(format!("/{n}")).header("x-name", n).body(()).unwrap();
        service.oneshot(request).await.unwrap();
    }
    let all = of("bounded");
    assert_eq!((all.len(), all[0].method, all[0].duration.count()), (1, "_OTHER", 500));
    let text = millstream::metrics::prometheus_text();
    assert!(!text.contains("METHOD1") && !text.contains("\"/1"));
}

#[cfg(feature = "axum-08")]
#[tokio::test]
async fn the_route_that_axum_has_matched_is_one() {
    use axum::{Router, routing::get};

    let app = Router::new().route("/people/{name}", get(|| async { "hello" })).layer(Measure::new());
    for path in ["/people/ann", "/people/bob", "/people/carol"] {
        let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
        let response = app.clone().oneshot(request).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    let all = of("/people/{name}");
    assert_eq!((all.len(), all[0].duration.count()), (1, 3), "{all:?}");
    assert!(!millstream::metrics::prometheus_text().contains("carol"));
}
