//! The gateway over sockets: in front of an upstream whose every byte a test decides, and of the fake model.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use support::{ALICE, Answer, BOB, Gate, Upstream, chunk, prompt, until};

mod faults;
mod requests;
mod support;

#[tokio::test]
async fn events_pass_on_as_they_come() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a b")), upstream.asked());
    assert_eq!(asked.body, prompt("a b"), "the request is passed on as it is");
    assert_eq!((answer.status, answer.field("content-type")), (StatusCode::OK, "text/event-stream"));
    assert!(answer.field("x-generation-id").starts_with("gen-"));
    for n in 0..3 {
        // Each arrives before the next one is sent.
        asked.send(&chunk(n));
        let event = answer.event().await;
        assert!(event.starts_with(&format!("data: {}\nid: ", chunk(n))), "{event}");
    }
    // In one piece, and in two in the middle of a line.
    asked.raw(&format!("data: {}\n\ndata: {}", chunk(3), &chunk(4)[..5]));
    assert!(answer.event().await.contains(&chunk(3)));
    asked.raw(&format!("{}\r\n\r\ndata: [DONE]\n\n", &chunk(4)[5..]));
    assert!(answer.event().await.contains(&chunk(4)));
    assert!(answer.event().await.starts_with("data: [DONE]\nid: "));
    assert_eq!(answer.rest().await, "");
    until(|| gate.is_idle(), "the generation has ended").await;
}

#[tokio::test]
async fn the_fake_model_answers_in_both_ways_with_the_same_text() {
    let gate = Gate::fake(&["--pace", "1ms"]).await;
    let text = "You said: three short words These are 3 words.";
    let mut streamed = gate.ask(ALICE, &prompt("three short words")).await;
    let events = streamed.rest().await;
    let words = events.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok());
    let words: String =
        words.filter_map(|chunk| Some(chunk["choices"][0]["delta"]["content"].as_str()?.to_owned())).collect();
    assert_eq!(words, text);

    let mut request = prompt("three short words");
    request["stream"] = json!(false);
    let mut whole = gate.ask(ALICE, &request).await;
    assert_eq!(whole.field("content-type"), "application/json");
    let whole = whole.json().await;
    assert_eq!(
        (&whole["object"], &whole["choices"][0]["message"]["content"]),
        (&json!("chat.completion"), &json!(text))
    );
    request["max_tokens"] = json!(2);
    let cut = gate.ask(ALICE, &request).await.json().await;
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    assert_eq!(cut["usage"], json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}));
    let models = gate.get("/v1/models", ALICE, &[]).await.json().await;
    assert_eq!(models["data"][0]["id"], "fake");
    until(|| gate.fake.running() == 0 && gate.is_idle(), "nothing is in progress").await;
}

