//! A service for the files of a directory.
//!
//! | I want to | use |
//! |---|---|
//! | serve a directory | [`Files::new`] |
//! | choose how: fallbacks, listings, types, dot files, links | [`Files::builder`] |
//! | set `Cache-Control` by rule | [`FilesBuilder::cache_control`], [`cache_by_name`] |
//! | answer one request from a handler | [`Files::get`] |
//!
//! A cached, valid entry is answered without waiting, without a system call and nearly without allocating. An uncached
//! file is opened once for all waiting requests.

//  request ─▶ path ─▶ cache ─▶ loader ─▶ entry ─▶ variant ──▶ body::ranges ─▶ response
//            (text)   (valid    (opens)   (file,   (which      (304, 412,     (heads made
//                     entries)            variants) coding)     206, 416)      beforehand)
//
//  absent file ─▶ listing, fallback, or the page for status 404

mod absent;
mod body;
mod budget;
mod builder;
mod cache;
mod cache_control;
mod content_type;
mod document;
mod entry;
mod listing;
mod loader;
mod path;
mod respond;
mod service;

pub use body::FilesBody;
pub use builder::FilesBuilder;
pub use cache_control::{Asset, cache_by_name};
pub use service::{Files, ResponseFuture};
