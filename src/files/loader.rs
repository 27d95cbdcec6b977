//! Opens a file, its precompressed variants, or a directory to list.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::absent::{errno, is_absent};
use super::cache_control::CacheControl;
use super::content_type::ContentTypes;
use super::document::{Document, Fields, Policy};
use super::entry::{Entry, Variant};
use super::path;
use crate::body::ContentCoding;
use crate::fs::{File, Metadata, Root};
use crate::sys::call::Wait;
use crate::sys::errno::Errno;

#[derive(Clone, Debug)]
pub(super) struct Loader {
    pub(super) root: Root,
    pub(super) generation: u64,
    pub(super) index: String,
    pub(super) precompressed: bool,
    pub(super) only_compressed: bool,
    pub(super) content_types: Arc<ContentTypes>,
    pub(super) cache_control: Option<CacheControl>,
    pub(super) policy: Policy,
}

#[derive(Debug)]
pub(super) enum Loaded {
    Entry(Arc<Entry>),
    /// A directory whose name was requested without the trailing slash.
    Directory,
}

impl Loader {
    /// Fails with `WouldBlock` if this needs the disk and `wait` does not allow it.
    pub(super) fn load(&self, name: &[u8], now: u64, wait: Wait) -> io::Result<Loaded> {
        let mut path = path::as_path(name).to_owned();
        let directory = path::is_directory(name);
        if directory {
            path.push(&self.index);
        }
        let file = match self.open(&path, wait) {
            Err(e) if errno(&e) == Some(Errno::ISDIR) => {
                return if directory { Err(io::ErrorKind::NotFound.into()) } else { Ok(Loaded::Directory) };
            }
            Err(e) if self.only_compressed && is_absent(&e) => None,
            opened => Some(opened?),
        };
        let mut found = Vec::new();
        if self.precompressed {
            for coding in ContentCoding::ALL {
                found.push(self.variant(&path, coding, wait)?);
            }
        }
        let vary = found.iter().any(|(_, opened)| opened.is_some());
        if file.is_none() && !vary {
            return Err(io::ErrorKind::NotFound.into());
        }
        let content_type = self.content_types.of(&path);
        let cache_control = self.cache_control.as_ref().and_then(|rule| rule.of(&path, &content_type));
        let fields = Fields { content_type, cache_control, vary };
        let document = |file, coding| Document::new(file, &fields, coding, &self.policy, wait);
        let plain = file.map(|file| document(file, None)).transpose()?;
        let mut variants = Vec::with_capacity(found.len());
        for (mut variant, opened) in found {
            variant.document = opened.map(|file| document(file, Some(variant.coding))).transpose()?;
            variants.push(variant);
        }
        let [checked, warmed, measured] = [now; 3].map(AtomicU64::new);
        let (root, generation) = (self.root.clone(), self.generation);
        Ok(Loaded::Entry(Arc::new(Entry { root, generation, path, plain, variants, checked, warmed, measured })))
    }

    fn open(&self, path: &Path, wait: Wait) -> io::Result<File> {
        match wait {
            Wait::Never => self.root.open_now(path),
            Wait::ForDisk => self.root.open_blocking(path),
        }
    }

    fn status(&self, path: &Path, wait: Wait) -> io::Result<Metadata> {
        match wait {
            Wait::Never => self.root.status_now(path),
            Wait::ForDisk => self.root.status_blocking(path),
        }
    }

    fn variant(&self, of: &Path, coding: ContentCoding, wait: Wait) -> io::Result<(Variant, Option<File>)> {
        let mut path = of.as_os_str().to_owned();
        path.push(coding.suffix());
        let path = PathBuf::from(path);
        let (seen, opened) = match self.open(&path, wait) {
            Ok(file) => (Some(*file.opened()), Some(file)),
            Err(e) if is_absent(&e) || errno(&e) == Some(Errno::ISDIR) => (self.status(&path, wait).ok(), None),
            Err(e) => return Err(e),
        };
        Ok((Variant { coding, path, seen, document: None }, opened))
    }
}
