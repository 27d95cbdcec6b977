//! Work on the blocking pool of the runtime.

use std::io;

use tokio::runtime::Handle;

/// Starts `work`, and returns its result. Without a runtime it is an error.
pub(super) fn job<T, F>(work: F) -> impl Future<Output = io::Result<T>> + Send + use<T, F>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    let started = Handle::try_current().map(|runtime| runtime.spawn_blocking(work));
    async move { started.map_err(io::Error::other)?.await.map_err(io::Error::other)? }
}

/// Drops a value on the pool, or here if there is no runtime.
pub(super) fn discard<T: Send + 'static>(value: T) {
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn_blocking(move || drop(value)));
    }
}
