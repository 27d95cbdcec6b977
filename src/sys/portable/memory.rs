//! Memory that this process may use.

/// Returns the memory size of a small machine in bytes, because std does not report the real size.
pub(crate) fn limit() -> u64 {
    1 << 30
}
