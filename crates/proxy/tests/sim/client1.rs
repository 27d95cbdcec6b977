//! Clients of HTTP/1.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use testkit::sim::{Dice, Ended, Head, Pace, Socket, Wire, bytes_of};
use tokio::time::{sleep, timeout};

use crate::ask::{Ask, Got};
use crate::crowd::Asking;
use crate::script::{Kind, Target};
use crate::terms::profile;
use crate::world::World;

/// Shorter than the time after which the server closes an idle connection.
const PAUSE: u64 = 20_000;
/// Pieces of an upload that HTTP/1 refuses early, a millisecond apart. Some arrive together with the refusal and the reset
/// behind it, so that the proxy's write fails before it has read the refusal.
const DRIPS: usize = 400;

pub(crate) async fn pause(dice: &mut Dice, longest: u64) {
    sleep(Duration::from_millis(dice.of_any_size(1..=longest))).await;
}

pub(crate) async fn connect(world: &World, dice: &mut Dice) -> Socket {
    let from = IpAddr::from([198, 51, 100, dice.in_range(1..=200) as u8]);
    world.connector.connect(from, profile(dice)).await.expect("a server that listens")
}

/// Connects again and again, until the end.
pub(crate) async fn live(world: Arc<World>, mut dice: Dice) {
    let longest = dice.of_any_size(10..=PAUSE);
    while !world.is_over() {
        pause(&mut dice, longest).await;
        let wire = Wire::new(connect(&world, &mut dice).await, Pace::FAST);
        let mut talk = Talk { world: Arc::clone(&world), wire };
        for _ in 0..dice.of_any_size(1..=20) {
            if world.is_over() || !exchange(&mut talk, &mut dice).await {
                break;
            }
            if dice.chance(50) {
                pause(&mut dice, longest).await;
            }
        }
    }
}

/// Asks for small bodies all the time, so that a circuit that is half-open has requests to try.
pub(crate) async fn steady(world: Arc<World>, mut dice: Dice) {
    let until = world.outage.map_or(0, |(_, to)| to + 30_000);
    let mut talk = None;
    while world.net.now() < until {
        pause(&mut dice, 300).await;
        let talk_now = match &mut talk {
            Some(talk) => talk,
            None => {
                let wire = Wire::new(connect(&world, &mut dice).await, Pace::FAST);
                talk.insert(Talk { world: Arc::clone(&world), wire })
            }
        };
        if !talk_now.ask(&Ask::small(&world), &mut dice).await {
            talk = None;
        }
    }
}

/// Uploads slowly, as soon as the circuit lets it.
pub(crate) async fn slow(world: Arc<World>, mut dice: Dice) {
    let Some((from, to)) = world.outage else { return };
    world.net.until(from).await;
    while world.net.now() < to + 20_000 {
        pause(&mut dice, 100).await;
        let mut wire = Wire::new(connect(&world, &mut dice).await, Pace::FAST);
        let (tag, len) = (world.tag(), dice.in_range(20..=60));
        let target = Target { kind: Kind::Upload, tag, len: 5, millis: len };
        let ask = Ask { target, is_post: true, body: bytes_of(tag ^ 1, len as usize) };
        if wire.send(&ask.head()).await.is_err() {
            continue;
        }
        let began = world.net.now();
        let head = drip(&mut wire, &ask.body, Duration::from_millis(world.terms.timeout / 4)).await;
        let is_right = match &head {
            Ok(head) if head.field("x-tag").is_some() => head.field("x-tag") == Some(&tag.to_string()),
            Ok(_) => world.was_down(began, world.net.now()) || world.may_be_open(began),
            Err(_) => false,
        };
        if !is_right {
            world.fault(wire.io.link(), format_args!("to a slow upload from {began}: {head:?}"));
        }
    }
}

/// Sends a byte at a time, until there is an answer.
async fn drip(wire: &mut Wire, body: &[u8], gap: Duration) -> Result<Head, Ended> {
    for byte in body.chunks(1) {
        let _ = wire.send(byte).await;
        if let Ok(head) = timeout(gap, wire.head()).await {
            return head;
        }
    }
    wire.head().await
}

