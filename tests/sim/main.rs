//! `sim`: the server over a simulated network, on a clock that is paused, in one thread. Everything that happens follows
//! from a seed.
//!
//! ```sh
//! MILLSTREAM_SIM_SEED=7 cargo test --test sim replay -- --nocapture    # one seed, with its trace
//! MILLSTREAM_SIM_SECONDS=600 cargo test --test sim seeds -- --nocapture # new seeds for ten minutes
//! ```
//!
//! `MILLSTREAM_SIM_GROUND=kernel` repeats a seed on sockets of the kernel, behind the simulated ones: the server has streams of
//! this crate, with their whole send path, and `sendfile`. There, a run is not the same twice, each segment may take 30 ms longer, no client sees
//! a reset in place of an end, the listener does not fail, and all have a place.
//!
//! Every third seed is a server with TLS.
//!
//! A fault is whatever contradicts one of these rules. "Able" is a link that is fast enough for all limits, and "steady" one
//! on which a small response arrives in one window; the dice choose them. `p` is a time that a limit has.
//!
//! | rule | holds | in |
//! |---|---|---|
//! | a request is executed once if it is answered, and once at most otherwise | always | `owed.rs`, `service.rs` |
//! | text of a request in a body, and a request behind the last one or on a refused connection, are not executed | always | `client.rs`, `service.rs` |
//! | the answer is that to the request, byte by byte, and an incomplete one looks incomplete | always | `owed.rs` |
//! | no limit takes effect before `p`, to the millisecond | always, from the shortest time over the link | `owed.rs` |
//! | a prompt request is answered in full | able, unless it arrives behind the end of an idle connection, or the deadline passes | `owed.rs` |
//! | the answer from a file that shrinks is complete, or looks incomplete | always | `owed.rs` |
//! | a client gets the trailer fields that are announced and allowed if it takes trailers, and no others | HTTP/1 | `client.rs` |
//! | a body with a length beside its chunks is read by its chunks, and is the last one of its connection | HTTP/1 | `request.rs` |
//! | an upload that the service reads late delays no other request of its connection | HTTP/2, wide windows | `exchange2.rs` |
//! | a connection that waits for the listener when a drain begins is accepted and answered | simulated sockets | `probe.rs` |
//! | in a deploy, clients and readers notice nothing: each answer and each event comes once, over the same connections | sockets of the kernel | `deploy.rs` |
//! | a limit takes effect a second after `p` at most | able | `owed.rs`, `endings.rs` |
//! | the last bytes are followed by an end, not by a reset | unless the deadline passes, a response is not read, or bytes come behind the last response in pieces of their own | `owed.rs` |
//! | a response that is not read, or silent for a client that has ended its side, is reset at `p` | always; at the latest: steady, and always for the silent one | `endings.rs` |
//! | a connection ends behind `Connection: close`, HTTP/1.0, garbage and the end of the client | always; in time: able | `owed.rs` |
//! | an answer to a request that was sent in a drain announces the end | always | `owed.rs` |
//! | `100 Continue` comes for a body that waits for it, and for no other | always | `client.rs` |
//! | a request beyond a limit of its head or body, or with a wrong `Host`, gets the server's answer with the hook's field and body, and is not executed | always; the answer may be lost: not able | `refused.rs` |
//! | each event comes once, in order, with its id, over all connections of a client and in each form: plain, through a layer, compressed, JSON lines | always | `events.rs`, `decode.rs` |
//! | only a reader behind the ring or the queue misses events, as few as the policy says, and is told how many | always | `events.rs`, `hub.rs` |
//! | an event comes within 50 ms and the time over the link, and a comment after half to all of its period | steady | `events.rs` |
//! | a stream ends in order, behind the events that were sent before: in a drain, with its hub, at its age, or if `LagPolicy::Disconnect` ends it; at once while it waits for a log | always, if it ends before the deadline; in time: steady | `reader.rs` |
//! | a sender waits for a reader for its patience at most (`LagPolicy::Block`), and one that it has given up gets no further event | always, without layers | `patience.rs` |
//! | on sockets of the kernel, a reader that takes nothing gets no more than its connection and the queue hold, without a gap or its end | at the end | `probe.rs` |
//! | the events of a hub end with it | at the end | `probe.rs` |
//! | a reader that takes nothing is given up (`LagPolicy::Block`), and its stream ends | at the end, without layers | `probe.rs` |
//! | the rate of all connections holds, but for what one call and a tenth of a second send | sockets of the kernel, at the end | `probe.rs` |
//! | bytes that arrive while the last response is made do not reset the connection | at the end | `probe.rs` |
//! | a drain aborts the connections that are busy at its deadline, and no others | at the end | `probe.rs` |
//! | a request whose client has left is dropped | steady | `endings.rs` |
//! | on sockets of the kernel, a hub writes to the connections of its readers itself if it may, with comments in each silent period | at the end | `probe.rs` |
//! | `KeepAlive` adds comments between two events, after half to all of a silent period, and changes nothing else; `until_drain` ends such a stream in a drain | always; in time: steady | `tokens.rs` |
//! | a hub refuses a reader if all of its places are taken or it is closed, and only then | always | `service.rs` |
//! | a log in a directory has all events that were sent, from the first that it keeps, also when it is opened again behind a part of a commit; no event goes to a file that was removed | sockets of the kernel | `directory.rs` |
//! | the counters of the process grow by those of each hub at the least | at the end | `hub.rs` |
//! | the statistics of a hub are what was sent, kept, refused and ignored, and not less than what has come | at the end | `hub.rs` |
//! | a connection is refused if all places are taken, and only then | then: at the end of a seed; only then: always | `owed.rs`, `probe.rs` |
//! | an error of the listener ends the server, and not its connections | one in ten seeds | `world.rs` |
//! | TLS: a handshake ends in the time of the first head, from connecting, and a client that does not complete one has as long | not before: always; at the latest: able | `handshake.rs` |
//! | TLS: what is no handshake, no record or an end of the client ends the connection at once; HTTP gets a 400 | able | `handshake.rs`, `endings.rs` |
//! | TLS: the cipher is AES-128, or ChaCha20 if the client prefers it, of those that the server knows | always | `seal.rs` |
//! | TLS: the last bytes are followed by a `close_notify`, and no record is wrong | as the end in place of a reset | `owed.rs` |
//! | HTTP/2: each stream has the answer to its request, byte by byte; an incomplete one ends by an error; `HEAD` has no content | always | `owed2.rs` |
//! | HTTP/2: a request that was given up is dropped, and so are all of a connection that has ended | steady | `owed2.rs`, `client2.rs` |
//! | HTTP/2: a request that was refused, by its stream, by GOAWAY or by a drain, is not executed | always | `owed2.rs` |
//! | HTTP/2: requests in progress are answered behind a GOAWAY; no request is accepted a second after a drain has begun | until the deadline; the latter: able and steady | `owed2.rs` |
//! | HTTP/2: an answer of which no window takes more is reset at `p`, however it is framed, and not before; others end only by limits | at the latest: steady | `exchange2.rs`, `owed2.rs` |
//! | HTTP/2: a body that does not come gets a 408, and no other stream of the connection | able | `exchange2.rs` |
//! | HTTP/2: a client that has vanished is given up by a PING in 80 s, and `write_stall` more if its last frames wait | simulated sockets | `client2.rs` |
//! | HTTP/2: an idle connection ends by GOAWAY, and a frame that no client may send ends one at once, by GOAWAY | able; steady | `client2.rs` |
//! | no task, connection, place or waiting service is left; a drain ends at its deadline | always | `world.rs` |

