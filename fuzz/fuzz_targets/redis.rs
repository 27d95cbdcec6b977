//! Replies of a hostile Redis to the log of a hub: it fails or goes on, holds a bounded amount of memory, and its readers get
//! valid event streams.
#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use arbitrary::Arbitrary;
use http_body_util::BodyExt;
use libfuzzer_sys::fuzz_target;
use millstream::sse::{Event, EventBody, Hub};
use millstream_fuzz::events::read;
use millstream_fuzz::run_alone;
use millstream_redis::Redis;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::timeout;

static SOCKET: LazyLock<PathBuf> =
    LazyLock::new(|| tempfile::Builder::new().prefix("millstream-fuzz-").tempdir().unwrap().keep().join("redis"));

#[derive(Arbitrary, Clone, Debug)]
enum Reply {
    Usual,
    Bytes(Vec<u8>),
    /// Entries of the stream, as an answer to the command.
    Entries(Vec<Entry>),
    Error(Vec<u8>),
    Text(Vec<u8>),
    Number(i64),
    Nil,
    /// Arrays in arrays.
    Deep(u16),
    /// A length without the bytes.
    Length(u8, i64),
    Close,
    Never,
}

#[derive(Arbitrary, Clone, Debug)]
struct Entry {
    id: (u8, u8),
    text_id: Option<Vec<u8>>,
    fields: Vec<(u8, Vec<u8>)>,
    stamp: Option<(u8, u8)>,
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    /// Replies while the log connects; the usual ones follow.
    greeting: Vec<Reply>,
    replies: Vec<Reply>,
    sends: u8,
    readers: Vec<&'a str>,
}

const FIELDS: [&str; 8] = ["data", "event", "comment", "retry", "writer", "number", "id", ""];

fn bulk(to: &mut Vec<u8>, text: &[u8]) {
    to.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
    to.extend_from_slice(text);
    to.extend_from_slice(b"\r\n");
}

fn entries(list: &[Entry], is_read: bool, key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if is_read {
        bytes.extend_from_slice(b"*1\r\n*2\r\n");
        bulk(&mut bytes, key.as_bytes());
    }
    bytes.extend_from_slice(format!("*{}\r\n", list.len()).as_bytes());
    for Entry { id, text_id, fields, stamp } in list {
        bytes.extend_from_slice(b"*2\r\n");
        match text_id {
            Some(id) => bulk(&mut bytes, id),
            None => bulk(&mut bytes, format!("{}-{}", id.0, id.1).as_bytes()),
        }
        let number = (fields.len() + if stamp.is_some() { 2 } else { 0 }) * 2;
        bytes.extend_from_slice(format!("*{number}\r\n").as_bytes());
        if let Some((writer, number)) = stamp {
            bulk(&mut bytes, b"writer");
            bulk(&mut bytes, format!("{writer:016x}").as_bytes());
            bulk(&mut bytes, b"number");
            bulk(&mut bytes, number.to_string().as_bytes());
        }
        for (name, text) in fields {
            bulk(&mut bytes, FIELDS[usize::from(*name) % FIELDS.len()].as_bytes());
            bulk(&mut bytes, text);
        }
    }
    bytes
}

fn usual(command: &[String]) -> Vec<u8> {
    let text: &[u8] = match (&*command[0], command.get(1).map(|word| &**word)) {
        ("CLIENT", Some("ID")) => b":7\r\n",
        ("CLIENT", Some("KILL")) => b":0\r\n",
        ("INFO", _) => b"$23\r\nrun_id:abc\r\nrole:master\r\n",
        ("XRANGE" | "XREVRANGE", _) => b"*0\r\n",
        ("XADD", _) => b"$3\r\n9-9\r\n",
        _ => b"+OK\r\n",
    };
    text.to_vec()
}

/// Takes a command off the front of what was received.
fn command(received: &mut Vec<u8>) -> Option<Vec<String>> {
    fn number(bytes: &[u8], at: &mut usize) -> Option<usize> {
        let end = bytes.get(*at..)?.windows(2).position(|w| w == b"\r\n")? + *at;
        let number = std::str::from_utf8(bytes.get(*at + 1..end)?).ok()?.parse().ok();
        *at = end + 2;
        number
    }
    let mut at = 0;
    let mut words = Vec::new();
    for _ in 0..number(received, &mut at)? {
        let len = number(received, &mut at)?;
        words.push(String::from_utf8_lossy(received.get(at..at + len)?).into_owned());
        at += len + 2;
    }
    if at > received.len() {
        return None;
    }
    received.drain(..at);
    Some(words)
}

