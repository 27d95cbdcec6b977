//! `middleware`: tower layers over real connections.

mod layers;
mod measure;
