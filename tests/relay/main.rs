//! `relay`: the parts of a reverse proxy.

#[path = "../support/mod.rs"]
mod support;

mod head;
mod proxy;
#[cfg(not(millstream_portable))]
mod shared;
