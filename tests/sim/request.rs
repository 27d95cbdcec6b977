//! Requests, which follow from the dice, and the answers that are due to them.

use testkit::sim::{Dice, bytes_of};

use crate::refused::{FIELDS_MAX, URI_MAX};
use crate::world::Tags;

/// Values of `Host`, RFC 3986 §3.2.
const HOSTS: &[&str] =
    &["mill:80", "mill:", "mill:65535", "MILL.example", "127.0.0.1:8080", "[::1]", "[2001:db8::1]:443", "a%20b", ""];

const PAGE: usize = 4_096;

/// Whether a response ends by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Torn {
    Never,
    /// Its file shrinks to so many bytes while it is sent.
    From(usize),
    Always,
}

/// A request and its answer.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) tag: u64,
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// HTTP/1: the head as it is sent.
    pub(crate) head: Vec<u8>,
    /// The body as it is sent, behind the head.
    pub(crate) body: Vec<u8>,
    /// Tags of requests that the body contains, as bytes: they must not be executed.
    pub(crate) hidden: Vec<u64>,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub(crate) waits: bool,
    pub(crate) status: u16,
    /// The body of the response.
    pub(crate) expected: Vec<u8>,
    pub(crate) torn: Torn,
    /// Whether the server closes the connection behind the response.
    pub(crate) is_last: bool,
    /// HTTP/1: whether the client takes trailer fields.
    pub(crate) trails: bool,
    /// Time that the service takes, in milliseconds.
    pub(crate) takes: u64,
}

impl Request {
    /// Chooses a request over HTTP/1. Requests of a pipeline have no body, and their responses are complete. `most` is the
    /// longest body.
    pub(crate) fn choose(dice: &mut Dice, tags: &Tags, is_piped: bool, most: u64) -> Self {
        let mut request = Self::of_any_version(dice, tags, if is_piped { 6 } else { 10 }, most);
        let (mut fields, mut is_doubtful) = (String::new(), false);
        if !is_piped && request.method == "GET" && request.path.starts_with("/fixed") && dice.chance(15) {
            // Over HTTP/2, the end of one response may be that of the others.
            (request.path, request.torn) = shrinking(dice, request.tag, request.expected.len());
        }
        if request.method == "POST" {
            // An empty body is complete, so that the server does not ask for it.
            request.waits = !request.body.is_empty() && request.status == 200 && dice.chance(15);
            let len = request.body.len();
            request.body = framed(dice, &request.body, &mut fields);
            // Chunks count, and the connection ends behind them, RFC 9112 §6.3.
            is_doubtful = fields.starts_with("Transfer-Encoding") && dice.chance(15);
            if is_doubtful {
                fields += &format!("Content-Length: {}\r\n", dice.in_range(0..=len as u64));
            }
            if request.waits {
                fields += "Expect: 100-continue\r\n";
            }
        }
        request.trails = request.path.starts_with("/stream") && dice.chance(30);
        if request.trails {
            fields += "TE: trailers\r\n";
        }
        let is_old = !is_piped && request.method != "POST" && dice.chance(8);
        let is_closing = dice.chance(8);
        request.is_last = is_old || is_closing || is_doubtful;
        if is_closing {
            fields += "Connection: close\r\n";
        } else if dice.chance(20) {
            fields +=
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n";
        }
        let version = if is_old { "1.0" } else { "1.1" };
        let (path, host) = dress(dice, request.path.clone(), &mut fields);
        request.head = format!("{} {path} HTTP/{version}\r\nHost: {host}\r\n{fields}\r\n", request.method).into();
        request
    }

    /// Chooses a request over HTTP/2.
    pub(crate) fn choose_two(dice: &mut Dice, tags: &Tags, most: u64) -> Self {
        Self::of_any_version(dice, tags, 10, most)
    }