#[tokio::test]
async fn a_reader_in_the_middle_gets_exactly_the_rest() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
    let path = answer.path();
    let mut events = Vec::new();
    for n in 0..100 {
        asked.send(&chunk(n));
        events.push(answer.event().await);
    }
    // While it runs, and after its end.
    let id = |event: &str| event.lines().find_map(|line| line.strip_prefix("id: ")).expect("an id").to_owned();
    let mut running = gate.get(&path, ALICE, &[("last-event-id", &id(&events[41]))]).await;
    for event in &events[42..] {
        assert_eq!(&running.event().await, event);
    }
    asked.send("[DONE]");
    events.push(answer.event().await);
    assert_eq!(running.event().await, events[100]);
    answer.rest().await;
    for from in [0_usize, 1, 50, 100] {
        let last = from.checked_sub(1).map(|n| id(&events[n]));
        let fields: Vec<_> = last.iter().map(|id| ("last-event-id", id.as_str())).collect();
        let rest = gate.get(&path, ALICE, &fields).await.rest().await;
        assert_eq!(rest, events[from..].concat(), "from {from}");
    }
    // An EventSource gives up at this status.
    let ended = gate.get(&path, ALICE, &[("last-event-id", &id(&events[100]))]).await;
    assert_eq!(ended.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_stopped_answer_ends_as_a_short_one() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
    asked.send(&chunk(0));
    answer.event().await;
    let stopped = gate.send(Method::DELETE, &answer.path(), ALICE, &[], Bytes::new()).await;
    assert_eq!(stopped.status, StatusCode::NO_CONTENT);
    asked.cancelled().await;
    let last = answer.event().await;
    let last: Value = serde_json::from_str(last["data: ".len()..].lines().next().expect("data")).expect("JSON");
    assert_eq!((&last["choices"][0]["finish_reason"], &last["model"]), (&json!("stop"), &json!("m")));
    let rest = answer.rest().await;
    assert!(rest.starts_with("data: [DONE]\nid: ") && rest.contains("\nevent: stopped\n"), "{rest}");
    until(|| gate.is_idle(), "the generation has ended").await;
    // Once more, it stays as it is.
    let again = gate.send(Method::DELETE, &answer.path(), ALICE, &[], Bytes::new()).await;
    assert_eq!(again.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn another_owner_finds_nothing() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &[]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
    let path = answer.path();
    for method in [Method::GET, Method::DELETE] {
        let mut of_other = gate.send(method.clone(), &path, BOB, &[], Bytes::new()).await;
        let mut of_none = gate.send(method, "/v1/generations/none", BOB, &[], Bytes::new()).await;
        assert_eq!((of_other.status, of_none.status), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
        assert_eq!(of_other.rest().await, of_none.rest().await);
    }
    asked.send("[DONE]");
    assert!(answer.event().await.starts_with("data: [DONE]"), "it was not stopped");
}

#[tokio::test]
async fn an_answer_without_readers_is_cancelled_after_the_grace() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &["--grace", "6s"]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
    asked.send(&chunk(0));
    answer.event().await;
    let path = answer.path();
    drop(answer);
    // Another reader within the grace keeps it, for longer than the grace.
    let mut reader = gate.get(&path, ALICE, &[]).await;
    reader.event().await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    asked.send(&chunk(1));
    assert!(reader.event().await.contains(&chunk(1)));
    drop(reader);
    asked.cancelled().await;
    until(|| gate.is_idle(), "the generation has ended").await;
    let rest = gate.get(&path, ALICE, &[]).await.rest().await;
    assert!(rest.contains("event: error\ndata: {\"reason\":\"abandoned\"}\n"), "{rest}");
    let metrics = gate.get("/metrics", ALICE, &[]).await.rest().await;
    assert!(!metrics.contains("\nmillstream_streams_abandoned_total 0\n"), "{metrics}");
    for line in ["llm_gateway_generations 0", "llm_gateway_requests{key=\"alice\"} 0"] {
        assert!(metrics.lines().any(|other| other == line), "no {line} in {metrics}");
    }
}

#[tokio::test]
async fn the_model_stops_when_its_readers_have_left() {
    let gate = Gate::fake(&["--pace", "100s", "--grace", "0s"]).await;
    let mut answers = Vec::new();
    for n in 0..5 {
        let mut answer = gate.ask(ALICE, &prompt(&n.to_string())).await;
        answer.event().await;
        answers.push(answer);
    }
    let mut whole = prompt("not streamed");
    whole["stream"] = json!(false);
    let whole = tokio::spawn(gate.ask(ALICE, &whole));
    until(|| gate.fake.running() == 6, "all are in progress").await;
    whole.abort();
    until(|| gate.fake.running() == 5, "a client that waits for the whole answer has left").await;
    drop(answers);
    until(|| gate.fake.running() == 0 && gate.is_idle(), "nothing is in progress").await;
}

#[tokio::test]
async fn answers_in_progress_finish_during_a_drain() {
    let mut upstream = Upstream::start().await;
    let mut gate = Gate::before(&[&upstream], &[]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
    asked.send(&chunk(0));
    answer.event().await;
    let mut reader = gate.get(&answer.path(), ALICE, &[]).await;
    reader.event().await;
    gate.drain();
    until(|| gate.refuses(), "no new connection is accepted").await;
    asked.send(&chunk(1));
    asked.send("[DONE]");
    for answer in [&mut answer, &mut reader] {
        assert!(answer.event().await.contains(&chunk(1)));
        assert!(answer.event().await.starts_with("data: [DONE]\n"));
    }
    let drained = gate.drained().await;
    assert_eq!(drained.aborted, 0, "{drained:?}");
}

#[tokio::test]
async fn a_thinking_model_is_silent_but_for_pings() {
    let mut upstream = Upstream::start().await;
    let gate = Gate::before(&[&upstream], &["--ping", "300ms"]).await;
    let (mut answer, asked) = tokio::join!(gate.ask(ALICE, &prompt("a")), upstream.asked());
    let ping = |answer: Answer| async move {
        let mut answer = answer;
        let bytes = answer.bytes().await;
        (answer, bytes)
    };
    let (back, bytes) = ping(answer).await;
    assert_eq!(bytes, ":\n", "no empty line, which a client may take for an event");
    answer = back;
    asked.send(&chunk(0));
    assert!(answer.event().await.trim_start_matches(":\n").starts_with("data: "));
    assert_eq!(answer.bytes().await, ":\n");
}
