//! Clients that are killed, moved between two instances, and resumed.

use std::time::Duration;

use hyper::Request;
use millstream::sse::{Event, SendError};
use millstream_resumable::{SharedStreams, StreamEnd, StreamSender};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{Place, Random, options, two, until, whole};
use crate::resuming::Client;

/// Streams at a time, and clients of each.
const STREAMS: u64 = 10;
const CLIENTS: u64 = 5;
const EVENTS: u64 = 300;
/// Longer than all clients need, on a busy machine too.
const TTL: Duration = Duration::from_secs(300);

/// Returns the number of moves: some hundreds, or `MILLSTREAM_MOVES`.
pub fn moves_wanted() -> u64 {
    std::env::var("MILLSTREAM_MOVES").map_or(400, |moves| moves.parse().expect("MILLSTREAM_MOVES is a number"))
}

async fn produce(sender: StreamSender, seed: u64) -> Result<(), SendError> {
    let mut random = Random(seed);
    for n in 0..EVENTS {
        let event = Event::new().data(format!("{n} {}", "x".repeat(random.below(400) as usize)));
        sender.send(if random.below(5) == 0 { event.event("named") } else { event })?;
        if random.below(3) == 0 {
            sleep(random.millis(10)).await;
        }
    }
    Ok(())
}

/// The events that a client has received, as often as it has received all of them.
struct Got {
    passes: Vec<Vec<u8>>,
    part: Vec<u8>,
    moves: u64,
}

/// Reads at random instances. When it has everything, it begins again.
async fn moved(instances: [SharedStreams; 2], key: String, seed: u64, moves: u64) -> Got {
    let mut random = Random(seed);
    let (mut client, mut got) = (Client::default(), Got { passes: Vec::new(), part: Vec::new(), moves: 0 });
    while got.moves < moves {
        got.moves += 1;
        let mut request = Request::new(());
        if let Some(last) = &client.last {
            request.headers_mut().insert("last-event-id", last.parse().unwrap());
        }
        let to = &instances[random.below(2) as usize];
        let answer = to.attach(&request, &key, "alice").await;
        match answer.status().as_u16() {
            200 => {
                let until = Instant::now() + random.millis(60);
                let torn = random.below(2) == 0;
                client.read(answer.into_body(), Some(until), torn).await;
                sleep(random.millis(20)).await;
            }
            204 => got.passes.push(std::mem::take(&mut client).bytes),
            status => panic!("{status}"),
        }
    }
    got.part = client.bytes;
    got
}

/// Kills, moves and resumes clients at random. Each gets the bytes of an undisturbed one.
pub async fn clients_move(place: &impl Place, moves: u64) {
    let began = Instant::now();
    let instances = two(place, options().ttl(TTL).abandoned(Duration::from_secs(60))).await;
    let (mut done, mut waves, mut passes) = (0, 0, 0);
    while done < moves {
        let each = (moves - done).div_ceil(STREAMS * CLIENTS).min(20);
        let mut streams = JoinSet::new();
        for n in 0..STREAMS {
            let (instances, seed) = (instances.clone(), waves * 1000 + n);
            streams.spawn(async move { one_stream(instances, seed, each).await });
        }
        while let Some(counted) = streams.join_next().await {
            let (moved, complete) = counted.unwrap();
            done += moved;
            passes += complete;
        }
        waves += 1;
    }
    println!(
        "{done} moves of clients between two instances in {:.1} s: {} streams, {passes} times everything, all bytes equal",
        began.elapsed().as_secs_f64(),
        waves * STREAMS
    );
    until("all streams end", || instances.iter().all(|streams| streams.stats().running == 0)).await;
}

async fn one_stream(instances: [SharedStreams; 2], seed: u64, moves: u64) -> (u64, u64) {
    let (key, writer) = (format!("stream {seed}"), (seed % 2) as usize);
    let stream = instances[writer].open(&key, "alice", move |sender| produce(sender, seed)).await.unwrap();
    let mut clients = JoinSet::new();
    for n in 0..CLIENTS {
        clients.spawn(moved(instances.clone(), key.clone(), seed * 100 + n, moves));
    }
    let expected = whole(&stream).await.into_bytes();
    assert_eq!(expected.windows(2).filter(|end| end == b"\n\n").count() as u64, EVENTS);
    assert_eq!(stream.end(), Some(StreamEnd::Complete));
    let mut counted = (0, 0);
    while let Some(got) = clients.join_next().await {
        let got = got.unwrap();
        assert!(got.passes.iter().all(|pass| *pass == expected), "stream {seed}: a complete client differs");
        assert!(expected.starts_with(&got.part), "stream {seed}: a client differs");
        counted.0 += got.moves;
        counted.1 += got.passes.len() as u64;
    }
    (counted.0, counted.1)
}
