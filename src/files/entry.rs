//! A file of the directory as it is served: the open file and its precompressed variants.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

use super::document::Document;
use crate::body::ContentCoding;
use crate::body::ranges::Representation;
use crate::fs::{Metadata, Root};

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) root: Root,
    pub(super) generation: u64,
    pub(super) path: PathBuf,
    /// `None` for a file of which only compressed variants exist.
    pub(super) plain: Option<Document>,
    pub(super) variants: Vec<Variant>,
    /// Time when the entry was last found valid, in nanoseconds on the cache's clock.
    pub(super) checked: AtomicU64,
    pub(super) warmed: AtomicU64,
    /// Time when its files were last found to have their original length.
    pub(super) measured: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Variant {
    pub(super) coding: ContentCoding,
    pub(super) path: PathBuf,
    /// Metadata of the sibling when it was looked for.
    pub(super) seen: Option<Metadata>,
    pub(super) document: Option<Document>,
}

impl Entry {
    pub(super) fn files(&self) -> u64 {
        self.documents().count() as u64
    }

    pub(super) fn is_current(&self) -> bool {
        let seen = |path: &Path| self.root.status_now(path).ok();
        seen(&self.path).as_ref() == self.plain.as_ref().map(|document| document.file().opened())
            && self.variants.iter().all(|variant| seen(&variant.path) == variant.seen)
    }

    pub(super) fn is_torn(&self) -> bool {
        self.documents().any(Document::is_torn)
    }

    /// Returns whether the open files still have their original length. A file that shrank by less than a page shows
    /// zeros in its mapping without a fault; one that shrank by more would fail every response until validation.
    pub(super) fn is_as_long(&self) -> bool {
        self.documents().all(|document| document.file().reaches(document.len()).is_ok())
    }

    pub(super) fn is_warm(&self) -> bool {
        self.documents().all(Document::is_warm)
    }

    /// Selects the representation for a request; `None` if the client accepts none of them.
    pub(super) fn negotiate(&self, headers: &HeaderMap) -> Option<&Document> {
        let of = |coding| self.variants.iter().find(|v| v.coding == coding).and_then(|v| v.document.as_ref());
        // Without variants the headers need not be read.
        if !self.variants.iter().any(|variant| variant.document.is_some()) {
            return self.plain.as_ref();
        }
        // A client that names no coding accepts every coding (RFC 9110 §12.5.3). Gzip is known to most.
        if self.plain.is_none() && !headers.contains_key(ACCEPT_ENCODING) {
            return of(ContentCoding::Gzip).or_else(|| self.documents().next());
        }
        let present = self.variants.iter().filter(|variant| variant.document.is_some());
        let chosen = ContentCoding::negotiate(headers, present.map(|variant| variant.coding));
        chosen.and_then(of).or(self.plain.as_ref())
    }

    fn documents(&self) -> impl Iterator<Item = &Document> {
        self.plain.iter().chain(self.variants.iter().filter_map(|variant| variant.document.as_ref()))
    }
}
