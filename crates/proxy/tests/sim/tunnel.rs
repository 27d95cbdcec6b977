//! Tunnels: clients that change the protocol, and what the upstream does then.

use std::sync::Arc;
use std::time::Duration;

use testkit::sim::{Dice, Ended, Pace, Wire, bytes_of};
use tokio::io::AsyncWriteExt;
use tokio::time::sleep;

use crate::client1::{connect, pause};
use crate::crowd::Asking;
use crate::script::{Kind, Target};
use crate::terms::LATE;
use crate::world::{Counted, World};

/// Longest time of a tunnel whose one side has ended.
const PARTING: u64 = 10_000;

/// How the upstream ends a tunnel, by the length in the target.
const ECHOES: u64 = 0;
/// Never.
const STAYS: u64 = 1;
/// After its first bytes.
const LEAVES: u64 = 2;

/// The upstream's side.
pub(crate) async fn upstream(world: &Arc<World>, wire: &mut Wire, target: &Target) {
    let text = format!("HTTP/1.1 101 Yes\r\nx-tag: {}\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", target.tag);
    if wire.send(text.as_bytes()).await.is_err() {
        return;
    }
    world.net.note(wire.io.link(), "tunnel", target.tag);
    while let Ok(bytes) = wire.some(usize::MAX).await {
        if wire.send(&bytes).await.is_err() || target.len == LEAVES {
            let _ = wire.io.shutdown().await;
            break;
        }
    }
    if target.len == STAYS {
        // The proxy may have closed its socket, which only bytes would show.
        let _not_counted = Counted::new(world, -1);
        return sleep(Duration::from_millis(world.terms.tunnel + 30_000)).await;
    }
    let _ = wire.end().await;
}

/// Opens tunnels until the end.
pub(crate) async fn live(world: Arc<World>, mut dice: Dice) {
    while !world.is_over() {
        pause(&mut dice, 2_000).await;
        let wire = Wire::new(connect(&world, &mut dice).await, Pace::FAST);
        talk(&world, wire, &mut dice).await;
    }
}

async fn talk(world: &World, mut wire: Wire, dice: &mut Dice) {
    let mut asking = Asking::begin(world);
    asking.lingers += world.terms.tunnel.min(PARTING);
    let (link, began) = (wire.io.link(), world.net.now());
    let manner = *dice.pick(&[ECHOES, STAYS, LEAVES]);
    let target = Target { kind: Kind::Tunnel, tag: world.tag(), len: manner, millis: 0 };
    let path = target.path();
    let text = format!("GET {path} HTTP/1.1\r\nHost: mill\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
    world.net.note(link, &path, 0);
    let head = match wire.send(text.as_bytes()).await {
        Ok(()) => wire.head().await,
        Err(ended) => Err(ended),
    };
    match head {
        Ok(head) if head.status == 101 && head.field("x-tag") == Some(&target.tag.to_string()) => {}
        Ok(head) if head.status == 503 && world.may_refuse(began, world.net.now()) => return,
        Ok(head) if head.status == 503 && world.may_be_open(began) => return,
        Ok(head) if head.status == 502 && world.was_down(began, world.net.now()) => return,
        other => return world.fault(link, format_args!("no tunnel since {began}: {other:?}")),
    }
    let mut last = world.net.now();
    for _ in 0..dice.in_range(1..=6) {
        let sent = bytes_of(world.tag(), dice.of_any_size(1..=8_000) as usize);
        let _ = wire.send(&sent).await;
        let mut back = Vec::new();
        while back.len() < sent.len() {
            match wire.some(sent.len() - back.len()).await {
                Ok(bytes) => back.extend(bytes),
                Err(_) if manner == LEAVES || world.was_down(began, world.net.now()) => return,
                Err(ended) => return world.fault(link, format_args!("{ended:?} in a tunnel since {began}")),
            }
        }
        if back != sent {
            return world.fault(link, "wrong bytes in a tunnel");
        }
        last = world.net.now();
        if manner == LEAVES {
            break;
        }
        pause(dice, world.terms.tunnel / 2).await;
    }
    let parting = world.terms.tunnel.min(PARTING);
    match (dice.in_range(0..=3), manner) {
        (0, _) => {}
        (1, LEAVES) => ends(world, wire, (last, last + parting), began).await,
        (1, _) => ends(world, wire, (last + world.terms.tunnel, last + world.terms.tunnel), began).await,
        (2, _) => wire.io.reset(),
        (_, _) => {
            let now = world.net.now();
            let _ = wire.io.shutdown().await;
            ends(world, wire, (now, now + if manner == STAYS { parting } else { 0 }), began).await;
        }
    }
}

/// Expects the end of the tunnel between two times.
async fn ends(world: &World, mut wire: Wire, (earliest, latest): (u64, u64), began: u64) {
    let (bytes, ended) = wire.end().await;
    let now = wire.io.ended_at().unwrap_or(world.net.now());
    let is_out_of_time = now + LATE < earliest || now > latest + LATE;
    if (ended == Ended::Hangs || !bytes.is_empty() || is_out_of_time) && !world.was_down(began, now) {
        let what = format_args!("a tunnel ends at {now}, not from {earliest} to {latest}: {ended:?}").to_string();
        world.fault(wire.io.link(), what);
    }
}