mod client;
mod client2;
mod clock;
mod decode;
#[cfg(not(portable))]
mod deploy;
mod directory;
mod endings;
mod events;
mod exchange2;
mod ground;
mod handshake;
mod hub;
mod line;
mod log;
mod owed;
mod owed2;
mod patience;
mod probe;
mod publish;
mod reader;
mod refused;
mod request;
mod seal;
mod service;
mod session;
mod terms;
mod tokens;
mod world;

use std::env;
use std::time::{Duration, Instant};

use ground::Ground;
use testkit::skips::tell;
use world::{Outcome, run};

/// Seeds of a run without `MILLSTREAM_SIM_SECONDS`.
const SEEDS: u64 = 20;
/// The same, on sockets of the kernel. Every third one is a deploy, and a short run.
const SEEDS_ON_SOCKETS: u64 = 15;
/// Seeds that run twice, without `MILLSTREAM_SIM_SAME`.
const SAME: u64 = 4;
/// Time, by the clock of the machine if it goes on, after which h2 forgets a stream that the server has reset.
const FORGETS: Duration = Duration::from_secs(1);

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|e| panic!("{name}={value}: {e}")))
}

/// Returns what the server did wrong, with the command that repeats it.
fn complaint(seed: u64, ground: Ground, outcome: &Outcome) -> Option<String> {
    let first = outcome.faults.first()?;
    let command = format!(
        "MILLSTREAM_SIM_SEED={seed} MILLSTREAM_SIM_GROUND={ground} cargo test --test sim replay -- --nocapture"
    );
    Some(format!("seed {seed}: {} faults, the first {first}\n    {command}\n", outcome.faults.len()))
}

