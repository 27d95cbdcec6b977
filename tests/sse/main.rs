//! `sse::Hub`: one event, many readers. Nothing is lost, nothing comes twice, or the reader is told.

#[path = "../support/mod.rs"]
mod support;

mod alive;
mod block;
mod counts;
mod ends;
mod events;
mod log;
mod parse;
mod readers;
mod resume;
mod served;
