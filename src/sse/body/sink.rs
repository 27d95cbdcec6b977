//! A reader whose connection the hub writes itself.

use tokio::time::Instant;

use super::seat::{Seat, Source};
use crate::net::Sent;
use crate::sse::ring::{Permit, Read};
use crate::sse::wake::sinks;
use crate::sse::wake::{Frames, Outcome, ReaderSink};

impl ReaderSink for Seat {
    fn send(&mut self, frames: &mut Frames) -> Outcome {
        let Self { permit: Permit(shared), source: Source::Ring(cursor), coding, .. } = self else {
            return Outcome::Returns;
        };
        let Some((outlet, chunked)) = &self.outlet else { return Outcome::Returns };
        if self.ending.is_set() || shared.is_ending() {
            return Outcome::Returns;
        }
        // Events that are sent during the pass are left to the next pass, so that no reader delays the others.
        let (head, mut outcome) = (shared.head(), Outcome::Idle);
        while cursor.next < head {
            let sent = match shared.read_shared(cursor, coding.coder(), frames) {
                Read::Events(()) => {
                    let frame = frames.of(coding.coder().form());
                    if frame.piece.bytes.is_empty() {
                        // The framing has left all of them out.
                        continue;
                    }
                    coding.add(&frame.piece);
                    outlet.send(frame.bytes(*chunked))
                }
                Read::Gap(missed) => {
                    let gap = coding.own(missed.encode());
                    outlet.send(&if *chunked && !gap.is_empty() { sinks::chunk(&gap) } else { gap })
                }
                Read::TooSlow => return Outcome::Returns,
                Read::Nothing => break,
            };
            if sent != Sent::All {
                return Outcome::Returns;
            }
            outcome = Outcome::Sent;
        }
        outcome
    }

    fn send_comment(&mut self, frames: &mut Frames) -> Outcome {
        let Some((outlet, chunked)) = &self.outlet else { return Outcome::Returns };
        let (frame, comment) = (frames.of(self.coding.coder().form()), self.coding.comment());
        if comment.bytes.is_empty() {
            return Outcome::Idle;
        }
        frame.set(u64::MAX, u64::MAX, comment.clone());
        self.coding.add(&comment);
        match outlet.send(frame.bytes(*chunked)) {
            Sent::All => Outcome::Sent,
            Sent::Waits | Sent::Failed => Outcome::Returns,
        }
    }

    fn is_current(&self) -> bool {
        let Source::Ring(cursor) = &self.source else { return false };
        let shared = &self.permit.0;
        cursor.next >= shared.head() && !self.ending.is_set() && !shared.is_ending()
    }

    fn is_aged(&self, now: Instant) -> bool {
        self.ages.is_some_and(|at| at <= now)
    }
}
