//! Id of a sent event.

use std::fmt;
use std::sync::Arc;

/// The id of a sent event. `Display` writes it.
#[derive(Clone, PartialEq, Eq)]
pub struct EventId(Id);

#[derive(Clone, PartialEq, Eq)]
enum Id {
    Numbered { epoch: u32, number: u64 },
    Given(Arc<str>),
    ByLog,
}

impl EventId {
    pub(in crate::sse) fn numbered(epoch: u32, number: u64) -> Self {
        Self(Id::Numbered { epoch, number })
    }

    /// Returns the number of the id `id`, if it is one of this `epoch`.
    pub(in crate::sse) fn number_of(epoch: u32, id: &str) -> Option<u64> {
        let (prefix, number) = id.split_once('-')?;
        // Only the exact text is valid: neither `+1` nor `01`.
        let number = number.parse().ok()?;
        let is_ours = u32::from_str_radix(prefix, 16).ok()? == epoch && Self::numbered(epoch, number).to_string() == id;
        is_ours.then_some(number)
    }

    pub(in crate::sse) fn given(id: Arc<str>) -> Self {
        Self(Id::Given(id))
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
