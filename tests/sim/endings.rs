//! How a client ends its connection, and when the server does.

use std::time::Duration;

use testkit::sim::Dice;
use tokio::time::sleep;

use crate::answer::{Ended, Pace};
use crate::client::Talk;
use crate::service::bytes_of;
use crate::world::LATE;

/// Time after which a server has noticed the end of a response. Bytes that arrive earlier may count as sent with the last
/// request, and do not begin a head.
const SEEN: u64 = 1_250;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Close,
    Reset,
    Vanish,
    /// Ends its side and waits for the server's end.
    HalfClose,
    /// Waits until the server closes the idle connection.
    Idle,
    /// The same, after an empty line.
    EmptyLine,
    /// The same, after a request with a part of the next head behind it.
    PartBehind,
    /// Begins a request and does not end it.
    PartOfHead,
    /// Connects and sends nothing.
    Nothing,
    /// Connects and sends a part of a head.
    PartOfFirstHead,
    /// Sends something else than HTTP.
    Garbage,
    /// Announces a body and does not send it.
    PartOfBody,
    /// Asks for a long response and does not read it.
    Stall,
    /// Ends its side behind a request.
    HalfCloseBehind,
    /// Leaves within a response.
    LeaveWithin,
}

impl Ending {
    pub(crate) fn choose(dice: &mut Dice) -> Self {
        use Ending::*;
        *dice.pick(&[
            Close,
            Close,
            Reset,
            Vanish,
            HalfClose,
            Idle,
            Idle,
            EmptyLine,
            PartBehind,
            PartOfHead,
            Nothing,
            PartOfFirstHead,
            Garbage,
            PartOfBody,
            Stall,
            HalfCloseBehind,
            LeaveWithin,
        ])
    }

    /// Returns whether it is about a connection without a request.
    pub(crate) fn begins(self) -> bool {
        matches!(self, Self::Nothing | Self::PartOfFirstHead)
    }

    pub(crate) async fn end(self, mut talk: Talk) {
        let terms = talk.world.terms.clone();
        let now = talk.world.net.now();
        let quiet = talk.answered_at.unwrap_or(now) + terms.keep_alive;
        talk.world.net.note(talk.wire.io.link(), "ending", self as u64);
        // It has thought for so long that the server may have closed the connection.
        let is_over = talk.answered_at.is_some() && now + 2 * SEEN + 4 * talk.latency > quiet;
        match if is_over { Self::Idle } else { self } {
            Self::Close => {}
            Self::Reset => talk.wire.io.reset(),
            Self::Vanish => talk.wire.io.vanish(),
            Self::HalfClose => {
                talk.end_my_side().await;
                talk.expect_end(0, now, true).await;
            }
            Self::Idle => {
                let bytes = talk.expect_end(quiet, quiet, true).await;
                nothing(&talk, &bytes);
            }
            Self::EmptyLine => {
                sleep(Duration::from_millis(talk.dice.of_any_size(1..=terms.keep_alive / 2))).await;
                // A second one begins a head, so that the time of a head limits a flood of them.
                if !talk.has_line {
                    let _ = talk.wire.send(b"\r\n").await;
                }
                let bytes = talk.expect_end(quiet, quiet, true).await;
                nothing(&talk, &bytes);
            }
            Self::PartBehind => part_behind(talk).await,
            Self::PartOfHead => {
                sleep(Duration::from_millis(SEEN + 4 * talk.latency)).await;
                let now = talk.world.net.now();
                if talk.wire.send(b"GET /fixed/1/1 HT").await.is_ok() {
                    late_head(talk, now + terms.head_time).await;
                }
            }
            Self::Nothing => {
                let bytes = talk.expect_end(now + terms.head_time, now + terms.head_time, true).await;
                nothing(&talk, &bytes);
            }
            Self::PartOfFirstHead => {
                sleep(Duration::from_millis(talk.dice.of_any_size(1..=terms.head_time / 2))).await;
                if talk.wire.send(b"GET /fixed/1/1 HT").await.is_ok() {
                    late_head(talk, now + terms.head_time).await;
                }
            }
            Self::Garbage => garbage(talk).await,
            Self::PartOfBody => part_of_body(talk).await,
            Self::Stall => stall(talk).await,
            Self::HalfCloseBehind => half_close_behind(talk).await,
            Self::LeaveWithin => leave_within(talk).await,
        }
    }
}

