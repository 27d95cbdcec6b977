//! Measurements of one request and its response.

use std::time::Instant;

use http::{Method, StatusCode, Version};

use super::request_id::RequestId;
use crate::counters::labels::{Labels, METHODS, ResponseOutcome, version_name};
use crate::counters::requests;
use crate::counters::requests::Ended;
use crate::counters::span::Span;
use crate::sys::clock;

/// Measurements so far. They are published at the end of the response, at the latest by drop.
#[derive(Debug)]
pub(super) struct Exchange {
    started: Instant,
    labels: Labels,
    over: bool,
    /// Declared length of the body.
    promised: Option<u64>,
    frames: u64,
    bytes: u64,
    /// Present once the body did not end with its first frame. Boxed, because the other fields move with each response.
    long: Option<Box<Long>>,
    span: Span,
}

/// Measurements of a body with several frames.
#[derive(Debug)]
struct Long {
    time_to_head: u64,
    /// Frames and bytes that were published.
    recorded: (u64, u64),
    /// Unpublished frames that came in the tick of the one before.
    at_once: u64,
    /// The tick of the last frame, 0 before the first.
    tick: u64,
    largest_gap: u64,
}

impl Exchange {
    pub(super) fn begin(method: &Method, version: Version, route: Option<u8>) -> Self {
        let method = method_number(method);
        let version = match version {
            Version::HTTP_11 => 0,
            Version::HTTP_2 => 1,
            Version::HTTP_10 => 2,
            Version::HTTP_3 => 3,
            _ => 4,
        };
        requests::began(method);
        Self {
            started: Instant::now(),
            labels: Labels { method, version, status: 0, route: route.unwrap_or(0), outcome: ResponseOutcome::Aborted },
            over: false,
            promised: None,
            frames: 0,
            bytes: 0,
            long: None,
            span: Span::request(METHODS[usize::from(method)], version_name(version)),
        }
    }

    #[inline]
    pub(super) fn inside<R>(&self, run: impl FnOnce() -> R) -> R {
        self.span.inside(run)
    }

    /// Sets the request id of the span.
    #[inline]
    pub(super) fn identify(&self, id: impl FnOnce() -> Option<RequestId>) {
        self.span.identify(id);
    }

    /// Records the head of the response, and the declared length of its body.
    pub(super) fn answered(&mut self, status: StatusCode, route: Option<u8>, promised: Option<u64>) {
        self.labels.status = status.as_u16();
        self.labels.route = route.unwrap_or(self.labels.route);
        self.span.answered(status.as_u16());
        let no_body = METHODS[usize::from(self.labels.method)] == "HEAD"
            || status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        // If the response has no content, HTTP drops the body without polling it.
        self.promised = if no_body { Some(0) } else { promised };
    }

    /// Records that the head was handed over and the body has nothing ready. Reads the clock the first time only.
    pub(super) fn handed_over(&mut self) {
        self.long();
    }

    fn long(&mut self) -> &mut Long {
        let started = self.started;
        self.long.get_or_insert_with(|| {
            let time_to_head = nanos_since(started);
            Box::new(Long { time_to_head, recorded: (0, 0), at_once: 0, tick: 0, largest_gap: 0 })
        })
    }

    pub(super) fn data(&mut self, len: usize, last: bool) {
        if self.over {
            return;
        }
        self.frames += 1;
        self.bytes += len as u64;
        if self.frames == 1 && last {
            return self.complete();
        }
        self.look_at_the_clock();
        if last {
            self.complete();
        }
    }

    fn look_at_the_clock(&mut self) {
        let long = self.long();
        let now = clock::coarse();
        let gap = now.saturating_sub(long.tick);
        if long.tick == 0 {
            long.tick = now;
        } else if gap == 0 {
            long.at_once += 1;
        } else {
            long.tick = now;
            long.largest_gap = long.largest_gap.max(gap);
            self.record(Some(gap));
        }
    }

    /// Publishes the frames that were not published yet.
    fn record(&mut self, gap: Option<u64>) {
        let Some(long) = &mut self.long else { return requests::frames(self.frames, self.bytes, 0, gap) };
        let (frames, bytes) = long.recorded;
        requests::frames(self.frames - frames, self.bytes - bytes, long.at_once, gap);
        long.recorded = (self.frames, self.bytes);
        long.at_once = 0;
    }

    pub(super) fn complete(&mut self) {
        self.end(ResponseOutcome::Complete);
    }

    pub(super) fn failed(&mut self) {
        self.end(ResponseOutcome::Error);
    }

    fn end(&mut self, outcome: ResponseOutcome) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let duration = nanos_since(self.started);
        self.record(None);
        self.labels.outcome = outcome;
        let answered = self.labels.status > 0;
        let (time_to_head, largest_gap) =
            self.long.as_ref().map_or((duration, 0), |long| (long.time_to_head, long.largest_gap));
        let ended = Ended {
            duration,
            time_to_head: answered.then_some(time_to_head),
            largest_gap: (self.frames > 1).then_some(largest_gap),
            bytes: self.bytes,
            frames: self.frames,
        };
        requests::ended(self.labels, ended);
        self.span.ended(ended, outcome);
    }
}

fn nanos_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let whole = self.labels.status > 0 && self.promised == Some(self.bytes);
        self.end(if whole { ResponseOutcome::Complete } else { ResponseOutcome::Aborted });
    }
}

fn method_number(method: &Method) -> u8 {
    match *method {
        Method::GET => 0,
        Method::POST => 1,
        Method::PUT => 2,
        Method::DELETE => 3,
        Method::HEAD => 4,
        Method::OPTIONS => 5,
        Method::CONNECT => 6,
        Method::PATCH => 7,
        Method::TRACE => 8,
        _ => METHODS.len() as u8 - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_those_of_the_table() {
        for (number, name) in METHODS.iter().enumerate() {
            let method = Method::from_bytes(name.as_bytes()).unwrap();
            assert_eq!(usize::from(method_number(&method)), number, "{name}");
        }
        assert_eq!(METHODS[usize::from(method_number(&Method::from_bytes(b"BREW").unwrap()))], "_OTHER");
    }
}
