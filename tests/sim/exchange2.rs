//! Requests over HTTP/2, several of which a connection carries at a time.

use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use hyper::header::{HeaderMap, HeaderValue};
use testkit::sim::{Dice, bytes_of, read, read_some, send_all};
use tokio::time::{sleep, timeout};

use crate::decode::Form;
use crate::line::SMALL;
use crate::owed2::SLOW;
use crate::reader::{Reader, Stream};
use crate::request::{Request, Torn};
use crate::session::{Asked, Held, Progress, Session};
use crate::world::LATE;

/// Longer than a limit takes to end a slow connection.
pub(crate) const PATIENCE: Duration = Duration::from_secs(200);
/// The window for uploads that are read late.
const HOARDS: u32 = 4 << 20;
/// Bytes that the id of an event takes in a head, at most.
const ID: usize = 24;

/// A request that was sent, up to its body.
struct Sent<'a> {
    asked: Asked,
    progress: Progress<'a>,
    response: ResponseFuture,
    stream: SendStream<Bytes>,
}

impl Session {
    /// Asks one request after another. No answer waits for a client that does not read if `holds` is not set.
    pub(crate) async fn ask_all(&self, sender: &SendRequest<Bytes>, mut dice: Dice, holds: bool) {
        let most = if self.line.is_steady { SMALL } else { 200 << 10 };
        for _ in 0..dice.of_any_size(1..=8) {
            if self.world.is_over() || self.is_over() {
                return;
            }
            let mut request = Request::choose_two(&mut dice, &self.tags, most);
            // Narrower windows take no other upload meanwhile.
            if request.path.starts_with("/upload") && self.world.terms.windows.1 >= HOARDS && dice.chance(40) {
                request.hoard(&mut dice);
            }
            let tag = request.tag;
            let is_left = dice.chance(15).then(|| Duration::from_millis(dice.of_any_size(1..=3_000)));
            let asking = self.exchange(sender, request, &mut dice, holds);
            match is_left {
                None => asking.await,
                Some(patience) => {
                    if timeout(patience, asking).await.is_err() {
                        self.left(tag).await;
                    }
                }
            }
            if dice.chance(50) {
                let longest = *dice.pick(&[20, 400, 4_000, 30_000]);
                sleep(Duration::from_millis(dice.in_range(1..=longest))).await;
            }
        }
    }

    /// Expects that the service notices that a request was given up.
    async fn left(&self, tag: u64) {
        self.note("gives up", tag);
        self.gives_up();
        if self.line.is_steady {
            sleep(Duration::from_millis(self.time_for_all() + self.line.longest + SLOW)).await;
            self.is_dropped(tag);
        }
    }

    /// Sends the head of a request, with so many bytes in its body and in that of the answer.
    async fn send(
        &self,
        sender: &SendRequest<Bytes>,
        tag: u64,
        (method, path): (&'static str, &str),
        fields: HeaderMap,
        (bytes, is_empty): (usize, bool),
    ) -> Option<Sent<'_>> {
        let ready = sender.clone().ready().await;
        self.note(&format!("asks {method} {path}"), bytes as u64);
        let (asked, progress) = self.begin(tag, bytes);
        let scheme = if self.world.terms.tls { "https" } else { "http" };
        let request = hyper::Request::builder().method(method).uri(format!("{scheme}://mill{path}")).body(());
        let mut request = request.expect("a request");
        request.headers_mut().extend(fields);
        let sent = match ready {
            Ok(mut sender) => sender.send_request(request, is_empty),
            Err(error) => Err(error),
        };
        match sent {
            Ok((response, stream)) => {
                self.sent(&asked);
                Some(Sent { asked, progress, response, stream })
            }
            Err(error) => {
                self.not_sent(&asked, &error);
                None
            }
        }
    }

