//! The contents of a directory as a page or as JSON.
//!
//! ```text
//!  request ─▶ Order (?sort=, ?order=) ─▶ one job reads and sorts the names ─▶ body: head, rows by 256, tail
//!             Format (Accept)                                                      one job for each batch of rows
//! ```
//!
//! The names of a directory are in memory while it is sent; sizes and times are looked up when their rows are written,
//! unless the rows are sorted by them.

mod json;
mod page;

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::{Buf, Bytes};
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Response, Uri};
use http_body::{Body, Frame};

use super::path::{self, Dots};
use crate::fs::directory::{Directory, Kind};
use crate::fs::{Metadata, Root};
use crate::runtime::blocking::BlockingTask;

/// Maximum number of names that are listed. They take up to 10 MiB.
const MOST: usize = 100_000;
/// Number of files that one job looks up.
const ROWS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Page,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Name,
    Size,
    Modified,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    key: Key,
    descending: bool,
}

/// A file or directory to list.
#[derive(Debug)]
struct Item {
    name: OsString,
    is_directory: bool,
    /// Looked up when the row is written, unless the order needs it before.
    facts: Option<Facts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Facts {
    size: u64,
    modified: Option<SystemTime>,
}

/// The contents of a directory, in order.
#[derive(Debug)]
struct Listing {
    directory: Directory,
    items: Vec<Item>,
    /// Whether there are more names than are listed.
    more: bool,
    /// Path of the request, decoded, for people to read.
    title: String,
    is_root: bool,
    format: Format,
    order: Order,
}

/// Returns the listing of the directory with the name `listed` in the form that the request asks for.
pub(super) async fn list(
    root: Root,
    listed: Vec<u8>,
    dots: Dots,
    uri: &Uri,
    headers: &HeaderMap,
) -> io::Result<Response<ListingBody>> {
    let (format, order) = (Format::of(headers), Order::of(uri.query().unwrap_or_default()));
    let title = String::from_utf8_lossy(&percent_encoding::percent_decode_str(uri.path()).collect::<Vec<_>>()).into();
    let listing = BlockingTask::start(move || {
        let directory = Directory::open_blocking(&root, path::as_path(&listed))?;
        let (names, more) = directory.names_blocking(MOST)?;
        let is_seen = |name: &[u8]| !name.starts_with(b".") || dots.serves(name, &listed);
        let seen = names.into_iter().filter(|(item, _)| is_seen(item.as_bytes()));
        let mut items: Vec<Item> = seen.filter_map(|(name, kind)| Item::new(&directory, name, kind, order)).collect();
        items.sort_unstable_by(|a, b| order.compare(a, b));
        Ok(Listing { directory, items, more, title, is_root: listed.is_empty(), format, order })
    })?;
    let mut response = Response::new(ListingBody::new(listing.await?));
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    fields.insert(VARY, HeaderValue::from_name(ACCEPT));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if format == Format::Page {
        fields.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(page::POLICY));
    }
    Ok(response)
}

impl Format {
    /// JSON for clients that prefer it to HTML, [RFC 9110 §12.5.1](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.1).
    fn of(headers: &HeaderMap) -> Self {
        let (mut html, mut json) = (0.0f32, 0.0f32);
        for value in headers.get_all(ACCEPT) {
            for range in value.to_str().unwrap_or_default().split(',') {
                let mut parts = range.split(';').map(str::trim);
                let media = parts.next().unwrap_or_default().to_ascii_lowercase();
                let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
                let weight: f32 = weight.map_or(Some(1.0), |weight| weight.parse().ok()).unwrap_or(0.0);
                match &media[..] {
                    "application/json" => json = json.max(weight),
                    "text/html" | "text/*" | "*/*" => html = html.max(weight),
                    _ => {}
                }
            }
        }
        if json > html { Self::Json } else { Self::Page }
    }

    /// Number of bytes before a row that separate it from the row before.
    fn separator(self) -> usize {
        match self {
            Self::Page => 0,
            Self::Json => 1,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Page => "text/html; charset=utf-8",
            Self::Json => "application/json",
        }
    }
}

impl Order {
    /// Reads `sort=name|size|modified` and `order=asc|desc` of a query. Other values are ignored.
    fn of(query: &str) -> Self {
        let mut order = Self { key: Key::Name, descending: false };
        for pair in query.split('&') {
            match pair {
                "sort=name" => order.key = Key::Name,
                "sort=size" => order.key = Key::Size,
                "sort=modified" => order.key = Key::Modified,
                "order=asc" => order.descending = false,
                "order=desc" => order.descending = true,
                _ => {}
            }
        }
        order
    }

    fn needs_facts(self) -> bool {
        self.key != Key::Name
    }

    /// Compares two items: directories come first in both directions.
    fn compare(self, a: &Item, b: &Item) -> Ordering {
        let key = |item: &Item| match self.key {
            Key::Name => None,
            // The size of a directory says nothing about its files.
            Key::Size => item.facts.map(|facts| (if item.is_directory { 0 } else { facts.size }, None)),
            Key::Modified => item.facts.map(|facts| (0, facts.modified)),
        };
        let ascending = key(a).cmp(&key(b)).then_with(|| by_name(&a.name, &b.name));
        b.is_directory.cmp(&a.is_directory).then(if self.descending { ascending.reverse() } else { ascending })
    }
}

/// Compares names without regard to the case of ASCII letters; names that are then equal, by their bytes.
fn by_name(a: &OsStr, b: &OsStr) -> Ordering {
    let folded = |name: &OsStr| name.as_bytes().iter().map(u8::to_ascii_lowercase).collect::<Vec<_>>();
    folded(a).cmp(&folded(b)).then_with(|| a.cmp(b))
}

