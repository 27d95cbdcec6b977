//! Clients of HTTP/1: what each does follows from its dice, and what a server owes it follows from what it did.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use testkit::sim::{Dice, Profile};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::answer::{Ended, Pace, Wire};
use crate::endings::Ending;
use crate::events;
use crate::service::bytes_of;
use crate::world::{IDLE_IN_DRAIN, LATE, World};

/// Longest body of a response on a connection whose times are checked: it arrives in one piece.
const SMALL: u64 = 16 << 10;

const HOUR: u64 = 3_600_000;

/// A request and its answer.
#[derive(Debug)]
struct Request {
    tag: u64,
    text: Vec<u8>,
    /// The body of the request, which is sent behind the head.
    body: Vec<u8>,
    status: u16,
    /// The body of the response.
    expected: Vec<u8>,
    /// Whether the response ends by an error.
    is_torn: bool,
    /// Whether the server closes the connection behind the response.
    is_last: bool,
    /// Time that the service takes, in milliseconds.
    takes: u64,
}

/// A connection of a client.
pub(crate) struct Talk {
    pub(crate) world: Arc<World>,
    pub(crate) dice: Dice,
    pub(crate) wire: Wire,
    /// Longest time from one side to the other.
    pub(crate) latency: u64,
    /// Whether all bytes arrive within the latency.
    pub(crate) is_steady: bool,
    /// Whether bytes that are sent together also arrive together.
    pub(crate) is_in_one_piece: bool,
    /// When the last response ended here.
    pub(crate) answered_at: Option<u64>,
    /// Whether the server may close the connection at any time.
    pub(crate) may_close: bool,
    /// Whether an empty line was sent behind a request.
    pub(crate) has_line: bool,
}

fn profile(dice: &mut Dice, is_calm: bool) -> Profile {
    let is_quick = is_calm || dice.chance(40);
    let latency = dice.of_any_size(1..=200);
    if is_quick {
        return Profile { latency, jitter: dice.in_range(0..=20), chops: dice.chance(50), ..Profile::default() };
    }
    Profile {
        latency,
        jitter: dice.of_any_size(1..=400) - 1,
        stalls: *dice.pick(&[0, 0, 1, 5]),
        stall: 100..=*dice.pick(&[500, 3_000]),
        segment: *dice.pick(&[536, 1_460, 64 << 10]),
        chops: dice.chance(30),
        accepts_parts: dice.chance(50),
        send_buffer: dice.of_any_size(512..=128 << 10) as usize,
        receive_buffer: dice.of_any_size(512..=128 << 10) as usize,
    }
}

/// Connects again and again, until the end.
pub(crate) async fn live(world: Arc<World>, mut dice: Dice, number: u64) {
    let from = IpAddr::from([198, 51, 100, (number % 8) as u8]);
    // As busy in an hour as in a minute.
    let longest = world.ends_at / 200 + dice.of_any_size(10..=120_000);
    let is_calm = world.terms.is_calm;
    while !world.is_over() {
        sleep(Duration::from_millis(dice.of_any_size(1..=longest))).await;
        let profile = profile(&mut dice, is_calm);
        let latency = profile.latency + profile.jitter;
        let is_steady = profile.stalls == 0 && profile.send_buffer >= 64 << 10 && profile.receive_buffer >= 64 << 10;
        let is_in_one_piece = is_steady && !profile.chops && profile.segment >= SMALL;
        let is_narrow = profile.receive_buffer < 4 << 10;
        let Ok(socket) = world.connector.connect(from, profile).await else {
            if world.drained_at().is_none() {
                world.fault(0, "a connection is refused");
            }
            return;
        };
        let pace = match is_steady || dice.chance(60) || is_narrow {
            true => Pace::FAST,
            false => {
                let (piece, pause) = (dice.in_range(4 << 10..=64 << 10), dice.in_range(1..=500));
                Pace { piece: piece as usize, pause: Duration::from_millis(pause) }
            }
        };
        let (dice, world) = (dice.fork(world.tag()), Arc::clone(&world));
        let wire = Wire::new(socket, pace);
        let talk = Talk {
            world,
            dice,
            wire,
            latency,
            is_steady,
            is_in_one_piece,
            answered_at: None,
            may_close: false,
            has_line: false,
        };
        talk.run().await;
    }
}

impl Talk {
    pub(crate) fn fault(&self, what: impl std::fmt::Display) {
        self.world.fault(self.wire.io.link(), what);
    }