    async fn exchange(&self, sender: &SendRequest<Bytes>, request: Request, dice: &mut Dice, holds: bool) {
        request.hidden.iter().for_each(|&tag| self.world.calls.forbid(tag));
        let bytes = request.body.len() + request.expected.len();
        let head = (request.method, &*request.path);
        let sent = self.send(sender, request.tag, head, HeaderMap::new(), (bytes, request.method != "POST")).await;
        let Some(Sent { mut asked, progress, response, mut stream }) = sent else { return };
        (asked.takes, asked.torn, asked.has_body) = (request.takes, request.torn, request.method == "POST");
        if asked.has_body {
            // The end of an empty body follows its head.
            asked.is_prompt = dice.chance(75) || request.body.is_empty();
            // A loss shows when the answer is read.
            let has_trailers = request.status == 200 && self.world.terms.streams >= 100;
            let how = (asked.is_prompt, has_trailers);
            let _ = self.upload(&mut stream, request.body.clone().into(), how, dice).await;
            asked.sent = self.now();
        }
        let Some(body) = self.head_of(&asked, response, request.status).await else { return };
        let (body, cut) = match holds && dice.chance(15) {
            true => self.read_late(&asked, body, dice).await,
            false => read(body).await,
        };
        self.judge(&asked, &request.expected, &body, cut.as_ref());
        // The end of what is torn may be lost in part.
        if cut.is_none() || asked.torn != Torn::Never {
            self.answered(&asked, progress);
        }
    }

    /// Sends a body, in one piece or with pauses, and its end, behind trailers or not.
    async fn upload(
        &self,
        stream: &mut SendStream<Bytes>,
        mut rest: Bytes,
        (is_whole, has_trailers): (bool, bool),
        dice: &mut Dice,
    ) -> Result<(), h2::Error> {
        while !rest.is_empty() {
            let most = if is_whole { rest.len() as u64 } else { dice.of_any_size(1..=rest.len() as u64) };
            send_all(stream, rest.split_to(most as usize)).await?;
            if !is_whole && rest.len() < 2_000 && dice.chance(30) {
                sleep(Duration::from_millis(dice.of_any_size(1..=300))).await;
            }
        }
        // h2 ends the connection by a PROTOCOL_ERROR if trailers come for a stream that it has refused or reset.
        match dice.chance(30) && has_trailers {
            true => stream.send_trailers(HeaderMap::from_iter([(
                hyper::header::HeaderName::from_static("x-sum"),
                HeaderValue::from_static("1"),
            )])),
            false => stream.send_data(Bytes::new(), true),
        }
    }

    async fn head_of(&self, asked: &Asked, response: ResponseFuture, status: u16) -> Option<RecvStream> {
        match response.await {
            Ok(response) => self.is_right(asked, &response, status).then(|| response.into_body()),
            Err(error) => {
                self.failed(asked, &error);
                None
            }
        }
    }

    /// Reads nothing for a while, or a piece after another: the windows close.
    async fn read_late(&self, asked: &Asked, mut body: RecvStream, dice: &mut Dice) -> (Vec<u8>, Option<h2::Error>) {
        let _held: Held<'_> = self.hold(asked);
        let limit = self.world.terms.write_stall;
        if dice.chance(50) {
            sleep(Duration::from_millis(dice.in_range(1..=limit / 2))).await;
            return read(body).await;
        }
        let (mut bytes, longest) = (Vec::new(), dice.of_any_size(1..=500));
        loop {
            sleep(Duration::from_millis(dice.in_range(1..=longest))).await;
            match read_some(&mut body).await {
                Ok(Some(data)) => bytes.extend(data),
                Ok(None) => return (bytes, None),
                Err(error) => return (bytes, Some(error)),
            }
        }
    }

    /// Reads events for a while, from behind the last one, and gives them up.
    pub(crate) async fn read_events(&self, sender: &SendRequest<Bytes>, reader: &mut Reader, dice: &mut Dice) {
        let tag = self.tags.next();
        let fields = reader.resumes().map(last_event).unwrap_or_default();
        let path = format!("/events/{tag}");
        let sent = self.send(sender, tag, ("GET", &path), fields, (0, true)).await;
        let Some(Sent { mut asked, progress, response, stream: sending }) = sent else { return };
        let Some(mut body) = self.head_of(&asked, response, 200).await else { return };
        let since = self.now();
        let leaves_at = since + self.world.time_for_events(dice);
        let mut stream = Stream::new(&self.view(), reader, Form::Plain, asked.began, since);
        while self.now() < leaves_at {
            match timeout(Duration::from_millis(leaves_at - self.now()), read_some(&mut body)).await {
                Err(_) => break,
                Ok(Ok(Some(data))) => stream.take(&self.view(), reader, &data),
                Ok(Ok(None)) => {
                    stream.ends(&self.view(), reader);
                    asked.takes = self.now() - asked.began;
                    return self.answered(&asked, progress);
                }
                Ok(Err(error)) => {
                    // A drain ends streams in order: only what is slow is left at its deadline.
                    if self.line.is_steady {
                        self.fault(format_args!("{error:?} within the events"));
                    }
                    return self.failed(&asked, &error);
                }
            }
        }
        stream.leaves(&self.view(), reader);
        // h2 resets the stream when all of its parts are dropped.
        drop((body, progress, sending));
        self.left(tag).await;
    }