impl Item {
    /// `None` for a file that is not served, or that has been removed since.
    fn new(directory: &Directory, name: OsString, kind: Kind, order: Order) -> Option<Self> {
        let known = match kind {
            Kind::File => Some(false),
            Kind::Directory => Some(true),
            Kind::Unknown => None,
        };
        match known {
            Some(is_directory) if !order.needs_facts() => Some(Self { name, is_directory, facts: None }),
            _ => {
                let found = directory.status_blocking(&name).ok().filter(|found| found.is_file() || found.is_dir())?;
                Some(Self { name, is_directory: found.is_dir(), facts: Some(Facts::of(&found)) })
            }
        }
    }
}

impl Facts {
    fn of(found: &Metadata) -> Self {
        Self { size: found.len(), modified: found.last_modified() }
    }
}

impl Listing {
    fn head(&self) -> Bytes {
        match self.format {
            Format::Page => page::head(self),
            Format::Json => json::head(self),
        }
        .into()
    }

    fn tail(&self) -> Bytes {
        match self.format {
            Format::Page => page::tail(self),
            Format::Json => json::tail(),
        }
        .into()
    }

    /// Writes the rows of some items. A file that was removed since the names were read has none.
    fn rows_blocking(&self, items: Range<usize>) -> Bytes {
        let mut rows = String::with_capacity(items.len() * 128);
        for item in &self.items[items] {
            let looked_up = || self.directory.status_blocking(&item.name).ok().map(|found| Facts::of(&found));
            let Some(facts) = item.facts.or_else(looked_up) else { continue };
            match self.format {
                Format::Page => page::row(&mut rows, item, facts),
                Format::Json => json::row(&mut rows, item, facts),
            }
        }
        rows.into()
    }
}

/// A response body that lists a directory. Its length is not known before its end.
#[derive(Debug)]
pub(super) struct ListingBody {
    listing: Arc<Listing>,
    /// Number of items whose rows were written, or are being written by `job`.
    written: usize,
    job: Option<BlockingTask<Bytes>>,
    /// Whether a row was sent.
    begun: bool,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Head,
    Rows,
    Done,
}

impl ListingBody {
    fn new(listing: Listing) -> Self {
        Self { listing: Arc::new(listing), written: 0, job: None, begun: false, part: Part::Head }
    }

    fn poll_rows(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        loop {
            if let Some(job) = &mut self.job {
                let rows = ready!(Pin::new(job).poll(cx));
                self.job = None;
                match rows {
                    Ok(rows) if rows.is_empty() => {}
                    Ok(mut rows) => {
                        if !std::mem::replace(&mut self.begun, true) {
                            rows.advance(self.listing.format.separator());
                        }
                        return Poll::Ready(Ok(rows));
                    }
                    failed => return Poll::Ready(failed),
                }
            }
            let items = self.written..self.listing.items.len().min(self.written + ROWS);
            if items.is_empty() {
                self.part = Part::Done;
                return Poll::Ready(Ok(self.listing.tail()));
            }
            self.written = items.end;
            let listing = Arc::clone(&self.listing);
            self.job = Some(BlockingTask::start(move || Ok(listing.rows_blocking(items)))?);
        }
    }
}

impl Body for ListingBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let bytes = match this.part {
            Part::Head => {
                this.part = Part::Rows;
                Ok(this.listing.head())
            }
            Part::Rows => ready!(this.poll_rows(cx)),
            Part::Done => return Poll::Ready(None),
        };
        if bytes.is_err() {
            this.part = Part::Done;
        }
        Poll::Ready(Some(bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.part == Part::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_for_clients_that_prefer_it() {
        for (accept, expected) in [
            ("", Format::Page),
            ("*/*", Format::Page),
            ("application/json", Format::Json),
            ("Application/JSON, */*;q=0.1", Format::Json),
            ("application/json, text/html", Format::Page),
            ("text/html;q=0.5, application/json;q=0.9", Format::Json),
            ("text/html, application/json;q=0.9", Format::Page),
            ("application/json;q=0", Format::Page),
            ("application/json;q=x", Format::Page),
            ("application/json; charset=utf-8; q=0.3", Format::Json),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(Format::of(&headers), expected, "{accept}");
        }
        assert_eq!(Format::of(&HeaderMap::new()), Format::Page);
    }

    #[test]
    fn the_order_is_that_of_the_query() {
        let at = |seconds| SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(seconds));
        let item = |name: &str, is_directory, size, seconds| Item {
            name: name.into(),
            is_directory,
            facts: Some(Facts { size, modified: at(seconds) }),
        };
        for (query, expected) in [
            ("", "src Zoo a B c"),
            ("sort=name&order=desc", "Zoo src c B a"),
            ("sort=size", "src Zoo B c a"),
            ("x=1&sort=size&order=desc", "Zoo src a c B"),
            ("sort=modified", "Zoo src c a B"),
            ("sort=nonsense&order=nonsense", "src Zoo a B c"),
        ] {
            let mut items = vec![
                item("c", false, 2, 1),
                item("Zoo", true, 9, 0),
                item("B", false, 1, 3),
                item("a", false, 3, 2),
                item("src", true, 7, 5),
            ];
            let order = Order::of(query);
            items.sort_unstable_by(|a, b| order.compare(a, b));
            let names: Vec<_> = items.iter().map(|item| item.name.to_str().unwrap()).collect();
            assert_eq!(names.join(" "), expected, "{query}");
        }
    }
}
