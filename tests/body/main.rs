//! `body`: bodies saved into files, bodies from readers, and ranges of anything.

mod ranges;
mod reader;
mod save;
