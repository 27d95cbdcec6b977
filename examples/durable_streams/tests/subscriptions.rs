//! Subscriptions outlive processes, leases and webhooks that fail.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Answer, Client, HANGS, Server, pause};

mod support;

const JSON: (&str, &str) = ("content-type", "application/json");
const DONE: &str = r#"{"done":true}"#;
/// A lease that ends in no test, in milliseconds.
const LONG: u64 = 600_000;
const ZERO: &str = "0000000000000000_0000000000000000";
const SUB: &str = "/v1/__ds/subscriptions/a%20b";

fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let Answer { status, body, .. } = server.ask(method, path, &[JSON], body.to_string().as_bytes());
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn report(server: &Server, action: &str, wake: &Value, body: &Value) -> (u16, Value) {
    let token = format!("Bearer {}", wake["token"].as_str().or(wake["callback_token"].as_str()).unwrap());
    let mut body = body.clone();
    body["wake_id"] = wake["wake_id"].clone();
    body["generation"] = wake["generation"].clone();
    let fields = [JSON, ("authorization", &*token)];
    let Answer { status, body, .. } =
        server.ask("POST", &format!("{SUB}/{action}"), &fields, body.to_string().as_bytes());
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn put(server: &Server, path: &str, body: &[u8]) {
    assert_eq!(server.ask("PUT", path, &[JSON], body).status, 201, "{path}");
}

fn append(server: &Server, path: &str) {
    assert_eq!(server.ask("POST", path, &[JSON], b"1").status, 204, "{path}");
}

/// Makes a subscription that workers pull, and its stream of wakes.
fn pull(server: &Server, lease: u64) {
    put(server, "/v1/wakes", b"[]");
    let config = json!({ "type": "pull-wake", "pattern": "**", "wake_stream": "wakes", "lease_ttl_ms": lease });
    assert_eq!(ask(server, "PUT", SUB, &config).0, 201);
    assert_eq!(ask(server, "PUT", SUB, &config).0, 200, "the same again");
    let other = json!({ "type": "pull-wake", "pattern": "*", "wake_stream": "wakes", "lease_ttl_ms": lease });
    assert_eq!(ask(server, "PUT", SUB, &other).0, 409);
}

/// Waits until the stream of wakes has a wake of a generation or a later one.
fn woken(server: &Server, generation: u64) {
    until("there is such a wake", || {
        let wakes: Vec<Value> = serde_json::from_slice(&server.read("/v1/wakes")).unwrap();
        wakes.iter().any(|wake| wake["generation"].as_u64() >= Some(generation))
    });
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..HANGS.as_millis() / 20 {
        if is_so() {
            return;
        }
        pause(Duration::from_millis(20));
    }
    panic!("never: {what}");
}

fn claim(server: &Server) -> (u16, Value) {
    ask(server, "POST", &format!("{SUB}/claim"), &json!({ "worker": "w" }))
}

fn acks(wake: &Value) -> Value {
    let streams = wake["streams"].as_array().unwrap().iter();
    streams.map(|stream| json!({ "stream": stream["path"], "offset": stream["tail_offset"] })).collect()
}

#[test]
fn cursors_and_wakes_are_kept_over_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    put(&server, "/v1/old", b"[1, 2]");
    put(&server, "/other/old", b"[1]");
    pull(&server, LONG);
    assert_eq!(claim(&server).0, 409, "what was there before is not new");
    put(&server, "/v1/new", b"[1]");
    append(&server, "/v1/old");
    woken(&server, 1);
    server.kill();

    server = Server::start(dir.path());
    let (status, wake) = claim(&server);
    assert_eq!(status, 200, "{wake}");
    let pending = |wake: &Value| {
        let streams = wake["streams"].as_array().unwrap().iter();
        let pending = streams.filter(|stream| stream["has_pending"] == true);
        pending.map(|stream| stream["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(pending(&wake), ["new", "old"]);
    let (status, busy) = claim(&server);
    assert_eq!((status, busy["error"]["current_holder"].as_str()), (409, Some("w")));
    // Part of the work, without the end of the wake.
    let one = json!({ "acks": [acks(&wake)[0]] });
    assert_eq!(report(&server, "ack", &wake, &one), (200, json!({ "ok": true, "next_wake": false })));
    server.kill();

    server = Server::start(dir.path());
    let far = json!({ "acks": [{ "stream": "old", "offset": "0000000000000000_0000000000000999" }] });
    assert_eq!(report(&server, "ack", &wake, &far).1["error"]["code"], "INVALID_OFFSET");
    let streams = ask(&server, "GET", SUB, &Value::Null).1;
    assert_eq!(pending(&streams), ["old"], "the first cursor was kept, the wrong offset moved none");
    let rest = json!({ "acks": acks(&wake), "done": true });
    assert_eq!(report(&server, "ack", &wake, &rest), (200, json!({ "ok": true, "next_wake": false })));
    assert_eq!(report(&server, "ack", &wake, &rest).0, 409, "the wake is over");
    assert_eq!(claim(&server).1["error"]["code"], "NO_PENDING_WORK");
    server.kill();
    server = Server::start(dir.path());
    assert_eq!(claim(&server).1["error"]["code"], "NO_PENDING_WORK", "after a restart, too");
}

#[test]
fn a_lease_that_ends_makes_another_wake_and_fences_the_worker() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    pull(&server, 1000);
    put(&server, "/v1/s", b"[1]");
    woken(&server, 1);
    let first = claim(&server).1;
    assert_eq!(first["generation"], 1);
    woken(&server, 2);
    let (status, body) = report(&server, "ack", &first, &json!({ "acks": acks(&first), "done": true }));
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("FENCED")));
    let second = claim(&server).1;
    assert_eq!((second["generation"].as_u64(), acks(&second)), (Some(2), acks(&first)), "nothing was acked");

    // A token of another wake, and none.
    let mut forged = second.clone();
    forged["token"] = first["token"].clone();
    assert_eq!(report(&server, "ack", &forged, &json!({})).0, 401);
    assert_eq!(ask(&server, "POST", &format!("{SUB}/ack"), &json!({ "wake_id": "", "generation": 2 })).0, 401);
    assert_eq!(report(&server, "callback", &second, &json!({})).0, 400, "only webhooks call back");
    // What is given back is woken again.
    let (status, _) = report(&server, "release", &second, &json!({}));
    assert!(status == 204 || status == 409, "or its lease has ended meanwhile: {status}");
    woken(&server, 3);

    // A stream that is deleted has nothing to read; one that is made again is read from its start.
    let third = claim(&server).1;
    assert_eq!(server.ask("DELETE", "/v1/s", &[], b"").status, 204);
    let _ = report(&server, "release", &third, &json!({}));
    until("nothing is left to read", || claim(&server).1["error"]["code"] == "NO_PENDING_WORK");
    assert_eq!(ask(&server, "GET", SUB, &Value::Null).1["streams"], json!([]));
    put(&server, "/v1/s", b"[1]");
    assert_eq!(claim(&server).0, 200);
}

