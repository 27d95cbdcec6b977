//! The limits of the proxy and of its server, and what goes wrong in a run.

use std::time::Duration;

use millstream::server::Limits;
use millstream_proxy::{Proxy, Upstream};
use testkit::sim::{Dice, Profile};

/// Time by which a limit may take effect late: the ticks of the clock, the way of the bytes, and new connections.
pub(crate) const LATE: u64 = 2_000;

/// All times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) is_http2: bool,
    /// Whether the server has sockets of the kernel.
    pub(crate) has_sockets: bool,
    /// Whether the upstream ends kept connections when it likes.
    pub(crate) is_rough: bool,
    /// Whether it sends bytes behind some answers of HTTP/1. They arrive with the answer.
    pub(crate) has_strays: bool,
    pub(crate) connect: u64,
    pub(crate) timeout: u64,
    pub(crate) silence: u64,
    pub(crate) tunnel: u64,
    age: u64,
    pub(crate) idle: usize,
    pub(crate) idle_timeout: u64,
    pub(crate) requests: usize,
    pub(crate) queue: (usize, u64),
    /// The failures that open the circuit, and its back-off. The upstream is down for a while then, and well otherwise.
    pub(crate) breaker: Option<(u32, u64)>,
}

impl Terms {
    pub(crate) fn choose(mut dice: Dice) -> Self {
        let breaker = dice.chance(50).then(|| (dice.in_range(1..=4) as u32, *dice.pick(&[500, 2_000, 6_000])));
        let is_scarce = breaker.is_none() && dice.chance(40);
        let is_rough = breaker.is_none() && dice.chance(50);
        Self {
            is_http2: dice.chance(50),
            has_sockets: dice.chance(50),
            is_rough,
            has_strays: is_rough && dice.chance(30),
            connect: 2_000,
            timeout: *dice.pick(&[3_000, 10_000]),
            silence: *dice.pick(&[4_000, 15_000]),
            tunnel: *dice.pick(&[5_000, 25_000]),
            age: *dice.pick(&[600_000, 5_000]),
            idle: *dice.pick(&[16, 256, 1, 0]),
            idle_timeout: *dice.pick(&[60_000, 3_000]),
            requests: if is_scarce { dice.in_range(1..=6) as usize } else { 1_000 },
            queue: if is_scarce { (dice.in_range(0..=20) as usize, *dice.pick(&[1_000, 5_000])) } else { (10, 5_000) },
            breaker,
        }
    }

    pub(crate) fn proxy(&self, upstream: Upstream) -> Proxy {
        let millis = Duration::from_millis;
        let mut builder = Proxy::builder(upstream)
            .connect_timeout(millis(self.connect))
            .timeout(millis(self.timeout))
            .body_timeout(millis(self.silence))
            .tunnel_timeout(millis(self.tunnel))
            .http2_age(millis(self.age))
            .idle_connections(self.idle)
            .idle_timeout(millis(self.idle_timeout))
            .requests(self.requests)
            .queue(self.queue.0, millis(self.queue.1));
        if let Some((failures, back_off)) = self.breaker {
            builder = builder.breaker(failures, millis(back_off));
        }
        builder.build().expect("valid options")
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits::default()
            .body(u64::MAX)
            .body_progress(Duration::from_secs(1_000_000))
            // These draw random times, which the seed does not choose.
            .drain_spread(Duration::ZERO)
            .retry_after(Duration::from_secs(1))
            .trim_heap(false)
    }
}

/// A connection to the upstream. Bytes that are sent together also arrive together if some are stray.
pub(crate) fn upstream_profile(dice: &mut Dice, terms: &Terms) -> Profile {
    let profile = profile(dice);
    match terms.has_strays {
        true => Profile { segment: 64 << 10, chops: false, accepts_parts: false, ..profile },
        false => profile,
    }
}

/// A connection that loses little time.
pub(crate) fn profile(dice: &mut Dice) -> Profile {
    Profile {
        latency: dice.of_any_size(1..=80),
        jitter: dice.of_any_size(1..=30) - 1,
        stalls: *dice.pick(&[0, 0, 1]),
        stall: 50..=200,
        segment: *dice.pick(&[64 << 10, 1_460, 536]),
        chops: dice.chance(30),
        accepts_parts: dice.chance(30),
        send_buffer: *dice.pick(&[128 << 10, 16 << 10]),
        receive_buffer: *dice.pick(&[128 << 10, 16 << 10]),
    }
}