fn nothing(talk: &Talk, bytes: &[u8]) {
    if !bytes.is_empty() {
        talk.fault(format_args!("unasked: {:?}", String::from_utf8_lossy(bytes)));
    }
}

async fn late_head(mut talk: Talk, due: u64) {
    let bytes = talk.expect_end(due, due, false).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // It may have closed before the part arrived.
    let may_end = talk.world.drained_at().is_some() || talk.may_close || !talk.is_steady;
    let is_right = text.starts_with("HTTP/1.1 408 ") || (may_end && text.is_empty());
    if !is_right {
        talk.fault(format_args!("not a 408: {text:?}"));
    }
}

/// A request, and behind it a part of the next head, which does not begin one.
async fn part_behind(mut talk: Talk) {
    let tag = talk.world.tag();
    let path = *talk.dice.pick(&["fixed", "stream"]);
    let tail = *talk.dice.pick(&["\r\n", "GET / HT", "\r\nGET"]);
    let text = format!("GET /{path}/{tag}/5/1/20 HTTP/1.1\r\nHost: mill\r\n\r\n{tail}");
    talk.has_line = true;
    if talk.wire.send(text.as_bytes()).await.is_err() {
        return;
    }
    let Ok(head) = talk.wire.head().await else { return };
    let body = talk.wire.body(&head).await;
    if body.cut.is_some() {
        return;
    }
    if body.bytes != bytes_of(tag, 5) {
        talk.fault("wrong bytes");
    }
    let now = talk.world.net.now();
    talk.answered_at = Some(now);
    let until = if head.closes() { now } else { now + talk.world.terms.keep_alive };
    if !talk.is_in_one_piece {
        // What arrives later than its request begins a head.
        let _ = talk.wire.end().await;
        return;
    }
    let bytes = talk.expect_end(until, until, true).await;
    nothing(&talk, &bytes);
}