/// A worker that answers each request with the next status and body, and passes on what it was sent.
fn worker(answers: &'static [(u16, &str)]) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, requests) = channel();
    thread::spawn(move || {
        for (status, body) in answers {
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut len = 0;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
                    len = text.trim().parse().unwrap();
                }
                if line == "\r\n" {
                    break;
                }
            }
            let mut request = vec![0; len];
            stream.read_exact(&mut request).unwrap();
            let head = format!("HTTP/1.1 {status} -\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.get_mut().write_all((head + body).as_bytes()).unwrap();
            sender.send(serde_json::from_slice(&request).unwrap()).unwrap();
        }
    });
    (url, requests)
}

fn webhook(server: &Server, url: &str) -> (u16, Value) {
    let config = json!({ "type": "webhook", "streams": ["s"], "webhook": { "url": url }, "lease_ttl_ms": LONG });
    ask(server, "PUT", SUB, &config)
}

#[test]
fn a_webhook_that_fails_is_called_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), Stdio::null());
    let (url, requests) = worker(&[(500, ""), (204, ""), (200, DONE), (200, DONE)]);
    assert_eq!(webhook(&server, &url).0, 201);
    put(&server, "/v1/s", b"[1]");
    let first = requests.recv_timeout(HANGS).unwrap();
    let second = requests.recv_timeout(HANGS).unwrap();
    assert_eq!((first["generation"].as_u64(), second["generation"].as_u64()), (Some(1), Some(2)));
    assert_eq!(second["callback_url"], format!("http://test{SUB}/callback"));
    assert_eq!(second["streams"][0]["link_type"], "explicit");
    assert_eq!(report(&server, "callback", &first, &json!({})).0, 409);
    append(&server, "/v1/s");
    let ended = report(&server, "callback", &second, &json!({ "acks": acks(&second), "done": true }));
    assert_eq!(ended, (200, json!({ "ok": true, "next_wake": true })), "of the append after the request");
    let third = requests.recv_timeout(HANGS).unwrap();
    let state = || ask(&server, "GET", SUB, &Value::Null).1;
    until("the answer ends the wake", || state()["streams"][0]["acked_offset"] == third["streams"][0]["tail_offset"]);
    assert_eq!(state()["status"], "active");
    // Another stream with the path is read from its start, although it is shorter.
    assert_eq!(server.ask("DELETE", "/v1/s", &[], b"").status, 204);
    put(&server, "/v1/s", b"[1]");
    let fourth = requests.recv_timeout(HANGS).unwrap();
    assert_eq!(fourth["streams"][0]["acked_offset"], ZERO);
}