    /// Makes the upload one that is long, and read late.
    pub(crate) fn hoard(&mut self, dice: &mut Dice) {
        self.takes = dice.in_range(1_000..=5_000);
        self.body = bytes_of(self.tag, dice.in_range(1..=250 << 10) as usize);
        self.expected = self.body.clone();
        self.path = format!("/hoard/{}/{}", self.tag, self.takes);
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    fn of_any_version(dice: &mut Dice, tags: &Tags, kinds: u64, most: u64) -> Self {
        let mut request = Self {
            tag: tags.next(),
            method: "GET",
            path: String::new(),
            head: Vec::new(),
            body: Vec::new(),
            hidden: Vec::new(),
            waits: false,
            status: 200,
            expected: Vec::new(),
            torn: Torn::Never,
            is_last: false,
            trails: false,
            takes: 0,
        };
        let is_head = dice.chance(8);
        request.path = request.path(dice, tags, kinds, most);
        if is_head && request.method == "GET" {
            request.method = "HEAD";
            request.expected.clear();
            request.torn = Torn::Never;
        }
        request
    }

    /// Chooses one of `kinds`. Returns its path.
    fn path(&mut self, dice: &mut Dice, tags: &Tags, kinds: u64, most: u64) -> String {
        let tag = self.tag;
        match dice.in_range(0..=kinds) {
            0..=2 => {
                let len = dice.of_any_size(0..=most);
                self.expected = bytes_of(tag, len as usize);
                format!("/fixed/{tag}/{len}")
            }
            3 => {
                self.expected = bytes_of(tag, 5);
                format!("/gone/{tag}")
            }
            4 | 5 => {
                let (count, len) = (dice.of_any_size(1..=20), dice.of_any_size(1..=most / 20));
                let gap = *dice.pick(&[0, 1, 50, 700]);
                let is_torn = kinds > 6 && dice.chance(10);
                self.torn = if is_torn { Torn::Always } else { Torn::Never };
                self.takes = count * gap;
                self.expected = bytes_of(tag, (count * len) as usize);
                format!("/{}/{tag}/{count}/{len}/{gap}", if is_torn { "torn" } else { "stream" })
            }
            6 => {
                self.takes = dice.of_any_size(1..=5_000);
                self.expected = bytes_of(tag, 5);
                format!("/late/{tag}/{}", self.takes)
            }
            7..=9 => {
                self.method = "POST";
                self.body = body(dice, tags, most, &mut self.hidden);
                self.expected = self.body.clone();
                // Some answers are silent for longer than a client that has ended its side may wait.
                self.takes = if dice.chance(15) { dice.in_range(1..=8_000) } else { 0 };
                format!("/upload/{tag}/{}", self.takes)
            }
            _ => {
                self.method = "POST";
                self.body = body(dice, tags, 200 << 10, &mut self.hidden);
                self.status = 413;
                self.expected = bytes_of(tag, 5);
                format!("/unread/{tag}")
            }
        }
    }
}

/// Returns the path of a file that shrinks to some of its pages, soon.
pub(crate) fn shrinking(dice: &mut Dice, tag: u64, len: usize) -> (String, Torn) {
    let (pages, soon) = (dice.in_range(0..=len as u64 / PAGE as u64), dice.of_any_size(1..=2_000) - 1);
    (format!("/shrinks/{tag}/{len}/{pages}/{soon}"), Torn::From(pages as usize * PAGE))
}

/// Makes some requests as long as the limits allow, and chooses the host.
fn dress(dice: &mut Dice, mut path: String, fields: &mut String) -> (String, &'static str) {
    if dice.chance(10) {
        path += &format!("?{}", "u".repeat(URI_MAX - path.len() - 1));
    }
    if dice.chance(10) {
        let more = FIELDS_MAX - fields.lines().count() - 1;
        *fields += &"X-More: 1\r\n".repeat(more);
    }
    let host = if dice.chance(70) { "mill" } else { *dice.pick::<&str>(HOSTS) };
    (path, host)
}

/// Returns the body of a request. It contains text of requests, at its start and elsewhere.
fn body(dice: &mut Dice, tags: &Tags, most: u64, hidden: &mut Vec<u64>) -> Vec<u8> {
    let mut body = bytes_of(tags.next(), dice.of_any_size(0..=most) as usize);
    for _ in 0..dice.in_range(0..=2) {
        let tag = tags.next();
        let text = format!("GET /hidden/{tag} HTTP/1.1\r\nHost: mill\r\n\r\n");
        let Some(last) = body.len().checked_sub(text.len()) else { break };
        let at = if dice.chance(50) { 0 } else { dice.in_range(0..=last as u64) as usize };
        body[at..at + text.len()].copy_from_slice(text.as_bytes());
        hidden.push(tag);
    }
    body
}

/// Adds the field that tells the length of `body`. Returns the body as it is sent.
fn framed(dice: &mut Dice, body: &[u8], fields: &mut String) -> Vec<u8> {
    if dice.chance(60) {
        *fields += &format!("Content-Length: {}\r\n", body.len());
        return body.to_vec();
    }
    *fields += "Transfer-Encoding: chunked\r\n";
    let (mut framed, mut rest) = (Vec::new(), body);
    while !rest.is_empty() {
        // Chunks of one byte are common, but not for all of a long body.
        let least = (rest.len() as u64 / 50).max(1);
        let (chunk, left) = rest.split_at(dice.of_any_size(least..=rest.len() as u64) as usize);
        rest = left;
        let line = match dice.in_range(0..=3) {
            0 => format!("{:X};part=\"a\"", chunk.len()),
            1 => format!("{:08x}", chunk.len()),
            _ => format!("{:x}", chunk.len()),
        };
        framed.extend(line.as_bytes());
        framed.extend(b"\r\n");
        framed.extend(chunk);
        framed.extend(b"\r\n");
    }
    framed.extend(b"0\r\n");
    if dice.chance(30) {
        framed.extend(b"X-Sum: 1\r\nX-Rest: GET / HTTP/1.1\r\n");
    }
    framed.extend(b"\r\n");
    framed
}
