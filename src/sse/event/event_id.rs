//! Id of a sent event.

use std::fmt;
use std::sync::Arc;

/// The id of a sent event. `Display` writes it.
#[derive(Clone, PartialEq, Eq)]
pub struct EventId(Id);

#[derive(Clone, PartialEq, Eq)]
enum Id {
    Numbered {
        epoch: u32,
        number: u64,
    },
    /// The id before the first event.
    Start {
        epoch: u32,
    },
    Given(Arc<str>),
    ByLog,
}

impl EventId {
    pub(in crate::sse) fn numbered(epoch: u32, number: u64) -> Self {
        Self(Id::Numbered { epoch, number })
    }

    pub(in crate::sse) fn start(epoch: u32) -> Self {
        Self(Id::Start { epoch })
    }

    /// Returns the number of the event behind the id `id`, if it is one of this `epoch`.
    pub(in crate::sse) fn next_of(epoch: u32, id: &str) -> Option<u64> {
        let (prefix, number) = id.split_once('-')?;
        let (next, ours) = match number {
            "start" => (0, Self::start(epoch)),
            _ => number.parse::<u64>().ok().and_then(|n| Some((n.checked_add(1)?, Self::numbered(epoch, n))))?,
        };
        // Only the exact text is valid: neither `+1` nor `01`.
        (u32::from_str_radix(prefix, 16).ok()? == epoch && ours.to_string() == id).then_some(next)
    }

    pub(in crate::sse) fn given(id: Arc<str>) -> Self {
        Self(Id::Given(id))
    }

    pub(in crate::sse) fn is_given(&self) -> bool {
        matches!(self.0, Id::Given(_))
    }

    pub(in crate::sse) fn by_log() -> Self {
        Self(Id::ByLog)
    }

    /// Returns the id that readers see. `None` if the log of the hub assigns the ids, which happens later.
    pub fn id(&self) -> Option<String> {
        (self.0 != Id::ByLog).then(|| self.to_string())
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Id::Numbered { epoch, number } => write!(f, "{epoch:08x}-{number}"),
            Id::Start { epoch } => write!(f, "{epoch:08x}-start"),
            Id::Given(id) => f.write_str(id),
            Id::ByLog => f.write_str("assigned by the log"),
        }
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventId").field(&self.id()).finish()
    }
}
