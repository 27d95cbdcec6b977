//! How a client ends its connection, and when the server does.

use std::time::Duration;

use testkit::sim::{Dice, Ended, Pace, bytes_of};
use tokio::time::sleep;

use crate::client::Talk;
use crate::owed::Asked;
use crate::refused;
use crate::request::{Torn, shrinking};
use crate::tokens;
use crate::world::LATE;

/// Time after which a server has noticed the end of a response. Bytes that arrive earlier may count as sent with the last
/// request, and do not begin a head.
const SEEN: u64 = 1_250;
/// The most bytes that a slow link takes without a reader.
const WINDOWS: usize = 256 << 10;
/// The longest record of an empty line, that of TLS 1.2.
const EMPTY_LINE: u64 = 31;

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
    /// Sends a request that the server itself refuses.
    Refused,
    /// Reads a stream of events that is not one of the hub.
    Tokens,
    /// Over TLS: sends a part of a record.
    PartOfRecord,
    /// Over TLS: sends a record that was not made with the keys of the connection, or is none.
    WrongRecord,
}

impl Ending {
    pub(crate) fn choose(dice: &mut Dice, is_sealed: bool) -> Self {
        use Ending::*;
        if is_sealed && dice.chance(20) {
            return *dice.pick(&[PartOfRecord, WrongRecord]);
        }
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
            Refused,
            Refused,
            Tokens,
            Tokens,
        ])
    }

    /// Returns whether it is about a connection without a request.
    pub(crate) fn begins(self) -> bool {
        matches!(self, Self::Nothing | Self::PartOfFirstHead)
    }

    pub(crate) async fn end(self, mut talk: Talk) {
        let terms = talk.world.terms.clone();
        let now = talk.world.net.now();
        let (quiet, shortest) = (talk.quiet_until(), talk.line.shortest);
        talk.world.net.note(talk.wire.io.link(), "ending", self as u64);
        // It has thought for so long that the server may have closed the connection.
        let is_over = talk.answered_at.is_some() && now + 2 * SEEN + 4 * talk.line.longest > quiet.0;
        match if is_over { Self::Idle } else { self } {
            Self::Close => {}
            Self::Reset => talk.wire.io.reset(),
            Self::Vanish => talk.wire.io.vanish(),
            Self::HalfClose => {
                talk.end_my_side().await;
                talk.expect_end((0, now), None).await;
            }
            Self::Idle => idle(talk, quiet).await,
            Self::EmptyLine => {
                sleep(Duration::from_millis(talk.dice.of_any_size(1..=terms.keep_alive / 2))).await;
                // A second one begins a head, so that the time of a head limits a flood of them.
                if !talk.has_line {
                    let _ = talk.wire.send(b"\r\n").await;
                }
                idle(talk, quiet).await;
            }
            Self::PartBehind => part_behind(talk).await,
            Self::PartOfHead => {
                sleep(Duration::from_millis(SEEN + 4 * talk.line.longest)).await;
                let asked = talk.ask(0, "GET /fixed/1/1 HT").await;
                let due = asked.began + terms.head_time;
                late_head(talk, (due + 2 * shortest, due), asked).await;
            }
            Self::Nothing => {
                let due = talk.accepted_at + terms.head_time;
                idle(talk, (due + shortest, due)).await;
            }
            Self::PartOfFirstHead => {
                sleep(Duration::from_millis(talk.dice.of_any_size(1..=terms.head_time / 2))).await;
                let due = talk.accepted_at + terms.head_time;
                let asked = talk.ask(0, "GET /fixed/1/1 HT").await;
                late_head(talk, (due + shortest, due), asked).await;
            }
            Self::Garbage => garbage(talk).await,
            Self::PartOfBody => part_of_body(talk).await,
            Self::Stall => stall(talk).await,
            Self::HalfCloseBehind => half_close_behind(talk).await,
            Self::LeaveWithin => leave_within(talk).await,
            Self::Refused => refused::refused(talk).await,
            Self::Tokens => tokens::read(talk).await,
            Self::PartOfRecord => part_of_record(talk).await,
            Self::WrongRecord => wrong_record(talk).await,
        }
    }
}

/// Expects the end of a connection without a request, and nothing before it.
async fn idle(mut talk: Talk, until: (u64, u64)) {
    let bytes = talk.expect_end(until, None).await;
    if !bytes.is_empty() && !talk.may_be_refused {
        talk.fault(format_args!("unasked: {:?}", String::from_utf8_lossy(&bytes)));
    }
}

/// Expects a 408 for a part of a head.
async fn late_head(mut talk: Talk, due: (u64, u64), asked: Asked) {
    let bytes = talk.expect_end(due, Some(&asked)).await;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // It may have been closed before the part arrived.
    let is_right = text.starts_with("HTTP/1.1 408 ") || (text.is_empty() && talk.has_closed(&asked));
    if !is_right && !talk.may_be_refused {
        talk.fault(format_args!("not a 408: {text:?}"));
    }
}

