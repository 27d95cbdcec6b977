//! `body`: bodies saved into files, bodies from readers, and ranges of anything.

#[path = "../support/mod.rs"]
mod support;

mod ranges;
mod reader;
mod save;
