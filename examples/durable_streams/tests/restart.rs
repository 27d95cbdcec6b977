//! A process continues with the streams of the one before it, and ends those whose time is over.

use std::thread;
use std::time::{Duration, Instant};

use support::{Client, HANGS, Server, pause};

mod support;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const JSON: (&str, &str) = ("content-type", "application/json");

fn producer(epoch: &'static str, seq: &'static str) -> [(&'static str, &'static str); 4] {
    [TEXT, ("producer-id", "p"), ("producer-epoch", epoch), ("producer-seq", seq)]
}

#[test]
fn everything_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    let put = |server: &Server, path: &str, fields: &[(&str, &str)], body: &[u8]| {
        assert_eq!(server.ask("PUT", path, fields, body).status, 201, "{path}");
    };
    put(&server, "/source", &[TEXT, ("stream-ttl", "3600")], b"0123456789");
    put(&server, "/json", &[JSON], br#"[{"a": 1}, 2]"#);
    put(&server, "/closed", &[TEXT, ("stream-closed", "true")], b"end");
    put(&server, "/late", &[TEXT, ("stream-expires-at", "2999-01-01T00:00:00Z")], b"");
    let zeros = "0000000000000000_0000000000000000";
    let fork = [("stream-forked-from", "/source"), ("stream-fork-offset", zeros), ("stream-fork-sub-offset", "4")];
    put(&server, "/fork", &fork, b"abc");
    put(&server, "/fork/of/fork", &[("stream-forked-from", "/fork")], b"xyz");
    assert_eq!(server.ask("POST", "/source", &producer("2", "0"), b"!").status, 200);
    assert_eq!(server.ask("POST", "/source", &[TEXT, ("stream-seq", "b")], b"?").status, 204);
    put(&server, "/gone", &[TEXT], b"gone");
    assert_eq!(server.ask("DELETE", "/gone", &[], b"").status, 204);
    assert_eq!(server.ask("DELETE", "/fork", &[], b"").status, 204);

    // First from the journal, then from the snapshot and the files, and after a restart without a kill.
    for restart in 0..4 {
        if restart < 3 {
            server.kill()
        } else {
            server.stop()
        }
        server = Server::start(dir.path());
        assert_eq!(server.read("/source"), b"0123456789!?", "restart {restart}");
        assert_eq!(server.read("/json"), b"[{\"a\": 1},\n2]");
        assert_eq!(server.read("/fork/of/fork"), b"0123abcxyz");
        let head = |path: &str| server.ask("HEAD", path, &[], b"");
        assert_eq!(head("/source").headers["stream-ttl"], "3600");
        assert_eq!(head("/fork/of/fork").headers["stream-ttl"], "3600", "the fork has it from its source");
        assert_eq!(head("/late").headers["stream-expires-at"], "2999-01-01T00:00:00Z");
        assert_eq!(head("/closed").headers["stream-closed"], "true");
        assert_eq!(head("/gone").status, 404);
        assert_eq!(head("/fork").status, 410, "its fork needs it");
        assert_eq!(server.ask("POST", "/closed", &[TEXT], b"x").status, 409);
        let duplicate = server.ask("POST", "/source", &producer("2", "0"), b"!");
        assert_eq!((duplicate.status, &*duplicate.headers["producer-seq"]), (204, "0"));
        assert_eq!(server.ask("POST", "/source", &producer("1", "0"), b"!").status, 403);
        assert_eq!(server.ask("POST", "/source", &producer("2", "2"), b"!").status, 409);
        assert_eq!(server.ask("POST", "/source", &[TEXT, ("stream-seq", "a")], b"?").status, 409);
        assert_eq!(server.ask("PUT", "/fork", &[TEXT], b"").status, 409);
    }
    assert_eq!(server.ask("DELETE", "/fork/of/fork", &[], b"").status, 204);
    assert_eq!(server.ask("HEAD", "/fork", &[], b"").status, 404, "nothing needs it any more");
    server.kill();
    server = Server::start(dir.path());
    assert_eq!(server.ask("HEAD", "/fork", &[], b"").status, 404);
    assert_eq!(std::fs::read_dir(dir.path().join("data")).unwrap().count(), 3, "of /source, /json and /closed");
}

#[test]
fn an_offset_inside_a_message_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    let created = server.ask("PUT", "/j", &[JSON], b"[{\"a\":\n[1,\n2]}, \"x,\\n\", 3]");
    let end = created.headers["stream-next-offset"].clone();
    let last: usize = end.split_once('_').unwrap().1.parse().unwrap();
    // From memory, then from the file.
    for place in ["memory", "file"] {
        let mut fine = Vec::new();
        for at in 0..=last {
            let offset = format!("0000000000000000_{at:016}");
            let ask = |query: &str| server.ask("GET", &format!("/j?offset={offset}{query}"), &[], b"");
            let answer = ask("");
            if answer.status == 200 {
                fine.push(String::from_utf8(answer.body).unwrap());
                continue;
            }
            let fork = [("stream-forked-from", "/j"), ("stream-fork-offset", &*offset)];
            let sub = [fork[0], fork[1], ("stream-fork-sub-offset", "1")];
            let live = [ask("&live=sse").status, ask("&live=long-poll").status];
            let forked = [server.ask("PUT", "/f", &fork, b"").status, server.ask("PUT", "/f", &sub, b"").status];
            assert_eq!((answer.status, live, forked), (400, [400; 2], [400; 2]), "{at} in {place}");
        }
        let all = ["{\"a\": [1, 2]}", "\"x,\\n\"", "3"];
        let expected: Vec<_> = (0..=3).map(|n| format!("[{}]", all[n..].join(",\n"))).collect();
        assert_eq!(fine, expected, "{place}");
        server.stop();
        server = Server::start(dir.path());
    }
}