/// A request, and behind it a part of the next head, which does not begin one.
async fn part_behind(mut talk: Talk) {
    let tag = talk.tags.next();
    let path = *talk.dice.pick(&["fixed", "stream"]);
    let tail = *talk.dice.pick(&["\r\n", "GET / HT", "\r\nGET"]);
    (talk.has_line, talk.sent_behind) = (true, true);
    let asked = talk.ask(tag, &format!("GET /{path}/{tag}/5/1/20 HTTP/1.1\r\nHost: mill\r\n\r\n{tail}")).await;
    let Some(head) = talk.head_of(&asked, 200).await else { return };
    if !talk.body_of(&asked, &head, &bytes_of(tag, 5)).await {
        return;
    }
    let now = talk.world.net.now();
    if head.closes() {
        talk.expect_end((0, now), None).await;
    } else if talk.line.is_in_one_piece {
        let quiet = talk.quiet_until();
        idle(talk, quiet).await;
    } else {
        // A byte that arrives later than its request begins a head: either limit ends the connection.
        let (earliest, latest) = talk.quiet_until();
        let terms = &talk.world.terms;
        let late = earliest.saturating_sub(terms.keep_alive) + terms.head_time.min(terms.keep_alive);
        talk.expect_end((late, latest.max(now + terms.head_time)), None).await;
    }
}

