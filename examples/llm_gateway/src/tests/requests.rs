//! Keys, hosts and requests that are refused.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use super::support::{ALICE, BOB, Gate, Upstream, prompt, until};
use crate::gateway::{COMPLETIONS, LONGEST};
use crate::generation::Generations;
use crate::keys::{KeyOption, Keys};
use crate::{duration, upstream};

/// Posts a body, and returns the status and the error.
async fn posted(gate: &Gate, kind: &str, body: impl Into<Bytes>) -> (StatusCode, Value) {
    let mut answer = gate.send(Method::POST, COMPLETIONS, ALICE, &[("content-type", kind)], body.into()).await;
    (answer.status, answer.json().await["error"].clone())
}

#[tokio::test]
async fn a_wrong_request_names_the_field() {
    let upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    for (body, param) in [
        (r#"{"messages":[{"role":"user","content":"a"}]}"#, Value::Null),
        (r#"{"model":7,"messages":[{"role":"user","content":"a"}]}"#, json!("model")),
        (r#"{"model":"m","messages":[{"role":"user"},{"role":7}]}"#, json!("messages[1].role")),
        (r#"{"model":"m","messages":[{"role":"user","content":7}]}"#, json!("messages[0].content")),
        (r#"{"model":"m","messages":[]}"#, json!("messages")),
        (r#"{"model":"m","messages":{}}"#, json!("messages")),
        (r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":"yes"}"#, json!("stream")),
        (r#"{"model":"m","messages":[{"role":"user","content":"a"}]} x"#, Value::Null),
        ("hello", Value::Null),
        ("", Value::Null),
    ] {
        let (status, error) = posted(&gate, "application/json", body).await;
        assert_eq!((status, &error["param"]), (StatusCode::BAD_REQUEST, &param), "{body}: {error}");
        assert_eq!((&error["type"], &error["code"]), (&json!("invalid_request_error"), &json!("invalid_json")));
        let message = error["message"].as_str().expect("a text");
        assert!(param.as_str().is_none_or(|param| message.starts_with(param)), "{message}");
    }
    let (_, error) = posted(&gate, "application/json", r#"{"messages":[]}"#).await;
    assert!(error["message"].as_str().expect("a text").contains("missing field `model`"), "{error}");
    let (status, _) = posted(&gate, "text/plain", prompt("a").to_string()).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "as pages of other sites send it");
    let (status, _) = posted(&gate, "application/json", vec![b' '; LONGEST + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(upstream.connections.load(std::sync::atomic::Ordering::Acquire), 0);
    let mut nothing = gate.get("/v1/none", ALICE, &[]).await;
    assert_eq!(
        (nothing.status, &nothing.json().await["error"]["code"]),
        (StatusCode::NOT_FOUND, &json!("unknown_url"))
    );
    let mut other = gate.get(COMPLETIONS, ALICE, &[]).await;
    assert_eq!(other.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(other.json().await["error"]["code"], "method_not_allowed");
}

#[tokio::test]
async fn only_a_key_opens_and_the_cookie_of_the_page_only_reads() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    for secret in ["", "wrong", "s3cre", "s3cret1"] {
        for path in ["/v1/models", "/metrics", "/v1/generations/x"] {
            let mut answer = gate.get(path, secret, &[]).await;
            assert_eq!((answer.status, answer.field("www-authenticate")), (StatusCode::UNAUTHORIZED, "Bearer"));
            assert_eq!(answer.json().await["error"]["code"], "invalid_api_key", "{secret} {path}");
        }
        assert_eq!(gate.ask(secret, &prompt("a")).await.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(gate.get("/", "", &[]).await.status, StatusCode::OK, "the page asks for the key");

    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
    let cookie = [("cookie", "a=b; llm_gateway_key=s3cret"), ("content-type", "application/json")];
    let mut reader = gate.get(&answer.path(), "", &cookie).await;
    for (method, path) in [(Method::DELETE, &*answer.path()), (Method::POST, COMPLETIONS), (Method::GET, "/metrics")] {
        let body = prompt("a").to_string().into();
        assert_eq!(gate.send(method, path, "", &cookie, body).await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    asked.send("[DONE]");
    assert_eq!(reader.rest().await, answer.rest().await);
}

#[tokio::test]
async fn a_key_has_its_limit_of_requests() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(BOB, &prompt("a")), upstream.asked());
    for stream in [true, false] {
        let mut request = prompt("b");
        request["stream"] = json!(stream);
        let mut refused = gate.ask(BOB, &request).await;
        assert_eq!((refused.status, refused.field("retry-after")), (StatusCode::TOO_MANY_REQUESTS, "1"));
        assert_eq!(refused.json().await["error"]["type"], "rate_limit_error");
    }
    // Another key is not concerned.
    let (_other, _) = tokio::join!(gate.ask(ALICE, &prompt("c")), upstream.asked());
    asked.send("[DONE]");
    answer.rest().await;
    until(|| gate.gateway.keys.keys.iter().all(|key| key.name != "bob" || key.running() == 0), "it has ended").await;
    let (next, _) = tokio::join!(gate.ask(BOB, &prompt("d")), upstream.asked());
    assert_eq!(next.status, StatusCode::OK);
}

#[tokio::test]
async fn without_keys_anyone_may_ask_but_no_page_of_another_site() {
    let gate = Gate::start(["--pace", "0s", "--concurrent", "1", "--host", "chat.example"]).await;
    let mut answer = gate.ask("", &prompt("a")).await;
    let path = answer.path();
    let events = answer.rest().await;
    assert_eq!(gate.get(&path, "", &[]).await.rest().await, events);
    for (host, status) in [("chat.example", StatusCode::OK), ("evil.example", StatusCode::MISDIRECTED_REQUEST)] {
        assert_eq!(gate.get("/v1/models", "", &[("host", host)]).await.status, status, "{host}");
    }
}

#[test]
fn options_are_read_or_refused() {
    let key = |text: &str| text.parse::<KeyOption>();
    assert!(key("a=b").is_ok() && key("a=b==:3").is_ok());
    for wrong in ["a", "=b", "a=", "a=:3", "a=b:x", "a=b:", "a=b c", "a=b;", "a=ü"] {
        assert!(key(wrong).is_err(), "{wrong}");
    }
    let generations = || Generations::new(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for twice in [["a=b", "a=c"], ["a=b", "c=b"]] {
        let keys = twice.map(|text| key(text).expect("a key"));
        assert!(Keys::new(&keys, 1, generations).expect_err("the same twice").contains("--key"), "{twice:?}");
    }
    for (text, millis) in [("20ms", 20), ("1.5s", 1500), ("0s", 0)] {
        assert_eq!(duration(text).map(|duration| duration.as_millis()), Ok(millis), "{text}");
    }
    assert!(["20", "s", "-1s", "1m", "NaNs", "1e30s"].iter().all(|text| duration(text).is_err()));
    assert!(upstream::authority("http://127.0.0.1:8000").is_ok() && upstream::authority("http://h/").is_ok());
    for wrong in ["h:80", "https://h", "http://h/v1", "http://h/?a", ""] {
        assert!(upstream::authority(wrong).is_err(), "{wrong}");
    }
}
