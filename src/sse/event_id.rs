//! What a sender gets back.

use std::fmt;
use std::sync::Arc;

/// An event that was sent. It shows as its id.
#[derive(Clone, PartialEq, Eq)]
pub struct EventId(Id);

#[derive(Clone, PartialEq, Eq)]
enum Id {
    Numbered { epoch: u32, number: u64 },
    Given(Arc<str>),
    ByLog,
}

impl EventId {
    pub(super) fn numbered(epoch: u32, number: u64) -> Self {
        Self(Id::Numbered { epoch, number })
    }

    pub(super) fn given(id: Arc<str>) -> Self {
        Self(Id::Given(id))
    }

    pub(super) fn by_log() -> Self {
        Self(Id::ByLog)
    }

    /// The id that readers see. `None` where the hub's log gives the ids, which it does later.
    pub fn id(&self) -> Option<String> {
        (self.0 != Id::ByLog).then(|| self.to_string())
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Id::Numbered { epoch, number } => write!(f, "{epoch:08x}-{number}"),
            Id::Given(id) => f.write_str(id),
            Id::ByLog => f.write_str("given by the log"),
        }
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventId").field(&self.id()).finish()
    }
}