async fn garbage(mut talk: Talk) {
    let upgrades = "GET / HTTP/1.1\r\nHost: mill\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n";
    let before = if talk.dice.chance(50) { upgrades } else { "" };
    let garbage =
        *talk.dice.pick(&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET\0/ HTTP/1.1\r\n\r\n", "\x16\x03\x01 \r\n\r\n"]);
    if talk.wire.send(format!("{before}{garbage}").as_bytes()).await.is_err() {
        return;
    }
    if !before.is_empty() {
        let Ok(head) = talk.wire.head().await else { return };
        let body = talk.wire.body(&head).await;
        if body.cut.is_some() || head.closes() {
            return;
        }
    }
    let now = talk.world.net.now();
    let bytes = talk.expect_end(0, now, true).await;
    if !bytes.is_empty() && !bytes.starts_with(b"HTTP/1.1 4") {
        talk.fault(format_args!("not an error: {:?}", String::from_utf8_lossy(&bytes)));
    }
}

/// The service waits for a body that does not come.
async fn part_of_body(mut talk: Talk) {
    let (tag, limit) = (talk.world.tag(), talk.world.terms.body_progress);
    let text = format!("POST /upload/{tag} HTTP/1.1\r\nHost: mill\r\nContent-Length: 1000\r\n\r\nabc");
    if talk.wire.send(text.as_bytes()).await.is_err() {
        return;
    }
    let sent = talk.world.net.now();
    let head = talk.wire.head().await;
    let now = talk.world.net.now();
    let drains = talk.world.drained_at().is_some();
    match head {
        Ok(head) if head.status == 408 => {
            if talk.is_steady && (now + LATE < sent + limit || now > sent + limit + LATE + 2 * talk.latency) {
                talk.fault(format_args!("the body is late at {now} ms, not {} ms", sent + limit));
            }
        }
        Err(Ended::Hangs) => talk.fault("a body that does not come is waited for"),
        Err(_) if drains || !talk.is_steady || talk.may_close => {}
        other => {
            if talk.answered_at.is_none_or(|at| sent + LATE < at + talk.world.terms.keep_alive) {
                talk.fault(format_args!("not a 408: {other:?}"));
            }
        }
    }
}

/// A response that is not read is reset.
async fn stall(mut talk: Talk) {
    let tag = talk.world.tag();
    let len = 600 << 10;
    let kind = *talk.dice.pick(&["fixed", "stream"]);
    let text = match kind {
        "fixed" => format!("GET /fixed/{tag}/{len} HTTP/1.1\r\nHost: mill\r\n\r\n"),
        _ => format!("GET /stream/{tag}/200/{}/0 HTTP/1.1\r\nHost: mill\r\n\r\n", len / 200),
    };
    if talk.wire.send(text.as_bytes()).await.is_err() {
        return;
    }
    let Ok(head) = talk.wire.head().await else { return };
    let (began, limit) = (talk.world.net.now(), talk.world.terms.write_stall);
    if talk.dice.chance(30) {
        // Reads on in time.
        sleep(Duration::from_millis(talk.dice.in_range(1..=limit / 2))).await;
        talk.wire.pace = Pace::FAST;
        let body = talk.wire.body(&head).await;
        let drains = talk.world.drained_at().is_some();
        if !bytes_of(tag, len).starts_with(&body.bytes) || (body.cut.is_some() && talk.is_steady && !drains) {
            talk.fault(format_args!("{:?} after {} bytes of {len}", body.cut, body.bytes.len()));
        }
        return;
    }
    while !talk.wire.io.is_reset() {
        let waited = talk.world.net.now() - began;
        if waited > limit + LATE + 4 * talk.latency + 1_000 && talk.is_steady {
            return talk.fault(format_args!("not reset after {waited} ms without reading"));
        }
        if waited > 200_000 {
            return talk.fault("never reset without reading");
        }
        sleep(Duration::from_millis(100)).await;
    }
    let waited = talk.world.net.now() - began;
    if talk.is_steady && waited + LATE < limit && talk.world.drained_at().is_none() {
        talk.fault(format_args!("reset after {waited} ms without reading"));
    }
}

/// A client that has ended its side gets its answer.
async fn half_close_behind(mut talk: Talk) {
    let tag = talk.world.tag();
    let takes = *talk.dice.pick(&[0, talk.world.terms.half_close / 2]);
    let text = format!("GET /late/{tag}/{takes} HTTP/1.1\r\nHost: mill\r\n\r\n");
    if talk.wire.send(text.as_bytes()).await.is_err() {
        return;
    }
    talk.end_my_side().await;
    match talk.wire.head().await {
        Ok(head) => {
            let body = talk.wire.body(&head).await;
            if body.cut.is_some() || body.bytes != bytes_of(tag, 5) {
                talk.fault(format_args!("{body:?}"));
            }
            let now = talk.world.net.now();
            talk.answered_at = Some(now);
            talk.expect_end(0, now, true).await;
        }
        Err(ended) => {
            let is_idle = talk
                .answered_at
                .is_some_and(|at| talk.world.net.now() + LATE + 4 * talk.latency > at + talk.world.terms.keep_alive);
            let may_end = !talk.is_steady || talk.may_close || talk.world.drained_at().is_some() || is_idle;
            if ended == Ended::Hangs || !may_end {
                talk.fault(format_args!("{ended:?} in place of the answer to a half-closed client"));
            }
        }
    }
}

async fn leave_within(mut talk: Talk) {
    let tag = talk.world.tag();
    let text = format!("GET /stream/{tag}/1000/100/300 HTTP/1.1\r\nHost: mill\r\n\r\n");
    if talk.wire.send(text.as_bytes()).await.is_err() {
        return;
    }
    sleep(Duration::from_millis(talk.dice.of_any_size(1..=20_000))).await;
    match talk.dice.in_range(0..=2) {
        0 => talk.wire.io.reset(),
        1 => talk.wire.io.vanish(),
        _ => {}
    }
}
