//! The link of a client: how fast it is, and so what its server can be held to.

use std::time::Duration;

use millstream::sse::LagPolicy;
use testkit::sim::{Dice, Pace, Profile};

use crate::terms::Terms;

/// Longest body of a response on a steady link: it arrives in one piece.
pub(crate) const SMALL: u64 = 16 << 10;
/// Bytes that a client must take in the time of `Limits::write_stall`.
const RATE: u64 = 8 << 10;
/// The frames of HTTP/2 of so many requests as a connection has at a time, and more: only a whole frame is progress.
const FRAMES: u64 = 7 * (16 << 10);
/// The most that the kernel takes as one piece for a Unix socket.
pub(crate) const LONGEST_PIECE: u64 = 64 << 10;
/// Longest record of TLS, which is read as a whole, and the most bytes of a handshake.
const RECORD: u64 = 17 << 10;
const HANDSHAKE: usize = 4 << 10;

/// The known times of a link, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Shortest and longest time of a segment from the client to the server, or back.
    pub(crate) shortest: u64,
    pub(crate) longest: u64,
    window: u64,
    pub(crate) pace: Pace,
    is_sealed: bool,
    /// Whether all bytes of a small response arrive within `longest`.
    pub(crate) is_steady: bool,
    /// Whether it is fast enough for all limits of the server, so that none of them may end a prompt exchange.
    pub(crate) is_able: bool,
    /// Whether a write of the server may be taken in part.
    pub(crate) takes_parts: bool,
    /// Whether bytes that are sent together also arrive together.
    pub(crate) is_in_one_piece: bool,
}

impl Line {
    pub(crate) fn choose(dice: &mut Dice, terms: &Terms) -> (Profile, Self) {
        let profile = profile(dice, terms);
        let send_buffer = profile.send_buffer.min(terms.send_buffer);
        let is_steady = profile.stalls == 0 && send_buffer >= 64 << 10 && profile.receive_buffer >= 64 << 10;
        let is_narrow = profile.receive_buffer < 4 << 10;
        let pace = match is_steady || dice.chance(60) || is_narrow {
            true => Pace::FAST,
            false => {
                let (piece, pause) = (dice.in_range(4 << 10..=64 << 10), dice.in_range(1..=500));
                Pace { piece: piece as usize, pause: Duration::from_millis(pause) }
            }
        };
        let stall = if profile.stalls > 0 { *profile.stall.end() } else { 0 };
        let mut line = Self {
            shortest: profile.latency,
            longest: profile.latency + profile.jitter + stall + terms.hops,
            // The kernel counts its own memory for each write, too.
            window: profile.send_buffer.min(profile.receive_buffer).min(terms.send_buffer / 16) as u64,
            pace,
            is_sealed: terms.tls,
            is_steady,
            is_able: false,
            takes_parts: profile.accepts_parts,
            is_in_one_piece: is_steady && !profile.chops && profile.segment >= SMALL,
        };
        // A Unix socket tells only that all of a piece was read.
        let rate = if terms.hops > 0 { RATE + LONGEST_PIECE } else { RATE };
        let rate = if terms.tls { 2 * rate + RECORD } else { rate };
        let needs = (rate / line.window + 2) * line.round();
        // A client does not read while it sends: session tickets and an early answer have to fit.
        let fits = !(terms.tls && is_narrow);
        line.is_able = fits && needs + 1_500 < terms.write_stall.min(terms.body_progress);
        (profile, line)
    }

    /// Returns the same line for a connection of HTTP/2 whose narrowest flow-control window has `window` bytes. Its client
    /// always reads, and each half of that window is opened again when it has been read.
    pub(crate) fn with_windows(mut self, window: u64, terms: &Terms) -> Self {
        (self.window, self.pace) = (self.window.min(window / 2), Pace::FAST);
        let frames = if terms.tls { 2 * FRAMES + RECORD } else { FRAMES };
        let needs = (frames / self.window + 4) * self.round();
        self.is_able &= needs + 1_500 < terms.write_stall.min(terms.body_progress);
        self
    }

    /// Returns the time in which a window of bytes is sent, read and acknowledged, at most.
    fn round(&self) -> u64 {
        self.shortest + self.longest + self.pace.pause.as_millis() as u64
    }

    /// Returns the time in which `bytes` arrive at a side that reads them, at most.
    pub(crate) fn time_for(&self, bytes: usize) -> u64 {
        // Behind the handshake, and in records of any length.
        let bytes = if self.is_sealed { HANDSHAKE + 2 * bytes } else { bytes };
        self.longest + bytes as u64 / self.window * self.round()
    }
}

fn profile(dice: &mut Dice, terms: &Terms) -> Profile {
    let most = if terms.hub.policy == LagPolicy::Block { 4 << 10 } else { 128 << 10 };
    let is_quick = terms.is_calm || dice.chance(40);
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
        send_buffer: dice.of_any_size(512..=most) as usize,
        receive_buffer: dice.of_any_size(512..=most) as usize,
    }
}
