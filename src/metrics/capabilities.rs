//! Capabilities of the machine, as a metric.

use crate::sys::caps::{Capabilities, Support};

/// Name of a capability, and the reason if it is not used.
pub(super) type Capability = (&'static str, Option<String>);

pub(super) const CAPABILITY: (&str, &str) =
    ("millstream_capability", "Capabilities of the machine: 1 if used, 0 with the reason if not.");

pub(super) fn capabilities() -> Vec<Capability> {
    let entry = |(name, support): (_, &Support)| match support {
        Support::Yes => (name, None),
        Support::No(reason) => (name, Some(reason.clone())),
    };
    Capabilities::get().entries().map(entry).collect()
}