#[test]
fn the_same_seed_is_the_same_run() {
    let seeds = number("MILLSTREAM_SIM_SAME").unwrap_or(SAME);
    let mut compared = 0;
    for seed in 0..seeds {
        let timed = || {
            let start = Instant::now();
            (run(seed, Ground::Simulated, true), start.elapsed())
        };
        let ((one, first), (other, second)) = (timed(), timed());
        if clock::STANDS || first.max(second) < FORGETS {
            let different = one.text.iter().zip(&other.text).find_map(|(one, other)| {
                one.lines().zip(other.lines()).enumerate().find(|(_, (one, other))| one != other)
            });
            assert_eq!((one.hash, one.events), (other.hash, other.events), "seed {seed}: {different:?}");
            compared += 1;
        } else {
            tell(&format!("the traces of seed {seed}: the machine is too slow"));
        }
        if (seed + 1) % 50 == 0 || seed + 1 == seeds {
            println!("{compared} of {} seeds ran twice with the same trace, and there are {seeds}", seed + 1);
        }
    }
}

#[test]
fn seeds_find_no_fault() {
    find_no_fault(Ground::Simulated);
}

#[test]
#[cfg(not(portable))]
fn seeds_on_sockets_of_the_kernel_find_no_fault() {
    find_no_fault(Ground::Kernel);
}

fn find_no_fault(ground: Ground) {
    let seconds = number("MILLSTREAM_SIM_SECONDS").map(Duration::from_secs);
    let first = number("MILLSTREAM_SIM_SEED").unwrap_or(0);
    let (start, mut seed, mut hours, mut requests, mut events) = (Instant::now(), first, 0.0, 0, 0);
    let mut complaints = Vec::new();
    let seeds = if ground.is_simulated() { SEEDS } else { SEEDS_ON_SOCKETS };
    while seconds.map_or(seed < first + seeds, |seconds| start.elapsed() < seconds) {
        let outcome = run(seed, ground, false);
        complaints.extend(complaint(seed, ground, &outcome));
        hours += outcome.connection_hours;
        (requests, events) = (requests + outcome.requests, events + outcome.events);
        seed += 1;
    }
    let minutes = start.elapsed().as_secs_f64() / 60.0;
    println!(
        "{} seeds in {:.1} s: {hours:.0} connection-hours, {:.0} a minute; {requests} requests, {events} events",
        seed - first,
        minutes * 60.0,
        hours / minutes
    );
    assert!(complaints.is_empty(), "{} seeds failed:\n{}", complaints.len(), complaints.concat());
}

/// Prints the trace of one seed.
#[test]
fn replay() {
    let Some(seed) = number("MILLSTREAM_SIM_SEED") else { return };
    let outcome = run(seed, Ground::chosen(), true);
    println!("{}", outcome.text.as_deref().unwrap_or_default());
    println!("seed {seed}: {:016x}, {} events\n{}", outcome.hash, outcome.events, outcome.faults.join("\n"));
    assert!(outcome.faults.is_empty());
}