#[test]
fn events_from_a_file_divide_no_character() {
    const BLOCK: usize = 256 << 10;
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    // Each boundary of blocks is inside a character.
    let text = format!("a{}", "ä".repeat(BLOCK + 9));
    server.ask("PUT", "/s", &[TEXT], text.as_bytes());
    server.stop();
    // The opening moves the bytes into the file.
    server = Server::start(dir.path());
    let mut client = Client::new(server.address);
    let path = format!("/s?offset=0000000000000000_{:016}&live=sse", BLOCK - 1);
    assert_eq!(client.ask("GET", &path, &[], b"").unwrap().status, 200);
    let (mut read, mut events) = (String::new(), 0);
    loop {
        let line = client.line();
        match line.trim_end().strip_prefix("data:") {
            Some(control) if control.starts_with('{') => events += 1,
            Some(data) => read += data,
            None => {}
        }
        assert!(events < 10, "events without data");
        if line.contains("\"upToDate\":true") {
            break;
        }
    }
    assert!(read == text[BLOCK - 1..], "{} bytes of {}", read.len(), text.len() + 1 - BLOCK);
}

#[test]
fn the_journal_is_written_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    let mut client = Client::new(server.address);
    let body: Vec<u8> = (0..500_000_u32).map(|n| (n % 251) as u8).collect();
    let binary = ("content-type", "application/octet-stream");
    for stream in ["/a", "/b"] {
        assert_eq!(client.ask("PUT", stream, &[binary], b"").unwrap().status, 201);
    }
    // Five times the size of both segments.
    for n in 0..160 {
        let stream = if n % 3 == 0 { "/a" } else { "/b" };
        assert_eq!(client.ask("POST", stream, &[binary], &body).unwrap().status, 204);
    }
    for _ in 0..2 {
        for (stream, times) in [("/a", 54), ("/b", 106)] {
            let read = server.read(stream);
            assert_eq!(read.len(), times * body.len());
            assert!(read.chunks(body.len()).all(|chunk| chunk == body), "{stream}");
        }
        server.kill();
        server = Server::start(dir.path());
    }
}

#[test]
fn a_long_poll_is_woken_and_ends_with_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start_patient(dir.path());
    server.ask("PUT", "/s", &[TEXT], b"");
    let address = server.address;
    let poll = move || Client::new(address).ask("GET", "/s?offset=now&live=long-poll", &[], b"");
    let waiting = thread::spawn(poll);
    // Until the poll, which begins at some time, has got some.
    while !waiting.is_finished() {
        server.ask("POST", "/s", &[TEXT], b"news");
        pause(Duration::from_millis(100));
    }
    assert!(waiting.join().unwrap().unwrap().body.starts_with(b"news"));
    // On a connection that the server has accepted.
    let mut client = Client::new(address);
    assert_eq!(client.ask("GET", "/s", &[], b"").unwrap().status, 200);
    client.send("GET", "/s?offset=now&live=long-poll", &[], b"").unwrap();
    // Time for the poll to begin. One that has not begun ends as well.
    pause(Duration::from_secs(1));
    // Ends, although the poll would wait for an hour.
    server.stop();
    assert_eq!(client.answer("GET").unwrap().status, 204);
}

#[test]
fn limits_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    assert_eq!(server.ask("PUT", "/s", &[TEXT], &vec![b'x'; (1 << 20) + 1]).status, 413);
    assert_eq!(server.ask("PUT", &format!("/{}", "x".repeat(2000)), &[TEXT], b"").status, 414);
    assert_eq!(server.ask("PATCH", "/s", &[], b"").status, 405);
    assert_eq!(server.ask("GET", "/v1/__ds/subscriptions/x", &[], b"").status, 404);
}

#[test]
fn a_stream_with_a_reader_does_not_expire() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    assert_eq!(server.ask("PUT", "/s", &[TEXT, ("stream-ttl", "1")], b"first").status, 201);
    let mut reader = Client::new(server.address);
    reader.send("GET", "/s?offset=-1&live=sse", &[], b"").unwrap();
    let mut until = |data: &str| while !reader.line().contains(data) {};
    until("first");
    pause(Duration::from_millis(1500));
    assert_eq!(server.ask("HEAD", "/s", &[], b"").status, 200);
    assert_eq!(server.ask("POST", "/s", &[TEXT], b"second").status, 204);
    until("second");
    drop(reader);
    let left = Instant::now();
    while server.ask("HEAD", "/s", &[], b"").status != 404 {
        assert!(left.elapsed() < HANGS, "it stays without a reader");
        pause(Duration::from_millis(50));
    }
}
