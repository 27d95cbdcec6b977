//! Results of requests: histograms for each set of labels that has occurred.

use std::sync::atomic::Ordering;

use super::histogram::{Adder, DURATION, FRAMES, GAP, Histogram, SIZE, TIME_TO_HEAD};
use super::labels::{Labels, METHODS, ResponseOutcome, SETS, TABLE, route_name, version_name};
use super::shard::{self, Row};
use crate::counters::{Counter, Gauge, count};

#[inline]
pub(crate) fn began(method: u8) {
    Gauge::ActiveRequests.add(1);
    shard::with(|shard, adder| adder.add(&shard.requests.active[usize::from(method)], 1));
}

/// Counts `frames` of `bytes` in total: `at_once` of them came within a tick of the clock, one came after `gap`.
#[inline]
pub(crate) fn frames(frames: u64, bytes: u64, at_once: u64, gap: Option<u64>) {
    count(Counter::Frames, frames);
    count(Counter::BodyBytes, bytes);
    if at_once > 0 || gap.is_some() {
        shard::with(|shard, adder| {
            let gaps = &shard.requests.gaps;
            gaps.add(adder, &GAP, 0, at_once);
            if let Some(gap) = gap {
                gaps.add(adder, &GAP, gap, 1);
            }
        });
    }
}

/// Results of one response. Durations are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) duration: u64,
    /// `None` if no head was handed to HTTP.
    pub(crate) time_to_head: Option<u64>,
    /// `None` if there were fewer than two frames.
    pub(crate) largest_gap: Option<u64>,
    pub(crate) bytes: u64,
    pub(crate) frames: u64,
}

#[inline]
pub(crate) fn ended(labels: Labels, ended: Ended) {
    count(Counter::Requests, 1);
    if labels.status >= 500 {
        count(Counter::ServerErrors, 1);
    }
    match labels.outcome {
        ResponseOutcome::Complete => {}
        ResponseOutcome::Error => count(Counter::ResponsesFailed, 1),
        ResponseOutcome::Aborted => count(Counter::ResponsesAborted, 1),
    }
    Gauge::ActiveRequests.take(1);
    let place = TABLE.place(labels);
    shard::with(|shard, adder| {
        adder.add(&shard.requests.active[usize::from(labels.method)], 1u64.wrapping_neg());
        let row = shard.requests.rows[place].get_or_init(|| Box::new(Row::new()));
        row.add(adder, ended);
    });
}

impl Row {
    fn add(&self, adder: Adder, ended: Ended) {
        self.duration.add(adder, &DURATION, ended.duration, 1);
        if let Some(first) = ended.time_to_head {
            self.time_to_head.add(adder, &TIME_TO_HEAD, first, 1);
            self.body_size.add(adder, &SIZE, ended.bytes, 1);
            self.frames.add(adder, &FRAMES, ended.frames, 1);
        }
        if let Some(gap) = ended.largest_gap {
            self.largest_gap.add(adder, &GAP, gap, 1);
        }
    }
}

/// Requests counted by `middleware::Measure` up to one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Requests {
    /// Requests whose response has not ended, for each method that has occurred.
    pub active: Vec<(&'static str, u64)>,
    /// Gaps between the frames of all responses, unfinished ones included, in seconds. The clock ticks every 1 to 10
    /// ms, and a shorter gap counts as 0: the first bucket, up to 5 ms, is not exact.
    pub frame_gap: Histogram,
    /// Responses that have ended, by labels.
    pub ended: Vec<Responses>,
}

