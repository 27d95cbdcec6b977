//! Whether a server is installed.

/// Why one is left out.
pub(super) const NOT_FOUND: &str = "not installed";