#[test]
fn a_webhook_that_does_not_answer_has_failed() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), Stdio::null());
    // Connections wait in its backlog.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", silent.local_addr().unwrap());
    let config = json!({ "type": "webhook", "pattern": "s", "webhook": { "url": url }, "lease_ttl_ms": 1000 });
    assert_eq!(ask(&server, "PUT", SUB, &config).0, 201);
    put(&server, "/v1/s", b"[1]");
    until("it has failed", || ask(&server, "GET", SUB, &Value::Null).1["status"] == "failed");
}

#[test]
fn a_worker_of_a_deleted_stream_moves_no_cursor_of_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    pull(&server, LONG);
    put(&server, "/v1/s", b"[1, 2, 3, 4]");
    let old = claim(&server).1;
    assert_eq!(server.ask("DELETE", "/v1/s", &[], b"").status, 204);
    put(&server, "/v1/s", b"[1, 2, 3, 4, 5, 6]");
    let (status, body) = report(&server, "ack", &old, &json!({ "acks": acks(&old), "done": true }));
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("INVALID_OFFSET")));
    assert_eq!(report(&server, "ack", &old, &json!({ "done": true })).1["next_wake"], true);
    let new = claim(&server).1;
    assert_eq!(new["streams"][0]["acked_offset"], ZERO);
    assert_eq!(report(&server, "ack", &new, &json!({ "acks": acks(&new), "done": true })).1["next_wake"], false);

    // One that was read is forgotten, too.
    assert_eq!(server.ask("DELETE", "/v1/s", &[], b"").status, 204);
    until("nothing is linked", || ask(&server, "GET", SUB, &Value::Null).1["streams"] == json!([]));
}

#[test]
fn clients_that_leave_do_not_lose_wakes() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    pull(&server, LONG);
    for number in 0..20 {
        let path = format!("/v1/of/{number}");
        // Dropped without a look at the answer.
        Client::new(server.address).send("PUT", &path, &[JSON], b"[1]").unwrap();
    }
    // Requests before this one were read, or are never answered.
    put(&server, "/v1/last", b"[1]");
    until("all that are there are linked", || {
        let linked = ask(&server, "GET", SUB, &Value::Null).1["streams"].as_array().unwrap().len();
        let paths = (0..20).map(|number| format!("/v1/of/{number}"));
        let there = paths.filter(|path| server.ask("HEAD", path, &[], b"").status == 200).count();
        linked == there + 1
    });
}

#[test]
fn wakes_wait_for_their_stream() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(dir.path(), Stdio::null());
    let config = json!({ "type": "pull-wake", "pattern": "s", "wake_stream": "wakes" });
    assert_eq!(ask(&server, "PUT", SUB, &config).0, 201);
    put(&server, "/v1/s", b"[1]");
    until("it has failed", || ask(&server, "GET", SUB, &Value::Null).1["status"] == "failed");
    put(&server, "/v1/wakes", b"[]");
    woken(&server, 2);
}

#[test]
fn a_deleted_subscription_stays_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    pull(&server, LONG);
    put(&server, "/v1/s", b"[1]");
    let wake = claim(&server).1;
    assert_eq!(ask(&server, "DELETE", SUB, &Value::Null).0, 204);
    assert_eq!(report(&server, "ack", &wake, &json!({})).0, 404);
    assert_eq!(ask(&server, "GET", SUB, &Value::Null).0, 404);
    server.kill();
    server = Server::start(dir.path());
    assert_eq!(ask(&server, "GET", SUB, &Value::Null).0, 404);
    let files = std::fs::read_dir(dir.path().join("subscriptions")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(files.collect::<Vec<_>>(), ["key"]);
    assert_eq!(ask(&server, "PUT", "/v1/__ds/other", &Value::Null).0, 404);
    assert_eq!(ask(&server, "PUT", "/v1/__ds/jwks.json", &Value::Null).0, 405);
    assert_eq!(webhook(&server, "http://10.0.0.1/").1["error"]["code"], "WEBHOOK_URL_REJECTED");
    assert!(is_damage_told(dir.path(), &mut server));
}

/// Returns whether a damaged file stops the start with its name.
fn is_damage_told(dir: &Path, server: &mut Server) -> bool {
    server.kill();
    std::fs::write(dir.join("subscriptions/x.json"), "{").unwrap();
    support::refused(dir).contains("x.json")
}
