//! What the machine was found to do, told by whoever has tried it: the exports cannot ask, because they are below.

use std::sync::OnceLock;

/// A capability by its name, and why it is not used if it is not.
pub(crate) type Found = (&'static str, Option<String>);

pub(super) const CAPABILITY: (&str, &str) =
    ("millstream_capability", "What the machine can do: 1, or 0 and the reason why it is not used.");

static FOUND: OnceLock<Vec<Found>> = OnceLock::new();

/// Keeps what was found. Only the first time counts.
pub(crate) fn found(entries: impl IntoIterator<Item = Found>) {
    FOUND.get_or_init(|| entries.into_iter().collect());
}

/// All of it; nothing before it was tried.
pub(super) fn all() -> &'static [Found] {
    FOUND.get().map_or(&[], |found| found)
}
