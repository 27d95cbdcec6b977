//! Whether an append is made: the rules about types, closed streams, producers and `Stream-Seq`.

use http::StatusCode;

use super::record::{Meta, Producer, Saved};
use crate::fields;
use crate::refusal::Refusal;

/// Producers that a stream remembers.
const PRODUCERS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Append<'a> {
    pub(crate) content_type: &'a str,
    pub(crate) data: &'a [u8],
    pub(crate) close: bool,
    pub(crate) seq: Option<&'a str>,
    pub(crate) producer: Option<Producer<'a>>,
}

impl Append<'_> {
    /// Returns the length of its record, without numbers.
    pub(crate) fn len(&self) -> usize {
        self.data.len() + self.seq.map_or(0, str::len) + self.producer.map_or(0, |producer| producer.id.len())
    }
}

/// An append that was made, now or before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) end: u64,
    pub(crate) closed: bool,
    /// The last one of the producer.
    pub(crate) seq: Option<u64>,
    pub(crate) duplicate: bool,
}

/// Refuses an append, or finds that it was made before.
pub(super) fn decide(queued: &Saved, meta: &Meta, append: &Append<'_>) -> Result<Option<Done>, Refusal> {
    let Append { content_type, data, close, seq, producer } = *append;
    if queued.deleted {
        return Err(Refusal::deleted());
    }
    let known = producer.and_then(|producer| queued.producers.get(producer.id)).copied();
    let duplicate = |seq| Ok(Some(Done { end: queued.len, closed: queued.closed, seq, duplicate: true }));
    let is_made = match (producer, &queued.closer) {
        (Some(p), Some((id, epoch, seq))) => *p.id == **id && p.epoch == *epoch && p.seq == *seq,
        (None, _) => close && data.is_empty(),
        _ => false,
    };
    if queued.closed && is_made {
        return duplicate(producer.map(|producer| producer.seq));
    }
    if !queued.closed && !data.is_empty() && content_type != &*meta.content_type {
        return Err(Refusal::conflict("the stream has another content type"));
    }
    if let Some((_, (epoch, _))) = producer.zip(known).filter(|(producer, (epoch, _))| producer.epoch < *epoch) {
        let stale = Refusal::new(StatusCode::FORBIDDEN, "the producer has a later epoch");
        return Err(stale.with(fields::PRODUCER_EPOCH, epoch));
    }
    if queued.closed {
        let closed = Refusal::conflict("the stream is closed").with(fields::CLOSED, fields::TRUE);
        return Err(closed.with(fields::NEXT, fields::offset(queued.len)));
    }
    if let Some(p) = producer {
        let next = match known {
            Some((epoch, _)) if p.epoch > epoch && p.seq != 0 => {
                return Err(Refusal::bad("a new epoch begins with Producer-Seq 0"));
            }
            Some((epoch, last)) if p.epoch == epoch && p.seq <= last => return duplicate(Some(last)),
            Some((epoch, last)) if p.epoch == epoch => last + 1,
            None if p.seq == 0 && queued.producers.len() >= PRODUCERS_MAX => {
                let text = "the stream has its maximum of producers";
                return Err(Refusal::new(StatusCode::TOO_MANY_REQUESTS, text));
            }
            _ => 0,
        };
        if p.seq != next {
            let gap = Refusal::conflict("Producer-Seq skips numbers").with(fields::EXPECTED_SEQ, next);
            return Err(gap.with(fields::RECEIVED_SEQ, p.seq));
        }
    }
    // Bytes are compared, as the protocol says.
    match (seq, &queued.seq) {
        (Some(seq), Some(last)) if *seq <= **last => {
            Err(Refusal::conflict("Stream-Seq is not greater than the last one"))
        }
        _ => Ok(None),
    }
}
