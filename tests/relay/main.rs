//! `relay`: the parts of a reverse proxy.

mod head;
mod proxy;
#[cfg(not(millstream_portable))]
mod shared;
