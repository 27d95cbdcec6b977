//! The upstream of HTTP/2.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::poll_fn;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response};
use testkit::sim::{Dice, Lent, Socket, read, send_all};
use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::script::{Kind, Target};
use crate::upstream1::check_upload;
use crate::world::World;

/// Time for which a connection that was ended is read.
const LINGER: Duration = Duration::from_secs(5);

/// How the upstream ends its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By GOAWAY. What it has received is answered.
    Graceful,
    /// At once.
    Hard,
}

pub(crate) async fn serve(world: Arc<World>, socket: Socket, mut dice: Dice) {
    let link = socket.link();
    let lent = Lent::new(socket);
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(*dice.pick(&[64 << 10, 1 << 20])).max_concurrent_streams(200);
    let Ok(mut connection) = builder.handshake::<_, Bytes>(lent.clone()).await else { return };
    let is_rough = world.terms.is_rough;
    let end = if is_rough && dice.chance(20) { End::Hard } else { End::Graceful };
    let most = if is_rough { dice.of_any_size(1..=60) } else { u64::MAX };
    let at = if is_rough { dice.of_any_size(1..=20_000) } else { 1_000_000_000 };
    let mut limit = std::pin::pin!(sleep(Duration::from_millis(at)));
    let mut requests = JoinSet::new();
    let (mut count, mut is_ending) = (0, false);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut limit, if !is_ending => None,
            accepted = connection.accept() => match accepted {
                Some(Ok(accepted)) => Some(accepted),
                Some(Err(error)) => {
                    world.net.note(link, &format!("upstream fails: {error}"), 0);
                    break;
                }
                None => break,
            },
        };
        let is_due = accepted.is_none() || count + 1 == most;
        if let Some((request, respond)) = accepted {
            count += 1;
            requests.spawn(answer(Arc::clone(&world), link, request, respond));
        }
        if is_due && !is_ending {
            is_ending = true;
            world.net.note(link, "goaway", count);
            if end == End::Hard {
                world.end_hard();
                return;
            }
            connection.graceful_shutdown();
        }
    }
    drop(connection);
    // Closing it with unread bytes would reset it.
    let mut lent = lent;
    let _ = timeout(LINGER, lent.read_to_end(&mut Vec::new())).await;
}

async fn answer(world: Arc<World>, link: u64, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (head, body) = request.into_parts();
    let Some(target) = Target::parse(head.uri.path()) else {
        return world.fault(link, format_args!("the upstream gets {head:?}"));
    };
    if target.kind == Kind::Refused && world.refuses(target.tag, target.millis) {
        return respond.send_reset(Reason::REFUSED_STREAM);
    }
    world.reached(link, target.tag, head.method == Method::POST);
    if target.kind == Kind::Early {
        let response = Response::builder().status(413).header("x-tag", target.tag).body(()).expect("a response");
        if let Ok(mut stream) = respond.send_response(response, false) {
            let _ = stream.send_data(target.bytes().into(), true);
        }
        return;
    }
    let (body, cut) = read(body).await;
    if cut.is_some() {
        return;
    }
    check_upload(&world, link, &target, &body);
    match target.kind {
        Kind::Cut => {
            world.cut(target.tag);
            respond.send_reset(Reason::INTERNAL_ERROR);
        }
        Kind::Silent => drop(poll_fn(|cx| respond.poll_reset(cx)).await),
        _ => drop(respond_to(&target, respond).await),
    }
}

async fn respond_to(target: &Target, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut response = Response::builder().status(200).header("x-tag", target.tag);
    if target.kind == Kind::Garbage {
        response = response.header("content-length", "5, 6");
    } else if target.tag.is_multiple_of(2) && target.kind != Kind::Closing {
        response = response.header("content-length", target.len);
    }
    let pieces = target.pieces();
    if target.kind == Kind::Late {
        sleep(Duration::from_millis(target.millis)).await;
    }
    let mut stream = respond.send_response(response.body(()).expect("a response"), false)?;
    for (gap, piece) in pieces {
        if target.kind != Kind::Late {
            sleep(Duration::from_millis(gap)).await;
        }
        send_all(&mut stream, piece.into()).await?;
    }
    match target.kind {
        Kind::Stall => drop(poll_fn(|cx| stream.poll_reset(cx)).await),
        Kind::Torn => {
            sleep(Duration::from_millis(500)).await;
            stream.send_reset(Reason::INTERNAL_ERROR);
        }
        _ => stream.send_data(Bytes::new(), true)?,
    }
    Ok(())
}
