//! The limits of a server, which follow from the seed.

#[cfg(not(portable))]
use std::num::NonZeroU64;
use std::time::Duration;

#[cfg(not(portable))]
use millstream::net::SharedPace;
use millstream::server::Limits;
use millstream::sse::LagPolicy;
use testkit::sim::Dice;

use crate::ground::Ground;
use crate::hub::HubTerms;
use crate::refused::{self, BODY_MAX, FIELDS_MAX, HEAD_MAX, URI_MAX};

/// More bytes in a second than all connections send.
#[cfg(not(portable))]
pub(crate) const FAST: NonZeroU64 = NonZeroU64::new(1 << 40).unwrap();
/// Connections that are allowed, in most worlds more than there are clients.
const PLACES: usize = 200;

/// The limits of a server, in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) head_time: u64,
    pub(crate) keep_alive: u64,
    pub(crate) write_stall: u64,
    pub(crate) body_progress: u64,
    pub(crate) half_close: u64,
    pub(crate) deadline: u64,
    /// Connections that are allowed.
    pub(crate) places: usize,
    pub(crate) hub: HubTerms,
    buffer: usize,
    /// Requests of a connection of HTTP/2 at a time, and its windows for bodies.
    pub(crate) streams: u32,
    pub(crate) windows: (u32, u32),
    pub(crate) takes_over: bool,
    /// Bytes that a socket of the kernel takes from the server.
    pub(crate) send_buffer: usize,
    /// The rate of all connections together, far above what they send until [`probe::paced`](crate::probe::paced).
    #[cfg(not(portable))]
    pub(crate) pace: Option<SharedPace>,
    /// Time that a segment takes between the simulated connection and the server.
    pub(crate) hops: u64,
    /// Whether the server can reset a connection so that its client sees it.
    pub(crate) resets: bool,
    /// Whether days pass in which little happens, on connections that are kept for as long.
    pub(crate) is_calm: bool,
    /// Whether the server speaks TLS.
    pub(crate) tls: bool,
    /// Whether another server takes its connections at the end.
    pub(crate) moves: bool,
}

impl Terms {
    /// Chooses them. With `deploys`, another server takes its connections.
    pub(crate) fn choose(mut dice: Dice, ground: Ground, tls: bool, deploys: bool) -> Self {
        let is_calm = dice.chance(10) && ground.is_simulated();
        let mut terms = Self {
            head_time: *dice.pick(&[10_000, 2_000]),
            keep_alive: if is_calm { 50_000_000 } else { *dice.pick(&[75_000, 20_000, 6_000]) },
            write_stall: *dice.pick(&[30_000, 5_000]),
            body_progress: *dice.pick(&[30_000, 6_000]),
            half_close: *dice.pick(&[1_000, 5_000]),
            deadline: *dice.pick(&[10_000, 30_000]),
            places: if dice.chance(20) { dice.in_range(2..=8) as usize } else { PLACES },
            hub: HubTerms::choose(dice.fork(1), ground, deploys),
            buffer: *dice.pick(&[64 << 10, 8 << 10]),
            streams: *dice.pick(&[100, 100, 3]),
            windows: *dice.pick(&[(3 << 20, 4 << 20), (16 << 10, 64 << 10)]),
            takes_over: dice.chance(80) || deploys,
            send_buffer: if ground.is_simulated() { usize::MAX } else { *dice.pick(&[4 << 10, 32 << 10, 200 << 10]) },
            #[cfg(not(portable))]
            pace: None,
            hops: ground.hops(),
            resets: ground.is_simulated(),
            is_calm,
            tls,
            moves: false,
        };
        terms.moves =
            !ground.is_simulated() && !tls && terms.takes_over && terms.hub.may_move() && (dice.chance(75) || deploys);
        if terms.hub.policy == LagPolicy::Block {
            // Readers that stop reading soon hold their senders up.
            terms.buffer = 8 << 10;
        }
        #[cfg(not(portable))]
        if !ground.is_simulated() && !deploys && dice.chance(40) {
            terms.pace = Some(SharedPace::new(FAST));
        }
        if !ground.is_simulated() {
            // When sockets of the kernel give their places back is not known here.
            terms.places = PLACES;
        }
        terms
    }

    /// Returns the time after which a client that does not read is told that the server has closed the connection.
    pub(crate) fn passed_on(&self) -> u64 {
        if self.resets { 0 } else { 31_000 }
    }

    pub(crate) fn limits(&self) -> Limits {
        let millis = Duration::from_millis;
        Limits::default()
            .head_time(millis(self.head_time))
            .keep_alive(millis(self.keep_alive))
            .write_stall(millis(self.write_stall))
            .body_progress(millis(self.body_progress))
            .half_close(millis(self.half_close))
            .buffer(self.buffer)
            .http2_streams(self.streams)
            .http2_stream_window(self.windows.0)
            .http2_connection_window(self.windows.1)
            .head(HEAD_MAX)
            .uri(URI_MAX)
            .fields(FIELDS_MAX)
            .body(BODY_MAX)
            .on_refusal(refused::mark)
            .connections(self.places)
            .per_address(usize::MAX)
            // These draw random times, which the seed does not choose.
            .drain_spread(Duration::ZERO)
            .retry_after(Duration::from_secs(1))
            .trim_heap(false)
    }
}
