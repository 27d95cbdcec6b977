//! An open file, the header fields of its responses, and its precompressed variants.
//!
//! Invariant: the status, the tag and the bytes of a [`Document`] come from one open. So the tag of a file that is
//! replaced by a rename is never sent with the bytes of another file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED, VARY,
};
use http::{HeaderMap, HeaderValue};

use super::absent::{errno, is_absent};
use super::conditional::Validators;
use super::encoding::Encoding;
use super::path;
use crate::body::file::{Part, Whole};
use crate::body::reader::Reader;
use crate::body::{FileBody, Tag};
use crate::buf::origin::{self, Mapping};
use crate::fs::{File, Metadata, Root};
use crate::sys::errno::Errno;
use crate::sys::fd::AsFd;
use crate::sys::{call, map};

/// Maximum length of a file that is kept mapped, warmed and sent as one frame.
const WHOLE: u64 = 256 << 10;
/// Maximum length of a file that is read for each request if no mapping of it is kept.
const SMALL: u64 = 32 << 10;
/// Number of granules of the address range that kept mappings leave free for other mappings.
const SPARE: usize = 1024;

#[derive(Debug)]
pub(super) struct Entry {
    root: Root,
    pub(super) generation: u64,
    path: PathBuf,
    plain: Document,
    variants: Vec<Variant>,
    /// Time when the entry was last found valid, in nanoseconds on the cache's clock.
    pub(super) checked: AtomicU64,
    pub(super) warmed: AtomicU64,
    /// Time when its files were last found to have their original length.
    pub(super) measured: AtomicU64,
}

#[derive(Debug)]
struct Variant {
    encoding: Encoding,
    path: PathBuf,
    /// Metadata of the sibling when it was looked for.
    seen: Option<Metadata>,
    document: Option<Document>,
}

/// One representation: an open file and the header fields of the responses about it.
#[derive(Debug)]
pub(super) struct Document {
    file: File,
    mapped: bool,
    etag: HeaderValue,
    pub(super) head: HeaderMap,
    /// The header fields of responses that do not carry the representation.
    pub(super) validators: HeaderMap,
    kept: Kept,
}

#[derive(Debug)]
enum Kept {
    Nothing,
    /// The whole file, in memory, as one frame.
    Whole(Arc<Whole>, #[expect(dead_code, reason = "returns its bytes to the budget when dropped")] Share),
    /// A mapping of the whole file, which is checked frame by frame.
    Window(Arc<Mapping>),
}

#[derive(Debug)]
pub(super) enum Loaded {
    Entry(Arc<Entry>),
    /// A directory whose name was requested without the trailing slash.
    Directory,
}

#[derive(Clone, Debug)]
pub(super) struct Loader {
    pub(super) root: Root,
    pub(super) generation: u64,
    pub(super) index: String,
    pub(super) mapped: bool,
    pub(super) precompressed: bool,
    pub(super) tag: Tag,
    pub(super) budget: Arc<Budget>,
}

/// Whether loading may block on the disk or fails with `WouldBlock` instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    Never,
    ForDisk,
}

