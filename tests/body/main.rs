//! `body`: bodies saved into files, bodies from readers, ranges of anything, and the minimum rate of a body.

mod min_rate;
mod ranges;
mod reader;
mod save;
