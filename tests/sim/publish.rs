//! The sender of the events of a hub.

use std::sync::Arc;
use std::time::Duration;

use millstream::sse::{Event, Hub, LagPolicy};
use testkit::sim::Dice;
use tokio::time::timeout;

use crate::world::World;

/// Sends events until the end of the clients, some of them together. Some hubs are closed before.
pub(crate) async fn publish(world: Arc<World>, hub: Hub, mut dice: Dice) {
    let pause = world.ends_at / 1_000 + dice.of_any_size(20..=20_000);
    let closes_at = if dice.chance(10) { dice.in_range(world.ends_at / 4..=world.ends_at) } else { u64::MAX };
    while !world.is_over() {
        let pause = Duration::from_millis(dice.in_range(1..=pause));
        if timeout(pause, world.publisher_stops.notified()).await.is_ok() {
            return;
        }
        if world.net.now() >= closes_at {
            return world.close(&hub);
        }
        if dice.chance(10) {
            refuse(&world, &hub, &mut dice);
        }
        let often = if world.terms.hub.policy == LagPolicy::Block { 30 } else { 5 };
        let together = match dice.in_range(0..=99) {
            burst if burst < often => dice.in_range(20..=60),
            ..=34 => dice.in_range(2..=5),
            _ => 1,
        };
        for _ in 0..together {
            send(&world, &hub).await;
        }
    }
}

/// Sends an event that a stream cannot contain: it is refused, and not sent.
fn refuse(world: &World, hub: &Hub, dice: &mut Dice) {
    let event = Event::new().data("refused");
    let event = match dice.in_range(0..=3) {
        0 => event.id(""),
        1 => event.id(*dice.pick(&["a\nb", "\r", "a\0"])),
        2 => event.id("x".repeat(1_025)),
        _ => event.event("a\nb"),
    };
    if let Ok(id) = hub.send(event) {
        world.fault(0, format_args!("an event was sent that is none: {id:?}"));
    }
}

/// Sends the next event. Waits for readers and for the log, if there are such.
pub(crate) async fn send(world: &World, hub: &Hub) {
    let (number, terms) = (world.published.lock().unwrap().len(), &world.terms.hub);
    let event = Event::new().data(text(number));
    let event = if let Some(id) = terms.id(number) { event.id(id) } else { event };
    let began = world.net.now();
    let sent = hub.send_wait(event).await.expect("an event that fits");
    let id = match &terms.log {
        None => sent.id().expect("an id of the hub"),
        Some(log) => log.deliver().await,
    };
    if terms.log.is_none() {
        world.has_waited(began, number);
    }
    let now = world.net.now();
    world.published.lock().unwrap().add(terms, now, id, &text(number));
}

/// Returns the data of an event, which is JSON.
pub(crate) fn text(number: u64) -> String {
    let len = if number % 61 == 60 { 6_000 } else { number * 37 % 300 };
    format!("[{number},\"{}\"]", "x".repeat(len as usize))
}