impl Loader {
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
            opened => opened?,
        };
        let mut found = Vec::new();
        if self.precompressed {
            for encoding in Encoding::ALL {
                found.push(self.variant(&path, encoding, wait)?);
            }
        }
        let vary = found.iter().any(|(_, opened)| opened.is_some());
        let content_type = content_type(&path);
        let document = |file, encoding| self.document(file, &content_type, encoding, vary, wait);
        let plain = document(file, None)?;
        let mut variants = Vec::with_capacity(found.len());
        for (mut variant, opened) in found {
            variant.document = opened.map(|file| document(file, Some(variant.encoding))).transpose()?;
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

    fn variant(&self, of: &Path, encoding: Encoding, wait: Wait) -> io::Result<(Variant, Option<File>)> {
        let mut path = of.as_os_str().to_owned();
        path.push(encoding.suffix());
        let path = PathBuf::from(path);
        let (seen, opened) = match self.open(&path, wait) {
            Ok(file) => (Some(*file.opened()), Some(file)),
            Err(e) if is_absent(&e) || errno(&e) == Some(Errno::ISDIR) => (self.status(&path, wait).ok(), None),
            Err(e) => return Err(e),
        };
        Ok((Variant { encoding, path, seen, document: None }, opened))
    }

    fn document(
        &self,
        file: File,
        content_type: &HeaderValue,
        encoding: Option<Encoding>,
        vary: bool,
        wait: Wait,
    ) -> io::Result<Document> {
        let etag = self.tag.of(file.opened(), encoding.map_or("", Encoding::suffix));
        let mut validators = HeaderMap::new();
        validators.insert(ETAG, etag.clone());
        if let Some(modified) = file.opened().last_modified() {
            let date = HeaderValue::try_from(httpdate::fmt_http_date(modified)).map_err(io::Error::other)?;
            validators.insert(LAST_MODIFIED, date);
        }
        if vary {
            validators.insert(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
        }
        let mut head = validators.clone();
        head.insert(CONTENT_TYPE, content_type.clone());
        head.insert(CONTENT_LENGTH, file.opened().len().into());
        head.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(encoding) = encoding {
            head.insert(CONTENT_ENCODING, encoding.value());
        }
        let kept = self.keep(&file, wait)?;
        Ok(Document { file, mapped: self.mapped, etag, head, validators, kept })
    }

    fn keep(&self, file: &File, wait: Wait) -> io::Result<Kept> {
        let len = file.opened().len();
        let fits = (1..=origin::WINDOW as u64).contains(&len);
        if !self.mapped || !fits || !map::range().is_ok_and(|range| range.available() > SPARE) {
            return Ok(Kept::Nothing);
        }
        let share = if len <= WHOLE { Budget::take(&self.budget, len) } else { None };
        if share.is_none() && len <= SMALL {
            return Ok(Kept::Nothing);
        }
        let Ok(mapping) = Mapping::new(Arc::clone(file.shared()), 0, len as usize) else { return Ok(Kept::Nothing) };
        let Some(share) = share else { return Ok(Kept::Window(mapping)) };
        match wait {
            Wait::Never if !call::is_resident(file.as_fd(), 0, len) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Wait::Never => {}
            Wait::ForDisk => call::warm_blocking(file.as_fd(), 0, len)?,
        }
        Ok(Kept::Whole(Arc::new(Whole::new(file.clone(), mapping)), share))
    }
}

impl Entry {
    pub(super) fn files(&self) -> u64 {
        self.documents().count() as u64
    }

    pub(super) fn is_current(&self) -> bool {
        let seen = |path: &Path| self.root.status_now(path).ok();
        seen(&self.path).as_ref() == Some(self.plain.file.opened())
            && self.variants.iter().all(|variant| seen(&variant.path) == variant.seen)
    }

    pub(super) fn is_torn(&self) -> bool {
        self.documents().any(|document| match &document.kept {
            Kept::Nothing => false,
            Kept::Whole(whole, _) => whole.mapping().is_torn(),
            Kept::Window(mapping) => mapping.is_torn(),
        })
    }

    /// Returns whether the open files still have their original length. A file that shrank by less than a page shows
    /// zeros in its mapping without a fault; one that shrank by more would fail every response until validation.
    pub(super) fn is_as_long(&self) -> bool {
        self.documents().all(|document| document.file.reaches(document.len()).is_ok())
    }

    pub(super) fn is_warm(&self) -> bool {
        self.documents().all(|document| match document.kept {
            Kept::Whole(..) => call::is_resident(document.file.as_fd(), 0, document.len()),
            Kept::Nothing | Kept::Window(_) => true,
        })
    }

    pub(super) fn negotiate(&self, headers: &HeaderMap) -> &Document {
        let of = |encoding| self.variants.iter().find(|v| v.encoding == encoding).and_then(|v| v.document.as_ref());
        // Without variants the headers need not be read.
        if !self.variants.iter().any(|variant| variant.document.is_some()) {
            return &self.plain;
        }
        let chosen = super::encoding::choose(headers, |encoding| of(encoding).is_some());
        chosen.and_then(of).unwrap_or(&self.plain)
    }

    fn documents(&self) -> impl Iterator<Item = &Document> {
        std::iter::once(&self.plain).chain(self.variants.iter().filter_map(|variant| variant.document.as_ref()))
    }
}

impl Document {
    pub(super) fn len(&self) -> u64 {
        self.file.opened().len()
    }

    pub(super) fn version(&self) -> Validators<'_> {
        Validators { etag: &self.etag, last_modified: self.file.opened().last_modified() }
    }

    pub(super) fn whole(&self) -> FileBody {
        match &self.kept {
            Kept::Whole(whole, _) => FileBody::kept(whole, ..),
            _ => FileBody::range(self.reader(), 0..self.len()),
        }
    }

    pub(super) fn range(&self, range: std::ops::Range<u64>) -> FileBody {
        match &self.kept {
            Kept::Whole(whole, _) => FileBody::kept(whole, range.start as usize..range.end as usize),
            _ => FileBody::range(self.reader(), range),
        }
    }

    pub(super) fn parts(&self, parts: Vec<Part>) -> FileBody {
        FileBody::parts(self.reader(), parts)
    }

    fn reader(&self) -> Reader {
        let mut reader = Reader::new(self.file.clone());
        reader.set_mapped(self.mapped);
        match &self.kept {
            Kept::Whole(whole, _) => reader.set_window(Arc::clone(whole.mapping())),
            Kept::Window(mapping) => reader.set_window(Arc::clone(mapping)),
            Kept::Nothing => {}
        }
        reader
    }
}

#[derive(Debug)]
pub(super) struct Budget(AtomicU64);

#[derive(Debug)]
struct Share(Arc<Budget>, u64);

impl Budget {
    pub(super) fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    fn take(this: &Arc<Self>, bytes: u64) -> Option<Share> {
        let taken = this.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        taken.is_ok().then(|| Share(Arc::clone(this), bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.0.fetch_add(self.1, Ordering::Relaxed);
    }
}

/// Returns the media type for a file name extension. Text is assumed to be UTF-8.
fn content_type(path: &Path) -> HeaderValue {
    match mime_guess::from_path(path).first_raw() {
        Some(text) if text.starts_with("text/") => {
            HeaderValue::try_from(format!("{text}; charset=utf-8")).expect("internal: a media type is a header value")
        }
        Some(other) => HeaderValue::from_static(other),
        None => HeaderValue::from_static("application/octet-stream"),
    }
}
