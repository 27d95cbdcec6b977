//! Clients, and their connections of HTTP/1: what each does follows from its dice, and [what a server owes it](crate::owed) follows from what it
//! did.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use testkit::sim::{Dice, Ended, Wire};
use tokio::time::sleep;

use crate::client2;
use crate::endings::Ending;
use crate::events;
use crate::handshake;
use crate::line::{Line, SMALL};
use crate::owed::Asked;
use crate::reader::Reader;
use crate::request::{Request, Torn};
use crate::service::TRAILERS;
use crate::world::{Tags, World};

const HOUR: u64 = 3_600_000;

/// A connection of a client.
pub(crate) struct Talk {
    pub(crate) world: Arc<World>,
    pub(crate) tags: Arc<Tags>,
    pub(crate) dice: Dice,
    pub(crate) wire: Wire,
    pub(crate) line: Line,
    /// When the server has accepted it.
    pub(crate) accepted_at: u64,
    /// When the last response ended here.
    pub(crate) answered_at: Option<u64>,
    /// When the server counted the time without a request from, at the earliest and at the server.
    pub(crate) quiet_from: u64,
    /// Whether the server may close the connection at any time.
    pub(crate) may_close: bool,
    /// Whether all places of the server may be taken.
    pub(crate) may_be_refused: bool,
    /// Whether an empty line was sent behind a request.
    pub(crate) has_line: bool,
    /// When the server has answered that a request is late.
    pub(crate) late_at: Option<u64>,
    /// Whether the last response announced the end of the connection.
    pub(crate) was_last: bool,
    /// Whether the client has ended its side of TLS, with which it has left.
    pub(crate) has_left: bool,
    /// Whether it has done so without a `close_notify`.
    pub(crate) has_left_in_disorder: bool,
    /// Whether something was sent behind a request that may have been the last one.
    pub(crate) sent_behind: bool,
}

/// Connects again and again, until the end. Events go on where they ended.
pub(crate) async fn live(world: Arc<World>, mut dice: Dice, number: u64) {
    let from = IpAddr::from([198, 51, 100, (number % 8) as u8]);
    // As busy in an hour as in a minute.
    let longest = world.ends_at / 200 + dice.of_any_size(10..=120_000);
    let (tags, mut reader, mut connections) = (Arc::new(Tags::new(number)), Reader::default(), 0);
    while !world.is_over() {
        // A client that has lost its events comes back soon.
        let pause = if reader.is_resuming() && dice.chance(70) { 3_000 } else { longest };
        sleep(Duration::from_millis(dice.of_any_size(1..=pause))).await;
        connections += 1;
        let mut dice = dice.fork(connections);
        let is_two = dice.chance(25);
        let (profile, line) = Line::choose(&mut dice, &world.terms);
        let Ok(socket) = world.connector.connect(from, profile).await else {
            if !world.is_closing() {
                world.fault(0, "a connection is refused");
            }
            return;
        };
        let now = world.net.now();
        let accepted_at = now - line.shortest;
        let may_be_refused = socket.others() >= world.terms.places || world.has_failed(accepted_at);
        let mut talk = Talk {
            world: Arc::clone(&world),
            tags: Arc::clone(&tags),
            dice,
            wire: Wire::new(socket, line.pace),
            line,
            accepted_at,
            answered_at: None,
            quiet_from: accepted_at,
            may_close: false,
            may_be_refused,
            has_line: false,
            late_at: None,
            was_last: false,
            has_left: false,
            has_left_in_disorder: false,
            sent_behind: false,
        };
        if let Some(seals) = &world.seals {
            let Some(shaken) = handshake::shake(talk, seals, is_two).await else { continue };
            talk = shaken;
        }
        match is_two {
            true => client2::run(talk, &mut reader).await,
            false => talk.run(&mut reader).await,
        }
    }
}

