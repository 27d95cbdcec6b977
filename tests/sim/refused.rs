//! Requests that the server itself refuses, with the answer of its hook and the end of the connection.

use bytes::Bytes;
use hyper::Response;

use crate::client::Talk;
use crate::owed::Asked;

/// Bytes of a head, of its path and query, its fields, and the bytes of a body that are allowed.
pub(crate) const HEAD_MAX: usize = 4 << 10;
pub(crate) const URI_MAX: usize = 200;
pub(crate) const FIELDS_MAX: usize = 12;
pub(crate) const BODY_MAX: u64 = 256 << 10;
/// Values of `Host` that are none.
const NO_HOSTS: &[&str] =
    &["mi ll", "mill:8o", "mill:99999", "me@mill", "[::1", "[mill]", "mi%2", "a%2z", "a%z2", "mill/", "1.2.3.4:-1"];
/// Fields without one `Host`.
const NOT_ONE_HOST: &[&str] = &["", "Host: mill\r\nHost: mill\r\n"];

/// The field that the hook adds to an answer of the server.
pub(crate) fn mark(response: &mut Response<Bytes>) {
    response.headers_mut().insert("x-refused", "by the server".parse().expect("a value"));
    *response.body_mut() = Bytes::from_static(b"refused");
}

/// Sends a request that is refused, and expects the answer that says so, and the end.
pub(crate) async fn refused(mut talk: Talk) {
    let tag = talk.tags.next();
    let get = |rest: &str, fields: &str| format!("GET /fixed/{tag}/5{rest} HTTP/1.1\r\n{fields}\r\n");
    let post = |fields: &str| format!("POST /upload/{tag} HTTP/1.1\r\nHost: mill\r\n{fields}\r\n");
    let short = format!("/fixed/{tag}/5").len();
    let (status, is_marked, text) = match talk.dice.in_range(0..=6) {
        0 => (414, true, get(&format!("?{}", "u".repeat(URI_MAX - short)), "Host: mill\r\n")),
        1 => (431, true, get("", &format!("Host: mill\r\n{}", "X-More: 1\r\n".repeat(FIELDS_MAX)))),
        2 => (431, false, get("", &format!("Host: mill\r\nX-Long: {}\r\n", "l".repeat(HEAD_MAX)))),
        3 => (400, true, get("", &format!("Host: {}\r\n", talk.dice.pick(NO_HOSTS)))),
        4 => (400, true, get("", talk.dice.pick::<&str>(NOT_ONE_HOST))),
        5 => (413, true, post(&format!("Content-Length: {}\r\n", BODY_MAX + 1))),
        _ => (413, true, post("Transfer-Encoding: chunked\r\n") + &chunks(BODY_MAX as usize + 1)),
    };
    let has_body = status == 413;
    if !has_body {
        talk.world.calls.forbid(tag);
    }
    let asked = talk.ask(tag, &text).await;
    let asked = Asked { has_body, is_prompt: !has_body, ..asked };
    // Bytes of the request that the server has not read when it closes the socket are answered by a reset.
    talk.sent_behind = true;
    talk.line.is_in_one_piece = false;
    let latest = asked.sent + talk.line.time_for(asked.bytes);
    let bytes = talk.expect_end((0, latest), Some(&asked)).await;
    let is_late = talk.world.net.now() >= talk.late_from(&asked);
    let answer = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let head = head.to_ascii_lowercase();
    let is_right = head.starts_with(&format!("http/1.1 {status} "))
        && head.contains("\r\nconnection: close")
        && (!is_marked || (head.contains("\r\nx-refused: by the server") && body == "refused"));
    // A reset may overtake the answer.
    let is_lost = bytes.is_empty() && (talk.has_closed(&asked) || has_body || !talk.line.is_able);
    if !is_right && !is_lost && !is_late && !talk.may_be_refused {
        talk.fault(format_args!("not {status}: {answer:?} to {text:?}"));
    }
}

/// Returns a body of chunks.
fn chunks(len: usize) -> String {
    let chunk = format!("1000\r\n{}\r\n", "c".repeat(0x1000));
    format!("{}1\r\nc\r\n0\r\n\r\n", chunk.repeat(len / 0x1000))
}
