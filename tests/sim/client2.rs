//! Connections of HTTP/2: with prior knowledge, or over TLS, by ALPN or by the first bytes.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use h2::client::{Builder, Connection, SendRequest};
use testkit::sim::{Carrier, Dice, Ended, Lent, Pace, Wire};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use crate::client::Talk;
use crate::exchange2::PATIENCE;
use crate::owed2::SLOW;
use crate::reader::Reader;
use crate::session::Session;
use crate::world::LATE;

/// Longer than every limit of a server.
const HANGS: Duration = Duration::from_secs(100_000);
/// Frames that no client may send: a PING that is too short, a head of no stream, data of a stream that was not opened,
/// and a frame that is too long.
const GARBAGE: &[&[u8]] = &[
    b"\0\0\x05\x06\0\0\0\0\0hello",
    b"\0\0\x01\x01\x05\0\0\0\0\x82",
    b"\0\0\x01\0\0\0\0\xff\xffx",
    b"\xff\xff\xff\0\0\0\0\0\x01",
];
/// The widest window of a client: less than the answer that it does not read.
const WIDE: u32 = 256 << 10;
/// Time until a server gives a client up that answers no PING, besides that of its last frames.
const SILENT: Duration = Duration::from_millis(60_000 + 20_000 + LATE);
/// The type of GOAWAY.
const GOAWAY: u8 = 7;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Close,
    /// Closes when all is answered, by the client's GOAWAY.
    InOrder,
    Reset,
    Vanish,
    HalfClose,
    /// Waits until the server closes the idle connection.
    Idle,
    /// Sends no request.
    Nothing,
    /// Announces a body and does not send it.
    PartOfBody,
    /// Asks for a long response and does not read it.
    Stall,
    /// Sends a frame that no client may send.
    Garbage,
}

impl Ending {
    fn choose(dice: &mut Dice) -> Self {
        use Ending::*;
        *dice.pick(&[Close, InOrder, Reset, Vanish, HalfClose, Idle, Idle, Nothing, PartOfBody, Stall, Garbage])
    }

    fn is_within(self, dice: &mut Dice) -> bool {
        matches!(self, Self::Close | Self::Reset | Self::Vanish | Self::HalfClose) && dice.chance(50)
    }
}

type Driven = Connection<Lent<Carrier>, Bytes>;

pub(crate) async fn run(talk: Talk, reader: &mut Reader) {
    let Talk { world, tags, mut dice, wire, line, accepted_at, may_be_refused, .. } = talk;
    let windows = match line.is_steady && dice.chance(70) {
        true => (WIDE, WIDE),
        false => (*dice.pick(&[65_535, 1_000, 16 << 10, WIDE]), *dice.pick(&[65_535, WIDE])),
    };
    let (stream, whole) = world.terms.windows;
    let narrowest = windows.0.min(windows.1).min(stream).min(whole);
    let line = line.with_windows(narrowest.into(), &world.terms);
    let io = Lent::new(wire.io);
    let session = Session::new((world, tags), line, io, accepted_at);
    if may_be_refused {
        session.set_may_be_refused();
    }
    session.note("HTTP/2", narrowest.into());
    let mut builder = Builder::new();
    // `h2` forgets streams after a time by the clock of the machine.
    builder.reset_stream_duration(HANGS).max_concurrent_reset_streams(10_000).enable_push(false);
    builder.initial_window_size(windows.0).initial_connection_window_size(windows.1);
    let ending = Ending::choose(&mut dice);
    match builder.handshake::<_, Bytes>(session.io.clone()).await {
        Ok((sender, connection)) => session.talk(sender, connection, ending, reader, dice).await,
        Err(error) => session.ended(&Err(error)),
    }
}

impl Session {
    async fn talk(
        self,
        sender: SendRequest<Bytes>,
        mut connection: Driven,
        ending: Ending,
        reader: &mut Reader,
        mut dice: Dice,
    ) {
        let within = ending.is_within(&mut dice).then(|| Duration::from_millis(dice.of_any_size(1..=20_000)));
        let limit = sleep(within.unwrap_or(HANGS));
        {
            let asking = self.ask(&sender, ending, reader, &mut dice);
            tokio::pin!(asking, limit);
            tokio::select! {
                biased;
                () = &mut asking => {}
                () = limit => {
                    if within.is_none() {
                        self.fault("a request hangs");
                    }
                }
                ended = &mut connection => {
                    self.ended(&ended);
                    if timeout(Duration::from_secs(1_000), asking).await.is_err() {
                        self.fault("a request outlives its connection");
                    }
                }
            }
        }
        if !self.is_over() {
            self.note("ending", ending as u64);
            self.end(sender, connection, ending, dice).await;
        }
    }