/// Responses with one set of labels.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Responses {
    /// The method of the request, or `_OTHER`.
    pub method: &'static str,
    /// The version of HTTP: `1.0`, `1.1`, `2`, `3`.
    pub version: &'static str,
    /// The status, if the service has answered.
    pub status: Option<u16>,
    /// The name of the route, if the service gives one.
    pub route: Option<&'static str>,
    /// The outcome.
    pub outcome: ResponseOutcome,
    /// Time from the request's head to the end of the response, in seconds.
    pub duration: Histogram,
    /// Time from the request's head until the response's head and the ready part of its body were handed to HTTP, in
    /// seconds. The client receives the first byte later, depending on the queue, the kernel and the network.
    pub time_to_head: Histogram,
    /// Largest gap between two frames of a response with at least two, in seconds.
    pub largest_gap: Histogram,
    /// Body bytes handed to HTTP.
    pub body_size: Histogram,
    /// Data frames of the body.
    pub frames: Histogram,
}

impl Requests {
    /// Reads the numbers. Responses that end meanwhile may or may not be included.
    pub fn now() -> Self {
        let mut active = [0u64; METHODS.len()];
        let mut frame_gap = Histogram::new(&GAP);
        let mut ended: Vec<Option<Responses>> = vec![None; SETS];
        shard::each(|shard| {
            let part = &shard.requests;
            active.iter_mut().zip(&part.active).for_each(|(all, n)| *all = all.wrapping_add(n.load(Ordering::Relaxed)));
            frame_gap.absorb(&part.gaps);
            for (at, row) in part.rows.iter().enumerate() {
                if let Some(row) = row.get() {
                    ended[at].get_or_insert_with(|| Responses::of(TABLE.labels(at))).absorb(row);
                }
            }
        });
        let ended: Vec<Responses> = ended.into_iter().flatten().collect();
        // Negative for the same reason as a gauge of `Snapshot`.
        let mut active: Vec<_> = METHODS.into_iter().zip(active.map(|n| (n as i64).max(0) as u64)).collect();
        active.retain(|&(method, n)| n > 0 || ended.iter().any(|responses| responses.method == method));
        Self { active, frame_gap, ended }
    }

    /// Returns the responses that ended since `earlier`. `active` keeps its current values.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut new = self.clone();
        new.frame_gap = self.frame_gap.since(&earlier.frame_gap);
        for responses in &mut new.ended {
            if let Some(old) = earlier.ended.iter().find(|old| old.labels() == responses.labels()) {
                responses.each_with(old, |new, old| *new = new.since(old));
            }
        }
        new.ended.retain(|responses| responses.duration.count() > 0);
        new
    }

    /// Returns the histogram selected by `which`, summed over all labels.
    pub fn all(&self, which: impl Fn(&Responses) -> &Histogram) -> Option<Histogram> {
        let mut parts = self.ended.iter().map(which);
        let mut all = *parts.next()?;
        parts.for_each(|part| all.join(part));
        Some(all)
    }
}

impl Responses {
    fn of(labels: Labels) -> Self {
        Self {
            method: METHODS[usize::from(labels.method)],
            version: version_name(labels.version),
            status: (labels.status > 0).then_some(labels.status),
            route: route_name(labels.route),
            outcome: labels.outcome,
            duration: Histogram::new(&DURATION),
            time_to_head: Histogram::new(&TIME_TO_HEAD),
            largest_gap: Histogram::new(&GAP),
            body_size: Histogram::new(&SIZE),
            frames: Histogram::new(&FRAMES),
        }
    }

    fn labels(&self) -> (&str, &str, Option<u16>, Option<&str>, ResponseOutcome) {
        (self.method, self.version, self.status, self.route, self.outcome)
    }

    fn absorb(&mut self, row: &Row) {
        self.duration.absorb(&row.duration);
        self.time_to_head.absorb(&row.time_to_head);
        self.largest_gap.absorb(&row.largest_gap);
        self.body_size.absorb(&row.body_size);
        self.frames.absorb(&row.frames);
    }

    fn each_with(&mut self, other: &Self, join: impl Fn(&mut Histogram, &Histogram)) {
        join(&mut self.duration, &other.duration);
        join(&mut self.time_to_head, &other.time_to_head);
        join(&mut self.largest_gap, &other.largest_gap);
        join(&mut self.body_size, &other.body_size);
        join(&mut self.frames, &other.frames);
    }
}

#[cfg(test)]
mod tests;
