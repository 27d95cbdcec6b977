//! Tokens at the pace of a language model: an endless body with a timer of its own.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, Uri};
use hyper::body::{Body, Frame};
use measuring::random::SplitMix;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// Time between two tokens of a body.
pub(crate) const PACE: Duration = Duration::from_millis(20);
/// Length of a token with its framing.
pub(crate) const TOKEN: usize = 40;

/// A token each 20 ms, with the time at which it is due. A body that is late by more than one token leaves some out.
#[derive(Debug)]
pub(super) struct Paced {
    ticks: Interval,
    /// The same moment on two clocks: timers have one, and the load reads the other.
    began: (Instant, SystemTime),
}

impl Paced {
    /// Returns the response to a request for tokens. `None` for other paths.
    pub(super) fn answer(uri: &Uri) -> Option<Response<Self>> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        (uri.path() == "/paced").then(|| {
            let mut response = Response::new(Self::new(COUNT.fetch_add(1, Relaxed)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            response
        })
    }

    /// Begins after a part of the pace that the number of the body decides: generations do not tick together.
    fn new(number: u64) -> Self {
        let now = Instant::now();
        let mut ticks = interval_at(now + delay(number), PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Self { ticks, began: (now, SystemTime::now()) }
    }

    fn token(&self, due: Instant) -> Bytes {
        let (now, wall) = self.began;
        let nanos = (wall + (due - now)).duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let mut token = *b"data: 0000000000000000000 xxxxxxxxxxxx\n\n";
        let mut rest = nanos;
        for digit in token[6..25].iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        Bytes::copy_from_slice(&token)
    }
}

fn delay(number: u64) -> Duration {
    Duration::from_nanos(SplitMix::new(number).next_u64() % PACE.as_nanos() as u64)
}

impl Body for Paced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let due = ready!(self.ticks.poll_tick(cx));
        Poll::Ready(Some(Ok(Frame::data(self.token(due)))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn bodies_begin_at_all_times_of_the_pace() {
        // As in peers/go/main.go.
        assert_eq!(delay(0), Duration::from_nanos(18_607_535));
        let mut tenths = [0; 10];
        (0..10_000).for_each(|number| tenths[(delay(number).as_micros() / 2000) as usize] += 1);
        assert!(tenths.iter().all(|count| (850..1150).contains(count)), "{tenths:?}");
    }

    #[test]
    fn tokens_come_at_their_pace_with_the_times_at_which_they_are_due() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut body = Paced::answer(&"/paced".parse().unwrap()).unwrap().into_body();
            let mut times = Vec::new();
            for _ in 0..3 {
                let token = body.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(token.len(), TOKEN);
                let text = std::str::from_utf8(&token).unwrap();
                let (time, _) = text.strip_prefix("data: ").unwrap().split_once(' ').unwrap();
                times.push(time.parse::<u64>().unwrap());
            }
            // On a busy machine some are left out, and those that are not keep the pace.
            let pace = PACE.as_nanos() as u64;
            assert!(times.windows(2).all(|pair| (pair[1] - pair[0]).is_multiple_of(pace)), "{times:?}");
        });
        assert!(Paced::answer(&"/hello".parse().unwrap()).is_none());
    }
}
