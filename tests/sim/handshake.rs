//! Handshakes of TLS, and clients that do not complete one. The first request, with the handshake, has the time of a head.

use std::time::Duration;

use testkit::sim::Wire;
use tokio::time::{sleep, timeout};

use crate::client::Talk;
use crate::owed::Asked;
use crate::seal::{Seals, is_resumed};
use crate::world::LATE;

/// Longer than every limit of a server.
const HANGS: Duration = Duration::from_secs(100_000);
/// Time in which both sides compute, and the least of a message, in milliseconds.
const SLOW: u64 = 50;
/// Messages of the longest handshake, one behind another: a full one of TLS 1.2.
const MESSAGES: u64 = 4;
/// The first byte of an alert.
const ALERT: u8 = 0x15;
/// Records that are none of a handshake, and what is no record.
const GARBAGE: &[&[u8]] = &[
    b"\x17\x03\x03\0\x28no handshake has made keys for this record",
    b"\x16\x03\x01\0\x08\x0b\0\0\x04\0\0\0\0",
    b"\x16\x03\x01\xff\xff\x01\0",
    b"\0\0\0\0\0\0\0\0",
    b"\x80\x2e\x01\0\x02",
];

/// The act of a client in place of a handshake.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// Sends nothing.
    Silent,
    /// Sends a part of its first message.
    PartOfHello,
    /// Reads the server's messages, and sends no more.
    NoFinish,
    /// Sends a part of its first message, and ends its side.
    HalfClose,
    /// Sends a part of its first message, or all of it, and leaves.
    Leaves,
    /// Sends a request without TLS.
    Http,
    /// Sends something else, at first or in place of its last message.
    Garbage,
    GarbageBehind,
}

/// Lets a client speak TLS. Returns `None` if its connection has ended.
pub(crate) async fn shake(mut talk: Talk, seals: &Seals, is_two: bool) -> Option<Talk> {
    if talk.dice.chance(15) {
        fail(talk, seals).await;
        return None;
    }
    let (began, socket) = (talk.world.net.now(), talk.wire.io.into_socket());
    let (link, pace) = (socket.link(), talk.wire.pace);
    let Ok(shaken) = timeout(HANGS, seals.connect(&mut talk.dice, socket, is_two)).await else {
        talk.world.fault(link, "a handshake does not end");
        return None;
    };
    let now = talk.world.net.now();
    let due = talk.accepted_at + talk.world.terms.head_time;
    if talk.line.is_able && now > due + LATE + 2 * talk.line.longest {
        talk.world.fault(link, format_args!("a handshake until {now} ms, limited to {due} ms"));
    }
    match shaken {
        // The server may have given up before the last message arrives.
        Ok(_) if now + talk.line.longest >= due => None,
        Ok(stream) => {
            talk.world.net.note(link, "handshake, resumed", is_resumed(&stream).into());
            if talk.line.is_steady && now > began + MESSAGES * talk.line.longest + SLOW {
                talk.world.fault(link, format_args!("a handshake of {} ms", now - began));
            }
            // It has a place.
            talk.may_be_refused = false;
            talk.wire = Wire::new(stream, pace);
            Some(talk)
        }
        Err((error, socket)) => {
            let at = socket.ended_at().unwrap_or(now);
            talk.world.net.note(link, "no handshake", at);
            talk.wire = Wire::new(socket, pace);
            let from = due.min(talk.idle_in_drain()) + talk.line.shortest;
            if !talk.may_be_refused && at < from {
                talk.fault(format_args!("no handshake at {at} ms, not before {from} ms: {error}"));
            }
            None
        }
    }
}

async fn fail(mut talk: Talk, seals: &Seals) {
    use Failure::*;
    let failure = *talk.dice.pick(&[Silent, PartOfHello, NoFinish, HalfClose, Leaves, Http, Garbage, GarbageBehind]);
    talk.world.net.note(talk.wire.io.link(), "no handshake by the client", failure as u64);
    let hello = seals.hello(&mut talk.dice);
    let part = talk.dice.in_range(1..=hello.len() as u64 - 1) as usize;
    let due = talk.accepted_at + talk.world.terms.head_time;
    let until = (due + talk.line.shortest, due);
    match failure {
        Silent => no_answer(talk, until, None).await,
        PartOfHello => {
            sleep(Duration::from_millis(talk.dice.of_any_size(1..=talk.world.terms.head_time / 2))).await;
            let asked = talk.ask_bytes(0, &hello[..part]).await;
            no_answer(talk, until, Some(asked)).await;
        }
        NoFinish => {
            let asked = talk.ask_bytes(0, &hello).await;
            talk.expect_end(until, Some(&asked)).await;
        }
        HalfClose => {
            let asked = talk.ask_bytes(0, &hello[..part]).await;
            talk.end_my_side().await;
            let now = talk.world.net.now();
            talk.expect_end((0, now), Some(&asked)).await;
        }
        Leaves => {
            let part = if talk.dice.chance(50) { part } else { hello.len() };
            talk.ask_bytes(0, &hello[..part]).await;
            sleep(Duration::from_millis(talk.dice.of_any_size(1..=2_000))).await;
            match talk.dice.in_range(0..=2) {
                0 => talk.wire.io.reset(),
                1 => talk.wire.io.vanish(),
                _ => {}
            }
        }
        Http => {
            let asked = talk.ask_bytes(0, b"GET /fixed/1/1 HTTP/1.1\r\nHost: mill\r\n\r\n").await;
            let bytes = end_at_once(&mut talk, &asked).await;
            if !bytes.starts_with(b"HTTP/1.1 400 ") && !talk.may_be_refused && !talk.has_closed(&asked) {
                talk.fault(format_args!("not a 400: {:?}", String::from_utf8_lossy(&bytes)));
            }
        }
        Garbage | GarbageBehind => {
            if matches!(failure, GarbageBehind) {
                talk.ask_bytes(0, &hello).await;
                let _ = timeout(HANGS, talk.wire.some(usize::MAX)).await;
            }
            let garbage = *talk.dice.pick(GARBAGE);
            let asked = talk.ask_bytes(0, garbage).await;
            let bytes = end_at_once(&mut talk, &asked).await;
            if !bytes.is_empty() && bytes[0] != ALERT && matches!(failure, Garbage) {
                talk.fault(format_args!("no alert: {bytes:?}"));
            }
        }
    }
}

/// Expects the end of a connection behind what is no handshake.
async fn end_at_once(talk: &mut Talk, asked: &Asked) -> Vec<u8> {
    // Bytes that the server has not read when it closes the socket are answered by a reset.
    talk.sent_behind = true;
    let now = talk.world.net.now();
    talk.expect_end((0, now), Some(asked)).await
}

/// Expects the end of a connection without a handshake, and nothing before it.
async fn no_answer(mut talk: Talk, until: (u64, u64), asked: Option<Asked>) {
    let bytes = talk.expect_end(until, asked.as_ref()).await;
    if !bytes.is_empty() {
        talk.fault(format_args!("to no message: {bytes:?}"));
    }
}
