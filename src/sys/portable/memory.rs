//! Memory that this process may use.

/// Returns the bytes of memory that a small machine has: std does not tell.
pub(crate) fn limit() -> u64 {
    1 << 30
}