    async fn run(mut self) {
        let ending = Ending::choose(&mut self.dice);
        let requests = if ending.begins() { 0 } else { self.dice.of_any_size(1..=12) };
        for _ in 0..requests {
            if self.dice.chance(8) {
                return events::read(self).await;
            }
            if !self.exchange().await {
                return;
            }
            if self.dice.chance(40) {
                let longest = *self.dice.pick(&[20, 400, 4_000, if self.world.terms.is_calm { HOUR } else { 30_000 }]);
                sleep(Duration::from_millis(self.dice.in_range(1..=longest))).await;
            }
        }
        ending.end(self).await;
    }

    fn request(&mut self, is_simple: bool) -> Request {
        let tag = self.world.tag();
        let dice = &mut self.dice;
        let most = if self.is_steady { SMALL } else { 200 << 10 };
        let is_old = !is_simple && dice.chance(5);
        let (mut method, mut body, mut status, mut is_torn, mut takes) = ("GET", Vec::new(), 200, false, 0);
        let (path, expected) = match dice.in_range(0..=if is_simple { 3 } else { 9 }) {
            0..=2 => {
                let len = dice.of_any_size(0..=most);
                (format!("/fixed/{tag}/{len}"), bytes_of(tag, len as usize))
            }
            3 => (format!("/gone/{tag}"), bytes_of(tag, 5)),
            4 | 5 => {
                let (count, len) = (dice.of_any_size(1..=20), dice.of_any_size(1..=most / 20));
                let gap = *dice.pick(&[0, 1, 50, 700]);
                is_torn = dice.chance(10);
                takes = count * gap;
                let path = format!("/{}/{tag}/{count}/{len}/{gap}", if is_torn { "torn" } else { "stream" });
                (path, bytes_of(tag, (count * len) as usize))
            }
            6 => {
                takes = dice.of_any_size(1..=5_000);
                (format!("/late/{tag}/{takes}"), bytes_of(tag, 5))
            }
            7 | 8 => {
                method = "POST";
                body = bytes_of(tag ^ 1, dice.of_any_size(0..=most) as usize);
                (format!("/upload/{tag}"), body.clone())
            }
            _ => {
                method = "POST";
                status = 413;
                body = bytes_of(tag ^ 1, dice.of_any_size(0..=200 << 10) as usize);
                (format!("/unread/{tag}"), bytes_of(tag, 5))
            }
        };
        let version = if is_old { "1.0" } else { "1.1" };
        let mut text = format!("{method} {path} HTTP/{version}\r\nHost: mill\r\n");
        if method == "POST" {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        if dice.chance(20) {
            text +=
                "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n";
        }
        text += "\r\n";
        Request { tag, text: text.into(), body, status, expected, is_torn, is_last: is_old, takes }
    }

    /// Returns whether the server must answer a request whose last byte is sent now, in full.
    fn must_answer(&self) -> bool {
        if !self.is_steady || self.may_close {
            return false;
        }
        let (now, terms) = (self.world.net.now(), &self.world.terms);
        let last = self.answered_at.unwrap_or(now);
        // It may have closed the connection already, because that was idle.
        if now + 2 * self.latency + LATE > last + terms.keep_alive {
            return false;
        }
        match self.world.drained_at() {
            None => true,
            Some(drained) => now + 2 * self.latency < drained.max(last) + IDLE_IN_DRAIN,
        }
    }

    /// Returns whether the drain may cut off a response now.
    fn may_be_cut(&self) -> bool {
        let now = self.world.net.now() + self.latency;
        self.world.drained_at().is_some_and(|drained| now >= drained + self.world.terms.deadline)
    }

    /// Asks and reads the answers. Returns whether the connection goes on.
    async fn exchange(&mut self) -> bool {
        let count = if self.dice.chance(15) { self.dice.in_range(2..=4) } else { 1 };
        let is_simple = count > 1;
        let requests: Vec<_> = (0..count).map(|_| self.request(is_simple)).collect();
        let must_answer = self.must_answer();
        let mut bytes: Vec<u8> = requests.iter().flat_map(|request| request.text.clone()).collect();
        let is_whole = self.dice.chance(75);
        // Bytes behind the request, RFC 9112 §2.2.
        let has_line = requests[0].body.is_empty() && self.dice.chance(15);
        self.has_line |= has_line;
        self.is_in_one_piece &= is_whole || !has_line;
        if has_line {
            bytes.extend(b"\r\n");
        }
        let link = self.wire.io.link();
        for request in &requests {
            let line = request.text.split(|byte| *byte == b'\r').next().unwrap_or_default();
            self.world.net.note(link, &format!("asks {}", String::from_utf8_lossy(line)), bytes.len() as u64);
        }
        let sent = self.send(&bytes, is_whole).await;
        let sent = match sent {
            Ok(()) => self.send(&requests[0].body.clone(), is_whole).await,
            Err(ended) => Err(ended),
        };
        for (at, request) in requests.iter().enumerate() {
            // Requests behind the first may be dropped in a drain. Requests that arrive late may be dropped, too.
            let must = must_answer && is_whole && (at == 0 || self.world.drained_at().is_none());
            if !self.answer(request, must, sent.is_err()).await {
                return false;
            }
        }
        true
    }

    /// Sends bytes, in one write or with pauses.
    async fn send(&mut self, bytes: &[u8], is_whole: bool) -> Result<(), Ended> {
        if is_whole {
            return self.wire.send(bytes).await;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, left) = rest.split_at(self.dice.of_any_size(1..=rest.len() as u64) as usize);
            rest = left;
            self.wire.send(piece).await?;
            if rest.len() < 2_000 && self.dice.chance(30) {
                sleep(Duration::from_millis(self.dice.of_any_size(1..=300))).await;
            }
        }
        Ok(())
    }

