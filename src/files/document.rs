//! One representation of a file: its bytes and the header fields of its responses.
//!
//! Invariant: the status, the tag and the bytes of a [`Document`] come from one open. So the tag of a file that is
//! replaced by a rename is never sent with the bytes of another file.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, LAST_MODIFIED,
    VARY,
};
use http::{HeaderMap, HeaderValue};

use super::body::FilesBody;
use super::budget::{Budget, Share};
use crate::body::file::Whole;
use crate::body::ranges::{Part, Representation, Validators};
use crate::body::reader::Reader;
use crate::body::{ContentCoding, FileBody, Tag};
use crate::buf::origin::{self, Mapping};
use crate::fs::File;
use crate::sys::call::Wait;
use crate::sys::fd::AsFd;
use crate::sys::{call, map, page_cache};

/// Maximum length of a file that is kept mapped, warmed and sent as one frame.
const WHOLE: u64 = 256 << 10;
/// Maximum length of a file that is read for each request if no mapping of it is kept.
const SMALL: u64 = 32 << 10;
/// Number of granules of the address range that kept mappings leave free for other mappings.
const SPARE: usize = 1024;

/// An open file and the header fields of the responses about it.
#[derive(Debug)]
pub(super) struct Document {
    file: File,
    mapped: bool,
    uncached: bool,
    etag: HeaderValue,
    /// The time in the header fields: the time of a file from the future depends on when it is computed.
    last_modified: Option<SystemTime>,
    head: HeaderMap,
    /// The header fields of responses that do not carry the representation.
    validators: HeaderMap,
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

/// Settings shared by the documents of a directory.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) mapped: bool,
    /// Maximum length of a file that may fill the page cache.
    pub(super) cached: u64,
    pub(super) tag: Tag,
    pub(super) budget: Arc<Budget>,
}

/// The header fields of a file that do not depend on its contents.
#[derive(Debug)]
pub(super) struct Fields {
    pub(super) content_type: HeaderValue,
    pub(super) cache_control: Option<HeaderValue>,
    /// Whether there are several representations to choose from.
    pub(super) vary: bool,
}

impl Document {
    /// Fails with `WouldBlock` if this needs the disk and `wait` does not allow it.
    pub(super) fn new(
        file: File,
        fields: &Fields,
        coding: Option<ContentCoding>,
        policy: &Policy,
        wait: Wait,
    ) -> io::Result<Self> {
        let etag = policy.tag.of(file.opened(), coding.map_or("", ContentCoding::suffix));
        let mut validators = HeaderMap::new();
        validators.insert(ETAG, etag.clone());
        let last_modified = file.opened().last_modified();
        if let Some(modified) = last_modified {
            let date = HeaderValue::try_from(httpdate::fmt_http_date(modified)).map_err(io::Error::other)?;
            validators.insert(LAST_MODIFIED, date);
        }
        if fields.vary {
            validators.insert(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
        }
        if let Some(value) = &fields.cache_control {
            validators.insert(CACHE_CONTROL, value.clone());
        }
        let mut head = validators.clone();
        head.insert(CONTENT_TYPE, fields.content_type.clone());
        head.insert(CONTENT_LENGTH, file.opened().len().into());
        head.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if let Some(coding) = coding {
            head.insert(CONTENT_ENCODING, coding.value());
        }
        let uncached = file.opened().len() > policy.cached;
        let kept = if uncached { Kept::Nothing } else { Kept::new(&file, policy, wait)? };
        Ok(Self { file, mapped: policy.mapped, uncached, etag, last_modified, head, validators, kept })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn is_torn(&self) -> bool {
        match &self.kept {
            Kept::Nothing => false,
            Kept::Whole(whole, _) => whole.mapping().is_torn(),
            Kept::Window(mapping) => mapping.is_torn(),
        }
    }

    pub(super) fn is_warm(&self) -> bool {
        match self.kept {
            Kept::Whole(..) => page_cache::is_resident(self.file.as_fd(), 0, self.len()),
            Kept::Nothing | Kept::Window(_) => true,
        }
    }

    fn reader(&self) -> Reader {
        let mut reader = Reader::new(self.file.clone());
        reader.set_mapped(self.mapped);
        reader.set_uncached(self.uncached);
        match &self.kept {
            Kept::Whole(whole, _) => reader.set_window(Arc::clone(whole.mapping())),
            Kept::Window(mapping) => reader.set_window(Arc::clone(mapping)),
            Kept::Nothing => {}
        }
        reader
    }
}

impl Representation for Document {
    type Body = FilesBody;

    fn len(&self) -> u64 {
        self.file.opened().len()
    }

    fn version(&self) -> Validators<'_> {
        Validators { etag: Some(&self.etag), last_modified: self.last_modified }
    }

    fn head(&self) -> &HeaderMap {
        &self.head
    }

    fn validators(&self) -> &HeaderMap {
        &self.validators
    }

    fn whole(&self) -> FilesBody {
        match &self.kept {
            Kept::Whole(whole, _) => FileBody::kept(whole, ..),
            _ => FileBody::range(self.reader(), 0..self.len()),
        }
        .into()
    }

    fn range(&self, range: std::ops::Range<u64>) -> FilesBody {
        match &self.kept {
            Kept::Whole(whole, _) => FileBody::kept(whole, range.start as usize..range.end as usize),
            _ => FileBody::range(self.reader(), range),
        }
        .into()
    }

    fn parts(&self, parts: Vec<Part>) -> FilesBody {
        FileBody::parts(self.reader(), parts).into()
    }

    fn nothing() -> FilesBody {
        FileBody::empty().into()
    }
}

impl Kept {
    fn new(file: &File, policy: &Policy, wait: Wait) -> io::Result<Self> {
        let len = file.opened().len();
        let fits = (1..=origin::WINDOW as u64).contains(&len);
        if !policy.mapped || !fits || !map::range().is_ok_and(|range| range.available() > SPARE) {
            return Ok(Self::Nothing);
        }
        let share = if len <= WHOLE { Budget::take(&policy.budget, len) } else { None };
        if share.is_none() && len <= SMALL {
            return Ok(Self::Nothing);
        }
        let Ok(mapping) = Mapping::new(Arc::clone(file.shared()), 0, len as usize) else { return Ok(Self::Nothing) };
        let Some(share) = share else { return Ok(Self::Window(mapping)) };
        match wait {
            Wait::Never if !page_cache::is_resident(file.as_fd(), 0, len) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Wait::Never => {}
            Wait::ForDisk => call::warm_blocking(file.as_fd(), 0, len)?,
        }
        Ok(Self::Whole(Arc::new(Whole::new(file.clone(), mapping)), share))
    }
}
