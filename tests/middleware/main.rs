//! `middleware`: tower layers over real connections.

#[path = "../support/mod.rs"]
mod support;

mod layers;
mod measure;
