//! Streams of events that are not those of a hub, in pieces that end anywhere, with comments between the events.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use http_body_util::StreamBody;
use hyper::body::Frame;
use testkit::sim::Dice;
use tokio::time::sleep;

use crate::client::Talk;

/// Period of the comments.
pub(crate) const PERIOD: Duration = Duration::from_millis(3_000);
const COMMENT: &[u8] = b":\n";
const BOM: &str = "\u{feff}";
/// Time between a piece and its arrival, besides that over the link.
const LATE: u64 = 50;

/// The events of a tag, some behind a byte order mark, and the pieces in which they are sent.
struct Tokens {
    text: Vec<u8>,
    /// Where an event ends.
    ends: Vec<usize>,
    pieces: Vec<Bytes>,
}

impl Tokens {
    fn new(tag: u64) -> Self {
        let mut dice = Dice::new(tag);
        let line = *dice.pick(&["\n", "\r\n", "\r"]);
        let mut text = if dice.chance(30) { BOM.to_owned() } else { String::new() };
        let mut ends = vec![text.len()];
        for number in 0..dice.in_range(1..=8) {
            text += &format!("data: {number}{line}data:{}{line}{line}", "t".repeat(dice.in_range(0..=40) as usize));
            if line == "\r\n" {
                // The LF adds an empty line, if a comment is before it.
                ends.push(text.len() - 1);
            }
            ends.push(text.len());
        }
        let (all, mut pieces) = (Bytes::from(text.into_bytes()), Vec::new());
        let mut rest = all.clone();
        while !rest.is_empty() {
            // Half of the pieces end with an event.
            let begin = all.len() - rest.len();
            let end = *ends.iter().find(|end| **end > begin).expect("an end") - begin;
            let len = if dice.chance(50) { end } else { dice.in_range(1..=rest.len() as u64) as usize };
            pieces.push(rest.split_to(len));
        }
        Self { text: all.to_vec(), ends, pieces }
    }

    /// Returns how many bytes of the text a stream has, without its comments. `None` if it is another one.
    fn position(&self, stream: &[u8]) -> Option<usize> {
        let (mut at, mut rest) = (0, stream);
        // Behind a comment, the mark would not be at the start.
        if stream.starts_with(COMMENT) {
            at = self.ends[0];
        }
        while !rest.is_empty() {
            match rest.strip_prefix(COMMENT).filter(|_| self.ends.contains(&at)) {
                Some(next) => rest = next,
                None if self.text.get(at) == Some(&rest[0]) => (at, rest) = (at + 1, &rest[1..]),
                None => return None,
            }
        }
        Some(at)
    }
}

/// Returns the body of a tag, whose pieces are `gap` milliseconds apart.
pub(crate) fn body(tag: u64, gap: u64) -> StreamBody<impl Stream<Item = io::Result<Frame<Bytes>>>> {
    StreamBody::new(Box::pin(stream::unfold(Tokens::new(tag).pieces.into_iter(), move |mut pieces| async move {
        sleep(Duration::from_millis(gap)).await;
        pieces.next().map(|piece| (Ok(Frame::data(piece)), pieces))
    })))
}

/// Reads such a stream to its end.
pub(crate) async fn read(mut talk: Talk) {
    let (tag, ends_in_drain) = (talk.tags.next(), talk.dice.chance(50));
    let gap = *talk.dice.pick(&[1, 700, 2_500, 8_000]);
    let path = if ends_in_drain { "drained" } else { "tokens" };
    let asked = talk.ask(tag, &format!("GET /{path}/{tag}/{gap} HTTP/1.1\r\nHost: mill\r\n\r\n")).await;
    let Some(head) = talk.head_of(&asked, 200).await else { return };
    let (tokens, mut bytes, period) = (Tokens::new(tag), Vec::new(), PERIOD.as_millis() as u64);
    let mut heard = talk.world.net.now();
    let end = loop {
        let chunk = talk.wire.chunk().await;
        let (now, line) = (talk.world.net.now(), &talk.line);
        let silence = std::mem::replace(&mut heard, now).abs_diff(now);
        // Parts of a mark behind a comment are not sent.
        let is_end = |at| at > tokens.ends[0] && at < tokens.text.len() && tokens.ends.contains(&at);
        let was_between = tokens.position(&bytes).is_some_and(is_end);
        match chunk {
            Ok(chunk) => {
                let is_early = silence + line.longest - line.shortest + LATE < period / 2;
                let is_late = was_between && silence > period + line.longest + LATE;
                if line.is_steady && ((chunk == COMMENT && is_early) || (!chunk.is_empty() && is_late)) {
                    talk.fault(format_args!("{:?} after {silence} ms", String::from_utf8_lossy(&chunk)));
                }
                if chunk.is_empty() {
                    break Ok(());
                }
                bytes.extend(chunk);
            }
            Err(ended) => break Err(ended),
        }
    };
    let (now, at) = (talk.world.net.now(), tokens.position(&bytes));
    let drained = talk.world.drained_at().filter(|_| ends_in_drain);
    match (at, end) {
        (Some(at), Ok(())) if at == tokens.text.len() || drained.is_some() => {
            if talk.line.is_steady && drained.is_some_and(|at| now > at.max(asked.sent) + 2 * talk.line.longest + gap) {
                talk.fault("a stream goes on in a drain");
            }
            talk.answered(now, &asked);
            let until = if head.closes() { (0, now) } else { talk.quiet_until() };
            talk.expect_end(until, None).await;
        }
        (Some(_), Err(ended)) if !ended.is_wrong() && now >= talk.cut_from(&asked) => {}
        (at, end) => {
            let bytes = String::from_utf8_lossy(&bytes).into_owned();
            talk.fault(format_args!("{end:?} at {at:?} of {}, gap {gap}: {bytes:?}", tokens.text.len()));
        }
    }
}