    /// Reads the answer to a request. Returns whether the connection goes on.
    async fn answer(&mut self, request: &Request, must: bool, lost: bool) -> bool {
        let link = self.wire.io.link();
        let before = self.world.net.now();
        let head = match self.wire.head().await {
            Ok(head) => head,
            Err(ended) => {
                self.world.net.note(link, "no answer", request.tag);
                if (must && !self.may_be_cut() && !request.is_torn) || ended == Ended::Hangs {
                    let when = self.world.net.now() - before;
                    let text = String::from_utf8_lossy(&request.text);
                    self.fault(format_args!("no answer after {when} ms, {ended:?}, lost: {lost}: {text:?}"));
                }
                return false;
            }
        };
        // A head that arrives slowly.
        if head.status == 408 && !must {
            return false;
        }
        if head.status != request.status || head.field("x-tag") != Some(&request.tag.to_string()) {
            self.fault(format_args!("another answer: {head:?} to {request:?}"));
            return false;
        }
        let body = self.wire.body(&head).await;
        let now = self.world.net.now();
        self.world.net.note(link, "answer", request.tag);
        self.answered_at = Some(now);
        if !request.expected.starts_with(&body.bytes) {
            self.fault(format_args!("wrong bytes behind {} of {request:?}", body.bytes.len()));
        }
        let is_complete = body.cut.is_none();
        if is_complete && (request.is_torn || body.bytes.len() < request.expected.len()) {
            self.fault(format_args!("an incomplete body looks complete: {} bytes of {request:?}", body.bytes.len()));
        }
        if !is_complete && !request.is_torn && ((must && !self.may_be_cut()) || body.cut == Some(Ended::Hangs)) {
            self.fault(format_args!("cut: {:?} after {} bytes of {request:?}", body.cut, body.bytes.len()));
        }
        if !is_complete {
            return false;
        }
        if must && now > before + request.takes + 4 * self.latency + 1_000 {
            self.fault(format_args!("an answer after {} ms to {request:?}", now - before));
        }
        // The service has not read the body: the server may close without an announcement.
        self.may_close = request.status == 413 && !request.body.is_empty();
        if head.closes() || request.is_last {
            self.expect_end(now, now, true).await;
            return false;
        }
        true
    }

    /// Expects the end of the server's bytes, not a reset, between two times at the server; in a drain at once, if the
    /// connection `is_idle`. Returns the bytes before it.
    pub(crate) async fn expect_end(&mut self, earliest: u64, latest: u64, is_idle: bool) -> Vec<u8> {
        let (bytes, ended) = self.wire.end().await;
        let now = self.wire.io.ended_at().unwrap_or(self.world.net.now());
        self.world.net.note(self.wire.io.link(), "ended", now);
        let latest = match self.world.drained_at() {
            Some(drained) if is_idle => latest.min(drained.max(self.answered_at.unwrap_or(0)) + IDLE_IN_DRAIN),
            _ => latest,
        };
        let is_early = self.is_steady && now + LATE < earliest && self.world.drained_at().is_none();
        let is_late = self.is_steady && now > latest + LATE + 2 * self.latency;
        // Bytes that arrive after the last response, when the socket is closed, are answered by a reset.
        let may_be_reset = self.may_be_cut() || (self.has_line && !self.is_in_one_piece);
        let is_early = is_early && !self.may_close;
        if ended == Ended::Hangs || (ended != Ended::Finished && !may_be_reset) || is_early || is_late {
            self.fault(format_args!("{ended:?} at {now} ms, not the end from {earliest} to {latest} ms"));
        }
        bytes
    }

    /// Leaves the sending side of the socket open no longer.
    pub(crate) async fn end_my_side(&mut self) {
        let _ = self.wire.io.shutdown().await;
    }
}