type Script = Rc<RefCell<VecDeque<Reply>>>;

async fn serve(mut stream: UnixStream, script: Script) {
    let mut received = Vec::new();
    loop {
        let Some(command) = command(&mut received) else {
            if !stream.read_buf(&mut received).await.is_ok_and(|n| n > 0) {
                return;
            }
            continue;
        };
        let (reply, is_read) = (script.borrow_mut().pop_front(), command[0] == "XREAD");
        let bytes = match reply {
            // Without new entries the command blocks.
            None | Some(Reply::Usual) if is_read => return std::future::pending().await,
            None | Some(Reply::Usual) => usual(&command),
            Some(Reply::Bytes(bytes)) => bytes,
            Some(Reply::Entries(list)) => entries(&list, is_read, "millstream:events"),
            Some(Reply::Error(text)) => [b"-", &text[..], b"\r\n"].concat(),
            Some(Reply::Text(text)) => {
                let mut bytes = Vec::new();
                bulk(&mut bytes, &text);
                bytes
            }
            Some(Reply::Number(number)) => format!(":{number}\r\n").into_bytes(),
            Some(Reply::Nil) => b"*-1\r\n".to_vec(),
            Some(Reply::Deep(depth)) => b"*1\r\n".repeat(usize::from(depth)),
            Some(Reply::Length(kind, len)) => {
                let kind = [b'*', b'$', b'%', b'~', b'>', b'='][usize::from(kind % 6)];
                format!("{}{len}\r\n", kind as char).into_bytes()
            }
            Some(Reply::Close) => return,
            Some(Reply::Never) => return std::future::pending().await,
        };
        if stream.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Reads what is ready, and adds it to what was read.
async fn take(body: &mut EventBody, to: &mut Vec<u8>) {
    loop {
        match futures_util::future::poll_immediate(pin!(body.frame())).await {
            Some(Some(Ok(frame))) => to.extend_from_slice(&frame.into_data().unwrap_or_default()),
            _ => return,
        }
    }
}

fuzz_target!(|input: Input<'_>| {
    run_alone(LocalSet::new().run_until(async {
        let _ = std::fs::remove_file(&*SOCKET);
        let listener = UnixListener::bind(&*SOCKET).unwrap();
        let script: Script = Rc::new(RefCell::new(input.greeting.iter().take(10).cloned().collect()));
        let answers = Rc::clone(&script);
        spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                spawn_local(serve(stream, Rc::clone(&answers)));
            }
        });
        let redis = Redis::builder(format!("unix://{}", SOCKET.display())).timeout(Duration::from_millis(20)).queue(4);
        let Ok(log) = redis.connect().await else { return };
        *script.borrow_mut() = input.replies.iter().take(20).cloned().collect();
        let hub = Hub::builder().log(log.clone()).replay(4).queue(4).keep_alive(Duration::ZERO).build();
        for n in 0..input.sends % 8 {
            let _ = hub.send(Event::new().data(n.to_string()));
        }
        let mut readers: Vec<_> =
            input.readers.iter().take(4).map(|id| (hub.subscribe_from(Some(id)).unwrap(), Vec::new())).collect();
        readers.push((hub.subscribe_from(Some("0-0")).unwrap(), Vec::new()));
        readers.push((hub.subscribe_from(None).unwrap(), Vec::new()));
        // Until the script is at its end, or waits for a timeout.
        let _ = timeout(Duration::from_millis(30), async {
            while !script.borrow().is_empty() {
                for (body, stream) in &mut readers {
                    take(body, stream).await;
                }
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        })
        .await;
        for _ in 0..20 {
            yield_now().await;
        }
        for (mut body, mut stream) in readers {
            take(&mut body, &mut stream).await;
            read(&stream);
        }
        let _ = log.state();
    }));
});
