//! When a server that drains tells each endless response to end: one after another, so that their clients do not come
//! back together.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::server::state::ConnState;
use crate::spread::Draws;

/// Mean time from one response to the next, while there is time for all.
const STEP: Duration = Duration::from_millis(10);
/// Part of the time of the drain that is left to the last response, and the least of it.
const LEFT_PART: u32 = 5;
const LEFT_LEAST: Duration = Duration::from_secs(1);

/// Returns the time over which `responses` are told, if the drain lasts for `patience`.
fn span(responses: usize, longest: Duration, patience: Duration) -> Duration {
    let left = (patience / LEFT_PART).max(LEFT_LEAST);
    let needed = STEP.saturating_mul(u32::try_from(responses).unwrap_or(u32::MAX));
    needed.min(longest).min(patience.saturating_sub(left))
}

/// The responses that were not told yet.
#[derive(Debug)]
pub(super) struct Waves(Vec<Turn>);

#[derive(Debug)]
struct Turn {
    at: Instant,
    conn_state: Arc<ConnState>,
    /// Number of responses that are told: one, or all if it is the last turn of the connection.
    responses: usize,
}

impl Waves {
    /// Begins the drain of `connections`, until the `deadline`. `longest` bounds the time over which responses are told.
    /// There are `open` connections on all cores.
    pub(super) fn begin<'a>(
        connections: impl Iterator<Item = &'a Arc<ConnState>>,
        open: usize,
        longest: Duration,
        deadline: Instant,
    ) -> Self {
        let connections: Vec<_> = connections.map(|conn_state| (conn_state, conn_state.begin_drain())).collect();
        let responses: usize = connections.iter().map(|(_, responses)| responses).sum();
        // Other cores drain at the same time. This assumes as many responses for each of their connections.
        let all = responses.saturating_mul(open) / connections.len().max(1);
        let now = Instant::now();
        let span = span(all.max(responses), longest, deadline.saturating_duration_since(now));
        let draws = Draws::new(Duration::ZERO..=span);
        let mut turns = Vec::with_capacity(responses);
        for (conn_state, responses) in connections {
            let mut times: Vec<_> = (0..responses).map(|_| now + draws.draw()).collect();
            times.sort_unstable();
            let turn = |at, responses| Turn { at, conn_state: Arc::clone(conn_state), responses };
            turns.extend(times.pop().map(|last| turn(last, usize::MAX)));
            turns.extend(times.into_iter().map(|at| turn(at, 1)));
        }
        turns.sort_unstable_by_key(|turn| Reverse(turn.at));
        Self(turns)
    }

    /// Returns when the next response is told.
    pub(super) fn next(&self) -> Option<Instant> {
        self.0.last().map(|turn| turn.at)
    }

    /// Tells the responses that are due.
    pub(super) fn end_due(&mut self) {
        let now = Instant::now();
        let mut later = Vec::new();
        while let Some(turn) = self.0.pop_if(|turn| turn.at <= now) {
            // Its task was woken, and has not run yet. If the readers of the connection can move, they do not end.
            match turn.conn_state.may_move_next() {
                true => later.push(Turn { at: now + STEP, ..turn }),
                false => turn.conn_state.end_answers(turn.responses),
            }
        }
        if !later.is_empty() {
            self.0.append(&mut later);
            self.0.sort_unstable_by_key(|turn| Reverse(turn.at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_responses_need_little_time_and_many_leave_some() {
        let span = |responses, longest, seconds| span(responses, longest, Duration::from_secs(seconds));
        let ms = Duration::from_millis;
        assert_eq!([0, 3, 100].map(|responses| span(responses, Duration::MAX, 10)), [0, 30, 1000].map(ms));
        assert_eq!([1000, usize::MAX].map(|responses| span(responses, Duration::MAX, 10)), [ms(8000); 2]);
        assert_eq!(
            [0, 1, 2, 5, 30].map(|seconds| span(9999, Duration::MAX, seconds)),
            [0, 0, 1000, 4000, 24000].map(ms)
        );
        assert_eq!([Duration::ZERO, ms(50)].map(|longest| span(1000, longest, 10)), [Duration::ZERO, ms(50)]);
    }
}