/// An answer that says so, or none, and the end at once.
async fn garbage(mut talk: Talk) {
    let tag = talk.tags.next();
    let upgrades = format!("GET /fixed/{tag}/5 HTTP/1.1\r\nHost: mill\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
    let is_behind = talk.dice.chance(50);
    let before = if is_behind { &*upgrades } else { "" };
    let garbage =
        *talk.dice.pick(&["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET\0/ HTTP/1.1\r\n\r\n", "\x16\x03\x01 \r\n\r\n"]);
    let asked = talk.ask(tag, &format!("{before}{garbage}")).await;
    if is_behind {
        talk.sent_behind = true;
        let Some(head) = talk.head_of(&asked, 200).await else { return };
        if !talk.body_of(&asked, &head, &bytes_of(tag, 5)).await || head.closes() {
            return;
        }
    }
    let now = talk.world.net.now();
    let bytes = talk.expect_end((0, now), Some(&asked)).await;
    if !bytes.is_empty() && !bytes.starts_with(b"HTTP/1.1 4") && !talk.may_be_refused {
        talk.fault(format_args!("not an error: {:?}", String::from_utf8_lossy(&bytes)));
    }
}

/// The service waits for a body that does not come.
async fn part_of_body(mut talk: Talk) {
    let (tag, limit) = (talk.tags.next(), talk.world.terms.body_progress);
    let text = format!("POST /upload/{tag} HTTP/1.1\r\nHost: mill\r\nContent-Length: 1000\r\n\r\nabc");
    let asked = Asked { has_body: true, is_prompt: false, ..talk.ask(tag, &text).await };
    let head = talk.head_of(&asked, 408).await;
    let (now, due) = (talk.world.net.now(), asked.began + limit);
    // The answer was not too early, or was not due for another reason.
    let is_late = talk.line.is_able && now > due + LATE + 2 * talk.line.longest;
    let is_other = talk.late_at.is_none() && now >= due && now < talk.cut_from(&asked);
    if head.is_some() || (!talk.may_be_refused && (is_late || is_other)) {
        talk.fault(format_args!("a 408 at {:?}, not at {due} ms, to {asked:?}", talk.late_at));
    }
}

/// A response that is not read is reset, one that is read in time is complete.
async fn stall(mut talk: Talk) {
    let tag = talk.tags.next();
    let len = 600 << 10;
    let kind = *talk.dice.pick(&["fixed", "stream", "shrinks"]);
    let (path, torn) = match kind {
        "fixed" => (format!("/fixed/{tag}/{len}"), Torn::Never),
        "stream" => (format!("/stream/{tag}/200/{}/0", len / 200), Torn::Never),
        _ => shrinking(&mut talk.dice, tag, len),
    };
    let asked = Asked { torn, ..talk.ask(tag, &format!("GET {path} HTTP/1.1\r\nHost: mill\r\n\r\n")).await };
    let Some(head) = talk.head_of(&asked, 200).await else { return };
    let (began, limit) = (talk.world.net.now(), talk.world.terms.write_stall);
    if talk.dice.chance(30) {
        // Reads on in time.
        sleep(Duration::from_millis(talk.dice.in_range(1..=limit / 2))).await;
        talk.wire.pace = Pace::FAST;
        if !talk.line.is_steady {
            talk.line.is_able = false;
        }
        talk.body_of(&asked, &head, &bytes_of(tag, len)).await;
        return;
    }
    let earliest = asked.began + 2 * talk.line.shortest + limit;
    // The last bytes that it takes fill the buffers.
    let latest = match talk.line.is_steady {
        true => began + limit + LATE + 4 * talk.line.longest + 1_000 + talk.world.terms.passed_on(),
        false => began + 200_000 + talk.line.time_for(WINDOWS),
    };
    talk.line.is_able = false;
    talk.expect_reset(&asked, (earliest, latest), "not read").await;
}

/// A client that has ended its side gets its answer, unless the response is silent for longer than allowed.
async fn half_close_behind(mut talk: Talk) {
    let (tag, limit) = (talk.tags.next(), talk.world.terms.half_close);
    let (takes, path) = match talk.dice.in_range(0..=3) {
        0 => (0, format!("late/{tag}/0")),
        1 => (limit / 2, format!("late/{tag}/{}", limit / 2)),
        2 => (0, format!("stream/{tag}/5/1/{}", limit / 2)),
        _ => (limit * 3, format!("late/{tag}/{}", limit * 3)),
    };
    let asked = talk.ask(tag, &format!("GET /{path} HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
    talk.end_my_side().await;
    if talk.has_left {
        return end_of_tls(talk, asked).await;
    }
    if takes > limit {
        let earliest = asked.began + 2 * talk.line.shortest + limit;
        let latest = asked.sent + talk.line.time_for(asked.bytes) + talk.line.longest + limit + SLOW;
        return talk.expect_reset(&asked, (earliest, latest), "silent for a client that has ended its side").await;
    }
    let Some(head) = talk.head_of(&asked, 200).await else { return };
    if talk.body_of(&asked, &head, &bytes_of(tag, 5)).await {
        let now = talk.world.net.now();
        talk.expect_end((0, now), None).await;
    }
}

/// A client that has ended its side of TLS has left. The received part of the answer is right, and an incomplete one looks
/// incomplete.
async fn end_of_tls(mut talk: Talk, asked: Asked) {
    if let Some(head) = talk.head_of(&asked, 200).await
        && talk.body_of(&asked, &head, &bytes_of(asked.tag, 5)).await
    {
        let now = talk.world.net.now();
        talk.expect_end((0, now), Some(&asked)).await;
    }
    let (now, latest) = (talk.world.net.now(), asked.sent + talk.line.time_for(asked.bytes) + talk.line.longest + SLOW);
    if talk.line.is_steady && now > latest {
        talk.fault(format_args!("the end at {now} ms, not until {latest} ms, of one that has left: {asked:?}"));
    }
}

/// A part of the record of a request, longer than the record of an empty line: the time of a head has begun. The server has
/// decrypted nothing, and closes the connection with a 408 or without.
async fn part_of_record(mut talk: Talk) {
    sleep(Duration::from_millis(SEEN + 4 * talk.line.longest)).await;
    let record = talk.wire.io.seal(b"GET /fixed/1/1 HTTP/1.1\r\nHost: mill\r\n\r\n");
    let part = talk.dice.in_range(EMPTY_LINE + 1..=record.len() as u64 - 1) as usize;
    let asked = talk.ask_raw(&record[..part]).await;
    let due = asked.began + talk.world.terms.head_time;
    let bytes = talk.expect_end((due + 2 * talk.line.shortest, due), Some(&asked)).await;
    if !bytes.is_empty() && !bytes.starts_with(b"HTTP/1.1 408 ") {
        talk.fault(format_args!("not a 408: {:?}", String::from_utf8_lossy(&bytes)));
    }
}

/// An alert, and the end at once.
async fn wrong_record(mut talk: Talk) {
    let wrong: &[u8] = match talk.dice.in_range(0..=2) {
        0 => b"\x17\x03\x03\0\x29these bytes are sealed with no key at all.",
        1 => b"\x17\x03\x03\xff\xff",
        _ => b"GET / HTTP/1.1\r\nHost: mill\r\n\r\n",
    };
    let asked = talk.ask_raw(wrong).await;
    let (bytes, ended) = talk.wire.end().await;
    let (now, latest) = (talk.world.net.now(), asked.sent + talk.line.time_for(wrong.len()) + talk.line.longest + LATE);
    let is_late = talk.line.is_able && now > latest;
    let is_alert = ended == Ended::Garbled || talk.has_closed(&asked) || !talk.line.is_in_one_piece;
    // The rest of an alert is not sent.
    let is_alert = is_alert || (ended == Ended::Truncated && talk.line.takes_parts);
    if !bytes.is_empty() || is_late || !is_alert || ended == Ended::Hangs {
        talk.fault(format_args!("{ended:?} at {now} ms, not an alert until {latest} ms, and {} bytes", bytes.len()));
    }
}

/// Time in which a reset is sent, in milliseconds.
const SLOW: u64 = 100;

async fn leave_within(mut talk: Talk) {
    let tag = talk.tags.next();
    talk.ask(tag, &format!("GET /stream/{tag}/1000/100/300 HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
    sleep(Duration::from_millis(talk.dice.of_any_size(1..=20_000))).await;
    let (how, world, line, link) = (talk.dice.in_range(0..=2), talk.world, talk.line, talk.wire.io.link());
    match how {
        0 => talk.wire.io.reset(),
        1 => return talk.wire.io.vanish(),
        _ => drop(talk.wire),
    }
    // The next piece finds that a socket is closed.
    let piece = if how == 0 { 0 } else { 300 + 2 * line.longest };
    sleep(Duration::from_millis(line.longest + piece + SLOW)).await;
    if line.is_steady && world.calls.is_open(tag) {
        world.fault(link, format_args!("the service works on request {tag}, whose client has left"));
    }
}
