//! Clients of HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::client::SendRequest;
use http::Request;
use testkit::sim::{Dice, read, send_all};
use tokio::time::timeout;

use crate::ask::{Ask, Got};
use crate::client1::{connect, pause};
use crate::crowd::Asking;
use crate::script::Kind;
use crate::world::World;

/// Connects again and again, until the end.
pub(crate) async fn live(world: Arc<World>, mut dice: Dice) {
    let longest = dice.of_any_size(10..=10_000);
    while !world.is_over() {
        pause(&mut dice, longest).await;
        let socket = connect(&world, &mut dice).await;
        let link = socket.link();
        let Ok((sender, connection)) = h2::client::handshake(socket).await else {
            world.fault(link, "no HTTP/2");
            continue;
        };
        let mut asking = std::pin::pin!(ask_all(&world, link, sender, &mut dice, longest));
        tokio::select! {
            biased;
            () = &mut asking => {}
            ended = connection => {
                world.fault(link, format_args!("an HTTP/2 connection ends: {ended:?}"));
                asking.await;
            }
        }
    }
}

/// Sends requests in rounds, at most 6 at the same time.
async fn ask_all(world: &World, link: u64, sender: SendRequest<Bytes>, dice: &mut Dice, longest: u64) {
    for _ in 0..dice.of_any_size(1..=12) {
        if world.is_over() {
            return;
        }
        let round: Vec<_> = (0..dice.in_range(1..=6))
            .map(|number| {
                let mut dice = dice.fork(number + world.tag());
                let (mut asked, sender) = (Ask::choose(&mut dice, world), sender.clone());
                if asked.target.kind == Kind::Root {
                    asked = Ask::small(world);
                }
                async move {
                    pause(&mut dice, 200).await;
                    let is_left = dice.chance(10);
                    let asking = ask(world, link, sender, asked, &mut dice);
                    if is_left {
                        let patience =
                            Duration::from_millis(Dice::new(number + world.net.now()).of_any_size(1..=3_000));
                        let _ = timeout(patience, asking).await;
                    } else {
                        asking.await;
                    }
                }
            })
            .collect();
        join_all(round).await;
        pause(dice, longest).await;
    }
}

async fn ask(world: &World, link: u64, sender: SendRequest<Bytes>, asked: Ask, dice: &mut Dice) {
    let _asking = Asking::begin(world);
    let began = world.net.now();
    let path = asked.target.path();
    world.net.note(link, &format!("{} {path}", asked.method()), asked.body.len() as u64);
    let Ok(mut sender) = sender.ready().await else { return asked.unanswered(world, link, began) };
    let request = Request::builder().method(asked.method()).uri(format!("http://mill{path}")).body(());
    let sent = sender.send_request(request.expect("a request"), asked.body.is_empty());
    let Ok((response, mut stream)) = sent else { return asked.unanswered(world, link, began) };
    let mut sent = world.net.now();
    let mut rest = Bytes::from(asked.body.clone());
    let is_quick = dice.chance(60);
    while !rest.is_empty() {
        let most = if is_quick { rest.len() as u64 } else { dice.of_any_size(1..=rest.len() as u64) };
        if send_all(&mut stream, rest.split_to(most as usize)).await.is_err() {
            break;
        }
        if rest.is_empty() {
            let _ = stream.send_data(Bytes::new(), true);
        } else if !is_quick && rest.len() < 4_000 && dice.chance(20) {
            pause(dice, 500).await;
        }
        sent = world.net.now();
    }
    let Ok(response) = response.await else { return asked.unanswered(world, link, began) };
    let head = world.net.now();
    let field = |name: &str| response.headers().get(name).map(|value| value.to_str().expect("ASCII").to_owned());
    let (status, tag, is_open) = (response.status().as_u16(), field("x-tag"), field("retry-after").is_some());
    let (body, cut) = read(response.into_body()).await;
    let (is_whole, end) = (cut.is_none(), world.net.now());
    asked.judge(world, link, &Got { status, tag, is_open, body, is_whole, began, sent, head, last: head, end });
}
