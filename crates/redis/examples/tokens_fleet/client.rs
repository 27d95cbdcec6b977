//! The client: behaves like an `EventSource`, and checks the tokens it receives.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::instance::{Instance, tokens};

/// Longer than any pause of the model.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Client<'a> {
    instances: &'a [Instance],
    path: String,
    last: Option<String>,
    got: Vec<String>,
    gaps: usize,
    moves: usize,
}

/// Received tokens, compared with the expected ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    tokens: usize,
    moves: usize,
    lost: usize,
    doubled: usize,
    gaps: usize,
    same: bool,
}

struct Stream {
    body: Incoming,
    text: String,
    connection: JoinHandle<()>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    id: Option<String>,
    name: String,
    data: String,
}

impl<'a> Client<'a> {
    pub(crate) fn new(instances: &'a [Instance], answer: &str) -> Self {
        Self { instances, path: format!("/answers/{answer}"), last: None, got: Vec::new(), gaps: 0, moves: 0 }
    }

    /// Starts an answer on the first instance.
    pub(crate) async fn ask(&self) -> Result<(), String> {
        let request = Request::post(&self.path).header("host", "fleet");
        let stream = send(&self.instances[0], request, StatusCode::ACCEPTED).await?;
        stream.connection.abort();
        Ok(())
    }

    /// Reads the answer. Is disconnected `cuts` times, and reconnects to the next instance each time.
    pub(crate) async fn read(&mut self, cuts: usize) -> Result<(), String> {
        let piece = tokens().count() / (cuts + 1) + 1;
        loop {
            let instance = &self.instances[self.moves % self.instances.len()];
            let mut request = Request::get(&self.path).header("host", "fleet").header("accept", "text/event-stream");
            if let Some(last) = &self.last {
                request = request.header("last-event-id", last);
            }
            let mut stream = send(instance, request, StatusCode::OK).await?;
            print!("\n[{}] ", instance.name);
            let mut left = if self.moves < cuts { piece } else { usize::MAX };
            while left > 0 {
                let next = timeout(PATIENCE, stream.next()).await;
                let event = next.map_err(|_| format!("instance {} sent nothing for 20 s", instance.name))??;
                self.last = event.id.or(self.last.take());
                match &*event.name {
                    "token" => {
                        print!("{}", event.data);
                        std::io::stdout().flush().map_err(|e| format!("standard output: {e}"))?;
                        self.got.push(event.data);
                        left -= 1;
                    }
                    "gap" => self.gaps += 1,
                    "done" => return Ok(()),
                    _ => {}
                }
            }
            print!("✂");
            stream.connection.abort();
            self.moves += 1;
        }
    }

    pub(crate) fn verdict(&self) -> Verdict {
        judge(&self.got, self.moves, self.gaps)
    }
}

fn judge(got: &[String], moves: usize, gaps: usize) -> Verdict {
    let expected: Vec<&str> = tokens().collect();
    // Words repeat in an answer, so positions are compared: a repeated position counts as doubled.
    let (mut next, mut lost, mut doubled) = (0, 0, 0);
    for token in got {
        match expected[next..].iter().position(|expected| expected == token) {
            // A match far ahead is another occurrence of the same words.
            Some(skipped) if skipped < 10 => {
                lost += skipped;
                next += skipped + 1;
            }
            _ => doubled += 1,
        }
    }
    lost += expected.len() - next;
    Verdict { tokens: got.len(), moves, lost, doubled, gaps, same: got == expected }
}

impl Verdict {
    pub(crate) fn is_whole(&self) -> bool {
        self.same && self.lost == 0 && self.doubled == 0 && self.gaps == 0
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tokens, moves, lost, doubled, gaps, same } = self;
        let same = if *same { "the answer is whole" } else { "THE ANSWER IS NOT WHOLE" };
        write!(f, "{tokens} tokens, moved {moves} times: lost {lost}, doubled {doubled}, gaps {gaps}; {same}")
    }
}

async fn send(instance: &Instance, request: http::request::Builder, status: StatusCode) -> Result<Stream, String> {
    let problem = |e: &dyn fmt::Display| format!("instance {} on {}: {e}", instance.name, instance.addr);
    let stream = TcpStream::connect(instance.addr).await.map_err(|e| problem(&e))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| problem(&e))?;
    // The task ends when the client disconnects or the answer ends.
    let connection = tokio::spawn(async { drop(connection.await) });
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| problem(&e))?;
    let answer = sender.send_request(request).await.map_err(|e| problem(&e))?;
    if answer.status() != status {
        let status = answer.status();
        let text = answer.into_body().collect().await.map_err(|e| problem(&e))?.to_bytes();
        return Err(problem(&format!("{status}: {}", String::from_utf8_lossy(&text))));
    }
    Ok(Stream { body: answer.into_body(), text: String::new(), connection })
}

impl Stream {
    async fn next(&mut self) -> Result<Event, String> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let event: String = self.text.drain(..end + 2).collect();
                return Ok(parse(&event));
            }
            let frame = self.body.frame().await.ok_or("the stream ended before the answer")?;
            let frame = frame.map_err(|e| format!("the stream broke: {e}"))?;
            let bytes = frame.into_data().unwrap_or_default();
            self.text.push_str(std::str::from_utf8(&bytes).map_err(|e| format!("not UTF-8: {e}"))?);
        }
    }
}

/// Parses one event, <https://html.spec.whatwg.org/multipage/server-sent-events.html>.
fn parse(text: &str) -> Event {
    let mut event = Event::default();
    for line in text.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut event.name),
            "data" if event.data.is_empty() => value.clone_into(&mut event.data),
            "data" => {
                event.data.push('\n');
                event.data.push_str(value);
            }
            _ => {}
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed() {
        let event = parse(": c\nevent: token\ndata:  a\ndata: b\nretry: 5\nid: 7-0\n\n");
        assert_eq!(event, Event { id: Some("7-0".to_owned()), name: "token".to_owned(), data: " a\nb".to_owned() });
    }

    #[test]
    fn what_is_lost_and_doubled_is_counted() {
        let whole: Vec<String> = tokens().map(str::to_owned).collect();
        assert!(judge(&whole, 1, 0).is_whole());
        assert!(!judge(&whole, 1, 1).is_whole(), "a gap was reported");
        let mut lost = whole.clone();
        lost.drain(20..23);
        let verdict = judge(&lost, 1, 0);
        assert_eq!((verdict.lost, verdict.doubled, verdict.is_whole()), (3, 0, false));
        let mut doubled = whole.clone();
        doubled.insert(31, whole[30].clone());
        let verdict = judge(&doubled, 1, 0);
        assert_eq!((verdict.doubled, verdict.is_whole()), (1, false));
        assert_eq!(judge(&whole[..40], 1, 0).lost, whole.len() - 40);
    }
}
