//! `sse::Hub`: one event, many readers. No event is lost or repeated without a report to the reader. `sse::KeepAlive`:
//! comments in any event stream.

mod alive;
mod block;
#[cfg(feature = "server")]
mod counts;
#[cfg(feature = "server")]
mod direct;
mod ends;
mod events;
#[cfg(feature = "server")]
mod framed;
#[cfg(feature = "compress")]
mod gzip;
#[cfg(all(tls, feature = "compress"))]
mod gzip_direct;
mod keep_alive;
mod log;
mod readers;
#[cfg(feature = "server")]
mod resume;
#[cfg(feature = "server")]
mod served;
#[cfg(all(tls, feature = "compress"))]
mod spread;

use testkit::parse;
