//! `relay`: the parts of a reverse proxy.

mod head;
mod proxy;
