//! Requests, and which answers to them are right.

use testkit::sim::{Dice, bytes_of};

use crate::script::{Kind, Target};
use crate::terms::LATE;
use crate::world::World;

/// Bytes of a request that the proxy keeps until it is answered.
const KEPT: u64 = 60 << 10;

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) target: Target,
    pub(crate) is_post: bool,
    /// The body of the request.
    pub(crate) body: Vec<u8>,
}

/// An answer, with the times at which it arrived.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) tag: Option<String>,
    /// Whether it is a refusal by the circuit breaker.
    pub(crate) is_open: bool,
    pub(crate) body: Vec<u8>,
    pub(crate) is_whole: bool,
    /// When the client began to send the request, and when it had sent it.
    pub(crate) began: u64,
    pub(crate) sent: u64,
    pub(crate) head: u64,
    pub(crate) last: u64,
    pub(crate) end: u64,
}

impl Ask {
    pub(crate) fn choose(dice: &mut Dice, world: &World) -> Self {
        use Kind::*;
        let terms = &world.terms;
        let sound = [Fixed, Fixed, Pieces, Late, Interim, Upload, Upload, Closing, Root];
        let faulty = [Fixed, Fixed, Pieces, Late, Upload, Early, Silent, Stall, Cut, Torn, Garbage, Refused, Refused];
        let is_faulty = terms.breaker.is_none() && dice.chance(50);
        let kind = *dice.pick(if is_faulty { &faulty[..] } else { &sound[..] });
        let len = match kind {
            Fixed | Pieces | Torn | Closing => dice.of_any_size(2..=150 << 10),
            Stall => dice.of_any_size(2..=60 << 10),
            Root => 0,
            _ => 5,
        };
        let millis = match kind {
            Pieces | Late | Closing => dice.of_any_size(1..=terms.timeout.min(terms.silence) / 3),
            Refused => dice.in_range(1..=3),
            _ => 0,
        };
        // Requests without a path have no tag.
        let tag = if kind == Root { 0 } else { world.tag() };
        let is_post = kind.has_upload() || (matches!(kind, Late | Cut | Refused) && dice.chance(40));
        let most = if terms.is_http2 { KEPT } else { 150 << 10 };
        let body = match kind {
            Upload | Early => bytes_of(tag ^ 1, dice.of_any_size(1..=most) as usize),
            _ if is_post => bytes_of(tag ^ 1, dice.of_any_size(1..=2_000) as usize),
            _ => Vec::new(),
        };
        let millis = if kind == Upload { body.len() as u64 } else { millis };
        Self { target: Target { kind, tag, len, millis }, is_post, body }
    }

    /// A sound request for a small body.
    pub(crate) fn small(world: &World) -> Self {
        let target = Target { kind: Kind::Fixed, tag: world.tag(), len: 5, millis: 0 };
        Self { target, is_post: false, body: Vec::new() }
    }

    pub(crate) fn method(&self) -> &'static str {
        if self.is_post { "POST" } else { "GET" }
    }

    /// Returns whether the upstream is to blame if this fails.
    fn is_failed_by_upstream(&self, world: &World, from: u64, to: u64) -> bool {
        let may_meet_an_end = world.terms.is_rough && self.is_post && !world.terms.is_http2;
        may_meet_an_end || world.was_cut(self.target.tag) || world.was_down(from, to)
    }

    /// Records what is wrong with an answer.
    pub(crate) fn judge(&self, world: &World, link: u64, got: &Got) {
        world.net.note(link, "answer", self.target.tag * 1_000 + u64::from(got.status));
        let fault = |what: &str| {
            let Got { status, tag, is_open, body, is_whole, began, sent, head, last, end } = got;
            let body = body.len();
            let got = format!(
                "{status} {tag:?} open {is_open}, {body} bytes, whole {is_whole}, began {began}, sent {sent}, head {head}, last {last}, end {end}"
            );
            world.fault(link, format_args!("{what}: {got} for {} of {:?}", self.method(), self.target));
        };
        if let Some(what) = self.judge_times(world, got) {
            fault(what);
        }
        match &got.tag {
            Some(tag) => {
                if let Some(what) = self.judge_body(world, got, tag) {
                    fault(what);
                }
            }
            None if !self.may_fail_with(world, got) => fault("an error"),
            None => {}
        }
    }

    fn judge_times(&self, world: &World, got: &Got) -> Option<&'static str> {
        let (terms, Target { kind, millis, .. }) = (&world.terms, self.target);
        let waits = if world.may_wait(got.began, got.head) { terms.queue.1 } else { 0 };
        // A connection that is cut is replaced, or its request is answered late.
        let is_hindered = self.is_failed_by_upstream(world, got.began, got.head);
        let again = if is_hindered { terms.connect + terms.timeout } else { 0 };
        let takes = match kind {
            Kind::Silent => terms.timeout,
            Kind::Pieces | Kind::Late | Kind::Closing => millis,
            _ => 0,
        };
        if got.head > got.sent + waits + takes + again + LATE {
            return Some("a late answer");
        }
        let least = if is_hindered { terms.timeout.min(terms.connect) } else { terms.timeout };
        if got.status == 504 && got.head < got.began + least {
            return Some("an early end of the time for a head");
        }
        if kind == Kind::Stall && got.tag.is_some() && !self.is_failed_by_upstream(world, got.began, got.end) {
            if got.end + LATE < got.last + terms.silence {
                return Some("an early end of a silent body");
            }
            if got.end > got.last + terms.silence + LATE {
                return Some("a late end of a silent body");
            }
        }
        None
    }

    fn judge_body(&self, world: &World, got: &Got, tag: &str) -> Option<&'static str> {
        let expected = self.target.bytes();
        let is_hindered = self.is_failed_by_upstream(world, got.began, got.end);
        if *tag != self.target.tag.to_string() || got.status != self.target.status() {
            return Some("another answer");
        }
        if !expected.starts_with(&got.body) {
            return Some("wrong bytes");
        }
        let is_short = got.body.len() < expected.len();
        if is_short && got.is_whole && self.target.kind == Kind::Closing && is_hindered {
            // The reset is lost between the kernel's sockets.
            return None;
        }
        if got.is_whole && is_short {
            return Some("an incomplete body looks complete");
        }
        let may_be_cut = matches!(self.target.kind, Kind::Stall | Kind::Torn) || is_hindered;
        if !got.is_whole && !may_be_cut {
            return Some("a body is cut");
        }
        None
    }

    /// Returns whether an error of the proxy is right.
    fn may_fail_with(&self, world: &World, got: &Got) -> bool {
        let is_hindered = self.is_failed_by_upstream(world, got.began, got.head);
        match (got.status, self.target.kind) {
            (503, _) if got.is_open => world.may_be_open(got.began),
            (503, _) => world.may_refuse(got.began, got.head),
            (504, Kind::Silent) | (502, Kind::Cut | Kind::Garbage) => true,
            (502 | 504, _) => is_hindered,
            _ => false,
        }
    }

    /// Records that there was no answer.
    pub(crate) fn unanswered(&self, world: &World, link: u64, began: u64) {
        let now = world.net.now();
        world.net.note(link, "no answer", self.target.tag);
        // A body that fails at once is an answer whose head is not sent.
        if self.is_failed_by_upstream(world, began, now) {
            return;
        }
        world.fault(link, format_args!("no answer to {} of {:?} from {began} to {now}", self.method(), self.target));
    }
}