/// Asks once, when all is quiet.
pub(crate) async fn last(world: &Arc<World>) {
    let mut dice = Dice::new(1);
    let wire = Wire::new(connect(world, &mut dice).await, Pace::FAST);
    let mut talk = Talk { world: Arc::clone(world), wire };
    let ask = Ask::small(world);
    let tag = ask.target.tag;
    talk.ask(&ask, &mut dice).await;
    if !world.was_seen(tag) {
        world.fault(0, "the last request does not reach the upstream");
    }
}

struct Talk {
    world: Arc<World>,
    wire: Wire,
}

impl Ask {
    fn head(&self) -> Vec<u8> {
        let Target { kind, .. } = self.target;
        // The target has no path (RFC 9110 §4.2.3).
        let target = if kind == Kind::Root { "http://mill#x".to_owned() } else { self.target.path() };
        let mut text = format!("{} {target} HTTP/1.1\r\nHost: mill\r\n", self.method());
        if self.is_post {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        text += "\r\n";
        text.into()
    }
}

/// Asks for something. Returns whether the connection goes on.
async fn exchange(talk: &mut Talk, dice: &mut Dice) -> bool {
    let ask = Ask::choose(dice, &talk.world);
    if dice.chance(10) {
        leave(talk, &ask, dice).await;
        return false;
    }
    let is_slow = matches!(ask.target.kind, Kind::Fixed | Kind::Pieces) && dice.chance(15);
    if is_slow {
        let pause = Duration::from_millis(dice.in_range(1..=150));
        talk.wire.pace = Pace { piece: dice.in_range(4 << 10..=16 << 10) as usize, pause };
    }
    let goes_on = talk.ask(&ask, dice).await;
    talk.wire.pace = Pace::FAST;
    goes_on
}

/// Sends a request, or a part of it, and leaves.
async fn leave(talk: &mut Talk, ask: &Ask, dice: &mut Dice) {
    let world = Arc::clone(&talk.world);
    let _asking = Asking::begin(&world);
    let mut bytes = ask.head();
    bytes.extend(&ask.body);
    let most = if dice.chance(50) { bytes.len() as u64 } else { dice.of_any_size(1..=bytes.len() as u64) };
    talk.world.net.note(talk.wire.io.link(), &format!("leaves {}", ask.target.path()), most);
    let _ = talk.wire.send(&bytes[..most as usize]).await;
    if dice.chance(50) {
        let _ = timeout(Duration::from_millis(dice.of_any_size(1..=3_000)), talk.wire.some(1)).await;
    }
    pause(dice, 3_000).await;
}

impl Talk {
    /// Sends the request in pieces, and judges its answer. Returns whether the connection goes on.
    async fn ask(&mut self, ask: &Ask, dice: &mut Dice) -> bool {
        let world = Arc::clone(&self.world);
        let link = self.wire.io.link();
        let _asking = Asking::begin(&world);
        let began = world.net.now();
        world.net.note(link, &format!("{} {}", ask.method(), ask.target.path()), ask.body.len() as u64);
        let is_quick = dice.chance(60);
        let drips = ask.target.kind == Kind::Early && !world.terms.is_http2 && dice.chance(70);
        let mut lost = self.wire.send(&ask.head()).await.is_err();
        let mut rest = &ask.body[..];
        while !rest.is_empty() && !lost {
            let most = match (drips, is_quick) {
                (true, _) => ask.body.len().div_ceil(DRIPS).min(rest.len()) as u64,
                (_, true) => rest.len() as u64,
                (..) => dice.of_any_size(1..=rest.len() as u64),
            };
            let (piece, left) = rest.split_at(most as usize);
            rest = left;
            lost = self.wire.send(piece).await.is_err();
            if drips {
                sleep(Duration::from_millis(1)).await;
            } else if !is_quick && rest.len() < 4_000 && dice.chance(20) {
                pause(dice, 500).await;
            }
        }
        let sent = world.net.now();
        let Ok(head) = self.wire.head().await else {
            ask.unanswered(&world, link, began);
            return false;
        };
        let at = world.net.now();
        let body = self.wire.body(&head).await;
        let end = world.net.now();
        let is_whole = body.cut.is_none();
        if body.cut == Some(Ended::Hangs) {
            world.fault(link, "a body hangs");
        }
        let tag = head.field("x-tag").map(str::to_owned);
        let is_open = head.field("retry-after").is_some();
        let status = head.status;
        let got = Got { status, tag, is_open, body: body.bytes, is_whole, began, sent, head: at, last: at, end };
        ask.judge(&world, link, &got);
        is_whole && !head.closes()
    }
}
