//! Upstreams that fail.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::support::{ALICE, Gate, HANGS, Upstream, chunk, prompt, until};
use crate::upstream::PENALTY;

/// Returns the status and the error of an answer.
async fn refused(gate: &Gate) -> (StatusCode, Value) {
    let mut answer = gate.ask(ALICE, &prompt("a")).await;
    assert_eq!(answer.field("content-type"), "application/json");
    (answer.status, answer.json().await["error"].clone())
}

#[tokio::test]
async fn an_upstream_that_dies_in_the_middle_is_an_error_in_the_stream() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    for (case, message) in [("dies", "broke off"), ("ends", "before its last event"), ("long", "longer than 1 MiB")] {
        let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
        asked.send(&chunk(0));
        assert!(answer.event().await.contains(&chunk(0)));
        match case {
            "dies" => asked.fail(),
            "ends" => drop(asked),
            _ => asked.raw(&"x".repeat(2 << 20)),
        }
        let event = answer.event().await;
        let data = event.strip_prefix("data: ").and_then(|event| event.lines().next()).expect("data");
        let error = &serde_json::from_str::<Value>(data).expect("JSON")["error"];
        assert!(error["message"].as_str().expect("a text").contains(message), "{case}: {error}");
        assert_eq!((&error["type"], &error["code"]), (&json!("upstream_error"), &json!("bad_upstream")));
        let rest = answer.rest().await;
        assert!(rest.contains("event: error\n") && !rest.contains("[DONE]"), "{case}: {rest}");
        until(|| gate.is_idle(), "the generation has ended").await;
    }
}

#[tokio::test]
async fn an_upstream_that_is_silent_is_a_timeout() {
    let silent = Upstream::with(Router::new().fallback(async || sleep(Duration::from_secs(1000)).await)).await;
    let gate = Gate::before(&[&silent], &["--silence", "200ms"]).await;
    let (status, error) = refused(&gate).await;
    assert_eq!((status, &error["code"]), (StatusCode::GATEWAY_TIMEOUT, &json!("upstream_timeout")));

    let mut upstream = Upstream::start().await;
    // Long enough for the upstream to begin its answer, on a busy machine too.
    let gate = Gate::before(&[&upstream], &["--silence", "5s"]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
    assert!(answer.event().await.contains("upstream_timeout"));
    asked.cancelled().await;
    until(|| gate.is_idle(), "the generation has ended").await;
}

#[tokio::test]
async fn errors_of_an_upstream_are_its_own_and_those_of_a_client_are_passed_on() {
    let message = r#"{"error":{"message":"no such model"}}"#;
    let own = Upstream::always((StatusCode::NOT_FOUND, [("content-type", "application/json")], message)).await;
    let gate = Gate::before(&[&own], &[]).await;
    assert_eq!(refused(&gate).await, (StatusCode::NOT_FOUND, json!({"message": "no such model"})));

    let busy = Upstream::always((StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")], message)).await;
    let busy = Gate::before(&[&busy], &[]).await.ask(ALICE, &prompt("a")).await;
    assert_eq!((busy.status, busy.field("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "7"));

    for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::UNAUTHORIZED, StatusCode::FOUND] {
        let upstream = Upstream::always((status, "a secret")).await;
        let (answered, error) = refused(&Gate::before(&[&upstream], &[]).await).await;
        assert_eq!((answered, &error["code"]), (StatusCode::BAD_GATEWAY, &json!("bad_upstream")), "{status}");
        assert!(!error.to_string().contains("a secret"), "{error}");
    }
    let no_events = Upstream::always("hello").await;
    let gate = Gate::before(&[&no_events], &[]).await;
    let (status, error) = refused(&gate).await;
    assert_eq!(status, StatusCode::BAD_GATEWAY);
    assert!(error["message"].as_str().expect("a text").contains("text/plain"), "{error}");
    assert!(gate.is_idle());
}

#[tokio::test]
async fn requests_take_turns_between_the_upstreams_that_answer() {
    let dead = Upstream::dead().await;
    let (first, second) = (Upstream::always("{}").await, Upstream::always("{}").await);
    let gate = Gate::before(&[&dead, &first, &second], &[]).await;
    let mut request = prompt("a");
    request["stream"] = json!(false);
    let since = Instant::now();
    for _ in 0..12 {
        let mut answer = gate.ask(ALICE, &request).await;
        assert_eq!((answer.status, answer.rest().await), (StatusCode::OK, "{}".to_owned()));
    }
    assert!(first.connections.load(Ordering::Acquire) > 0 && second.connections.load(Ordering::Acquire) > 0);
    let unreachable = gate.gateway.upstreams.unreachable.load(Ordering::Relaxed);
    let whiles = 1 + since.elapsed().as_secs() / PENALTY.as_secs();
    assert!((1..=whiles).contains(&unreachable), "it is asked last for a while: {unreachable} times");

    let gate = Gate::before(&[&dead], &[]).await;
    let (status, error) = refused(&gate).await;
    assert_eq!((status, &error["code"]), (StatusCode::BAD_GATEWAY, &json!("bad_upstream")));
    assert!(error["message"].as_str().expect("a text").contains(&dead.address.to_string()), "{error}");
}

#[tokio::test]
async fn a_connection_to_an_upstream_is_used_again() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    let (since, mut requests) = (Instant::now(), 0);
    // The connection comes back in a task of its own, which may be later than the next request.
    while upstream.connections.load(Ordering::Acquire) == requests {
        assert!(since.elapsed() < HANGS, "each of {requests} requests has a connection of its own");
        requests += 1;
        let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
        asked.send("[DONE]");
        answer.event().await;
        // The end of the framing comes after the last event.
        drop(asked);
        answer.rest().await;
        sleep(Duration::from_millis(50)).await;
    }
}
