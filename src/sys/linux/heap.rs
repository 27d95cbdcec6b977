//! The heap of the C library.

#![allow(unsafe_code)]

/// Returns the unused pages of the heap to the system
/// ([malloc_trim(3)](https://man7.org/linux/man-pages/man3/malloc_trim.3.html)). Takes about 0.4 ms for each MB, with
/// the locks of the heap held. C libraries other than glibc have no such call, and this does nothing.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: has no requirements; any thread may call it at any time. Whether it found pages does not matter.
    unsafe {
        libc::malloc_trim(0)
    };
}
