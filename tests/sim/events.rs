//! Readers of the events of a hub over HTTP/1: each event comes once, in order and in time, over as many connections as it
//! takes.

use std::time::Duration;

use millstream::sse::LagPolicy;
use testkit::sim::{Dice, Ended};
use tokio::time::{sleep, timeout, timeout_at};

use crate::client::Talk;
use crate::decode::Form;
use crate::owed::Asked;
use crate::reader::{LATE, Reader, Stream, View};
use crate::world::World;

/// One byte more than the longest id.
const TOO_LONG: usize = 1_025;

/// Reads events for a while, from behind the last one, and leaves.
pub(crate) async fn read(mut talk: Talk, reader: &mut Reader) {
    let tag = talk.tags.next();
    let (form, has_gzip) = (Form::choose(&mut talk.dice), talk.world.terms.hub.gzip);
    let last = match reader.resumes() {
        Some(id) => format!("Last-Event-ID: {id}\r\n"),
        // Ignored, and counted.
        None if talk.dice.chance(10) => format!("Last-Event-ID: {}\r\n", "x".repeat(TOO_LONG)),
        None => String::new(),
    };
    let path = format!("/{}/{tag}", form.path());
    let asked = talk.ask(tag, &format!("GET {path} HTTP/1.1\r\nHost: mill\r\n{}{last}\r\n", form.fields())).await;
    let Some(head) = talk.head_of(&asked, 200).await else { return };
    if head.status == 503 {
        // The service has compared the number of readers.
        if head.field("retry-after") != Some("2") {
            talk.fault(format_args!("no time to return: {head:?}"));
        }
        return;
    }
    if !form.is_right(&head, has_gzip) {
        return talk.fault(format_args!("not the head of {form:?}: {head:?}"));
    }
    let since = talk.world.net.now();
    let leaves_at = since + talk.world.time_for_events(&mut talk.dice);
    let mut stream = Stream::new(&talk.view(), reader, form, asked.began, since);
    // The time after which it reads nothing for a while.
    let often = if talk.world.terms.hub.policy == LagPolicy::Block { 60 } else { 15 };
    let mut pauses_at = talk.dice.chance(often).then(|| since + talk.dice.of_any_size(1..=60_000));
    loop {
        let now = talk.world.net.now();
        if now >= leaves_at {
            break;
        }
        if pauses_at.take_if(|at| *at <= now).is_some() {
            (talk.line.is_steady, talk.line.is_able) = (false, false);
            sleep(Duration::from_millis(talk.dice.in_range(1..=20_000))).await;
        }
        match timeout(Duration::from_millis(leaves_at - now), talk.wire.chunk()).await {
            Err(_) => break,
            Ok(Ok(chunk)) if chunk.is_empty() => {
                stream.ends(&talk.view(), reader);
                return end(talk, &asked, head.closes()).await;
            }
            Ok(Ok(chunk)) => stream.take(&talk.view(), reader, &chunk),
            Ok(Err(ended)) => return is_cut(&talk, &asked, ended),
        }
    }
    stream.leaves(&talk.view(), reader);
    leave(talk, form).await;
}

/// The end of a connection behind the end of a stream, which is its last response or not.
async fn end(mut talk: Talk, asked: &Asked, is_last: bool) {
    let now = talk.world.net.now();
    talk.answered(now, asked);
    let until = if is_last { (0, now) } else { talk.quiet_until() };
    talk.expect_end(until, None).await;
}

fn is_cut(talk: &Talk, asked: &Asked, ended: Ended) {
    let (at, from) = (talk.world.net.now(), talk.cut_from(asked));
    // A drain ends streams in order: only what is slow is left at its deadline.
    if at < from || talk.line.is_steady || ended.is_wrong() {
        talk.fault(format_args!("{ended:?} within the events"));
    }
}

impl Talk {
    fn view(&self) -> View<'_> {
        View { world: &self.world, line: &self.line, link: self.wire.io.link(), others: 0 }
    }
}

/// A client that leaves a stream.
async fn leave(mut talk: Talk, form: Form) {
    match talk.dice.in_range(0..=3) {
        0 => talk.wire.io.reset(),
        1 => talk.wire.io.vanish(),
        2 => {
            talk.end_my_side().await;
            let (now, line) = (talk.world.net.now(), talk.line.clone());
            let (from, until) = (now + line.longest, now + 1_000 + 2 * line.longest);
            let goes_on = timeout_at(talk.world.net.at(until), talk.wire.end()).await.is_err();
            // The stream ends once it is silent for 5 ms, and all of it is acknowledged.
            let is_silent = talk.world.published.lock().unwrap().longest_silence(from, until - line.longest)
                > 2 * line.longest + LATE;
            // JSON lines are not a stream of events for the server, which waits for longer.
            if goes_on && is_silent && line.is_steady && form != Form::Lines {
                talk.fault("events for a client that has ended its side");
            }
        }
        _ => {}
    }
}

impl World {
    /// Chooses the time after which a reader leaves a stream.
    pub(crate) fn time_for_events(&self, dice: &mut Dice) -> u64 {
        dice.of_any_size(1..=if self.terms.is_calm { 86_400_000 } else { 300_000 })
    }
}
