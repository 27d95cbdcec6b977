//! `sse::Hub`: one event, many readers. No event is lost or repeated without a report to the reader.

mod alive;
mod block;
mod counts;
mod direct;
mod ends;
mod events;
mod gzip;
#[cfg(tls)]
mod gzip_direct;
mod log;
mod parse;
mod readers;
mod resume;
mod served;