    /// Asks everything, and then what belongs to the end.
    async fn ask(&self, sender: &SendRequest<Bytes>, ending: Ending, reader: &mut Reader, dice: &mut Dice) {
        if ending == Ending::Nothing {
            return;
        }
        let reads = dice.chance(if reader.is_resuming() { 60 } else { 25 });
        let others = if dice.chance(15) { dice.in_range(1..=3) } else { 0 };
        let holds = !reads && others == 0;
        let mut lanes = Vec::new();
        if reads {
            let mut dice = dice.fork(0);
            lanes.push(async move { self.read_events(sender, reader, &mut dice).await }.boxed());
        }
        for other in 1..=others {
            let mut dice = dice.fork(other);
            lanes.push(async move { self.read_events(sender, &mut Reader::default(), &mut dice).await }.boxed());
        }
        for lane in 10..=10 + dice.in_range(0..=5) {
            lanes.push(self.ask_all(sender, dice.fork(lane), holds).boxed());
        }
        join_all(lanes).await;
        match ending {
            _ if self.is_over() => {}
            Ending::PartOfBody => self.part_of_body(sender).await,
            Ending::Stall => {
                let Some((earliest, latest)) = self.stall(sender, dice).await else { return };
                let now = self.now();
                if !self.is_over() || (now < earliest && self.world.drained_at().is_none()) {
                    self.fault(format_args!("not reset from {earliest} to {latest} ms: not read"));
                }
            }
            _ => {}
        }
    }

    async fn end(self, sender: SendRequest<Bytes>, connection: Driven, ending: Ending, mut dice: Dice) {
        match ending {
            Ending::Idle | Ending::Nothing => {
                let patience = Duration::from_millis(self.idle_until().saturating_sub(self.now())) + PATIENCE;
                let Ok(ended) = timeout(patience, connection).await else { return self.fault("no end") };
                let (now, until) = (self.now(), self.idle_until());
                self.ended(&ended);
                if self.line.is_able && now > until + LATE + 4 * self.line.longest + self.time_for_all() {
                    self.fault(format_args!("the end at {now} ms, not until {until} ms"));
                }
            }
            Ending::InOrder | Ending::PartOfBody | Ending::Stall => {
                drop(sender);
                if timeout(HANGS, connection).await.is_err() {
                    self.fault("the connection does not end in order");
                }
            }
            _ => {
                drop((sender, connection));
                self.cut(ending, &mut dice).await;
            }
        }
    }

    /// Ends the connection past its HTTP/2.
    async fn cut(self, ending: Ending, dice: &mut Dice) {
        let (now, line) = (self.now(), self.line.clone());
        let (tags, takes, is_done) = (self.tags(), self.time_for_all(), self.is_done());
        let Self { world, link, io, .. } = self;
        let mut io = io.into_inner();
        match ending {
            Ending::Reset => io.reset(),
            Ending::Vanish => {
                io.vanish();
                // The last frames, which it does not take, hold the connection for the time of a stalled response.
                sleep(SILENT + Duration::from_millis(world.terms.write_stall)).await;
                // Of a socket of the kernel, the server learns that from TCP.
                if world.terms.resets && world.net.is_served(link) {
                    world.fault(link, "a client that has vanished has a connection");
                }
                return;
            }
            Ending::HalfClose => {
                let _ = io.shutdown().await;
                let (_, ended) = Wire::new(io, Pace::FAST).end().await;
                let ended_at = world.net.now();
                let is_late = line.is_steady && ended_at > now + takes + line.longest + LATE;
                if ended == Ended::Hangs || is_late {
                    world.fault(link, format_args!("{ended:?} at {ended_at} ms behind the end of the client"));
                }
            }
            // Behind a part of a frame it is none.
            Ending::Garbage if is_done && line.is_steady => {
                let garbage = *dice.pick(GARBAGE);
                let _ = io.write_all(garbage).await;
                let _ = io.flush().await;
                let (bytes, ended) = Wire::new(io, Pace::FAST).end().await;
                let ended_at = world.net.now();
                let is_late = ended_at > now + takes + line.longest + LATE;
                if ended == Ended::Hangs || is_late || !(has_goaway(&bytes) || world.is_closing()) {
                    world.fault(link, format_args!("{ended:?} at {ended_at} ms, not a GOAWAY: {bytes:?}"));
                }
            }
            _ => drop(io),
        }
        if line.is_steady {
            sleep(Duration::from_millis(takes + line.longest + SLOW)).await;
            let left = tags.into_iter().find(|&tag| world.calls.is_open(tag));
            if let Some(tag) = left {
                world.fault(link, format_args!("the service works on request {tag} of a connection that has ended"));
            }
        }
    }
}

/// Returns whether frames contain a GOAWAY with an error.
fn has_goaway(mut frames: &[u8]) -> bool {
    while let Some((head, rest)) = frames.split_at_checked(9) {
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, behind)) = rest.split_at_checked(len) else { return false };
        if head[3] == GOAWAY && payload[4..8] != [0; 4] {
            return true;
        }
        frames = behind;
    }
    false
}