impl Talk {
    async fn run(mut self, reader: &mut Reader) {
        if reader.is_resuming() && self.dice.chance(60) {
            return events::read(self, reader).await;
        }
        let ending = Ending::choose(&mut self.dice, self.wire.io.is_sealed());
        let requests = if ending.begins() { 0 } else { self.dice.of_any_size(1..=12) };
        for _ in 0..requests {
            if self.dice.chance(8) {
                return events::read(self, reader).await;
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

    /// Asks and reads the answers. Returns whether the connection goes on.
    async fn exchange(&mut self) -> bool {
        let count = if self.dice.chance(20) { self.dice.in_range(2..=4) } else { 1 };
        let is_piped = count > 1;
        let most = if self.line.is_steady { SMALL } else { 200 << 10 };
        let requests: Vec<_> =
            (0..count).map(|_| Request::choose(&mut self.dice, &self.tags, is_piped, most)).collect();
        let mut bytes: Vec<u8> = requests.iter().flat_map(|request| request.head.clone()).collect();
        let is_whole = self.dice.chance(75);
        // Bytes behind the request, RFC 9112 §2.2. In two records of TLS they are as long as a part of a head, for which a
        // server takes them.
        let has_line = requests[0].body.is_empty() && self.dice.chance(15) && (is_whole || !self.wire.io.is_sealed());
        self.has_line |= has_line;
        self.sent_behind |= has_line || is_piped;
        self.line.is_in_one_piece &= is_whole || !(has_line || is_piped);
        if has_line {
            bytes.extend(b"\r\n");
        }
        let link = self.wire.io.link();
        for request in &requests {
            let line = request.head.split(|byte| *byte == b'\r').next().unwrap_or_default();
            self.world.net.note(link, &format!("asks {}", String::from_utf8_lossy(line)), bytes.len() as u64);
            request.hidden.iter().for_each(|&tag| self.world.calls.forbid(tag));
        }
        let continues = self.wire.continues + u32::from(requests[0].waits);
        let asked = self.ask_all(&requests, &bytes, is_whole).await;
        let mut goes_on = true;
        for (at, request) in requests.iter().enumerate() {
            let Request { tag, torn, .. } = *request;
            let asked = Asked { tag, is_head: request.is_head(), torn, is_behind: at > 0, ..asked.clone() };
            goes_on = self.answer(request, &asked).await;
            if !goes_on {
                // Requests behind the last one are not executed, RFC 9112 §9.6.
                let rest = requests[at + 1..].iter().filter(|_| self.was_last);
                rest.for_each(|request| self.world.calls.forbid(request.tag));
                break;
            }
        }
        if goes_on && self.wire.continues != continues {
            self.fault(format_args!("{} times 100 Continue in place of {continues}", self.wire.continues));
        }
        goes_on
    }

    /// Sends requests: their heads, and the body of the first one.
    async fn ask_all(&mut self, requests: &[Request], heads: &[u8], is_whole: bool) -> Asked {
        let (first, began) = (&requests[0], self.world.net.now());
        // A loss shows when the answer is read.
        let mut result = self.send(heads, is_whole).await;
        let sent = self.world.net.now();
        if first.waits && result.is_ok() {
            result = self.wire.wait_for_100().await;
        }
        if result.is_ok() {
            result = self.send(&first.body, is_whole).await;
        }
        if result == Err(Ended::Hangs) {
            self.fault(format_args!("a request is not read: {:?}", first.tag));
        }
        Asked {
            tag: first.tag,
            began,
            sent,
            bytes: heads.len(),
            has_body: !first.body.is_empty(),
            is_prompt: is_whole && !first.waits,
            is_head: false,
            torn: Torn::Never,
            is_behind: false,
        }
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
    async fn answer(&mut self, request: &Request, asked: &Asked) -> bool {
        let before = self.world.net.now();
        let Some(head) = self.head_of(asked, request.status).await else { return false };
        self.was_last = head.closes() || request.is_last;
        if !self.body_of(asked, &head, &request.expected).await {
            return false;
        }
        let is_chunked = head.field("transfer-encoding").is_some() && !asked.is_head;
        if is_chunked && self.wire.trailers != if request.trails { TRAILERS } else { "" } {
            self.fault(format_args!("the trailers {:?} behind the answer to {asked:?}", self.wire.trailers));
        }
        let now = self.world.net.now();
        if self.line.is_steady && now > before + request.takes + 4 * self.line.longest + SLOW {
            self.fault(format_args!("an answer after {} ms to {asked:?}", now - before));
        }
        // The service has not read the body: the server may close without an announcement.
        self.may_close = request.status == 413 && !request.body.is_empty();
        if self.was_last {
            self.expect_end((0, now), None).await;
            return false;
        }
        true
    }
}

/// Time in which an answer is made, besides that of the service, in milliseconds.
const SLOW: u64 = 50;