    /// Announces a body and does not send it.
    pub(crate) async fn part_of_body(&self, sender: &SendRequest<Bytes>) {
        let (tag, limit) = (self.tags.next(), self.world.terms.body_progress);
        let path = format!("/upload/{tag}");
        let sent = self.send(sender, tag, ("POST", &path), HeaderMap::new(), (3, false)).await;
        let Some(Sent { mut asked, response, mut stream, .. }) = sent else { return };
        (asked.has_body, asked.is_prompt) = (true, false);
        let _ = stream.send_data("abc".into(), false);
        let answer = self.head_of(&asked, response, 408);
        let Ok(answer) = timeout(Duration::from_millis(limit) + PATIENCE, answer).await else {
            return self.fault(format_args!("no 408 to {asked:?}"));
        };
        let is_answered = answer.is_some();
        let (now, due) = (self.now(), asked.began + limit);
        // There is no answer for another reason.
        let is_late = self.line.is_able && now > due + LATE + 2 * self.line.longest + self.time_for_all();
        if is_answered || (!self.is_over() && is_late) {
            self.fault(format_args!("a 408 at {now} ms, not at {due} ms, to {asked:?}"));
        }
    }

    /// Asks for a long answer and does not read it. Returns when the connection is reset, at the earliest and at the
    /// latest.
    pub(crate) async fn stall(&self, sender: &SendRequest<Bytes>, dice: &mut Dice) -> Option<(u64, u64)> {
        let (tag, len) = (self.tags.next(), 1_000_000);
        // One frame, which says that it is the last one or not, or many.
        let path = match dice.in_range(0..=2) {
            0 => format!("/fixed/{tag}/{len}"),
            1 => format!("/stream/{tag}/1/{len}/0"),
            _ => format!("/stream/{tag}/200/{}/0", len / 200),
        };
        let sent = self.send(sender, tag, ("GET", &path), HeaderMap::new(), (len, true)).await;
        let Sent { asked, progress, response, .. } = sent?;
        let mut body = self.head_of(&asked, response, 200).await?;
        let (limit, terms) = (self.world.terms.write_stall, &self.world.terms);
        let held = self.hold(&asked);
        if dice.chance(30) {
            // Reads on in time.
            sleep(Duration::from_millis(dice.in_range(1..=limit / 2))).await;
            let (body, cut) = read(body).await;
            self.judge(&asked, &bytes_of(tag, len), &body, cut.as_ref());
            if cut.is_none() {
                self.answered(&asked, progress);
            }
            return None;
        }
        let earliest = asked.began + 2 * self.line.shortest + limit;
        // The last bytes that it takes fill its windows.
        let fills = self.now() + self.time_for_all();
        let wait = limit + LATE + 4 * self.line.longest + 1_000 + terms.passed_on();
        let latest = loop {
            let latest = match self.line.is_steady {
                true => fills + wait,
                // A slow link fills them for long. Only PINGs come then.
                false => fills.min(self.heard_at().max(asked.began)) + wait + PATIENCE.as_millis() as u64,
            };
            if self.is_over() || self.now() >= latest {
                break latest;
            }
            sleep(Duration::from_millis(20)).await;
        };
        // The end of the connection is the end of the stream.
        drop(held);
        let _ = timeout(Duration::from_millis(1), read_some(&mut body)).await;
        Some((earliest, latest))
    }
}

/// Returns the fields that resume events. They take as many bytes whatever the digits of the id are, which differ in each
/// run: HPACK has codes of 5 and 6 bits for them.
fn last_event(id: &str) -> HeaderMap {
    let bits: usize = id.bytes().map(|byte| if b"012ace".contains(&byte) { 5 } else { 6 }).sum();
    let pad = "0".repeat(8 * (ID - bits.div_ceil(8)) / 5);
    let value = |text: &str| {
        let mut value = HeaderValue::from_str(text).expect("a value");
        // It stays out of the table of fields.
        value.set_sensitive(true);
        value
    };
    let mut fields = HeaderMap::new();
    fields.insert("last-event-id", value(id));
    fields.insert("x-pad", value(&pad));
    fields
}
